"""Every named method is right where it applies and says so where it does not."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

import tallytree as tt
from contract import assert_contract, assert_log_partition
from helpers import model_of
from oracle import enumerate_model, log_space_tree
from strategies import random_case, ward_tree_case
from tallytree import config
from tallytree.engine.count import characteristic

FLAT = ["chain", "characteristic"]
ANY = ["tree", "fft-tree", "log-tree"]


def flat_model(n, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) * scale, rng.normal(size=n + 1) * scale


@pytest.mark.parametrize("method", [*FLAT, *ANY])
def test_methods_agree_on_one_potential(method):
    theta, log_f = flat_model(300)
    truth = log_space_tree(theta, [(list(range(300)), log_f)])
    model = tt.CountModel(theta, log_f, method=method)
    assert model.method == method
    np.testing.assert_allclose(model.log_partition, truth.log_partition, rtol=1e-10)
    np.testing.assert_allclose(model.posterior_logits, truth.posterior_logits, atol=1e-8)


@pytest.mark.parametrize("method", ANY)
def test_tree_methods_serve_nested_models(method):
    case = ward_tree_case(200, 1.0)
    truth = log_space_tree(case.theta, case.sets)
    model = model_of(case, method=method)
    assert_log_partition(model.log_partition, truth.log_partition)
    assert_contract(model.posterior_logits, truth.posterior_logits)


@pytest.mark.parametrize("method", ["tree", "log-tree", "chain"])
def test_direct_methods_are_right_whatever_the_spread(method):
    theta, log_f = flat_model(200, scale=300.0)
    truth = log_space_tree(theta, [(list(range(200)), log_f)])
    assert_contract(tt.CountModel(theta, log_f, method=method).posterior_logits, truth.posterior_logits)


@pytest.mark.parametrize("k", [0, 3, 197, 200])
def test_chain_cuts_at_the_largest_count_and_mirrors_for_the_smallest(k):
    theta, _ = flat_model(200, seed=k)
    want = tt.CountModel(theta, tt.exactly(k), method="log-tree")
    got = tt.CountModel(theta, tt.exactly(k), method="chain")
    np.testing.assert_allclose(got.log_partition, want.log_partition, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(got.posterior_logits, want.posterior_logits, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "potential",
    [
        tt.noisy_or(rate=0.3, leak=0.05),
        tt.noisy_or(rate=0.3, leak=0.05, t=0),
        tt.parity("even"),
        tt.modulo(3, 1),
        tt.geometric(0.7),
        tt.exponential_mixture([0.5, 0.5], [0.9, 0.2]),
    ],
)
def test_mixtures_need_no_convolution(potential):
    theta, _ = flat_model(400)
    truth = log_space_tree(theta, [(list(range(400)), potential.log_table(400))])
    model = tt.CountModel(theta, potential, method="mixture")
    assert_log_partition(model.log_partition, truth.log_partition)
    assert_contract(model.posterior_logits, truth.posterior_logits)


def test_tilt_rescues_the_fft_tree():
    # Plain FFT sums are noise here: the posterior mean lies 60 standard deviations from the prior mean.
    n = 1024
    theta = np.random.default_rng(0).normal(size=n) - 1
    log_f = -0.5 * ((np.arange(n + 1) - 0.9 * n) / (2 * np.sqrt(n))) ** 2
    truth = log_space_tree(theta, [(list(range(n)), log_f)])
    model = tt.CountModel(theta, log_f, method="fft-tree")
    assert_log_partition(model.log_partition, truth.log_partition)
    np.testing.assert_allclose(model.posterior_logits, truth.posterior_logits, atol=1e-7)


def test_a_method_that_cannot_certify_its_answer_refuses():
    case = ward_tree_case(400, 50.0)
    with pytest.raises(tt.PrecisionError, match="method='auto'"):
        model_of(case, method="fft-tree").marginals  # noqa: B018


@pytest.mark.parametrize("method", [*FLAT, "mixture"])
def test_flat_methods_refuse_nested_groups(method):
    groups = [tt.Group([0, 1], tt.at_least(1)), tt.Group(None, tt.exactly(2))]
    with pytest.raises(tt.ParameterError, match="groups inside groups"):
        tt.CountModel(np.zeros(4), groups, method=method).marginals  # noqa: B018


@pytest.mark.parametrize("method", ["chain", "tree"])
def test_methods_serve_disjoint_groups_and_free_variables(method):
    for seed in range(10):
        case = random_case(
            seed, shape="forest", theta_scale=1.0, table_scale=0.5, zeros=False, infinite=False
        )
        truth = enumerate_model(case.theta, case.sets)
        try:
            got = model_of(case, method=method).posterior_logits
        except tt.ParameterError:
            assert any(set(a) < set(b) and len(a) > 1 for a, _ in case.sets for b, _ in case.sets)
            continue
        assert_contract(got, truth.posterior_logits)


def test_mixture_method_needs_a_mixture():
    with pytest.raises(tt.ParameterError, match="sum of exponentials"):
        tt.CountModel(np.zeros(4), tt.gaussian(2, 1), method="mixture").marginals  # noqa: B018


def test_unknown_methods_are_refused():
    with pytest.raises(tt.ParameterError, match=r"'auto', 'chain'.*'fastest' arrived"):
        tt.CountModel(np.zeros(4), tt.exactly(2), method="fastest")


def counts_of(theta):
    """P(count) of independent variables, one after the other; infinite log-odds allowed."""
    pmf = np.ones(1)
    for p in 1.0 / (1.0 + np.exp(-theta)):
        pmf = np.append(pmf * (1.0 - p), 0.0) + np.append(0.0, pmf * p)
    return pmf


@pytest.mark.parametrize("method", ["auto", "characteristic", "tree"])
def test_cavities_of_variables_with_infinite_logits_in_models_with_several_modes(method):
    rng = np.random.default_rng(4)
    theta = rng.normal(size=200)
    theta[[3, 50]], theta[[7, 100, 150]] = np.inf, -np.inf
    log_f = np.full(201, -np.inf)
    low, high = np.arange(85, 92), np.arange(112, 119)
    weights = counts_of(theta)
    log_f[low], log_f[high] = -np.log(weights[low]), 0.3 * np.cos(high) - np.log(weights[high])
    found = tt.CountModel(theta, log_f, method=method).cavity_logits
    for d in (3, 50, 7, 100, 150, 0):
        rest = counts_of(np.delete(theta, d))
        top = log_f.max()
        expected = np.log(rest @ np.exp(log_f[1:] - top)) - np.log(rest @ np.exp(log_f[:-1] - top))
        assert found[d] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("spread", [1e3, 1e4, 1e5])
def test_log_partition_keeps_its_digits_where_every_likely_configuration_is_improbable(spread):
    # All or none of 200 variables whose log-odds nearly cancel: Z = f(0) + f(200) e^(sum).
    potential = tt.spike_and_slab(1.0, slab=1e-20) * tt.all_or_none(np.inf)
    theta = np.random.default_rng(5).normal(size=200) * spread
    theta -= (theta.sum() + np.log(1e-20)) / 200
    table = potential.log_table(200)
    odds = math.fsum([*theta.tolist(), float(table[-1]), -float(table[0])])
    model = tt.CountModel(theta, potential)
    assert_log_partition(model.log_partition, float(table[0]) + np.logaddexp(0.0, odds))
    nested = tt.CountModel(theta, [tt.Group(range(80)), tt.Group(None, potential)])
    assert_log_partition(nested.log_partition, float(table[0]) + np.logaddexp(0.0, odds))


@pytest.mark.parametrize("engine", ["array", "native"])
@pytest.mark.parametrize("spread", [1e3, 1e4, 1e5])
def test_log_odds_that_cancel_leave_the_messages_their_digits(spread, engine):
    # All or none of 200 variables: every posterior log-odds is the sum of all of them.
    if engine == "native" and config._extension is None:
        pytest.skip("there is no compiled engine")
    potential = tt.spike_and_slab(1.0, slab=1e-20) * tt.all_or_none(np.inf)
    table = potential.log_table(200)
    with config.using(engine=engine):
        for seed in range(4):
            theta = np.random.default_rng(seed).normal(size=200) * spread
            theta -= (theta.sum() + np.log(1e-20)) / 200
            odds = math.fsum([*theta.tolist(), float(table[-1]), -float(table[0])])
            for groups in (potential, [tt.Group(range(80)), tt.Group(None, potential)]):
                model = tt.CountModel(theta, groups)
                error = np.abs(model.posterior_logits - odds).max()
                assert error <= 1e-9
                assert error <= model.error_bound + 4e-16 * spread


@pytest.mark.parametrize("n", [0, 1, 2, 7, 16, 33, 200])
def test_the_chain_serves_batches_whose_models_count_ones_or_zeros(n):
    rng = np.random.default_rng(n)
    theta, tables = rng.normal(size=(6, n)) * 3.0, rng.normal(size=(6, n + 1))
    tables[0, : n // 2] = -np.inf  # zeros are counted
    tables[1, n // 2 + 1 :] = -np.inf  # ones are counted
    tables[2, 1:-1] = -np.inf
    tables[3] *= 300.0  # plain numbers run out of range
    theta[4, ::3], theta[5, ::2] = np.inf, -np.inf
    got, want = (tt.CountModel(theta, tables, method=method) for method in ("chain", "log-tree"))
    np.testing.assert_allclose(got.log_partition, want.log_partition, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(got.posterior_logits, want.posterior_logits, rtol=1e-9, atol=1e-9)
    shared = tt.CountModel(theta, tables[2], method="chain")
    np.testing.assert_allclose(shared.posterior_logits[2], want.posterior_logits[2], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 9, 60, 113, 300])
def test_the_characteristic_function_serves_models_of_any_variance(n):
    theta, log_f = flat_model(n)
    for table in (log_f, tt.exactly(max(n // 3, 1)), tt.exactly(n), tt.at_least(n - 1)):
        for logits in (theta, np.zeros(n), np.where(np.arange(n) == 1, np.inf, theta - 4.0)):
            model = tt.CountModel(logits, table, method="characteristic")
            truth = tt.CountModel(logits, table, method="log-tree")
            assert_contract(model.posterior_logits, truth.posterior_logits)
            assert abs(model.log_partition - truth.log_partition) <= 1e-10 * (1.0 + abs(truth.log_partition))
    with pytest.raises(tt.InfeasibleError):
        _ = tt.CountModel(np.full(n, -np.inf), tt.exactly(n), method="characteristic").marginals


def test_a_million_variables_without_a_compiler_are_solved_by_a_few_frequencies():
    """The rounding of a log Z of 4e5 is no reason to give a certificate up: the tree that followed took minutes."""
    n, k, x = 1 << 20, 1 << 17, 0.75
    logits = np.full(n, x)
    logits[: n // 3], logits[-1] = -np.inf, np.inf
    free = n - n // 3 - 1
    with mpmath.workdps(40):
        ways = mpmath.loggamma(free + 1) - mpmath.loggamma(k) - mpmath.loggamma(free - k + 2)
        right = ways + x * (k - 1)
    nothing = np.where(np.arange(n + 1) == k, 0.0, -np.inf)
    found = characteristic.solve_batch(logits[None], nothing[None])
    base = free * mpmath.log1p(mpmath.exp(x))
    assert found.bound[0] < 1e-9
    assert abs(found.log_mean[0] - float(right - base)) < 1e-14 * abs(float(right - base)) + 1e-9
    assert np.abs((x + found.messages[0, n // 3 : -1]) - np.log((k - 1) / (free - k + 1))).max() < 1e-9
