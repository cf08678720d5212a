"""Section 6.1, last sentence: where the printed algorithm loses its digits, and whether the library keeps them.

The truth is a chain of partial sums in logarithms, which shares no code with either.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tallytree import CountModel
from tallytree.arrays import Float64

from . import printed
from .sizes import Sizes
from .store import Store

ORDINARY, TAIL = "ordinary", "tail"
_SHARE, _SHIFT = (
    0.75,
    2.0,
)  # tail: at least this share of the variables is on, where log-odds are lower by this much


def measure(sizes: Sizes, seed: int, store: Store) -> list[dict[str, Any]]:
    """Rows of setting, D and per seed the largest error of a marginal: printed algorithm and library."""
    return [
        store.numbers(
            f"care-{setting}-{d}",
            {"setting": setting, "D": d, "seed": seed, "seeds": sizes.seeds},
            partial(_row, setting, d, seed, sizes.seeds),
        )
        for setting in (ORDINARY, TAIL)
        for d in sizes.care_sizes
    ]


def _row(setting: str, d: int, seed: int, seeds: int) -> dict[str, Any]:
    out: dict[str, Any] = {"setting": setting, "D": d, "printed": [], "library": []}
    for s in range(seeds):
        rng = np.random.default_rng([seed, s, d, 61])
        logits = rng.normal(size=d) - (_SHIFT if setting == TAIL else 0.0)
        log_f = (
            rng.normal(size=d + 1)
            if setting == ORDINARY
            else np.where(np.arange(d + 1) >= _SHARE * d, 0.0, -np.inf)
        )
        truth = log_chain(logits, log_f)
        with np.errstate(all="ignore"):
            tables: list[Float64 | None] = [None] * (d.bit_length() - 2)
            naive = printed.marginals(logits, [*tables, log_f[None]])
        out["printed"].append(_error(naive, truth))
        out["library"].append(_error(np.asarray(CountModel(logits, log_f).marginals), truth))
    return out


def _error(found: Float64, truth: Float64) -> float:
    """Largest absolute error; a marginal that is no number is as wrong as it can be."""
    return float(np.max(np.where(np.isfinite(found), np.minimum(np.abs(found - truth), 1.0), 1.0)))


def log_chain(logits: Float64, log_f: Float64) -> Float64:
    """Marginals by partial sums in logarithms: O(n^2) time and memory, no range to run out of."""
    n = len(logits)
    on, off = -np.logaddexp(0.0, -logits), -np.logaddexp(0.0, logits)
    prefix = np.full((n, n + 1), -np.inf)
    prefix[0, 0] = 0.0
    for i in range(n - 1):
        shifted = np.concatenate([[-np.inf], prefix[i, :-1]])
        prefix[i + 1] = np.logaddexp(off[i] + prefix[i], on[i] + shifted)
    suffix = np.asarray(log_f, np.float64)
    out = np.empty(n)
    for i in range(n - 1, -1, -1):
        later = np.concatenate([suffix[1:], [-np.inf]])
        with_it = np.logaddexp.reduce(on[i] + prefix[i] + later)
        without = np.logaddexp.reduce(off[i] + prefix[i] + suffix)
        out[i] = np.exp(with_it - np.logaddexp(with_it, without))
        suffix = np.logaddexp(off[i] + suffix, on[i] + later)
    return out
