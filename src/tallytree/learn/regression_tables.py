"""Which tables of a conditional model are learned, entry by entry or through parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import Bools, Ints
from ..errors import ParameterError
from .parametric import ParametricPotential
from .parametric_tables import Place


def table_choices(tables: Any, sizes: Ints, n_classes: int, offset: Ints) -> tuple[Bools, list[Place]]:
    """Entries that move freely, (n_classes, T), and tables with parameters, in (n_classes T,) packed after one another.

    `tables` is one choice for all, a list with one per group, or a list with such a list per class.
    """
    n_cells = int(offset[-1])
    free, places = np.zeros((n_classes, n_cells), bool), []
    for k, choices in enumerate(_of_classes(tables, len(sizes), n_classes)):
        for g, choice in enumerate(choices):
            start, stop = int(offset[g]), int(offset[g + 1])
            if isinstance(choice, ParametricPotential):
                places.append(Place(k * n_cells + start, k * n_cells + stop, choice))
            elif isinstance(choice, str) and choice in ("free", "fixed"):
                free[k, start:stop] = choice == "free"
            else:
                raise ParameterError(
                    "`tables` must be 'free', 'fixed' or a potential from `parametric`, a list with one of these for "
                    f"every group, or a list of such lists for every class; {choice!r} arrived."
                )
    return free, places


def _of_classes(tables: Any, n_groups: int, n_classes: int) -> list[list[Any]]:
    """One choice per class and group."""
    if isinstance(tables, str) or not isinstance(tables, Sequence):
        return [[tables] * n_groups] * n_classes
    nested = len(tables) > 0 and all(isinstance(t, Sequence) and not isinstance(t, str) for t in tables)
    rows = [list(t) for t in tables] if nested else [list(tables)] * n_classes
    if len(rows) != n_classes or any(len(row) != n_groups for row in rows):
        raise ParameterError(
            f"`tables` must hold one choice for each of the {n_groups} groups, or {n_classes} lists of that length, "
            f"one per class; {tables!r} arrived."
        )
    return rows
