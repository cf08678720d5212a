"""Log-tables that follow from a few parameters: values, and derivatives by the chain rule through the table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..arrays import Bools, Float64, Ints
from ..errors import ParameterError
from ..potentials.derivatives import Domain
from .parametric import Parameter, ParametricPotential

_LARGEST = 1e12  # logarithms of this size count as infinite


@dataclass(frozen=True, eq=False)
class Place:
    """A table among packed tables, (start, stop), that a potential with parameters fills."""

    start: int
    stop: int
    potential: ParametricPotential


@dataclass(frozen=True, eq=False)
class _Slope:
    """Derivatives (P', n + 1) of one table in the parameters `which` (P',)."""

    cells: slice
    which: Ints
    by: Float64


class ParametricTables:
    """Packed tables as functions of the coordinates of parameters.

    Parameters
    ----------
    places : iterable of Place
        Which tables have parameters. Parameters of the same name are one.
    base : (T,) array
        Packed tables whose entries of -inf stay.
    """

    def __init__(self, places: Iterable[Place], base: Float64) -> None:
        self._places = tuple(places)
        self._closed = base == -math.inf
        self._domains = _distinct(self._places)
        self.names = [parameter.name for parameter in self._domains]
        self._pattern = np.isneginf(self.fill(base, self.start))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def start(self) -> Float64:
        """Coordinates at which the parameters start, (P,)."""
        return np.array([d.to_coordinate(p.start) for p, d in self._domains.items()], np.float64)

    @property
    def bounded(self) -> Bools:
        """Whether a parameter's range ends somewhere, (P,): its coordinate has a natural unit."""
        return np.array([d.low > -math.inf or d.high < math.inf for d in self._domains.values()], bool)

    def values(self, coordinates: Float64) -> dict[str, float]:
        """Values of the parameters by name."""
        pairs = zip(self._domains.items(), coordinates.tolist())
        return {parameter.name: domain.to_value(x) for (parameter, domain), x in pairs}

    def coordinates(self, values: Mapping[str, float]) -> Float64:
        """Coordinates (P,) of values by name."""
        return np.array([d.to_coordinate(values[p.name]) for p, d in self._domains.items()], np.float64)

    def fill(self, tables: Float64, coordinates: Float64) -> Float64:
        """A copy of packed tables (T,) with the entries that follow from the parameters."""
        out = tables.copy()
        for place, cells, table, _ in self._tables(coordinates):
            out[cells] = np.where(self._closed[cells], -math.inf, table)
            if hasattr(self, "_pattern") and not np.array_equal(
                np.isneginf(out[cells]), self._pattern[cells]
            ):
                raise ParameterError(
                    f"`{place.potential.name}` must exclude the same counts whatever its parameters are; other entries "
                    "became -inf. Exclude counts by -inf in the tables of the model."
                )
        return out

    def _tables(self, coordinates: Float64) -> Iterator[tuple[Place, slice, Float64, dict[str, Float64]]]:
        """Every place, its cells, its table and the derivatives by name."""
        named = dict(zip(self.names, coordinates.tolist()))
        for place in self._places:
            found = place.potential.table(place.stop - place.start - 1, named)
            yield place, slice(place.start, place.stop), *found

    def in_range(self, coordinates: Float64) -> bool:
        """Whether the tables are logarithms of numbers that a model can tell from 0."""
        # Far below its largest entry a table counts as -inf, and a NaN is below nothing.
        return all(
            (np.abs(table[~self._pattern[cells]]) < _LARGEST).all()
            for _, cells, table, _ in self._tables(coordinates)
        )

    def slopes(self, coordinates: Float64) -> list[_Slope]:
        """Derivatives of every table; 0 where its entries are -inf."""
        found = []
        for _, cells, _, by in self._tables(coordinates):
            rows = np.where(self._pattern[cells], 0.0, np.stack(list(by.values())))
            found.append(_Slope(cells, np.array([self.names.index(name) for name in by]), rows))
        return found

    def pull(self, gradient: Float64, coordinates: Float64) -> Float64:
        """Gradient (P,) from one with respect to the packed tables (T,)."""
        out = np.zeros(len(self))
        for slope in self.slopes(coordinates):
            out[slope.which] += slope.by @ gradient[slope.cells]
        return out

    def push(self, direction: Float64, coordinates: Float64, n_cells: int) -> Float64:
        """Direction in the packed tables (T,) of one in the coordinates (P,)."""
        out = np.zeros(n_cells)
        for slope in self.slopes(coordinates):
            out[slope.cells] = direction[slope.which] @ slope.by
        return out

    def squares(self, weights: Float64, coordinates: Float64) -> Float64:
        """Sums of squared derivatives (P,), entry by entry weighted (T,)."""
        out = np.zeros(len(self))
        for slope in self.slopes(coordinates):
            out[slope.which] += slope.by**2 @ weights[slope.cells]
        return out


def _distinct(places: Iterable[Place]) -> dict[Parameter, Domain]:
    """The parameters in the order in which they appear, with their ranges."""
    found: dict[str, tuple[Parameter, Domain]] = {}
    for place in places:
        for parameter, domain in place.potential.ranges():
            known, same = found.setdefault(parameter.name, (parameter, domain))
            if known.start != parameter.start:
                raise ParameterError(
                    f"Parameters of one name are one number; {parameter.name!r} arrived with the starts {known.start} "
                    f"and {parameter.start}. Give them one start, or two names."
                )
            if same is not domain:
                raise ParameterError(
                    f"Parameters of one name are one number; {parameter.name!r} stands for {same.name} and for "
                    f"{domain.name}. Give them two names."
                )
    return dict(found.values())
