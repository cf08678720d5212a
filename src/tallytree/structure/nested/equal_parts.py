"""All variables, cut into contiguous parts of nearly equal size again and again, without lists of members."""

from __future__ import annotations

import numpy as np

from ...arrays import Ints
from .family import NestedFamily, family_from_forest


def family_of_equal_parts(n_variables: int, arity: int, min_size: int) -> NestedFamily:
    """Family of ``range(n_variables)``, its ``arity`` parts, their parts and so on; one level of groups per round."""
    start, size = np.zeros(1, np.int64), np.array([n_variables])
    above = np.full(1, -1, np.int64)
    smallest = np.full(n_variables, -1, np.int64)
    parents: list[Ints] = []
    sizes: list[Ints] = []
    known = 0
    while True:
        kept = size >= max(min_size, 1)
        start, size, above = start[kept], size[kept], above[kept]
        if not len(size):
            break
        parents.append(above)
        sizes.append(size)
        number = np.arange(known, known + len(size))
        known += len(size)
        before = np.cumsum(size) - size
        smallest[np.repeat(start - before, size) + np.arange(size.sum())] = np.repeat(number, size)
        cut = size > 1
        start, size, number = start[cut], size[cut], number[cut]
        pieces = np.minimum(size, arity)  # more parts than variables would be empty ones
        which = np.repeat(np.arange(len(size)), pieces)
        piece = np.arange(len(which)) - (np.cumsum(pieces) - pieces)[which]
        begins, ends = (size[which] * (piece + step) // pieces[which] for step in (0, 1))
        start, size, above = start[which] + begins, ends - begins, number[which]
    empty = np.zeros(0, np.int64)
    return family_from_forest(
        n_variables, np.concatenate([empty, *parents]), smallest, np.concatenate([empty, *sizes])
    )
