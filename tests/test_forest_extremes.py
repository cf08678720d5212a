"""Forests and chains where plain numbers give out: samples, certificates, counts in the tails, masks."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import tallytree as tt
from oracle_states import all_states
from tallytree import config
from tallytree.engine.forest import certificate, ladder
from tallytree.engine.forest.ladder import Tilter, infer

INF = math.inf
ENGINES = ["array"] if config._extension is None else ["native", "array"]
MASKS = (-1e20, -1e300, float(np.finfo(np.float32).min))


def enumerated(theta, sets, edges):
    """All configurations, and their log-probabilities in extended precision."""
    y = all_states((2,) * len(theta))
    w = np.zeros(len(y), np.longdouble)
    for d, x in enumerate(theta):
        w += np.where(y[:, d] == 1, 0.0 if x == INF else x, -INF if x == INF else 0.0)
    for (i, j), table in edges:
        w += np.asarray(table, np.longdouble)[y[:, i], y[:, j]]
    for members, table in sets:
        w += np.asarray(table, np.longdouble)[y[:, members].sum(1)]
    top = w.max()
    return y, w - top - np.log(np.exp(w - top).sum())


def true_odds(y, log_p):
    def log_mass(keep):
        top = log_p[keep].max()
        return top if top == -INF else top + np.log(np.exp(log_p[keep] - top).sum())

    return np.array([log_mass(y[:, d] == 1) - log_mass(y[:, d] == 0) for d in range(y.shape[1])], float)


# -- samples ---------------------------------------------------------------------------------------------------


def test_a_chain_with_low_weights_draws_only_what_is_possible():
    model = tt.ChainModel(np.full((3, 2), -800.0), np.zeros((2, 2)), tt.exactly(1))
    drawn = model.sample(300, rng=0)
    assert (drawn.sum(-1) == 1).all()
    assert drawn.mean(0) == pytest.approx([1 / 3] * 3, abs=0.12)


@pytest.mark.parametrize("high", [750.0, 1e5])
def test_a_high_logit_with_edges_is_drawn_as_its_marginal_says(high):
    model = tt.CountModel([high, 0.0], edges=tt.Forest([(0, 1)], coupling=0.0))
    drawn = model.sample(2000, rng=0)
    assert model.marginals.tolist() == [1.0, 0.5]
    assert drawn[:, 0].all()
    assert drawn[:, 1].mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("seed", [*range(40), 729])
def test_samples_of_wild_forests_follow_their_law(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 7))
    pairs = [(int(rng.integers(v)), v) for v in range(1, n)]
    spread = 10.0 ** rng.uniform(0, 3)
    theta, edges = spread * rng.normal(size=n), spread * rng.normal(size=(n - 1, 2, 2))
    table = spread * rng.normal(size=n + 1)
    model = tt.CountModel(theta, table, edges=tt.Forest(pairs, edges))
    _, log_p = enumerated(theta, [(list(range(n)), table)], list(zip(pairs, edges)))
    drawn = model.sample(500, rng=seed).astype(int) @ (1 << np.arange(n)[::-1])
    p = np.exp(log_p.astype(float))
    seen = np.bincount(drawn, minlength=len(p))
    assert not seen[log_p < -50].any()
    assert np.abs(seen - 500 * p).max() <= 6.0 * math.sqrt(500) / 2


# -- certificates ----------------------------------------------------------------------------------------------


def test_products_that_vanish_are_not_certified():
    edges = [[[-249.0, 434], [159, 85]], [[103, 633], [79, 99]]]
    model = tt.CountModel([-0.2, 0.6, 0.0], [0.0, -0.9, -0.7, 0.5], edges=tt.Forest([(0, 1), (1, 2)], edges))
    y, log_p = enumerated(
        [-0.2, 0.6, 0.0], [([0, 1, 2], [0.0, -0.9, -0.7, 0.5])], list(zip([(0, 1), (1, 2)], edges))
    )
    error = np.abs(model.posterior_logits - true_odds(y, log_p)).max()
    assert error <= model.error_bound < 1e-9


@pytest.mark.parametrize("seed", [*range(60), 118, 457, 496])
def test_the_bound_covers_the_error_of_wild_edge_tables(seed):
    rng = np.random.default_rng(1000 + seed)
    n = int(rng.integers(2, 8))
    pairs = [(int(rng.integers(v)), v) for v in range(1, n)]
    theta, edges = rng.normal(size=n), rng.normal(size=(n - 1, 2, 2)) * 10.0 ** rng.uniform(0, 3.5)
    table = rng.normal(size=n + 1) * 10.0 ** rng.uniform(0, 3)
    model = tt.CountModel(theta, table, edges=tt.Forest(pairs, edges))
    truth = true_odds(*enumerated(theta, [(list(range(n)), table)], list(zip(pairs, edges))))
    error = np.abs(model.posterior_logits - truth)
    assert (error <= model.error_bound).all()
    assert (error <= np.maximum(1e-9, 1e-10 * np.abs(truth))).all()


def test_ordinary_belief_propagation_is_not_trusted_with_vanished_terms():
    # Given y_1 the left term is e^-690 and the right one e^-1400: both matter to y_0 and y_2.
    pairs, edges = [(0, 1), (1, 2)], [[[0.0, -690.0], [-700.0, -1400.0]], [[0.0, -710.0], [-3.0, -1390.0]]]
    model = tt.CountModel([0.0, 1300.0, 0.0], edges=tt.Forest(pairs, edges))
    truth = true_odds(*enumerated([0.0, 1300.0, 0.0], [], list(zip(pairs, edges))))
    assert np.abs(model.posterior_logits - truth).max() <= max(1e-9, float(model.error_bound))


def log_counts_of_chain(theta, coupling):
    """Log-weights of the counts of an Ising chain, one variable after the other."""
    n = len(theta)
    f = np.full((n + 1, 2), -INF)
    f[0, 0], f[1, 1] = 0.0, theta[0]
    for x in theta[1:]:
        g = np.full_like(f, -INF)
        g[:, 0] = np.logaddexp(f[:, 0] + coupling, f[:, 1] - coupling)
        g[1:, 1] = np.logaddexp(f[:-1, 0] - coupling, f[:-1, 1] + coupling) + x
        f = g
    return np.logaddexp(f[:, 0], f[:, 1])


@pytest.mark.parametrize("seed", range(30))
def test_counts_far_from_the_mean_keep_their_probability(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(257, 421))
    theta, coupling = rng.normal(size=n) * rng.choice([0.3, 1.0, 3.0]), float(rng.choice([0.5, 2.0]))
    table = rng.normal(size=n + 1) * rng.choice([0.0, 1.0, 30.0])
    model = tt.CountModel(theta, table, edges=tt.Forest([(i, i + 1) for i in range(n - 1)], coupling))
    truth = log_counts_of_chain(theta, coupling) + table
    truth -= np.logaddexp.reduce(truth)
    shown = truth > math.log(1e-200)
    assert np.abs(model.count_log_probs() - truth)[shown].max() <= 1e-8


# -- numbers that stand for infinite ones ----------------------------------------------------------------------


@pytest.mark.parametrize("mask", MASKS)
def test_masks_in_forests_behave_as_infinite_numbers(mask):
    pairs = [(0, 1), (1, 2), (1, 3)]
    edges = np.zeros((3, 2, 2))
    edges[0, 1, 1] = edges[2, 0, 1] = -INF
    theta, table = np.array([0.3, 1.0, -INF, 0.5]), np.array([-INF, 0.2, 0.1, -INF, 0.0])

    def model(far):
        swap = [np.where(np.isneginf(x), far, x) for x in (theta, edges, table)]
        groups = [tt.Group(None, swap[2]), tt.Group([3], [0.0, far])]
        return tt.CountModel(swap[0], groups, edges=tt.Forest(pairs, swap[1]))

    masked, infinite = model(mask), model(-INF)
    assert masked.log_partition == pytest.approx(infinite.log_partition, rel=1e-14)
    assert masked.posterior_logits.tolist() == infinite.posterior_logits.tolist()
    assert masked.count_log_probs().tolist() == infinite.count_log_probs().tolist()
    assert masked.sample(50, rng=0).tolist() == infinite.sample(50, rng=0).tolist()
    assert masked.mode().tolist() == infinite.mode().tolist()
    assert masked.entropy == infinite.entropy
    assert masked.error_bound == infinite.error_bound


@pytest.mark.parametrize("mask", MASKS)
def test_masks_in_chains_behave_as_infinite_numbers(mask):
    rng = np.random.default_rng(3)
    unary, moves = rng.normal(size=(5, 3)), rng.normal(size=(4, 3, 3))
    unary[1, 2] = unary[4, 0] = moves[2, 1, 1] = -INF
    table = np.array([-INF, 0.3, 0.1, 0.0, -INF, 0.2])

    def model(far):
        unary_, moves_, table_ = (np.where(np.isneginf(x), far, x) for x in (unary, moves, table))
        return tt.ChainModel(unary_, moves_, [tt.Group(range(5), table_), tt.Group([0], [far, 0.5])])

    masked, infinite = model(mask), model(-INF)
    assert masked.log_partition == pytest.approx(infinite.log_partition, rel=1e-14)
    assert masked.log_marginals.tolist() == infinite.log_marginals.tolist()
    assert masked.sample(50, rng=0).tolist() == infinite.sample(50, rng=0).tolist()
    assert masked.mode().tolist() == infinite.mode().tolist()
    assert masked.entropy == infinite.entropy


@pytest.mark.parametrize("mask", [*MASKS, -INF])
def test_a_forest_that_masks_everything_is_impossible(mask):
    model = tt.CountModel([0.0, mask, mask], tt.exactly(2), edges=tt.Forest([(0, 1), (1, 2)], 0.5))
    with pytest.raises(tt.InfeasibleError):
        model.log_partition  # noqa: B018 - raises


# -- shapes ----------------------------------------------------------------------------------------------------


def test_batches_of_forests_without_edges_or_variables_have_answers():
    model = tt.CountModel(np.zeros(3), edges=tt.Forest([], np.zeros((4, 0, 2, 2))))
    assert model.marginals.tolist() == [[0.5] * 3] * 4
    assert model.edge_marginals.shape == (4, 0, 2, 2)
    assert model.sample(2, rng=0).shape == (2, 4, 3)
    assert model.entropy == pytest.approx([3 * math.log(2.0)] * 4)
    assert np.exp(model.count_log_probs())[0] == pytest.approx([1 / 8, 3 / 8, 3 / 8, 1 / 8])
    nothing = tt.CountModel(np.zeros(0), edges=tt.Forest([], np.zeros((0, 2, 2))))
    assert nothing.log_partition == nothing.entropy == 0.0
    assert nothing.sample(3, rng=0).shape == (3, 0)


def test_float32_logits_give_float32_vectors_and_float64_numbers():
    logits = np.array([4e6, 0.3, -1.0], np.float32)
    edges = tt.Forest([(0, 1)], 0.5)
    model = tt.CountModel(logits, tt.at_most(2), edges=edges)
    exact = tt.CountModel(logits.astype(np.float64), tt.at_most(2), edges=edges)
    assert model.marginals.dtype == model.edge_marginals.dtype == model.count_log_probs().dtype == np.float32
    for found, right in (
        (model.log_partition, exact.log_partition),
        (model.entropy, exact.entropy),
        (model.error_bound, exact.error_bound),
        (model.log_prob([1, 0, 0]), exact.log_prob([1, 0, 0])),
        (model.kl_divergence(tt.CountModel(np.zeros(3))), exact.kl_divergence(tt.CountModel(np.zeros(3)))),
    ):
        assert found.dtype == np.float64
        assert found == right


# -- messages to forced variables ------------------------------------------------------------------------------


def true_cavities(theta, sets, edges):
    """Log-odds of every variable from the others alone."""
    found = []
    for d in range(len(theta)):
        without = np.array(theta, float)
        without[d] = 0.0
        y, log_p = enumerated(without, sets, edges)
        found.append(true_odds(y, log_p)[d])
    return np.array(found)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_message_to_a_forced_variable_comes_from_the_others_alone(engine):
    with config.using(engine=engine):
        edges = tt.Forest([(0, 1)], [[[0.0, -INF], [0.0, 0.0]]])
        model = tt.CountModel([INF, 0.0], [0.0, 0.0, 0.0], edges=edges)
        assert model.cavity_logits == pytest.approx([math.log(2.0), 0.0], abs=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(12))
def test_messages_with_infinite_logits_groups_and_edges(seed, engine):
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=6) * rng.choice([1.0, 300.0])
    theta[rng.random(6) < 0.4] = INF
    theta[rng.random(6) < 0.3] = -INF
    pairs = [(int(rng.integers(j)), j) for j in range(1, 6)]
    tables = rng.normal(size=(5, 2, 2)) * rng.choice([1.0, 200.0])
    counts = rng.normal(size=7) * rng.choice([1.0, 200.0])
    want = true_cavities(theta, [(list(range(6)), counts)], list(zip(pairs, tables)))
    with config.using(engine=engine):
        found = tt.CountModel(theta, counts, edges=tt.Forest(pairs, tables)).cavity_logits
    assert found == pytest.approx(want, rel=1e-10, abs=1e-9)


def test_tilts_from_an_answer_that_overflows_are_finite():
    """Log-probabilities of an answer that is not certain may be anything; tilts are searched without a warning."""
    problem = tt.ChainModel(np.zeros((5, 2)), np.zeros((2, 2)), tt.exactly(1))._problem
    found, tilter, rows = infer(problem), Tilter(problem), np.arange(1)
    for value in (800.0, math.inf, -math.inf, math.nan):
        found.log_beliefs = np.full_like(found.log_beliefs, -900.0)
        found.log_beliefs[:, 1] = value
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert np.isfinite(tilter.again(found, tilter.first(), rows)).all()


# -- bounds of many variables ----------------------------------------------------------------------------------


def test_a_bound_of_rounding_alone_does_not_end_in_logarithms(monkeypatch):
    # A unit of rounding a thousand times as large stands for a thousand times as many variables.
    n = 3000
    rng = np.random.default_rng(0)
    chain = tt.Forest(np.stack([np.arange(n - 1), np.arange(1, n)], 1), coupling=rng.normal(size=n - 1))
    logits = rng.normal(size=n)
    plain = tt.CountModel(logits, tt.exactly(n // 3), edges=chain)
    assert plain.error_bound < 1e-10
    monkeypatch.setattr(certificate, "UNIT_ROUNDOFF", 1000.0 * certificate.UNIT_ROUNDOFF)
    monkeypatch.setattr(ladder, "_certain", lambda *_: pytest.fail("quadratic time for nothing"))
    rounded = tt.CountModel(logits, tt.exactly(n // 3), edges=chain)
    assert 1e-9 < rounded.error_bound < 3e-9
    np.testing.assert_allclose(rounded.posterior_logits, plain.posterior_logits, atol=1e-10)
    counts = rounded.count_log_probs()
    assert counts[n // 3] == pytest.approx(0.0, abs=1e-8)


@pytest.mark.skipif(config.native() is None, reason="needs the compiled engine")
def test_long_chains_are_certified_with_room_to_spare():
    # Most of the noise is that of short transforms; a chain of 10^6 has ten times this bound and 1e-9 to spend.
    n = 100_000
    rng = np.random.default_rng(0)
    chain = tt.Forest(np.stack([np.arange(n - 1), np.arange(1, n)], 1), coupling=rng.normal(size=n - 1))
    model = tt.CountModel(rng.normal(size=n), tt.exactly(n // 3), edges=chain)
    assert model.error_bound < 1.25e-10


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_tile_of_counts_cannot_hold_is_not_certain_to_be_impossible(engine):
    """All or none are on, and the edges allow only all: weights 1200 nats above that one have its place in a tile."""
    all_or_none = [0.0, -INF, -INF, -INF, 0.0]
    tables = [np.zeros((2, 2)), [[-INF, 0.0], [-INF, 0.0]], [[500.0, 0.0], [0.0, -700.0]]]
    with config.using(engine=engine):
        model = tt.CountModel(
            np.zeros(4), [tt.Group(range(4), all_or_none)], edges=tt.Forest([(2, 0), (3, 0), (3, 1)], tables)
        )
        np.testing.assert_array_equal(model.count_log_probs(0), [-INF, -INF, -INF, -INF, 0.0])
        assert model.log_partition == -700.0
        assert model.entropy == pytest.approx(0.0, abs=1e-10)


@pytest.mark.parametrize("engine", ["native", "array"])
@pytest.mark.parametrize("n", [6, 61, 400])
@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_sets_that_contradict_one_another_are_refused(n, scale, engine):
    """Each set is possible, all of them are not: the compiled pass once wrote in front of its rows."""
    rng, half = np.random.default_rng(n), n // 2
    logits, pairs = rng.normal(size=n) * scale, [(i, i + 1) for i in range(n - 1)]
    blocks = [
        tt.Group(range(n), tt.at_most(half)),
        tt.Group(range(half), tt.exactly(half)),
        tt.Group(range(half, n), tt.exactly(n - half)),
    ]
    tables = rng.normal(size=(n - 1, 2, 2))
    nothing = tt.Group(range(half), np.full(half + 1, -np.inf))
    with config.using(engine=engine):
        for groups in (blocks, [nothing], [nothing, blocks[2]]):
            model = tt.CountModel(logits, groups, edges=tt.Forest(pairs, tables))
            chain = tt.ChainModel(np.stack([np.zeros(n), logits], 1), tables, groups)
            for ask in (
                lambda m: m.log_partition,
                lambda m: m.marginals,
                lambda m: m.mode(),
                lambda m: m.sample(2),
            ):
                for impossible in (model, chain):
                    with pytest.raises(tt.InfeasibleError):
                        ask(impossible)
