"""Sums of weighted events: a portfolio beside a plain tree of NumPy FFTs, growth, a heavy weight, brackets, quantiles.

Run it as ``python benchmarks/bench_sums.py`` (``--quick``: fewer portfolios and simulations, 10^5 events at most).
All times are processor times, the least of a few; ratios are within one process.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import stats

import tallytree as tt

TIMES_TREE, GROWTH = 3.0, 1.15  # what the issue asks for


def timed(work: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    best = math.inf
    for _ in range(repeats):
        start = time.process_time()
        answer = work()
        best = min(best, time.process_time() - start)
    return best, answer


def portfolio(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Default probabilities about 1.2 % and exposures with a heavy tail."""
    rng = np.random.default_rng(seed)
    return np.exp(rng.normal(np.log(0.012), 0.7, n)), rng.pareto(1.8, n) + 0.2


def plain_tree(p: np.ndarray, exposure: np.ndarray, step: float) -> np.ndarray:
    """The law on the same grid by a tree of NumPy FFTs: leaves of like length first, nothing cut, nothing tilted."""
    place = exposure / step
    down = np.floor(place).astype(int)
    share = place - down
    laws = []
    for q, k, s in zip(p, down, share):
        law = np.zeros(k + 2)
        law[0] = 1 - q
        law[k] += q * (1 - s)
        law[k + 1] += q * s
        laws.append(law)
    laws.sort(key=len)
    while len(laws) > 1:
        merged = []
        for a, b in zip(laws[::2], laws[1::2]):
            size = len(a) + len(b) - 1
            if size < 128:
                merged.append(np.convolve(a, b))
            else:
                length = 1 << (size - 1).bit_length()
                merged.append(np.fft.irfft(np.fft.rfft(a, length) * np.fft.rfft(b, length), length)[:size])
        laws = merged + laws[2 * len(merged) :]
    return laws[0]


def made(p: np.ndarray, exposure: np.ndarray, step: float) -> tt.PoissonBinomial:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # small exposures are below the step, on purpose
        return tt.PoissonBinomial(p, weights=exposure, step=step)


def answers(p: np.ndarray, exposure: np.ndarray, step: float, q: float) -> tuple[float, np.ndarray]:
    x = made(p, exposure, step)
    return float(x.value_at_risk(q)), x.contributions(q)


def beside_a_tree(n: int = 50_000, cells: int = 100_000) -> bool:
    p, exposure = portfolio(n)
    step = float(exposure.sum() / cells)
    tree, law = timed(lambda: plain_tree(p, exposure, step))
    ours, (risk, shares) = timed(lambda: answers(p, exposure, step, 0.999))
    one, _ = timed(lambda: made(p, exposure, step).value_at_risk(0.999))
    cell = int(np.searchsorted(np.cumsum(law), 0.999))
    tail = (np.cumsum(law)[cell] - 0.999) * cell + law[cell + 1 :] @ np.arange(cell + 1, len(law))
    print(f"{n} loans on {len(law)} cells: law of a NumPy FFT tree {tree:.3f} s")
    print(
        f"  value at risk {one:.3f} s, with contributions given the tail {ours:.3f} s: {ours / tree:.2f} of the tree"
    )
    off = abs(shares.sum() / (tail / 0.001 * step) - 1)
    print(f"  value at risk {risk:.3f} (tree {cell * step:.3f}), shortfall differs by {off:.1e}")
    return ours <= TIMES_TREE * tree and abs(risk - cell * step) < 1e-9 * risk and off < 1e-8


def growth(most: int) -> bool:
    print("growth of value at risk and all contributions, two cells per event")
    good, last = True, None
    n = 10_000
    while n <= most:
        p, exposure = portfolio(n)
        spent, _ = timed(lambda p=p, e=exposure: answers(p, e, float(e.sum() / (2 * len(e))), 0.999), 2)
        text = ""
        if last is not None:
            power = math.log(spent / last) / math.log(10.0)
            text, good = f"  D^{power:.2f}", good and power <= GROWTH
        print(f"  {n:>9} events {spent:8.3f} s{text}")
        last, n = spent, n * 10
    return good


def one_heavy_weight(n: int = 100_000) -> bool:
    rng = np.random.default_rng(1)
    p = rng.random(n) * 0.1
    rows = {
        "weights 1 and 2": np.where(np.arange(n) % 2, 1, 2),
        "weights 1 and one 10^5": np.where(np.arange(n) == 7, 100_000, 1),
        "weights 1 to 3": np.arange(n) % 3 + 1,
    }
    spent = {}
    for name, weights in rows.items():
        spent[name], _ = timed(lambda w=weights: tt.PoissonBinomial(p, weights=w).contributions(0.999), 2)
        print(f"  {name:<24} {spent[name]:.3f} s")
    return spent["weights 1 and one 10^5"] <= 1.5 * max(spent["weights 1 and 2"], spent["weights 1 to 3"])


def brackets(count: int) -> bool:
    """Random portfolios whose law is known by enumeration: how often a bound of a probability or quantile fails."""
    rng, failures = np.random.default_rng(2), 0
    for _ in range(count):
        n = int(rng.integers(1, 9))
        p, weights = rng.random(n), rng.normal(size=n) * np.exp(rng.normal(size=n))
        x = made(p, weights, float(np.abs(weights).max() * rng.choice([0.003, 0.03, 0.3, 1.0])))
        states = np.indices((2,) * n).reshape(n, -1).T
        mass, value = np.where(states == 1, p, 1 - p).prod(1), states @ weights
        at, q = float(rng.choice(value) + rng.normal() * 0.01), float(rng.random())
        low, high = x.bracket("sf", at)
        failures += not low - 1e-12 <= mass[value > at].sum() <= high + 1e-12
        order = np.argsort(value)
        low, high = x.bracket("ppf", q)
        failures += not low - 1e-9 <= value[order][np.searchsorted(np.cumsum(mass[order]), q)] <= high + 1e-9
    print(f"  {count} portfolios, two bounds each: {failures} fail")
    return failures == 0


def quantiles() -> bool:
    """Levels that the law attains, beside `scipy.stats.binom` with a weight that makes a long lattice."""
    n, wrong, count = 60, 0, 0
    x = tt.PoissonBinomial(np.append(np.full(n, 0.5), 2.0**-40), weights=np.append(np.full(n, 1000), 1))
    law = stats.binom(n, 0.5)
    for k in range(5, 56):
        for level in (law.cdf(k), min(law.cdf(k) * (1 + 1e-9), 1 - 1e-16)):
            count += 1
            wrong += int(x.ppf(level)) // 1000 != int(law.ppf(level))
    plain = tt.PoissonBinomial(np.full(n, 0.5), weights=np.full(n, 3))
    wrong += sum(int(plain.ppf(law.cdf(k))) != 3 * int(law.ppf(law.cdf(k))) for k in range(n))
    print(f"  {count + n} levels: {wrong} differ from scipy.stats")
    return wrong == 0


def simulated(draws: int) -> bool:
    """Beside a simulation of the real exposures: the probability to exceed three levels."""
    n = 1000
    p, exposure = portfolio(n, seed=3)
    x = tt.PoissonBinomial(p, weights=exposure)
    at = np.array([float(x.value_at_risk(q)) for q in (0.9, 0.99, 0.9999)])
    rng, hits, done = np.random.default_rng(4), np.zeros(3), 0
    while done < draws:
        size = min(100_000, draws - done)
        loss = np.zeros(size)
        for i in range(
            n
        ):  # the number of defaults is binomial, their places are a subset: the same law, far fewer numbers
            hit = rng.choice(size, rng.binomial(size, p[i]), replace=False)
            loss[hit] += exposure[i]
        hits += (loss[:, None] > at).sum(0)
        done += size
    good = True
    for level, hit in zip(at, hits):
        low, high = (float(b) for b in x.bracket("sf", level))
        sd = math.sqrt(max(float(x.sf(level)), 1e-12) / draws)
        inside = low - 5 * sd <= hit / draws <= high + 5 * sd
        good &= inside
        print(
            f"  P(loss > {level:.2f}) = {float(x.sf(level)):.6f}, in {low:.5f} to {high:.5f}, "
            f"simulated {hit / draws:.5f}"
        )
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    met = {"beside a NumPy FFT tree": beside_a_tree(), "growth": growth(100_000 if quick else 1_000_000)}
    print("one heavy weight, all contributions given the tail")
    met["one heavy weight"] = one_heavy_weight()
    print("bounds by rounding down and up, against enumeration")
    met["bracket"] = brackets(500 if quick else 10_000)
    print("quantiles at attained levels")
    met["quantiles"] = quantiles()
    print(f"simulation, {10**6 if quick else 10**7} draws")
    met["simulation"] = simulated(10**6 if quick else 10**7)
    for name, good in met.items():
        print(f"{name:<28} {'met' if good else 'NOT MET'}")


if __name__ == "__main__":
    main()
