"""One potential over variables most of which are decided: the few that are not form a small model.

Let the count be one of those that matter. A variable whose log-odds lie far below those at which the count is reached
is off, and one far above is on, in all but a share of e^-50 of the weight, also when any other variable is left out
(:func:`~tallytree.engine.native.open_logits`). So it is for everyone else. Its own message compares two counts of the
others, and is the same for all variables on its side: one of each side stays in the small model and speaks for them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64, Ints
from .. import native
from ..problem import Rows

SHARE = math.exp(-45.0)  # of the weight that decided variables leave out, with room for their number
_LEAST = 64  # variables that are worth looking at
_APART = 2.0 * 64.0  # nats between the smallest and the largest log-odds, without which nothing is decided


@dataclass(frozen=True, eq=False)
class Core:
    """The variables of one model that are not decided, and one of each kind that is.

    Attributes
    ----------
    rows : Rows
        The model of the variables that are left, with the table shifted by the others that are on.
    kept : (m,)
        Which variables these are.
    speaker : (D,)
        Which of them speaks for every variable: itself, or the one that is decided like it.
    on : (D,)
        Whether a variable is decided and on.
    first : int
        How many variables are on besides those that are kept.
    log_weight : float
        Log of the probability that independent variables are as decided.
    """

    rows: Rows
    kept: Ints
    speaker: Ints
    on: NDArray[np.bool_]
    first: int
    log_weight: float

    def counts(self) -> slice:
        """Where the counts of the small model are among those of the whole one."""
        return slice(self.first, self.first + len(self.kept) + 1)


def core_of(nu: Float64, table: Float64) -> Core | None:
    """The core of one model with log-odds (D,) and a table (D + 1,); None if most variables are not decided."""
    n = len(nu)
    if n < _LEAST or not native.present():
        return None
    finite = nu[np.isfinite(nu)] if np.isinf(nu).any() else nu
    if not len(finite) or not float(finite.max()) - float(finite.min()) > _APART:
        return None
    low, high = native.open_logits(nu[None], table[None])[0]
    below, above = nu < low, nu > high
    off, on = np.flatnonzero(below), np.flatnonzero(above)
    if 2 * (len(off) + len(on)) < n:
        return None
    speakers = [
        side[np.argmin(np.abs(nu[side] - edge))] for side, edge in ((off, low), (on, high)) if len(side)
    ]
    held = ~(below | above)
    held[speakers] = True
    kept = np.flatnonzero(held)
    speaker = np.empty(n, np.int64)
    place = np.cumsum(held) - 1
    speaker[kept] = place[kept]
    for side in (off, on):
        if len(side):
            speaker[side] = place[speakers[0 if side is off else -1]]
    gone = ~held
    log_weight = -float(native.softplus_sums(np.where(above, -nu, nu)[None, gone])[0])
    first = int(np.count_nonzero(above & gone))
    rows = Rows(
        np.ascontiguousarray(nu[None, kept]), np.ascontiguousarray(table[None, first : first + len(kept) + 1])
    )
    return Core(rows, kept, speaker, above & gone, first, log_weight)
