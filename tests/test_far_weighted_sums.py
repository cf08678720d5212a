"""Weighted sums whose posterior lies in several places, at an end, or where no tilt brings it: right, and cheap."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

import tallytree as tt
from tallytree.engine.pmf import sums

NEVER = -np.inf


def _log_total(values):
    top = values.max()
    return top if not np.isfinite(top) else top + np.log(np.exp(values - top).sum())


def _truth(logits, weights, log_f):
    """Log Z less that of independent variables, log-odds given f and the law of the sum, by long-double recursions."""
    x, last = logits.astype(np.longdouble), int(weights.sum())
    on, off = -np.logaddexp(0, -x), -np.logaddexp(0, x)
    before = [np.full(last + 1, NEVER, np.longdouble)]
    before[0][0] = 0

    def moved(table, w):
        out = np.full(last + 1, NEVER, np.longdouble)
        out[w:] = table[: last + 1 - w]
        return out

    for i, w in enumerate(weights):
        before.append(np.logaddexp(before[i] + off[i], moved(before[i], w) + on[i]))
    joint, after, odds = before[-1] + log_f, log_f.astype(np.longdouble), np.zeros(len(x), np.longdouble)
    for i in reversed(range(len(x))):
        w, up = weights[i], np.full(last + 1, NEVER, np.longdouble)
        up[: last + 1 - w] = after[w:]
        odds[i] = _log_total(before[i] + up) + on[i] - _log_total(before[i] + after) - off[i]
        after = np.logaddexp(after + off[i], up + on[i])
    return _log_total(joint), odds, np.exp(joint - _log_total(joint)).astype(float)


def _spike(last, cell):
    return np.where(np.arange(last + 1) == cell, 0.25 * last, 0.0)


def _only(last, *cells):
    return np.where(np.isin(np.arange(last + 1), cells), 0.0, NEVER)


TABLES = {
    "a spike next to the end": lambda last: _spike(last, last - 3),
    "a spike elsewhere": lambda last: _spike(last, last // 5),
    "both ends": lambda last: _only(last, 1, last - 2),
    "three places": lambda last: _only(last, last // 7, last // 2, 6 * last // 7),
    "convex": lambda last: 1e-3 * (np.arange(last + 1.0) - last / 3) ** 2,
    "a single value": lambda last: _only(last, last // 3),
    "random": lambda last: np.random.default_rng(last).normal(size=last + 1),
}
LOGITS = {
    "normal": lambda rng, n: rng.normal(size=n),
    "cauchy": lambda rng, n: rng.standard_cauchy(size=n),
    "1000 cauchy": lambda rng, n: 1000 * rng.standard_cauchy(size=n),
    "wide": lambda rng, n: np.linspace(-700, 700, n),
    "sd 1e6": lambda rng, n: 1e6 * rng.normal(size=n),
    "half far": lambda rng, n: np.where(np.arange(n) % 2, 1e4, 1.0) * rng.normal(size=n),
}


def _model(kind, table):
    n = 400
    weights = np.random.default_rng(5).permutation(np.arange(n) % 7)
    logits, log_f = LOGITS[kind](np.random.default_rng(6), n), TABLES[table](int(weights.sum()))
    return tt.LinearModel(logits, weights.astype(float), log_f, step=1.0), weights


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("kind", LOGITS)
def test_far_weighted_sums_agree_with_recursions_of_unlimited_range(kind, table):
    model, weights = _model(kind, table)
    logits, log_f = np.asarray(model.logits), np.asarray(model.log_f)
    log_mean, odds, law = _truth(logits, weights, log_f)
    constant = np.logaddexp(0, logits.astype(np.longdouble)).sum()
    assert abs(model.log_partition - (log_mean + constant)) <= 1e-10 * (1 + abs(log_mean + constant))
    off = np.abs(model.posterior_logits - odds)
    assert (off <= np.maximum(1e-9, 1e-10 * np.abs(odds))).all()

    p = expit(odds.astype(float))
    score, table_mean = logits * p, (law * np.where(law > 0, log_f, 0.0)).sum()
    entropy = float(log_mean + constant - score.sum() - table_mean)
    rounding = 1e-15 * (np.abs(score).sum() + abs(float(constant)) + abs(table_mean))
    assert abs(model.entropy - entropy) <= 1e-9 * (1 + entropy) + 10 * rounding

    draws = model.sample(400, rng=3)
    assert np.isfinite(model.log_prob(draws)).all()
    total, cells = draws @ weights, np.arange(len(law))
    mean = law @ cells
    assert abs(total.mean() - mean) <= 6 * np.sqrt(law @ (cells - mean) ** 2 / 400) + 1e-9
    error = np.sqrt(np.maximum(p * (1 - p), 1e-12) / 400)
    assert (np.abs(draws.mean(axis=0) - p) <= 6 * error + 1e-9 + 3 / 400).all()


@pytest.mark.parametrize("kind", [kind for kind in LOGITS if kind != "half far"])
@pytest.mark.parametrize("table", TABLES)
def test_far_weighted_sums_need_few_passes_and_no_exact_tree(kind, table, monkeypatch):
    passes, once = [], sums._on_windows

    def counted(*arguments):
        passes.append(arguments)
        return once(*arguments)

    monkeypatch.setattr(sums, "_on_windows", counted)
    monkeypatch.setattr(sums, "_exact", None)
    model, _ = _model(kind, table)
    model.marginals, model.sample(rng=1)
    assert len(passes) <= 16
