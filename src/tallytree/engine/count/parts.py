"""A problem component by component: what each sees of the arrays of all, and where its answers go."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...arrays import Float64, Ints
from ...structure.nested.components import Components
from ...structure.nested.tree import TreeProgram


class Part(NamedTuple):
    """Standard models of one size, side by side, or all components with sets inside sets."""

    program: TreeProgram | None  # None: standard models
    variables: Ints | None  # (count, n), increasing along the rows; None: all in their order
    cells: Ints | None  # (count, T) of their tables; None: all

    @property
    def whole(self) -> bool:
        """Whether there is nothing to gather."""
        return self.variables is None and self.cells is None

    def tables(self, tables: Float64, batch: int) -> Float64:
        """The tables of every row, or one row where all have the same."""
        if len(tables) == 1 and self.cells is not None and len(self.cells) > 1:
            tables = np.broadcast_to(tables, (batch, tables.shape[1]))
        return gathered(tables, self.cells)


def parts_of(components: Components) -> list[Part]:
    """All but the free variables."""
    parts = [Part(None, *((None, None) if b.whole else (b.variables, b.cells))) for b in components.flat]
    nested = components.nested
    if nested is not None:
        variables, cells = (None if x is None else x[None] for x in (nested.variables, nested.cells))
        parts.append(Part(nested.program, variables, cells))
    return parts


def gathered(values: Float64, places: Ints | None) -> Float64:
    """From (..., B, D) to (..., B * count, n), the components of a model one after the other."""
    if places is None:
        return values
    rows = values.shape[-2] * len(places)
    return np.ascontiguousarray(values[..., places]).reshape(*values.shape[:-2], rows, places.shape[1])


def put(out: Float64, places: Ints | None, found: Float64) -> None:
    """Back to their places in (..., B, D)."""
    if places is None:
        out[...] = found
    else:
        out[..., places] = found.reshape(*out.shape[:-1], *places.shape)
