"""Sums of independent variables, with and without weights, by enumeration; and systems of k out of n."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import tallytree as tt
from oracle_states import REAL, Logs, Truth, all_states, log_sum, truth_of_terms

from .binary import leaf_table, listed
from .compare import Report, close
from .law import LEVEL, LONG, SHORT, p_value
from .numbers import LOGITS, MASKS, size_between

INF = math.inf


def value(answer: Any) -> Any:
    """An answer that may be a property or a method without arguments."""
    return answer() if callable(answer) else answer


@dataclass(frozen=True, eq=False)
class SumCase:
    """Log-odds or probabilities (n,), integer weights or None."""

    given: np.ndarray
    kind: str  # "probs" or "logits"
    weights: tuple[int, ...] | None

    @property
    def w(self) -> np.ndarray:
        return np.ones(len(self.given), int) if self.weights is None else np.array(self.weights, int)

    @cached_property
    def truth(self) -> Truth:
        """All outcomes with the logarithms of their probabilities, each from the side that keeps its digits."""
        states = all_states((2,) * len(self.given))
        x = self.given.astype(REAL)
        with np.errstate(divide="ignore"):
            if self.kind == "probs":
                log_on, log_off = np.log(x), np.log1p(-x)
                leaves = np.where(states == 1, log_on, log_off)
                return Truth(states, Logs(np.zeros(len(states), np.int64), leaves.sum(1)))
        return truth_of_terms(states, leaf_table(self.given), [])

    @cached_property
    def sums(self) -> np.ndarray:
        return self.truth.states @ self.w if len(self.w) else np.zeros(1, int)

    @cached_property
    def law(self) -> Law:
        return Law(self.truth, self.sums)

    def check(self, report: Report, rng: np.random.Generator) -> None:
        seed = int(rng.integers(2**31))
        report.tag = " (weights)" * (self.weights is not None)
        if len(self.given) and not self.w.any():
            with report.answer("refusal"):
                self._refused()
            return
        found = tt.PoissonBinomial(**{self.kind: self.given}, weights=self.weights)
        truth, sums, law = self.truth, self.sums, self.law
        tables(report, found, law)
        quantiles(report, found, law)
        moments(report, found, law)
        with report.answer("sample"):
            drawn(found, law, report, seed)
        with report.answer("pickle"):
            assert pickle.loads(pickle.dumps(found)) == found
        self._batch(report, law)
        if hasattr(found, "given"):
            conditional(report, found, truth, sums, law, rng)
        if self.kind == "probs" and self.weights is None and len(self.given):
            systems(report, self.given, law)

    def _refused(self) -> None:
        """Weights that are all 0 say nothing."""
        try:
            tt.PoissonBinomial(**{self.kind: self.given}, weights=self.weights)
        except tt.ParameterError as refusal:
            if "`weights` must not all be 0" in str(refusal):
                return
        raise AssertionError("weights that are all 0 were not refused as such")

    def _batch(self, report: Report, law: Law) -> None:
        """The same sum in a batch, beside a fair one."""
        with report.answer("batch"):
            fair = np.full(len(self.given), 0.5 if self.kind == "probs" else 0.0)
            batch = tt.PoissonBinomial(**{self.kind: np.stack([fair, self.given])}, weights=self.weights)
            _log_close(np.asarray(batch.logpmf(law.k[:, None]))[:, 1], law.log_pmf)
            close(
                np.asarray(value(batch.mean))[1], law.mean, 1e-12 * (1 + abs(law.mean) + law.high - law.low)
            )

    def code(self) -> str:
        return f"tt.PoissonBinomial({self.kind}={listed(self.given)}, weights={self.weights})"

    def simpler(self) -> list[SumCase]:
        found = []
        for i in range(len(self.given)):
            weights = None if self.weights is None else self.weights[:i] + self.weights[i + 1 :]
            found.append(replace(self, given=np.delete(self.given, i), weights=weights))
        return found

    def numbers(self) -> list[np.ndarray]:
        return [self.given]

    def with_numbers(self, numbers: list[np.ndarray]) -> SumCase:
        return replace(self, given=numbers[0])


class Law:
    """Probabilities of every sum, and both tails, in extended precision."""

    def __init__(self, truth: Truth, sums: np.ndarray) -> None:
        self.k = np.arange(int(sums.min()) - 2, int(sums.max()) + 3)
        self.log_pmf = self._logs(truth, sums[None] == self.k[:, None])
        possible = self.k[self.log_pmf > -1e12]  # what only a mask allows is impossible
        self.low, self.high = int(possible[0]), int(possible[-1])
        self.log_cdf = self._logs(truth, sums[None] <= self.k[:, None])
        self.log_sf = self._logs(truth, sums[None] > self.k[:, None])
        probs, x = truth.probs, sums.astype(REAL)
        self.mean = float(probs @ x)
        centred = x - probs @ x
        mass = (sums[None] == self.k[:, None]) @ probs
        # by pairs, without the cancellation of a mean: 1/2 sum_ab p_a p_b (a - b)^2
        spread = (self.k[:, None] - self.k[None]).astype(REAL) ** 2
        self.central = [float(mass @ spread @ mass / 2), *(float(probs @ centred**p) for p in (3, 4))]
        p = np.exp(self.log_pmf.astype(REAL))
        self.entropy = float(-(p[p > 0] * np.log(p[p > 0])).sum())

    @staticmethod
    def _logs(truth: Truth, chosen: np.ndarray) -> np.ndarray:
        return log_sum(truth.logs, chosen).minus(truth.total)


def _log_close(got: Any, want: np.ndarray) -> None:
    size = np.where(np.isfinite(want), np.abs(want), 0.0)
    close(got, want, np.maximum(1e-10, 1e-10 * size))


def _prob_close(got: Any, log_want: np.ndarray) -> None:
    p = np.exp(log_want)
    size = np.where(np.isfinite(log_want), np.abs(log_want), 0.0)
    close(got, p, p * (1e-10 + 1e-10 * size + 1e-13) + 1e-307)


def tables(report: Report, x: Any, law: Law) -> None:
    """Both scales, at every sum, between them and beyond."""
    for name, want in (("logpmf", law.log_pmf), ("logcdf", law.log_cdf), ("logsf", law.log_sf)):
        with report.answer(name):
            _log_close(getattr(x, name)(law.k), want)
    for name, want in (("pmf", law.log_pmf), ("cdf", law.log_cdf), ("sf", law.log_sf)):
        with report.answer(name):
            _prob_close(getattr(x, name)(law.k), want)
    with report.answer("between"):
        close(x.pmf(law.k + 0.5), np.zeros(len(law.k)), 0.0)
        _prob_close(x.cdf(law.k + 0.5), law.log_cdf)
    with report.answer("count_log_probs"):
        values = np.asarray(value(x.values))
        _log_close(value(x.count_log_probs), law.log_pmf[values - law.k[0]])
        rest = np.setdiff1d(law.k, values)
        assert np.isneginf(law.log_pmf[rest - law.k[0]]).all(), "a possible sum is not among the values"
    with report.answer("support"):
        assert tuple(int(v) for v in value(x.support)) == (law.low, law.high), (
            f"support {value(x.support)}, want {(law.low, law.high)}"
        )


def quantiles(report: Report, x: Any, law: Law) -> None:
    """The smallest sum whose probability reaches q: exact, except where q is a value of the function up to rounding."""
    cdf, sf = np.exp(law.log_cdf), np.exp(law.log_sf)
    levels = np.array([1e-300, 1e-30, 1e-9, 0.025, 0.3, 0.5, 0.7, 0.975, 1 - 1e-9])
    for name in ("ppf", "isf"):
        with report.answer(name):
            found = np.asarray(getattr(x, name)(levels))
            for q, k in zip(levels, found.tolist()):
                near = 1e-9 * q
                if name == "ppf":
                    reached, before = cdf >= q - near, cdf >= q + near
                else:
                    reached, before = sf <= q + near, sf <= q - near
                low = max(int(law.k[np.argmax(reached)]), law.low)
                high = min(int(law.k[np.argmax(before)]) if before.any() else law.high, law.high)
                assert low <= k <= max(low, high), f"{name}({q:g}) is {k}, want {low}"
            ends = np.asarray(getattr(x, name)([0.0, 1.0])).tolist()
            want = [law.low - 1, law.high] if name == "ppf" else [law.high, law.low - 1]
            assert ends == want, f"{name}([0, 1]) is {ends}, want {want}"
    with report.answer("median"):
        assert value(x.median) == x.ppf(0.5)
    with report.answer("interval"):
        a, b = x.interval(0.9)
        assert a <= b, f"interval ({a}, {b})"


def moments(report: Report, x: Any, law: Law) -> None:
    spread = law.high - law.low + 1
    with report.answer("mean"):
        close(value(x.mean), law.mean, 1e-12 * (1 + abs(law.mean) + spread))
    with report.answer("var"):
        close(value(x.var), law.central[0], 1e-12 * (1e-280 + law.central[0]) + 1e-300)
    with report.answer("std"):
        close(value(x.std), math.sqrt(law.central[0]), 1e-11 * math.sqrt(law.central[0]) + 1e-150)
    if law.central[0] > 1e-12:  # below, the centred powers of the truth have no digits
        deviation = law.central[0] ** 0.5
        with report.answer("skew"):
            if hasattr(x, "skew"):
                want = law.central[1] / deviation**3
                close(value(x.skew), want, 1e-9 * (1 + abs(want)))
        with report.answer("kurtosis"):
            if hasattr(x, "kurtosis"):
                want = law.central[2] / deviation**4 - 3
                close(value(x.kurtosis), want, 1e-9 * (1 + abs(want)))
        if hasattr(x, "stats"):
            with report.answer("stats"):
                found = [float(v) for v in x.stats(moments="mvsk")]
                want = [
                    law.mean,
                    law.central[0],
                    law.central[1] / deviation**3,
                    law.central[2] / deviation**4 - 3,
                ]
                close(found, want, 1e-9 * (1 + np.abs(want)))
    if hasattr(x, "expect"):
        with report.answer("expect"):
            want = float(np.exp(law.log_pmf) @ (law.k.astype(float) ** 2))
            close(x.expect(lambda k: k**2), want, 1e-9 * (1 + want))
    with report.answer("entropy"):
        found = value(x.entropy)
        close(found, law.entropy, 1e-9 * (1 + law.entropy))
        assert found >= 0, f"entropy is {found!r}"


def drawn(x: Any, law: Law, report: Report, seed: int) -> None:
    """Sums by exact binomial tails, once by single draws and once by inverting the table."""
    probs = np.minimum(np.exp(law.log_pmf), 1.0)
    draw = getattr(x, "rvs", None)
    for number in (SHORT, LONG):

        def take(key: int, number: int = number) -> np.ndarray:
            if draw is not None:
                return np.asarray(draw(number, random_state=key))
            return np.asarray(x.sample(number, rng=key))

        p = 1.0
        for key in (seed, seed + 1):  # the second time decides
            found = take(key)
            assert found.shape == (number,), f"samples of shape {found.shape}"
            at = found - law.k[0]
            assert ((at >= 0) & (at < len(law.k))).all(), "a sum beyond all sums"
            assert not np.isneginf(law.log_pmf[at]).any(), "an impossible sum was drawn"
            seen = np.bincount(at, minlength=len(law.k))
            p = float(p_value(seen[None], probs[None], number)[0])
            if p > 1e-2:
                break
        assert p > LEVEL, f"sums do not follow the law: p = {p:.2g} of {number} draws"


def conditional(
    report: Report, x: Any, truth: Truth, sums: np.ndarray, law: Law, rng: np.random.Generator
) -> None:
    """The sum and the variables given a range of sums."""
    low, high = np.sort(rng.integers(law.low, law.high + 1, 2)).tolist()
    event = (sums >= low) & (sums <= high)
    part = truth.restrict(event)
    with report.answer("given"):
        if not part.possible:
            try:
                x.given(low=low, high=high).pmf(low)
            except tt.InfeasibleError:
                return
            raise AssertionError("no InfeasibleError for an impossible range")
        if part.total.huge != truth.total.huge:
            return  # only a mask allows it
        found = x.given(low=low, high=high)
        inner = Law(part, sums)
        _log_close(found.logpmf(law.k), inner.log_pmf)
        if truth.states.shape[1]:
            close(found.marginals, np.exp(part.log_marginals[:, 1]), 1e-9)


def systems(report: Report, probs: np.ndarray, law: Law) -> None:
    """Systems of k out of n: good ones from the upper tail, failed ones from the other side."""
    n = len(probs)
    with report.answer("k_out_of_n"):
        for k in range(1, n + 1):
            at = k - 1 - law.k[0]
            _prob_close(tt.k_out_of_n(probs, k), law.log_sf[at])
    with report.answer("k_to_l_out_of_n"):
        want = np.logaddexp.reduce(law.log_pmf[1 - law.k[0] : n - law.k[0]]) if n > 1 else None
        if want is not None:
            _prob_close(tt.k_to_l_out_of_n(probs, 1, n - 1), np.asarray(want))


def draw_sum(rng: np.random.Generator) -> SumCase:
    n = size_between(rng, 1, 10) if rng.random() > 0.02 else 0
    weights = None
    if rng.random() < 0.5:
        high = int(rng.choice([2, 5, 30]))
        weights = tuple(int(v) for v in rng.integers(-high if rng.random() < 0.3 else 0, high + 1, n))
    if rng.random() < 0.5:
        probs = rng.random(n) if rng.random() < 0.5 else 10.0 ** rng.uniform(-320, 0, n)
        probs = np.where(rng.random(n) < 0.1, rng.choice([0.0, 1.0, 1 - 1e-16], n), probs)
        return SumCase(np.minimum(probs, 1.0), "probs", weights)
    logits = LOGITS[rng.choice(len(LOGITS))](n, rng).astype(float)
    endless = float(rng.choice([INF, INF, *MASKS[:1]]))
    logits = np.where(
        rng.random(n) < rng.choice([0.0, 0.1, 0.4]), endless * rng.choice([-1.0, 1.0], n), logits
    )
    return SumCase(logits, "logits", weights)
