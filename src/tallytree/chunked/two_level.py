"""Two levels: a potential on every group and one on the total, over bundles of whole groups.

A bundle answers with the law of its count, computed in memory under a tilt common to all. A balanced tree of these laws
gives log Z and, downwards, what everything else says about the total of a bundle: a table, with which the bundle is
solved once more. Only windows of laws are kept.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from ..arrays import Float64
from ..engine.count.chunks import CountWindow
from ..engine.tilt import tilt_towards
from ..errors import InfeasibleError, PrecisionError
from .bundle import GroupPotentials, draw_bundle, fall, rise
from .count_potential import CountPotential
from .laws import REACH, Law, Tree, draw_index, law
from .passes import Job, Passes
from .seeds import chunk_seeds
from .source import Source

_LOOKED_AT = 8  # bundles from which the tilt is guessed
_STEPS = 60  # of that search
_NEAR = 4.0  # standard deviations between the tilted mean and the posterior that need no better tilt
_NEGLIGIBLE = 30.0  # nats


class TwoLevel:
    """The solver of a model with groups; see :class:`~.flat.Flat` for what it answers."""

    def __init__(
        self, passes: Passes, ids: Source, potentials: GroupPotentials, total: CountPotential
    ) -> None:
        self.passes, self._ids, self._potentials, self._total = passes, ids, potentials, total
        self._tilt = 0.0 if total.is_uniform else self._first_tilt()
        for _ in range(8):
            self._tree = Tree(self._laws(self._tilt))
            root = self._tree.root
            if root.scale == -math.inf:
                self._refuse()
            self._message = self._about_total(root)
            step = self._better_tilt(root)
            if step == 0.0:
                break
            self._tilt += step
        self._posterior = law(root.first, root.log_weights + self._message.log_weights, 0.0)
        if self._posterior.scale == -math.inf:
            if root.cut and self._message.least <= self._message.most:
                raise _too_far_apart()
            self._refuse()
        weights = root.log_weights + self._message.log_weights
        top = float(weights.max())
        self.log_partition = root.scale + self._message.scale + top + math.log(np.exp(weights - top).sum())
        self._certify(root)

    def _laws(self, tilt: float, numbers: list[int] | None = None) -> list[Law]:
        return list(
            self.passes.each("groups", Job(partial(rise, self._potentials, tilt), [self._ids]), numbers)
        )

    def _refuse(self) -> None:
        raise InfeasibleError(
            f"the model gives probability zero to every configuration: no counts of the groups that their potentials "
            f"allow add up to a total that {self._total} allows."
        )

    def _about_total(self, root: Law) -> Law:
        """``log f(c) - s c`` on the window of the total, around its middle."""
        middle = 0.5 * (root.first + root.last)
        c = np.arange(root.first, root.last + 1)
        inside = self._total.window(root.first, root.last) - self._tilt * (c - middle)
        low, high = self._total.support_within(root.least, root.most)
        return Law(root.first, np.asarray(inside), -self._tilt * middle, low, high)

    # -- the tilt ----------------------------------------------------------------------------------------------

    def _first_tilt(self) -> float:
        """A tilt under which a few bundles, multiplied up, have the mean that the potential asks for."""
        chunks = self.passes.source.chunks
        if not chunks:
            return 0.0
        picked = np.unique(np.linspace(0, len(chunks) - 1, _LOOKED_AT).astype(np.int64)).tolist()
        share = self.passes.source.length / max(1, sum(chunks[i].size for i in picked))

        def moments(tilt: Float64) -> tuple[Float64, Float64]:
            found = [each.moments() for each in self._laws(float(tilt), picked) if each.scale > -math.inf]
            total = share * np.sum(found, axis=0) if found else np.zeros(2)
            return total[0], total[1]

        def target(tilt: Float64, mean: Float64, variance: Float64) -> Float64:
            wanted = self._wanted(float(mean), float(variance), float(tilt))
            return mean if wanted is None or variance < 1e-9 else np.asarray(wanted)

        return float(tilt_towards(moments, target, np.zeros(()), near=_NEAR, slack=1.0, steps=_STEPS))

    def _wanted(self, mean: float, variance: float, tilt: float) -> float | None:
        """About the count that is most probable, by the normal approximation of the tilted total."""
        n = self.passes.source.length
        reach = 40.0 * math.sqrt(variance + 1.0)
        first, last = max(0, int(mean - reach)), min(n, int(mean + reach) + 1)
        low, high = self._total.support_within(0, n)
        if low > high:
            return None
        if low > last or high < first:
            return float(low if low > last else high)
        c = np.arange(first, last + 1)
        score = (
            self._total.window(first, last) - tilt * (c - mean) - 0.5 * (c - mean) ** 2 / (variance + 1e-9)
        )
        if score.max() == -math.inf:  # a hole: go to its nearer end
            below, above = self._total.support_within(0, first), self._total.support_within(last, n)
            ends = [e for e in (below[1], above[0]) if 0 <= e <= n]
            return float(min(ends, key=lambda end: abs(end - mean)))
        return float(c[int(np.argmax(score))])

    def _better_tilt(self, root: Law) -> float:
        """By how much the tilt has to change; 0 if the posterior lies well inside the window."""
        if self._total.is_uniform:
            return 0.0
        mean, variance = root.moments()
        weights = root.log_weights + self._message.log_weights
        if weights.max() > -math.inf:
            peak = root.first + int(np.argmax(weights))
            if abs(peak - mean) <= 2 * _NEAR * math.sqrt(variance) + 1.0 or not root.cut:
                return 0.0
        elif not root.cut:
            return 0.0
        target = self._wanted(mean, variance, self._tilt)
        if target is None or variance < 1e-9:
            return 0.0
        return min(2.0, max(-2.0, (target - mean) / variance))

    def _certify(self, root: Law) -> None:
        """Refuse potentials that may make up for the exp(-REACH) that a count outside the window has at most."""
        if not root.cut:
            return
        outside = self._largest_outside(root) - self._message.scale
        log_mass = float(np.max(root.log_weights + self._message.log_weights))
        if outside + math.log(self.passes.source.length + 1) - REACH > log_mass - _NEGLIGIBLE:
            raise _too_far_apart()

    def _largest_outside(self, root: Law) -> float:
        """Largest ``log f(c) - s c`` of all counts outside the window."""
        low, high = self._total.support_within(0, self.passes.source.length)
        best = -math.inf
        for first, last in ((low, min(high, root.first - 1)), (max(low, root.last + 1), high)):
            if first > last:
                continue
            if self._total.is_interval:
                best = max(best, -self._tilt * first, -self._tilt * last)
                continue
            for counts, log_f in self._total.blocks(first, last):
                best = max(best, float((log_f - self._tilt * counts).max()))
        return best

    # -- answers -----------------------------------------------------------------------------------------------

    @property
    def error_bound(self) -> float:
        """The largest of the bundles, and what the tree of laws adds."""
        found = self.passes.each("certificate", self.map("error_bound", np.dtype(np.float64)))
        depth = 2 * len(self._tree.levels)
        return max(found, default=0.0) + 1e-11 * depth * (len(self._tree.levels) > 1)

    def map(self, what: str, dtype: np.dtype[Any]) -> Job:
        messages = list(self._tree.down(self._message))
        return Job(partial(fall, self._potentials, self._tilt, what, dtype), [self._ids], messages)

    def draw(self, key: tuple[int, ...]) -> Job:
        seeds = chunk_seeds(key, len(self.passes.source.chunks))
        rng = np.random.default_rng(seeds[-1])
        total = self._posterior.first + draw_index(self._posterior.log_weights, rng)
        counts = self._tree.split(total, rng)
        return Job(partial(draw_bundle, self._potentials, self._tilt), [self._ids], list(zip(counts, seeds)))

    def count_windows(self) -> tuple[CountWindow, ...]:
        log_weights: Float64 = self._posterior.log_weights
        return (CountWindow(self._posterior.first, log_weights - math.log(np.exp(log_weights).sum())),)


def _too_far_apart() -> PrecisionError:
    return PrecisionError(
        "the potential on the total has weight at counts that are too far apart for one window of them. "
        "Solve the parts, for instance with `between` for each, and add their partition functions."
    )
