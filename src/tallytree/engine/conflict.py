"""Why a model of nested counts is impossible: the smallest group whose potential nothing below it can satisfy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from tallytree.structure.nested import NestedFamily

Float64 = NDArray[np.float64]
Flags = NDArray[np.bool_]

_LARGEST = 1 << 20  # counts up to which sums of possible counts are formed; an error message need not wait


class Conflict(NamedTuple):
    """A set whose reachable counts and allowed counts have nothing in common."""

    set_id: int
    reachable: Flags
    allowed: Flags


def first_conflict(family: NestedFamily, nu: Float64, packed: Float64) -> Conflict | None:
    """Return the first set, smaller ones before larger ones, that no configuration of its members satisfies.

    Parameters
    ----------
    family : NestedFamily
    nu : (D,)
        Log-odds; infinite ones fix a variable.
    packed : (T,)
        Log-tables of the sets, one after the other.
    """
    if family.n_sets == 0 or int(family.set_offset[-1]) > _LARGEST:
        return None
    inner: list[list[int]] = [[] for _ in range(family.n_sets)]
    for s, above in enumerate(family.set_parent.tolist()):
        if above >= 0:
            inner[above].append(s)
    held = family.variable_parent >= 0
    forced = np.bincount(family.variable_parent[held & (nu == np.inf)], minlength=family.n_sets)
    free = np.bincount(family.variable_parent[held & np.isfinite(nu)], minlength=family.n_sets)
    possible: list[Flags] = []
    for s in range(family.n_sets):
        reachable = np.zeros(int(forced[s] + free[s]) + 1, bool)
        reachable[int(forced[s]) :] = True
        for child in inner[s]:
            reachable = fftconvolve(reachable.astype(float), possible[child].astype(float)) > 0.5
        reachable = np.pad(reachable, (0, int(family.set_size[s]) + 1))[: int(family.set_size[s]) + 1]
        allowed = packed[family.set_offset[s] : family.set_offset[s + 1]] > -np.inf
        possible.append(reachable & allowed)
        if not possible[s].any():
            return Conflict(s, reachable, allowed)
    return None
