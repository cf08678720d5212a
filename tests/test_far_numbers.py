"""Finite numbers that stand for infinite ones behave as these do, in every answer and on both engines."""

import numpy as np
import pytest

import tallytree as tt
from oracle_enumeration import enumerate_model
from tallytree import config
from tallytree.engine.pmf.log_pmf import log_pmf

MASKS = [-1e20, float(np.finfo(np.float32).min), -1e300]


def nested(mask):
    logits = np.linspace(-1.0, 1.0, 100)
    logits[0] = logits[-1] = mask
    return tt.CountModel(logits, [tt.Group(range(50), tt.at_most(20)), tt.Group(None, tt.exactly(40))])


@pytest.mark.parametrize("mask", MASKS)
def test_masked_logits_answer_as_excluded_variables_do(mask):
    model, excluded = nested(mask), nested(-np.inf)
    for name in ("marginals", "posterior_logits", "log_partition", "entropy", "cavity_logits"):
        np.testing.assert_array_equal(getattr(model, name), getattr(excluded, name))
    np.testing.assert_array_equal(model.count_log_probs(0), excluded.count_log_probs(0))
    np.testing.assert_array_equal(model.mode(), excluded.mode())


@pytest.mark.parametrize("mask", MASKS)
def test_samples_of_nested_models_with_masked_logits_follow_the_law(mask):
    model = nested(mask)
    drawn = model.sample(4000, rng=1)
    assert not drawn[:, [0, -1]].any()
    assert np.all(drawn.sum(-1) == 40)
    assert np.all(drawn[:, :50].sum(-1) <= 20)
    deviation = np.sqrt(model.marginals * (1.0 - model.marginals) / len(drawn))
    assert np.all(np.abs(drawn.mean(0) - model.marginals) <= 5.0 * deviation)


@pytest.mark.parametrize("mask", MASKS)
def test_a_masked_singleton_table_fixes_its_variable(mask):
    model = tt.CountModel([0.0, 0.0, 0.0], [tt.Group([0], [mask, 0.0]), tt.Group(None, tt.exactly(2))])
    np.testing.assert_allclose(model.marginals, [1.0, 0.5, 0.5], rtol=1e-13)
    assert model.log_partition == pytest.approx(np.log(2.0), rel=1e-13)
    drawn = model.sample(1000, rng=2)
    assert drawn[:, 0].all()
    assert 400 < drawn[:, 1].sum() < 600


@pytest.mark.parametrize("mask", MASKS)
def test_masked_table_entries_exclude_counts(mask):
    table = np.array([mask, 0.25, 0.0, mask, mask])
    logits = np.array([0.5, -1.0, 0.25, 2.0])
    model = tt.CountModel(logits, table)
    hard = tt.CountModel(logits, np.where(table < -1.0, -np.inf, table))
    np.testing.assert_array_equal(model.marginals, hard.marginals)
    np.testing.assert_array_equal(model.count_log_probs(), hard.count_log_probs())
    assert set(model.sample(500, rng=0).sum(-1).tolist()) == {1, 2}
    with pytest.raises(tt.InfeasibleError, match="count as infinite"):
        tt.CountModel([mask, mask], tt.exactly(1)).mode()


@pytest.mark.parametrize("size", [1e13, 1e20])
def test_impossible_models_with_edges_say_that_far_numbers_are_infinite(size):
    table = np.array([[[0.0, 0.0], [-size, -size]]])
    message = "count as infinite"
    with pytest.raises(tt.InfeasibleError, match=message):
        tt.CountModel([size, 0.0], edges=tt.Forest([(0, 1)], table)).mode()
    with pytest.raises(tt.InfeasibleError, match=message):
        tt.ChainModel([[-size, 0.0], [0.0, 0.0]], table).mode()
    with pytest.raises(tt.InfeasibleError) as raised:
        tt.CountModel([np.inf, 0.0], edges=tt.Forest([(0, 1)], np.where(table < 0.0, -np.inf, 0.0))).mode()
    assert message not in str(raised.value)


def test_far_positive_logits_force_variables_and_leave_probabilities_alone():
    model = tt.CountModel([1e20, 0.3, 1e20, -0.7])
    assert model.log_partition == 2e20
    expected = -np.logaddexp(0.0, 0.3) - np.logaddexp(0.0, 0.7)
    assert model.log_prob([1, 0, 1, 1]) == pytest.approx(expected, rel=1e-13)
    assert model.log_prob([0, 0, 1, 1]) == -np.inf
    np.testing.assert_array_equal(model.marginals[[0, 2]], 1.0)


def test_a_far_constant_in_a_table_leaves_probabilities_alone():
    table = np.array([0.1, 0.2, 0.3])
    plain, shifted = (
        tt.CountModel([0.4, -0.2], table),
        tt.CountModel([0.4, -0.2], table + np.array([0.0, 1e13, -np.inf])),
    )
    assert shifted.log_partition == pytest.approx(1e13)
    np.testing.assert_allclose(shifted.sample(2000, rng=0).sum(-1), 1)
    np.testing.assert_allclose(shifted.marginals, plain.condition_count(None, 1).marginals, rtol=1e-12)


@pytest.mark.parametrize("size", [1e6, 1e9, 1e11])
def test_large_logits_below_the_limit_keep_their_meaning(size):
    # Exactly one of three that are all improbable: only differences matter.
    model = tt.CountModel([-size, -size, -size], [tt.Group([0, 1]), tt.Group(None, tt.exactly(1))])
    np.testing.assert_allclose(model.marginals, 1.0 / 3.0, rtol=4.0 * np.spacing(size))
    assert np.all(model.sample(300, rng=0).sum(-1) == 1)
    # A variable that is all but certain must not cost the others their law.
    sure = tt.CountModel([size, 0.5, -0.5, 0.0], [tt.Group([0, 1]), tt.Group([0, 1, 2, 3], tt.exactly(2))])
    exact = tt.CountModel([np.inf, 0.5, -0.5, 0.0], [tt.Group([0, 1]), tt.Group([0, 1, 2, 3], tt.exactly(2))])
    np.testing.assert_allclose(sure.marginals, exact.marginals, rtol=1e-10)
    drawn = sure.sample(20_000, rng=3)
    assert np.all(np.abs(drawn.mean(0) - exact.marginals) < 0.02)


def test_a_singleton_table_of_large_numbers_loses_no_digits():
    model = tt.CountModel([0.0, 0.0], [tt.Group([0], [-1e11, 0.0]), tt.Group(None, tt.exactly(1))])
    assert model.log_partition == pytest.approx(0.0, abs=1e-10)
    close = tt.CountModel([-1e7], [tt.Group([0], [-1e7, 0.023476402340657655])])
    assert close.posterior_logits[0] == pytest.approx(0.023476402340657655, abs=1e-15)


@pytest.mark.parametrize("outlier", [3e4, -3e4, 1e6, 1e11, 1e20, -1e300])
def test_one_far_logit_among_thousands_leaves_the_count_distribution_alone(outlier):
    x = np.random.default_rng(1).normal(size=4500)
    x[0] = outlier
    found = tt.CountModel(x, np.zeros(4501)).count_log_probs()
    rest = log_pmf(x[None, 1:])[0]
    expected = np.full(4501, -np.inf)
    expected[slice(1, None) if outlier > 0 else slice(0, -1)] = rest
    likely = expected > np.log(1e-200)
    np.testing.assert_allclose(found[likely], expected[likely], atol=1e-8)
    assert not np.isnan(found).any()
    assert np.exp(tt.PoissonBinomial(logits=x).logpmf(np.arange(4501))).sum() == pytest.approx(1.0)


def test_single_numbers_of_single_precision_models_are_double_precision():
    logits = np.full(4, 1e6, np.float32) + np.arange(4, dtype=np.float32)
    table = np.array([0.0, 0.125, 0.25, 0.3, 0.1])
    model, double = tt.CountModel(logits, table), tt.CountModel(logits.astype(float), table)
    for name in ("log_partition", "entropy", "error_bound", "max_log_weight"):
        value = getattr(model, name)
        assert value.dtype == np.float64
        assert value == getattr(double, name)
    y = [[1, 1, 1, 1], [0, 1, 1, 1]]
    assert model.log_prob(y).dtype == np.float64
    np.testing.assert_array_equal(model.log_prob(y), double.log_prob(y))
    assert model.kl_divergence(model.replace(logits=logits + np.float32(1))).dtype == np.float64
    assert model.mode_k(2).log_weights.dtype == np.float64
    assert (
        model.marginals.dtype == model.posterior_logits.dtype == model.count_log_probs().dtype == np.float32
    )
    bags = tt.RaggedBatch([logits, logits[:2]], None)
    assert bags.log_partition.dtype == bags.error_bound.dtype == np.float64
    assert bags.log_partition[0] == tt.CountModel(logits.astype(float)).log_partition
    assert all(m.dtype == np.float32 for m in bags.marginals)


@pytest.mark.skipif(config.native() is None, reason="needs the compiled engine")
def test_no_call_of_the_compiled_sampler_reaches_out_of_bounds():
    engine = config.native()
    ints = lambda *x: np.array(x, np.int64)  # noqa: E731
    good = {
        "variables": ints(0, 1, 2, 3), "start": ints(0, 2, 4), "left": ints(0), "right": ints(1),
        "table": ints(-1, -1, 0), "roots": ints(2), "free": ints(), "nu": np.zeros(4), "tables": np.zeros(5),
        "windowed": False, "tilt": 0.0, "budget": 0.0, "low": 0, "high": 0, "threads": 1, "level": "",
    }  # fmt: skip
    forest = engine.SampleTree(*good.values())
    key = np.zeros(4, np.uint32)
    out = np.full((3, 4), 7, np.uint8)
    forest.draw(out, ints(0, 2), key, None, 1)
    assert set(out[[0, 2]].ravel().tolist()) <= {0, 1}
    assert np.all(out[1] == 7)
    bad = [
        {"variables": ints(0, 1, 2, 4)}, {"variables": ints(0, 1, 2, -1)}, {"start": ints(0, 2, 5)},
        {"start": ints(0, 5, 4)}, {"start": ints()}, {"left": ints(2)}, {"left": ints(-1)}, {"right": ints(0)},
        {"right": ints()}, {"table": ints(-1, 0)}, {"table": ints(-1, -1, 1)}, {"roots": ints(3)},
        {"roots": ints()}, {"roots": ints(2, 2)}, {"roots": ints(0)}, {"free": ints(4)}, {"tables": np.zeros(4)},
        {"nu": np.zeros(3)}, {"table": ints(-1, -1, 2**62)}, {"windowed": True, "tilt": np.nan},
    ]  # fmt: skip
    for change in bad:
        with pytest.raises(ValueError):
            engine.SampleTree(*{**good, **change}.values())
    for rows, totals, width in [
        (ints(3), None, 4), (ints(-1), None, 4), (ints(0), None, 3), (ints(0), ints(5), 4), (ints(0), ints(-1), 4),
        (ints(0, 1), ints(2), 4),
    ]:  # fmt: skip
        with pytest.raises(ValueError):
            forest.draw(np.zeros((3, width), np.uint8), rows, key, totals, 1)


def test_the_convolution_of_the_sampler_checks_its_window():
    hooks = pytest.importorskip("tallytree._native.hooks")
    for first, last in [(-1, 1), (0, 3), (2, 1)]:
        with pytest.raises(ValueError):
            hooks.log_convolve(np.zeros(2), np.zeros(2), first, last)
    with pytest.raises(ValueError):
        hooks.log_convolve(np.zeros(0), np.zeros(2), 0, 0)


@pytest.mark.parametrize("scale", [1e17, 1e200])
def test_convolving_messages_with_a_large_peak_stays_in_bounds(scale):
    from tallytree.engine.law import log_convolve

    a, b = np.array([-scale, -scale, -2 * scale]), np.array([-scale, -3 * scale])
    hooks = getattr(config.native(), "hooks", None)
    for convolve in [log_convolve] if hooks is None else [log_convolve, hooks.log_convolve]:
        found = convolve(a, b, 0, 3)
        np.testing.assert_allclose(found, np.array([-2, -2, -3, -5]) * scale, rtol=1e-12)


@pytest.mark.parametrize("batch", [(), (1,), (3,), (9,)])
def test_a_table_that_lifts_what_underflowed_is_seen_in_expected_counts(batch):
    """P(two on) is e^-20000 before the table, and all of it afterwards: certified as 0 once."""
    theta, log_f = np.array([0.0, -20000.0]), np.array([0.0, 0.0, 60000.0])
    groups = [tt.Group([0, 1], np.broadcast_to(log_f, (*batch, 3)))]
    model = tt.CountModel(np.broadcast_to(theta, (*batch, 2)), groups)
    np.testing.assert_array_equal(model.entropy, np.zeros(batch))
    counts = model.expected_statistics.tables[0]
    np.testing.assert_allclose(counts, np.broadcast_to([0.0, 0.0, 1.0], (*batch, 3)), atol=1e-12)


@pytest.mark.parametrize("batch", [(), (4,)])
def test_derivatives_see_what_a_table_lifts_again(batch):
    """Two of four on, the other way round from what the log-odds want; nested, and with derivatives."""
    theta = np.array([-3000.0, -3000.3, 0.2, 0.1])
    inner, outer = np.array([0.0, 0.0, 6000.0]), np.array([0.3, 0.1, -0.2, 0.0, 0.4])
    groups = [
        tt.Group([0, 1], np.broadcast_to(inner, (*batch, 3))),
        tt.Group(None, np.broadcast_to(outer, (*batch, 5))),
    ]
    model = tt.CountModel(np.broadcast_to(theta, (*batch, 4)), groups)
    want = enumerate_model(theta, [([0, 1], inner), (range(4), outer)])
    np.testing.assert_allclose(model.entropy, np.broadcast_to(want.entropy, batch), rtol=1e-10)
    np.testing.assert_allclose(
        model.covariance(), np.broadcast_to(want.covariance_of(want.states), (*batch, 4, 4)), atol=1e-10
    )
    for g, members in enumerate(([0, 1], range(4))):
        probs = np.exp(want.score_log_probs(want.states[:, list(members)].sum(1), len(members)))
        np.testing.assert_allclose(
            model.expected_statistics.tables[g], np.broadcast_to(probs, (*batch, len(probs))), atol=1e-11
        )


def test_largest_weights_below_the_smallest_float32_are_zero_in_that_type():
    """Answers in float32 are right up to its rounding, which ends at its smallest number."""
    model = tt.CountModel(np.zeros(2, np.float32), [tt.Group([0, 1], [0.0, 2e-308, 4e-308])])
    assert model.max_marginals.dtype == np.float32
    np.testing.assert_array_equal(model.max_marginals, np.zeros((2, 2)))
    np.testing.assert_array_equal(model.max_count_values(), np.zeros(3))
    assert model.max_log_weight.dtype == np.float64
    assert model.max_log_weight == 4e-308


def test_masks_begin_at_one_number_in_every_model():
    below, above = -0.9e12, -1.1e12
    assert np.isfinite(tt.CountModel([0.0, below], tt.exactly(1)).posterior_logits).all()
    assert tt.CountModel([0.0, above], tt.exactly(1)).posterior_logits[1] == -np.inf
    for mask, possible in ((below, True), (above, False)):
        table = np.array([0.0, 0.0, mask])
        assert np.isfinite(tt.CountModel(np.zeros(2), table).count_log_probs()[2]) == possible
        graph = tt.FactorGraph(np.zeros(2), [tt.Group([0, 1], table)])
        assert np.isfinite(graph.log_weight([1, 1])) == possible


def test_a_table_below_all_masks_allows_nothing():
    with pytest.raises(tt.InfeasibleError):
        _ = tt.CountModel(np.zeros(2), np.full(3, -1e20)).marginals


@pytest.mark.parametrize("weights", [None, (23, 29, 0, -5), (2.3, 2.9, 0.7, -0.5)])
@pytest.mark.parametrize("mask", [*MASKS, 1e20])
def test_masked_events_are_as_certain_as_infinite_ones(mask, weights):
    """Beside a log-probability of -1e20 the 800 nats of another event were lost in every sum."""
    certain = np.inf if mask > 0 else -np.inf
    masked, sure = (
        tt.PoissonBinomial(logits=[800.0, x, 0.0, -0.3], weights=weights) for x in (mask, certain)
    )
    assert masked.support() == sure.support()
    np.testing.assert_array_equal(masked.logpmf(sure.values), sure.logpmf(sure.values))
    np.testing.assert_array_equal(masked.ppf([0.01, 0.5, 1.0]), sure.ppf([0.01, 0.5, 1.0]))
    low = sure.ppf(0.7)
    np.testing.assert_array_equal(masked.given(low=low).marginals, sure.given(low=low).marginals)


def test_masked_outcomes_of_events_are_impossible():
    weights = [[3, 7], [2, 9]]
    masked, without = (
        tt.PoissonBinomial(logits=[[800.0, x], [x, 0.0]], weights=weights) for x in (-1e20, -np.inf)
    )
    assert masked.support() == without.support() == (0, 12)
    np.testing.assert_array_equal(masked.logpmf(without.values), without.logpmf(without.values))
