"""Samples of one large component with a single potential.

A few samples are drawn given their totals, half of the variables after the other. More of them pay for upward messages,
which are made once and kept: for the whole component, or of long ones, whose totals are drawn first, in windows of the
total.

Given total k, the probability that a node's count leaves its window is at most its tilted probability divided by
P_s(total = k). A window of the total reaches a few standard deviations around its tilted mean, so P_s(total = k) is
not small and node windows of a moderate budget (in nats) lose nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from ...arrays import Float64, Ints
from ...memo import cached, once
from .. import native, thresholds
from ..count import infer
from ..count.flat import count_law, heaviest
from ..tilt import Block, summarise, tilt_to_mean
from .array import Window

CERTAIN = 60.0  # nats by which what node windows leave out lies below the least likely total of a window
NEGLIGIBLE = 40.0  # nats below the likeliest total at which others do not ask for a budget
KEPT = 4  # windows up to which all upward messages stay in memory
SPREAD = 5.5  # half-width of a window of the total in its standard deviations


Stream = Callable[..., np.random.SeedSequence]


class LargeBlock:
    """The variables of one potential in one model.

    Parameters
    ----------
    nu, log_f : (n,), (n + 1,)
        Log-odds and log-table.
    variables : (n,)
        Their places in a sample.
    prepare : callable
        Makes upward messages, of all counts or for a :class:`~tallytree.engine.sample.array.Window`.
    """

    def __init__(self, nu: Float64, log_f: Float64, variables: Ints, prepare: Callable[..., Any]) -> None:
        self._nu, self._log_f, self._variables, self._prepare = nu, log_f, variables, prepare
        free = np.isfinite(nu)
        self._free = None if free.all() else np.flatnonzero(free)
        self._forced = 0 if self._free is None else int(np.count_nonzero(nu == math.inf))
        n = len(nu) if self._free is None else len(self._free)
        self.impossible = not np.isfinite(log_f[self._forced : self._forced + n + 1]).any()

    def draw(self, out: NDArray[np.uint8], rows: Ints, stream: Stream) -> None:
        """Fill the columns of this block in ``out[rows]``."""
        count, few = len(rows), native.present() and len(rows) <= thresholds.FEW_LARGE_DRAWS
        if not (few or self._long) or self._law is None:
            self._whole.draw(out, rows, stream(0))
            return
        bits = stream(0).generate_state(3 * count, np.uint64)
        u = (bits[:count] >> np.uint64(11)) * 2.0**-53
        totals = np.minimum(self._law.searchsorted(u * self._law[-1], side="right"), self._law.argmax())
        if not few:
            self._draw_from_messages(out, rows, totals + self._forced, partial(stream, 1))
            return
        keys = bits[count:].astype(np.uint64).view(np.uint32).reshape(count, 4)
        for i, row in enumerate(rows.tolist()):
            if not self._draw_given(out[row], int(totals[i]), keys[i]):
                self._draw_from_messages(out, rows[[i]], totals[[i]] + self._forced, partial(stream, 2, i))

    # -- given the total -------------------------------------------------------------------------------------------

    @cached
    def _law(self) -> Float64 | None:
        """Cumulative weights of the counts of the free variables; None where upward messages tell them sooner."""
        nu = self._nu if self._free is None else self._nu[self._free]
        table = self._log_f[self._forced : self._forced + len(nu) + 1]
        weights = _weights_of_counts(nu, np.ascontiguousarray(table))
        return None if weights is None else weights.cumsum()

    def _draw_given(self, row: NDArray[np.uint8], total: int, key: NDArray[np.uint32]) -> bool:
        variables = self._variables
        run = len(variables) > 0 and variables[-1] - variables[0] + 1 == len(variables)
        if self._free is None and run:
            return native.draw_given_count(self._nu, total, key, row[variables[0] : variables[-1] + 1])
        nu = self._nu if self._free is None else self._nu[self._free]
        drawn = np.empty(len(nu), np.uint8)
        if not native.draw_given_count(nu, total, key, drawn):
            return False
        row[variables] = self._nu > 0.0
        row[variables if self._free is None else variables[self._free]] = drawn
        return True

    # -- from upward messages --------------------------------------------------------------------------------------

    @cached
    def _whole(self) -> Any:
        """Upward messages of all counts."""
        return self._prepare(None)

    @cached
    def _block(self) -> Block:
        return summarise(self._nu)

    @cached
    def _windows(self) -> list[tuple[int, int]]:
        """Totals that can be drawn, in stretches of a few standard deviations."""
        assert self._law is not None
        counts = self._forced + np.flatnonzero(np.diff(self._law, prepend=0.0))
        found = []
        while len(counts):
            low = int(counts[0])
            reach = low + SPREAD * self._spread(low)
            inside = int(np.searchsorted(counts, int(reach + SPREAD * self._spread(reach)), side="right"))
            found.append((low, int(counts[inside - 1])))
            counts = counts[inside:]
        return found

    @property
    def _long(self) -> bool:
        """Whether messages on windows take less time than those of all counts."""
        return len(self._nu) > thresholds.LONG_DRAWS

    def _draw_from_messages(self, out: NDArray[np.uint8], rows: Ints, totals: Ints, stream: Stream) -> None:
        """Samples with these totals, those of a window from messages of their own."""
        if not self._long:
            self._whole.draw(out, rows, stream(0), totals)
            return
        which = np.searchsorted([low for low, _ in self._windows], totals, side="right") - 1
        for j in np.unique(which).tolist():
            mine = np.flatnonzero(which == j)
            make = partial(self._certified, *self._windows[j])
            part = once(self, ("window", j), make) if len(self._windows) <= KEPT else make()
            part.draw(out, rows[mine], stream(j), totals[mine])

    def _certified(self, low: int, high: int) -> Any:
        """Messages with a budget that covers the least likely total of a window."""
        centre = 0.5 * (low + high)
        sd = self._spread(centre)
        # Normal approximation of -log P at the ends; what is computed decides.
        rarest = 0.5 * ((high - centre) / sd) ** 2 + math.log(2.5 * sd) if sd else 0.0
        window = Window(self._exact_tilt(centre), low, high, CERTAIN + max(rarest, 0.0) + 3.0)
        while True:
            part = self._prepare(window)
            needed = 2.0 * window.budget
            if not part.impossible:
                first, log_weights = part.root_log_weights()
                own = self._log_f[first : first + len(log_weights)]
                seen = log_weights > log_weights.max() - NEGLIGIBLE - 10.0
                needed = CERTAIN - float(np.min(log_weights[seen] - own[seen]))
            if window.budget >= needed:
                return part
            window = replace(window, budget=needed + 10.0)

    def _tilt(self, mean: float) -> float:
        """The tilt under which the total has this mean."""
        if self._block.n == 0:
            return 0.0
        return self._block.solve(min(max(mean - self._block.forced, 0.1), self._block.n - 0.1), near=0.01)

    def _exact_tilt(self, mean: float) -> float:
        """The same within a fraction of a standard deviation, from all log-odds."""
        block = self._block
        if block.n == 0:
            return 0.0
        finite = self._nu if self._free is None else self._nu[self._free]
        wanted = np.array([min(max(mean - block.forced, 0.1), block.n - 0.1)])
        return float(tilt_to_mean(finite[None, :], wanted, near=0.3, start=self._tilt(mean))[0])

    def _spread(self, mean: float) -> float:
        return math.sqrt(self._block.cumulants(self._tilt(mean))[2] + 0.25) if self._block.n else 0.0


def _weights_of_counts(nu: Float64, table: Float64) -> Float64 | None:
    """Weights of all counts (n + 1,) of a model with finite log-odds; None where rounding drowns them."""
    possible = table > -math.inf
    if np.count_nonzero(possible) == 1:
        return possible.astype(float)
    if not native.present():
        return None
    probs, bound = count_law(nu, table)
    if bound <= thresholds.LAW_KNOWN:
        return np.where(possible, probs, 0.0)
    own = infer.stretch_answers(nu[None], table)
    answers = [answer for _, answer in own]
    heavy = heaviest(answers) if own else []
    if not (len(heavy) == 1 or (own and max(answer.bound[0] for answer in answers) <= thresholds.LAW_KNOWN)):
        return None
    total = np.zeros(table.shape)
    for i, share in zip(heavy, softmax([answers[i].log_mean[0] for i in heavy])):
        law = _weights_of_counts(nu, own[i][0])
        if law is None:
            return None
        total += share / law.sum() * law
    return total
