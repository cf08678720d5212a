"""Sums of events of which a tilt leaves only a few undecided, by adding the undecided ones in logarithms.

Far log-odds make a sum a knapsack: no tilt brings its law to a wanted cell, but almost every event keeps its likeliest
value, as leaving it costs more than the few that cost little can be worth. Let all but the events of a core keep their
likeliest values. What that leaves out of ``E[d]``, for d at most 1, or of a message, is at most the probability under
the tilt that any of the others leaves; the core grows until that is a share of 1e-12 of every answer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ...arrays import Float64, Ints
from ..law import indices_of
from ..log_sums import anchor, log_sum
from .events import Events, Weight, mean_under
from .tree import LOGS, SumTree

_CELLS = 1024  # of the core
_FEW = 256  # cells of the events that leave with more than exp(_OPEN), for a core to be worth trying
_OPEN = -40.0
_NEAR = 32  # cells from the smallest or the largest sum, up to which larger ones need not be counted
_SHIFTS = 64  # by how many values the others leave, at most
_SHARE = math.log(1e-12)


class Undecided(NamedTuple):
    """The tree of the events `core` of one row, how the others (n, O) stay where they are, and ``u d`` at its root."""

    tree: SumTree
    core: Ints
    staying: Float64
    log_joint: Float64
    log_mean: Float64  # log E[f], (1,)
    log_outcomes: Float64  # (1, n, O)
    log_f: Float64  # mean of log f, (1,)

    def draw(self, count: int, rng: np.random.Generator) -> Ints:
        """Outcomes (count, n)."""
        # outcomes of the same value are as likely as they were
        out = (rng.random((count, len(self.staying), 1)) >= np.cumsum(self.staying, axis=1)).sum(axis=2)
        out = np.minimum(out, self.staying.shape[1] - 1 - (self.staying[:, ::-1] > 0.0).argmax(axis=1))
        totals = indices_of(self.log_joint, rng.random(count))
        out[:, self.core] = self.tree.draw(totals[:, None], rng)[:, 0]
        return np.asarray(out)


def undecided(events: Events, f: Weight, s: Float64, outcomes: bool) -> Undecided | None:
    """The answers of one row by its undecided events under a tilt (1,); None where there are many of them.

    Notes
    -----
    Cost: quadratic in the largest sum of the core.
    Accuracy: 1e-12, relative, of E[f] and of every probability.
    """
    s = s.astype(np.float32).astype(np.float64)  # its products with sums are exact
    tilted, log_scale = events.tilted(s)
    log_p, top = tilted.log_p[0], f.largest(s)
    values, first, sign, cap = _counted(log_p, events.values, f)
    likeliest = values[np.arange(len(values)), log_p.argmax(axis=1)]
    shift = np.where(log_p > -math.inf, values - likeliest[:, None], 0)
    same = np.where(shift == 0, log_p, -math.inf)
    stays, leaves = log_sum(same), log_sum(np.where(shift != 0, log_p, -math.inf))
    order = np.argsort(-leaves, kind="stable")
    cells = np.cumsum(values.max(axis=1)[order])
    if cap is not None:
        cells = np.minimum(cells, cap)
    lost = np.append(np.logaddexp.accumulate(leaves[order][::-1])[::-1], -math.inf)
    free, size = int((leaves > -math.inf).sum()), max(1, int((leaves > _OPEN).sum()))
    if not free or cells[size - 1] > _FEW or not math.isfinite(top):
        return None
    while cells[size - 1] <= _CELLS:
        core, rest = np.sort(order[:size]), np.sort(order[size:])
        tree = SumTree(Events(tilted.log_p[:, core], values[core]), LOGS, cap=cap)
        law, log_rest, base = tree.root.law[0, 0], float(stays[rest].sum()), int(likeliest[rest].sum())

        def at(moved: int, base: int = base, length: int = len(law)) -> tuple[Float64, Float64]:
            """Log f and log d where the others add `moved` more than they do."""
            sums = first + sign * (base + moved + np.arange(length))
            log_f = f.at(sums.min(keepdims=True), length)[0, ::sign]
            return log_f, log_f - s * sums - top

        log_f, log_d = at(0)
        log_joint = law + log_d
        log_z = log_sum(log_joint) + log_rest
        rarest, found = float(log_z), np.zeros(0)
        if outcomes and log_z > -math.inf:
            moves, which = np.unique(shift[rest], return_inverse=True)
            if len(moves) > _SHIFTS:
                return None
            moved = np.array([log_sum(law + at(move)[1]) for move in moves.tolist()])
            message = np.empty(log_p.shape)
            message[core] = tree.outcome_messages(log_d[None])[0][0]
            message[rest] = moved[which.reshape(shift[rest].shape)] - stays[rest][:, None]
            rarest = float(message[log_p > -math.inf].min()) + log_rest
            found = (np.where(log_p > -math.inf, log_p + message, -math.inf) + (log_rest - log_z))[None]
        if size == free or (rarest > -math.inf and lost[size] - rarest <= _SHARE):
            mean = mean_under(np.exp(log_joint - anchor(log_joint))[None], log_f[None])
            staying = np.exp(same - stays[:, None])
            return Undecided(tree, core, staying, log_joint, log_z + top + log_scale, found, mean)
        size = min(2 * size, free)
    return None


def _counted(log_p: Float64, values: Ints, f: Weight) -> tuple[Ints, int, int, int | None]:
    """What outcomes (n, O) add to the least sum, the least sum, 1, and the largest sum that f allows if it is near.

    Where f is near the largest sum, the same from there down, with -1.
    """
    possible = log_p > -math.inf
    least = np.where(possible, values, np.int64(2) ** 62).min(axis=1)
    values = np.where(possible, values - least[:, None], 0)
    most, first = values.max(axis=1), int(least.sum())
    last = first + int(most.sum())
    up, down = int(f.high[0]) - first, last - int(f.low[0])
    if min(up, down) > _NEAR or most.max() > min(up, down):
        return values, first, 1, None
    if up <= down:
        return values, first, 1, up
    return np.where(possible, most[:, None] - values, 0), last, -1, down
