"""Do samples follow the law? Exact tests, with a level per model that controls a whole run.

A model is refused at p < 1e-10: in 10^7 of them one false alarm is expected once in a thousand runs. The p-value is the
smallest of exact binomial tails over all states, times their number (Bonferroni), so that it is valid however small the
expected numbers are. A first, short sample that looks odd (p < 1e-2) is followed by a long, independent one, which
alone decides. Biases too small for one model show in the sum of chi-square statistics over the run.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.stats import binom

from oracle_states import Truth

from .compare import Report

SHORT, LONG = 60, 3000
LEVEL = 1e-10

Draw = Callable[[int, int], np.ndarray]  # (number, seed) -> states (number, D)


def follows_law(draw: Draw, truth: Truth, report: Report, seed: int) -> None:
    """Raise AssertionError if a drawn state is impossible or the numbers of states are."""
    p, chi_square, freedom = _tested(draw(SHORT, seed), truth, SHORT)
    report.chi_square += chi_square
    report.freedom += freedom
    if p < 1e-2:
        p, _, _ = _tested(draw(LONG, seed + 1), truth, LONG)
        assert p > LEVEL, f"samples do not follow the law: p = {p:.2g} of {LONG} draws"


def _tested(drawn: np.ndarray, truth: Truth, number: int) -> tuple[float, float, int]:
    assert drawn.shape == (number, truth.states.shape[1]), f"samples of shape {drawn.shape}"
    at = truth.index(drawn)
    assert (at >= 0).all(), f"a sample is {drawn[np.argmin(at)].tolist()}, no state at all"
    impossible = np.isneginf(truth.logs.small[at])
    assert not impossible.any(), f"an impossible state was drawn: {drawn[np.argmax(impossible)].tolist()}"
    probs = np.minimum(np.asarray(truth.probs, float), 1.0)
    seen = np.bincount(at, minlength=len(probs))
    # below: P(N <= seen), above: P(N >= seen); never-drawn states of tiny probability cannot be rejected
    below, above = binom.cdf(seen, number, probs), binom.sf(seen - 1, number, probs)
    p = min(1.0, float(2 * np.minimum(below, above).min()) * len(probs))
    expected = number * probs
    often = expected >= 5
    if often.sum() < 2:
        return p, 0.0, 0
    cells, wanted = seen[often].astype(float), expected[often]
    rest = number - wanted.sum()
    if rest >= 5:
        cells, wanted = np.append(cells, number - cells.sum()), np.append(wanted, rest)
        return p, float(((cells - wanted) ** 2 / wanted).sum()), len(cells) - 1
    # the small rest joins the largest cell, so that the cells still share out all draws
    k = int(np.argmax(wanted))
    cells[k] += number - cells.sum()
    wanted[k] += rest
    return p, float(((cells - wanted) ** 2 / wanted).sum()), len(cells) - 1
