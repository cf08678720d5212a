"""Do samples follow the law? Exact tests, with a level per model that controls a whole run.

A model is refused at p < 1e-10: in 10^7 of them one false alarm is expected once in a thousand runs. The p-value is the
smallest of exact binomial tails over all states, times their number (Bonferroni), so that it is valid however small the
expected numbers are. A first, short sample that looks odd (p < 1e-2) is followed by a long, independent one, which
alone decides. Biases too small for one model show in the sum of chi-square statistics over the run.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import bdtr, bdtrc

from oracle_states import Truth

from .compare import Report

SHORT, LONG = 60, 3000
LEVEL = 1e-10

Draw = Callable[[int, int], np.ndarray]  # (number, seed) -> states (number, ..., D)


def follows_law(draw: Draw, truth: Truth, report: Report, seed: int) -> None:
    """Raise AssertionError if a drawn state is impossible or the numbers of states are; for every model of a batch."""
    seen, probs = tallied(draw(SHORT, seed), truth, SHORT)
    chi_square, freedom = fit(seen, probs, SHORT)
    report.chi_square += chi_square
    report.freedom += freedom
    if p_value(seen, probs, SHORT).min() < 1e-2:
        p = p_value(*tallied(draw(LONG, seed + 1), truth, LONG), LONG)
        row = int(np.argmin(p))
        assert p[row] > LEVEL, f"samples do not follow the law: p = {p[row]:.2g} of {LONG} draws, model {row}"


def tallied(drawn: np.ndarray, truth: Truth, number: int) -> tuple[np.ndarray, np.ndarray]:
    """How often every state of every model was drawn, and its probability, both (models, S)."""
    batch, (states, width) = truth.logs.small.shape[:-1], truth.states.shape
    assert drawn.shape == (number, *batch, width), f"samples of shape {drawn.shape}"
    at = truth.index(drawn).reshape(number, -1)
    assert (at >= 0).all(), f"a sample is {drawn.reshape(-1, width)[np.argmin(at)].tolist()}, no state at all"
    rows = np.arange(at.shape[1])
    impossible = np.isneginf(truth.logs.small.reshape(-1, states)[rows, at])
    assert not impossible.any(), (
        f"an impossible state was drawn: {drawn.reshape(-1, width)[np.argmax(impossible)].tolist()}"
    )
    seen = np.bincount((at + states * rows).ravel(), minlength=states * len(rows)).reshape(-1, states)
    return seen, np.minimum(np.asarray(truth.probs, float), 1.0).reshape(-1, states)


def p_value(seen: np.ndarray, probs: np.ndarray, number: int) -> np.ndarray:
    """Of every model: the smaller of P(N <= seen) and P(N >= seen) over all cells, times their number."""
    above, below = np.ones(seen.shape), np.ones(seen.shape)
    drawn = seen > 0
    above[drawn] = bdtrc(seen[drawn] - 1, number, probs[drawn])
    expected = number * probs
    few = (seen < expected) & (expected > 0.5)  # elsewhere this tail is no smaller than e^-1
    below[few] = bdtr(seen[few], number, probs[few])
    return np.minimum(1.0, 2 * np.minimum(above, below).min(axis=-1) * seen.shape[-1])


def fit(seen: np.ndarray, probs: np.ndarray, number: int) -> tuple[float, int]:
    """Chi-square statistic of all models and its degrees of freedom; cells of fewer than five are one cell.

    A rest of fewer than five joins the largest cell, so that the cells still share out all draws.
    """
    expected = number * probs
    often = expected >= 5
    count, rest = np.where(often, seen, 0), number - np.where(often, expected, 0.0).sum(axis=-1)
    wanted, left = np.where(often, expected, 0.0), number - count.sum(axis=-1)
    joins = rest < 5
    rows, top = np.arange(len(seen)), np.argmax(wanted, axis=-1)
    count[rows, top] += np.where(joins, left, 0)
    wanted[rows, top] += np.where(joins, rest, 0.0)
    terms = np.where(often, (count - wanted) ** 2 / np.where(often, wanted, 1.0), 0.0).sum(axis=-1)
    terms += np.where(joins, 0.0, (left - rest) ** 2 / np.where(joins, 1.0, rest))
    cells = often.sum(axis=-1) + ~joins
    used = often.sum(axis=-1) >= 2
    return float(terms[used].sum()), int((cells[used] - 1).sum())
