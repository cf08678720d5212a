"""Samples of one large component with a single potential.

A few samples are drawn given their totals, half of the variables after the other. More of them pay for upward messages,
which are made once and kept: for the whole component, or of long ones in windows of the total.

Which counts of a large block can occur in a sample, and the tilts under which they are computed.

Given total k, the probability that a node's count leaves its window is at most its tilted probability divided by
P_s(total = k). A window of the total reaches a few standard deviations around its tilted mean, so P_s(total = k) is
not small and node windows of a moderate budget (in nats) lose nothing. Totals outside all windows are bounded by
Chernoff, ``log P(k) <= K(s) - s k`` for every s, and added until the bound is negligible: no estimate is trusted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from ...arrays import Float64, Ints
from ...memo import cached
from .. import native, thresholds
from ..count import infer
from ..count.flat import count_law, heaviest
from ..tilt import posterior_rate, summarise, tilt_to_mean
from .array import Window

CERTAIN = 60.0  # nats by which what node windows leave out lies below the least likely total of a window
HULL = 60.0  # nats below the most likely total: the first guess of what matters
NEGLIGIBLE = 40.0  # nats: what is left out has less than exp(-40) of the mass
KEPT = 4  # windows up to which all upward messages stay in memory
SPREAD = 5.5  # half-width of a window of the total in its standard deviations


class _Weighed(NamedTuple):
    """A window, the log-weights of its totals, and its upward messages if they are kept."""

    window: Window
    counts: Ints
    log_weights: Float64
    part: Any


class Cover:
    """Windows that hold the posterior of the total count of one block, each with its upward messages.

    Parameters
    ----------
    nu, log_f : (n,), (n + 1,)
        Log-odds and log-table of the block.
    prepare : callable
        Makes the upward messages for a :class:`Window`.
    """

    def __init__(self, nu: Float64, log_f: Float64, prepare: Callable[[Window], Any]) -> None:
        self._prepare = prepare
        self._log_f = log_f
        self._finite = nu[np.isfinite(nu)]
        self._block = summarise(nu)
        first, n = self._block.forced, self._block.n
        possible = np.isfinite(log_f)
        possible[:first] = possible[first + n + 1 :] = False
        self.impossible = not possible.any()
        self._known: dict[tuple[int, int], _Weighed] = {}
        self.counts, self.log_weights = np.empty(0, np.int64), np.empty(0)
        if self.impossible:
            return
        kept = possible
        if possible.sum() > 1:
            rate = posterior_rate(self._block, log_f).log_mass
            guess = np.zeros(len(log_f), bool)
            guess[first : first + n + 1] = rate > rate.max() - HULL
            kept = possible & guess
        if not kept.any():
            kept = possible
        while True:
            self._solve(self._divide(kept))
            outside = possible & ~kept
            outside[self.counts] = False
            missing = self._left_out(outside)
            if not len(missing):
                return
            kept = kept.copy()
            kept[missing] = True

    def part(self, window: int) -> Any:
        """Upward messages of a window; of many windows none are kept."""
        found = [*self._known.values()][window]
        return self._prepare(found.window) if found.part is None else found.part

    def _divide(self, kept: NDArray[np.bool_]) -> list[Window]:
        counts = np.flatnonzero(kept)
        found = []
        while len(counts):
            low = int(counts[0])
            reach = low + SPREAD * self._spread(low)
            high = int(reach + SPREAD * self._spread(reach))
            inside = counts[: np.searchsorted(counts, high, side="right")]
            found.append(self._window(low, int(inside[-1])))
            counts = counts[len(inside) :]
        return found

    def _window(self, low: int, high: int) -> Window:
        centre = 0.5 * (low + high)
        sd = self._spread(centre)
        # Normal approximation of -log P at the ends; what was computed decides in `_certified`.
        rarest = 0.5 * ((high - centre) / sd) ** 2 + math.log(2.5 * sd) if sd else 0.0
        return Window(self._exact_tilt(centre), low, high, CERTAIN + max(rarest, 0.0) + 3.0)

    def _tilt(self, mean: float) -> float:
        block = self._block
        if block.n == 0:
            return 0.0
        return block.solve(min(max(mean - block.forced, 0.1), block.n - 0.1), near=0.01)

    def _exact_tilt(self, mean: float) -> float:
        """Tilt under which the mean is within a fraction of a standard deviation, from all log-odds."""
        if self._block.n == 0:
            return 0.0
        wanted = min(max(mean - self._block.forced, 0.1), self._block.n - 0.1)
        start = self._tilt(mean)
        return float(tilt_to_mean(self._finite[None, :], np.array([wanted]), near=0.3, start=start)[0])

    def _spread(self, mean: float) -> float:
        return math.sqrt(self._block.cumulants(self._tilt(mean))[2] + 0.25) if self._block.n else 0.0

    def _cumulant(self, s: float) -> float:
        """K(s) of the finite log-odds."""
        return float(np.logaddexp(0.0, self._finite + s).sum())

    def _solve(self, windows: list[Window]) -> None:
        known, self._known = self._known, {}
        for window in windows:
            place = (window.low, window.high)
            found = known[place] if place in known else self._weigh(window)
            self._known[place] = found if len(windows) <= KEPT else found._replace(part=None)
        every = list(self._known.values())
        self.counts = np.concatenate([f.counts for f in every])
        self.log_weights = np.concatenate([f.log_weights for f in every])
        self.window_of = np.repeat(np.arange(len(every)), [len(f.counts) for f in every])

    def _weigh(self, tried: Window) -> _Weighed:
        window, part = self._certified(tried)
        low, log_p = part.root_log_weights()
        k = low + np.arange(len(log_p))
        weights = log_p + self._cumulant(window.tilt) - window.tilt * (k - self._block.forced)
        return _Weighed(window, k, weights, part)

    def _certified(self, window: Window) -> tuple[Window, Any]:
        """Messages with a budget that covers the least likely total of the window."""
        while True:
            part = self._prepare(window)
            needed = 2.0 * window.budget
            if not part.impossible:
                low, log_weights = part.root_log_weights()
                own = self._log_f[low : low + len(log_weights)]
                seen = log_weights > log_weights.max() - NEGLIGIBLE - 10.0
                needed = CERTAIN - float(np.min(log_weights[seen] - own[seen]))
            if window.budget >= needed:
                return window, part
            window = replace(window, budget=needed + 10.0)

    def _left_out(self, left: NDArray[np.bool_]) -> Ints:
        """Totals that no window holds and that Chernoff's bound does not rule out."""
        k = np.flatnonzero(left)
        limit = self.log_weights.max() - NEGLIGIBLE - math.log(len(left))
        if len(k) == 0:
            return k
        bound = np.full(len(k), math.inf)
        for ends in self._known:
            for mean in set(ends):
                self._improve(bound, k, self._tilt(float(mean)))
        # Each total that is still in question gets a tilt of its own, the most likely first; it serves the others too.
        asked = np.zeros(len(k), bool)
        while True:
            open_ = np.flatnonzero((bound > limit) & ~asked)
            if not len(open_):
                return np.asarray(k[bound > limit])
            worst = open_[np.argmax(bound[open_])]
            asked[worst] = True
            self._improve(bound, k, self._exact_tilt(float(k[worst])))
            needed = int(np.count_nonzero(asked & (bound > limit)))
            if needed > 16 and 2 * needed > int(np.count_nonzero(asked)):
                return np.asarray(k[bound > limit])  # the guess was poor: take all

    def _improve(self, bound: Float64, k: Ints, s: float) -> None:
        line = self._cumulant(s) - s * (k - self._block.forced)
        np.minimum(bound, line + self._log_f[k], out=bound)


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
        possible = np.isfinite(log_f[self._forced : self._forced + n + 1])
        self._possible = np.flatnonzero(possible)
        self.impossible = not len(self._possible)

    def draw(self, out: NDArray[np.uint8], rows: Ints, stream: Stream) -> None:
        """Fill the columns of this block in ``out[rows]``."""
        count = len(rows)
        if count > thresholds.FEW_LARGE_DRAWS or not native.present():
            self._draw_kept(out, rows, stream)
            return
        bits = stream(0).generate_state(3 * count, np.uint64)
        totals = self._totals(bits[:count])
        keys = bits[count:].astype(np.uint64).view(np.uint32).reshape(count, 4)
        for i, row in enumerate(rows.tolist()):
            if not self._draw_given(out[row], int(totals[i]), keys[i]):
                self._draw_kept(out, rows[i : i + 1], lambda *place, i=i: stream(2, i, *place))

    # -- given the total -------------------------------------------------------------------------------------------

    def _totals(self, bits: NDArray[Any]) -> Ints:
        """How many of the free variables are on in every sample."""
        if len(self._possible) == 1:
            return np.repeat(self._possible, len(bits))
        law = self._law
        u = (bits >> np.uint64(11)) * 2.0**-53
        return np.asarray(np.minimum(law.searchsorted(u * law[-1], side="right"), law.argmax()))

    @cached
    def _law(self) -> Float64:
        """Cumulative probabilities of the count of the free variables."""
        nu = self._nu if self._free is None else self._nu[self._free]
        table = self._log_f[self._forced : self._forced + len(nu) + 1]
        return np.asarray(_weights_of_counts(nu, np.ascontiguousarray(table)).cumsum())

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
    def _kept(self) -> Any:
        long = len(self._nu) > thresholds.LONG_DRAWS
        return Cover(self._nu, self._log_f, self._prepare) if long else self._prepare(None)

    def _draw_kept(self, out: NDArray[np.uint8], rows: Ints, stream: Stream) -> None:
        kept = self._kept
        if not isinstance(kept, Cover):
            kept.draw(out, rows, stream(0))
            return
        weights = np.cumsum(np.exp(kept.log_weights - kept.log_weights.max()))
        u = np.random.default_rng(stream(0)).random(len(rows)) * weights[-1]
        at = np.minimum(np.searchsorted(weights, u, side="right"), int(np.argmax(weights)))
        for j in np.unique(kept.window_of[at]).tolist():
            mine = np.flatnonzero(kept.window_of[at] == j)
            totals = kept.counts[at[mine]]
            kept.part(j).draw(out, rows[mine], stream(1, j), totals)


def _weights_of_counts(nu: Float64, table: Float64) -> Float64:
    """Weights of all counts (n + 1,) of a model with finite log-odds."""
    possible = table > -math.inf
    if np.count_nonzero(possible) == 1:
        return possible.astype(float)
    probs, bound = count_law(nu, table)
    if bound <= thresholds.LAW_KNOWN:
        return np.where(possible, probs, 0.0)
    own = infer.stretch_answers(nu[None], table)
    answers = [answer for _, answer in own]
    heavy = heaviest(answers) if own else []
    if len(heavy) == 1 or (own and max(answer.bound[0] for answer in answers) <= thresholds.LAW_KNOWN):
        shares = softmax([answers[i].log_mean[0] for i in heavy])
        laws = [_weights_of_counts(nu, own[i][0]) for i in heavy]
        return sum((share / law.sum() * law for share, law in zip(shares, laws)), np.zeros(table.shape))
    log_weights = native.flat_log_pmf(nu[None])[0] + table
    return np.asarray(np.exp(log_weights - log_weights.max()))
