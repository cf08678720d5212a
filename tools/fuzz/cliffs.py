"""One potential over 10^3 to 10^4 variables whose log-odds and tables defeat quick methods, against extended numbers.

The truth is a recursion over all variables but four: with any of the four added in turn it gives log Z, the posterior
of each, their covariances and those with the count. Its numbers have an exponent each: logarithms would be rounded at
the size of the largest log-odds.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

import numpy as np

import tallytree as tt
from oracle_nested import NIL, Wide, normal, wide_exp, wide_log
from tallytree import config

from .compare import Report, close, close_log_partition
from .numbers import INF

SMALLEST, LARGEST, ARRAY_LARGEST = 1000, 10_000, 1500
CHOSEN = 4
FAINT = -200  # power of two below which nothing is seen beside 1
POWERS = np.ldexp(np.longdouble(1), np.arange(FAINT, 1))
# What two terms are multiplied with whose exponents differ by FAINT to -FAINT, so that the larger one stays as it is.
OF_ADDED = np.concatenate([POWERS, np.ones(-FAINT, np.longdouble)])
OF_PRESENT = OF_ADDED[::-1].copy()
AT_ONCE = 64  # additions after which mantissas are between 1/2 and 1 again
SHARE, OF_ANSWER = 1e-10, 1e-9  # errors of covariances: of what could be there, and of the answer


@dataclass(frozen=True, eq=False)
class CliffCase:
    name: str
    logits: np.ndarray
    table: np.ndarray
    chosen: tuple[int, ...]

    @cached_property
    def rest(self) -> Wide:
        """Elementary symmetric polynomials of the weights that are not chosen."""
        weights = wide_exp(np.delete(self.logits, self.chosen))
        length = len(weights.mantissa) + 1
        mantissa, exponent = np.zeros(length, np.longdouble), np.full(length, NIL)
        mantissa[0], exponent[0] = 1.0, 0
        for k, (weight, shift) in enumerate(zip(*weights), 1):
            before, here = slice(0, k), slice(1, k + 1)
            added = exponent[before] + shift
            place = added - exponent[here] - FAINT
            terms = mantissa[before] * OF_ADDED.take(place, mode="clip")
            terms *= weight
            mantissa[here] *= OF_PRESENT.take(place, mode="clip")
            mantissa[here] += terms
            np.maximum(exponent[here], added, out=exponent[here])
            if k % AT_ONCE == 0:
                mantissa, exponent = normal(mantissa, exponent)
        return normal(mantissa, exponent)

    @cached_property
    def weights(self) -> dict[int, Wide]:
        return {i: wide_exp([self.logits[i]]) for i in self.chosen}

    def law(self, on: tuple[int, ...], off: tuple[int, ...]) -> tuple[Wide, np.longdouble]:
        """Weight of configurations with these variables on and off, and the mean of their count."""
        law = self.rest
        for i in self.chosen:
            if i not in (*on, *off):
                law = added(law, self.weights[i])
        weight = law * wide_exp(self.table[len(on) : len(on) + len(law.mantissa)])
        for i in on:
            weight = weight * self.weights[i]
        top = weight.exponent.max()
        share = weight.mantissa * power(weight.exponent - top)
        total = share.sum()
        mean = (share * np.arange(len(share))).sum() / total if total else np.longdouble(0.0)
        return normal(total, top), mean + len(on)

    def check(self, report: Report, rng: np.random.Generator) -> None:
        if config.native() is None and len(self.logits) > ARRAY_LARGEST:
            return
        report.tag = f": {self.name}"
        model = tt.CountModel(self.logits, self.table)
        z = self.law((), ())[0]
        log_z = wide_log(z)
        on = {i: self.law((i,), ()) for i in self.chosen}
        off = {i: self.law((), (i,)) for i in self.chosen}
        odds = np.array([log_ratio(on[i][0], off[i][0]) for i in self.chosen])
        places = list(self.chosen)
        largest = float(np.abs(self.logits).max())
        with report.answer("log_partition"):
            close_log_partition(model.log_partition, float(log_z))
        if report.raised:
            return
        rounding = float(np.spacing(largest))  # messages are as large as log-odds
        with report.answer("posterior_logits"):
            allowed = np.maximum(1e-9, 1e-10 * np.abs(odds)) + rounding
            close(model.posterior_logits[places], odds.astype(float), allowed.astype(float))
        with report.answer("error_bound"):
            finite = np.isfinite(odds)
            error = np.abs(model.posterior_logits[places][finite] - odds[finite]).max(initial=0.0)
            report.dominated(float(error), model.error_bound, rounding + 4e-16 * largest, "log-odds")
            slack = 1e-14 * (1.0 + abs(float(log_z)) + np.abs(self.table[np.isfinite(self.table)]).max())
            report.dominated(float(abs(model.log_partition - log_z)), model.error_bound, slack, "log Z")
        p, q = (np.exp(np.minimum(s * odds, 0.0)) / (1.0 + np.exp(-np.abs(odds))) for s in (1.0, -1.0))
        spread = np.sqrt(p * q)
        with report.answer("covariance"):
            rows = np.asarray(model.covariance(places[:1]))[0]
            for j, other in enumerate(places[1:], 1):
                corner = [log_ratio(self.law(*at)[0], z) for at in corners(places[0], other)]
                want = float(
                    np.exp(corner[0] + corner[3]) - np.exp(corner[1] + corner[2])
                )  # p11 p00 - p10 p01
                allowed = max((SHARE + rounding) * float(spread[j]), OF_ANSWER * abs(want)) + 1e-17
                close(rows[other], want, allowed)
        with report.answer("product with all ones"):
            found = model.hessian_vector_product(np.ones(len(self.logits)), counts=False).logits[places]
            means = np.array([on[i][1] - off[i][1] for i in places])
            want_count = (p * q * np.where(p * q > 0.0, means, 0.0)).astype(float)
            close(
                found,
                want_count,
                np.maximum(SHARE * spread, OF_ANSWER * np.abs(want_count)).astype(float) + 1e-17,
            )

    def code(self) -> str:
        return f"{self.name}: {len(self.logits)} variables"


def corners(i: int, j: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    pairs = itertools.product((True, False), repeat=2)
    return [
        (tuple(v for v, s in zip((i, j), at) if s), tuple(v for v, s in zip((i, j), at) if not s))
        for at in pairs
    ]


def power(below: np.ndarray) -> np.ndarray:
    """Two to such powers, none of which is above 0."""
    return POWERS[np.maximum(below, FAINT) - FAINT]


def added(law: Wide, weight: Wide) -> Wide:
    """With one variable of this weight more."""
    nothing = wide_exp([-INF])
    on = Wide(law.mantissa * weight.mantissa, law.exponent + weight.exponent)
    off, on = (Wide(*map(np.concatenate, zip(*parts))) for parts in ((law, nothing), (nothing, on)))
    top = np.maximum(off.exponent, on.exponent)
    return Wide(sum(x.mantissa * power(x.exponent - top) for x in (off, on)), top)


def log_ratio(a: Wide, b: Wide) -> np.longdouble:
    """``log(a / b)``, to all digits where large exponents cancel."""
    if not (a.mantissa > 0 and b.mantissa > 0):
        return np.longdouble(INF if a.mantissa > 0 else -INF)
    return wide_log(Wide(a.mantissa / b.mantissa, a.exponent - b.exponent))


def draw_cliff(rng: np.random.Generator) -> CliffCase:
    n = int(SMALLEST * (LARGEST / SMALLEST) ** rng.beta(0.4, 3.0))
    x = rng.normal(size=n)
    logits = {
        "normal": x,
        "equal": np.full(n, -0.3),
        "cauchy": rng.standard_cauchy(n),
        "1000 cauchy": 1000.0 * rng.standard_cauchy(n),
        "mask": np.where(rng.random(n) < 0.5, x, -(10.0 ** rng.uniform(3.0, 9.0))),
        "two masks": np.where(rng.random(n) < 0.3, x, rng.choice([-1e4, 1e4], size=n)),
        "wide": np.linspace(-700.0, 700.0, n),
        "sd 1e6": 1e6 * x,
    }
    c, k = np.arange(n + 1.0), int(rng.choice([0, 1, 2, n // 3, n // 2, n - 1, n]))
    only = np.full(n + 1, -INF)
    only[k] = 0.0
    tables = {
        f"exactly {k}": only,
        "between": np.where((c >= n // 4) & (c <= n // 3), 0.0, -INF),
        "1 or n - 2": np.where((c == 1) | (c == n - 2), 0.0, -INF),
        "convex": 1e-3 * (c - n / 3) ** 2,
        "gaussian": -0.5 * ((c - n / 3) / 3.0) ** 2,
        "spike": np.where(c == n - 3, 0.5 * n, 0.0),
        "noise": float(rng.choice([1.0, 1e4])) * rng.normal(size=n + 1),
        "smooth": np.zeros(n + 1),
    }
    named, tabled = str(rng.choice(list(logits))), str(rng.choice(list(tables)))
    order = np.argsort(logits[named])
    some = [
        order[-k % n],
        order[(-k - 1) % n],
        *rng.integers(n, size=CHOSEN),
    ]  # the first two are decided last
    chosen = tuple(dict.fromkeys(int(i) for i in some))[:CHOSEN]
    return CliffCase(f"{named}, {tabled}", logits[named], tables[tabled], chosen)
