"""Other packages on the same work. Each is called as its manual says; what is absent or fails says why.

A peer is a function of the parameters that prepares the call to be timed. Peers that give the distribution of
the sum alone ("sum only") do less than half of the work and are listed all the same.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit


class Skip(Exception):
    """Why a contender does not run."""


def _limit(n: int, most: int, reason: str) -> None:
    if n > most:
        raise Skip(f"not run above D = {most}: {reason}")


def fast_poibin(theta: np.ndarray, mode: str = "mixed") -> Callable[[], Any]:
    """fast-poibin: the sum only, absolute accuracy ("mixed") or O(D^2) ("dp")."""
    try:
        from fast_poibin import PoiBin
    except ImportError:
        raise Skip("fast-poibin is not installed") from None
    rows = np.atleast_2d(expit(theta))
    if mode == "dp":
        _limit(rows.shape[1], 20_000, "O(D^2)")
    return lambda: [PoiBin(p, mode).pmf for p in rows] and None


def scipy_poisson_binom(theta: np.ndarray) -> Callable[[], Any]:
    """scipy.stats.poisson_binom: the sum only, O(D^2) memory."""
    try:
        from scipy.stats import poisson_binom
    except ImportError:
        raise Skip("this SciPy has no poisson_binom (it came with 1.15)") from None
    rows = np.atleast_2d(expit(theta))
    _limit(rows.shape[1], 10_000, "O(D^2) memory")
    counts = np.arange(rows.shape[1] + 1)
    return lambda: [poisson_binom.pmf(counts, p) for p in rows] and None


def statsmodels_recursion(theta: np.ndarray, k: int) -> Callable[[], Any]:
    """statsmodels ConditionalLogit: marginals given exactly k, through the score of one stratum."""
    try:
        from statsmodels.discrete.conditional_models import ConditionalLogit
    except ImportError:
        raise Skip("statsmodels is not installed") from None
    n = len(theta)
    _limit(n, 1000, "a recursion in Python over D k states")
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 20 * n + 1000))
    y = np.zeros(n)
    y[:k] = 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ConditionalLogit(y, np.eye(n), groups=np.zeros(n))

    def run() -> np.ndarray:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return np.asarray(model._xy[0] - model.score(theta))

    return run


def pysdd_exactly(theta: np.ndarray, k: int) -> Callable[[], Any]:
    """PySDD: marginals given exactly k by weighted model counting; compilation is not timed."""
    try:
        from pysdd.sdd import SddManager, WmcManager
    except ImportError:
        raise Skip("PySDD is not installed") from None
    n = len(theta)
    _limit(n, 300, "compilation grows as D k")
    manager = SddManager(n, 0)
    states = [manager.true()] + [manager.false()] * k  # exactly j of the variables seen so far
    for v in range(n, 0, -1):
        on, off = manager.literal(v), manager.literal(-v)
        states = [(off & states[j]) | (on & states[j - 1]) if j else off & states[j] for j in range(k + 1)]
    node = states[k]
    node.ref()
    literals = np.r_[-np.arange(1, n + 1), np.arange(1, n + 1)]
    weights = np.r_[np.zeros(n), theta]

    def run() -> np.ndarray:
        counter = WmcManager(node, log_mode=True)
        for literal, weight in zip(literals.tolist(), weights.tolist()):
            counter.set_literal_weight(manager.literal(literal), weight)
        counter.propagate()
        return np.array([np.exp(counter.literal_pr(manager.literal(v))) for v in range(1, n + 1)])

    run.manager = manager  # keeps the diagram alive
    return run


def versions() -> dict[str, str]:
    """Installed peers."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("fast-poibin", "scipy", "statsmodels", "pysdd"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
