"""Every instruction-set level and every number of threads gives the same answers."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

import tallytree as tt
from accuracy_cases import accuracy_case
from helpers import model_of
from strategies import random_case
from tallytree import config

native = pytest.importorskip("tallytree._native", reason="the compiled engine is not installed")

LEVELS = native.levels()
THREADS = [1, 2, 3]
NAMED = [
    "tame", "wide_logits", "low_logits_exactly_half", "rough_table_50", "attractive", "two_spikes", "all_or_none",
    "even_parity", "at_most_50", "infinite_logits", "ward_1", "ward_50", "ward_1000", "one_of_every_eight",
    "none_or_all_of_every_eight_under_half", "loose_variables_outside",
]  # fmt: skip


def batch(rows, size):
    rng = np.random.default_rng([rows, size])
    logits, tables = rng.normal(size=(rows, size)), 3 * rng.normal(size=(rows, size + 1))
    return lambda: tt.CountModel(logits, tables)


def flat(size):
    rng = np.random.default_rng(size)
    logits, table = rng.normal(size=size), rng.normal(size=size + 1)
    return lambda: tt.CountModel(logits, table)


def named(name, size):
    case = accuracy_case(name, size)
    return lambda: model_of(case)


def small(seed):
    case = random_case(seed)
    return lambda: model_of(case)


MODELS = {
    **{f"{name}, {size}": named(name, size) for name in NAMED for size in (9, 100, 700)},
    **{f"random {seed}": small(seed) for seed in range(20)},
    "batch of 37 x 11": batch(37, 11),
    "batch of 200 x 100": batch(200, 100),
    "batch of 5 x 3000": batch(5, 3000),
    "flat, 50000": flat(50_000),
    "flat, 300001": flat(300_001),
}


def answers(make, **settings):
    """All first-order answers of a fresh model under these settings."""
    with config.using(engine="native", **settings):
        model = make()
        found = [model.log_partition, model.posterior_logits, model.marginals, model.error_bound]
        if model.n_variables <= 1000:
            found.append(model.count_log_probs())
        return [np.asarray(values) for values in found]


def distance(a, b):
    """Largest difference relative to 1 + size; equal infinities are equal."""
    with np.errstate(invalid="ignore"):
        return np.max(np.where(a == b, 0.0, np.abs(a - b) / (1 + np.abs(b))), initial=0.0)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", MODELS)
def test_the_number_of_threads_changes_no_bit(name, level):
    first, *others = (answers(MODELS[name], level=level, threads=threads) for threads in THREADS)
    for other in others:
        for a, b in zip(first, other):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", MODELS)
def test_levels_agree(name):
    first, *others = (answers(MODELS[name], level=level) for level in LEVELS)
    for other in others:
        for what, a, b in zip(("log_partition", "posterior_logits", "marginals"), first, other):
            assert distance(a, b) < 1e-12, what
        for a, b in zip(first[4:], other[4:]):  # counts are promised to 1e-8, above 1e-200
            seen = (a > -460) | (b > -460)
            assert distance(a[seen], b[seen]) < 1e-11


def test_the_level_in_use_is_the_one_asked_for(capsys):
    for level in LEVELS:
        with config.using(level=level):
            tt.show_config()
        assert f"instruction set {level} " in capsys.readouterr().out


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("logit", [-300.0, -40.0, -20.0, -7.0, -6.9, 0.0, 30.0])
def test_sums_of_softplus_are_relatively_accurate(level, logit):
    found = native.softplus_sums(np.full((1, 5003), logit), 1, level)[0]
    with mpmath.workdps(30):
        exact = 5003 * mpmath.log1p(mpmath.exp(logit))
        assert abs((found - exact) / exact) < 1e-12
