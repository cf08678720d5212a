"""Tables as users pass them for a tree: one per group, or all of them packed in one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..errors import ParameterError
from ..potentials import Potential
from ..structure.nested.count_tree import CountTree


def is_packed(tables: Any) -> bool:
    """Whether the tables are one array of numbers."""
    return isinstance(tables, np.ndarray) and tables.dtype != object


def check_packed_length(tree: CountTree, tables: NDArray[Any]) -> None:
    total = int(tree.family.group_offset[-1])
    if tables.ndim == 0 or tables.shape[-1] != total:
        raise ParameterError(
            f"Packed `tables` must have {total} entries on the last axis, n + 1 for each of the "
            f"{tree.family.n_groups} groups; shape {tables.shape} arrived. Or pass a list with one table per group."
        )


def unpack(tree: CountTree, tables: Any) -> list[Any]:
    """One entry per group from a sequence, or from all tables packed in one array."""
    if is_packed(tables):
        check_packed_length(tree, tables)
        return list(np.split(tables, tree.family.group_offset[1:-1], axis=-1)) if tree.family.n_groups else []
    if isinstance(tables, (str, bytes, Potential)) or not isinstance(tables, Sequence):
        raise ParameterError(
            "`tables` must be a list with one potential, log-table or None per group, or one packed array; "
            f"{checks.describe(tables)} arrived."
        )
    return list(tables)
