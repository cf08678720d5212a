"""Chains of labels with counts, against enumeration of all label sequences."""

from __future__ import annotations

import math
import pickle
from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

import tallytree as tt

INF = math.inf


class Truth:
    """All sequences of labels of one chain with their log-weights."""

    def __init__(self, unary, transitions, groups, scores):
        n, k = unary.shape
        self.labels = np.array(list(product(range(k), repeat=n)))
        y = self.labels
        self.score = scores[np.arange(n), y]
        weight = unary[np.arange(n), y].sum(1)
        weight = weight + transitions[np.arange(n - 1), y[:, :-1], y[:, 1:]].sum(1)
        for members, table in groups:
            weight = weight + np.asarray(table)[self.score[:, members].sum(1)]
        self.weight = weight
        self.log_z = logsumexp(weight)
        self.prob = np.exp(weight - self.log_z)
        self.shape = (n, k)

    @property
    def marginals(self):
        n, k = self.shape
        return np.array([[self.prob[self.labels[:, t] == a].sum() for a in range(k)] for t in range(n)])

    @property
    def pairs(self):
        n, k = self.shape
        y = self.labels
        return np.array(
            [
                [[self.prob[(y[:, t] == a) & (y[:, t + 1] == b)].sum() for b in range(k)] for a in range(k)]
                for t in range(n - 1)
            ]
        ).reshape(n - 1, k, k)

    def counts(self, members, size):
        return np.bincount(self.score[:, members].sum(1), self.prob, minlength=size)

    @property
    def entropy(self):
        p = self.prob[self.prob > 0]
        return -(p * np.log(p)).sum()


def random_chain(rng, k, zeros=0.0):
    n = int(rng.integers(1, {2: 9, 3: 7, 4: 6}[k]))
    unary, transitions = rng.normal(size=(n, k)), rng.normal(size=(n - 1, k, k))
    scores = (
        rng.integers(0, 4, size=(n, k))
        if rng.random() < 0.5
        else np.tile(np.arange(k) == 1, (n, 1)).astype(int)
    )
    hidden = rng.integers(0, k, n)
    blocked = rng.random((n, k)) < zeros
    blocked[np.arange(n), hidden] = False
    unary[blocked] = -INF
    blocked = rng.random(transitions.shape) < zeros
    blocked[np.arange(n - 1), hidden[:-1], hidden[1:]] = False
    transitions[blocked] = -INF
    groups = []
    for members in intervals(list(range(n)), rng):
        size = int(scores[members].max(axis=1).sum()) + 1
        table = rng.normal(size=size)
        impossible = rng.random(size) < zeros
        impossible[scores[members, hidden[members]].sum()] = False
        table[impossible] = -INF
        groups.append((members, table))
    return unary, transitions, groups, scores


def intervals(span, rng):
    own = [span] if rng.random() < 0.7 else []
    if len(span) < 2:
        return own
    cut = int(rng.integers(1, len(span)))
    return own + intervals(span[:cut], rng) + intervals(span[cut:], rng)


def model_of(unary, transitions, groups, scores, **options):
    return tt.ChainModel(
        unary, transitions, [tt.Group(m, t) for m, t in groups] or None, scores=scores, **options
    )


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("zeros", [0.0, 0.3])
def test_chains_with_labels_and_scores_agree_with_enumeration(k, zeros):
    rng = np.random.default_rng(10 * k)
    for _ in range(15):
        case = random_chain(rng, k, zeros)
        model, truth = model_of(*case), Truth(*case)
        assert model.log_partition == pytest.approx(truth.log_z, abs=1e-10)
        np.testing.assert_allclose(model.marginals, truth.marginals, atol=1e-11)
        np.testing.assert_allclose(model.edge_marginals, truth.pairs, atol=1e-11)
        assert model.entropy == pytest.approx(truth.entropy, abs=1e-9)
        for g, (members, table) in enumerate(case[2]):
            np.testing.assert_allclose(
                np.exp(model.count_log_probs(g)), truth.counts(members, len(table)), atol=1e-11
            )
        everything = list(range(len(case[0])))
        size = int(case[3].max(axis=1).sum()) + 1
        np.testing.assert_allclose(
            np.exp(model.count_log_probs()), truth.counts(everything, size), atol=1e-11
        )
        np.testing.assert_allclose(np.exp(model.log_prob(truth.labels)), truth.prob, atol=1e-11)
        found = model.log_prob(model.mode())
        assert found == pytest.approx(truth.weight.max() - truth.log_z, abs=1e-9)


def test_samples_of_labels_follow_the_joint_distribution():
    rng = np.random.default_rng(1)
    values = []
    for i in range(25):
        case = random_chain(rng, 3, 0.1)
        model, truth = model_of(*case), Truth(*case)
        n, k = truth.shape
        seen = np.bincount(model.sample(1500, rng=i) @ k ** np.arange(n)[::-1], minlength=k**n)
        expected = 1500 * truth.prob
        assert not seen[expected == 0].any()
        big = expected >= 8
        a, b = (np.append(x[big], x[~big].sum()) for x in (seen, expected))
        if (b > 1e-9).sum() > 1:
            values.append(stats.chisquare(a[b > 1e-9], b[b > 1e-9] * 1500 / b[b > 1e-9].sum()).pvalue)
    assert stats.kstest(values, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("potential", [tt.exactly(2), tt.at_least(1), tt.noisy_and(0.3)])
@pytest.mark.parametrize("scores", [[0, 1, 0], [1, 2, 1]])
def test_sequences_of_different_lengths_are_the_sequences_one_by_one(potential, scores):
    rng = np.random.default_rng(2)
    unary, transitions = rng.normal(size=(4, 6, 3)), rng.normal(size=(5, 3, 3))
    if scores[0]:
        potential = tt.gaussian(6.0, 1.5)
    lengths = np.array([6, 3, 2, 5])
    batch = tt.ChainModel(unary, transitions, potential, scores=scores, lengths=lengths)
    best, drawn = batch.mode(), batch.sample(5, rng=0)
    assert drawn.shape == (5, 4, 6)
    for b, n in enumerate(lengths):
        one = tt.ChainModel(unary[b, :n], transitions[: n - 1], potential, scores=scores)
        assert batch.log_partition[b] == pytest.approx(one.log_partition, abs=1e-11)
        np.testing.assert_allclose(batch.marginals[b, :n], one.marginals, atol=1e-12)
        assert not batch.marginals[b, n:].any()
        np.testing.assert_allclose(batch.edge_marginals[b, : n - 1], one.edge_marginals, atol=1e-12)
        assert not batch.edge_marginals[b, n - 1 :].any()
        assert batch.entropy[b] == pytest.approx(one.entropy, abs=1e-10)
        counts = np.exp(one.count_log_probs())
        np.testing.assert_allclose(np.exp(batch.count_log_probs()[b, : len(counts)]), counts, atol=1e-12)
        np.testing.assert_array_equal(best[b, :n], one.mode())
        assert (best[b, n:] == -1).all()
        assert (drawn[:, b, n:] == -1).all()
        assert batch.log_prob(best)[b] == pytest.approx(one.log_prob(one.mode()), abs=1e-10)


def test_with_two_labels_it_is_a_count_model_with_edges():
    rng = np.random.default_rng(3)
    n = 300
    theta, tables = rng.normal(size=n), rng.normal(size=(n - 1, 2, 2))
    chain = tt.ChainModel(np.stack([np.zeros(n), theta], -1), tables, tt.exactly(70))
    model = tt.CountModel(theta, tt.exactly(70), edges=tt.Forest([(i, i + 1) for i in range(n - 1)], tables))
    assert chain.log_partition == pytest.approx(model.log_partition, rel=1e-13)
    np.testing.assert_allclose(chain.marginals[:, 1], model.marginals, atol=1e-12)


def test_a_long_chain_of_ten_labels_keeps_its_sums():
    rng = np.random.default_rng(4)
    n, k = 700, 10
    model = tt.ChainModel(
        rng.normal(size=(n, k)), rng.normal(size=(n - 1, k, k)), tt.exactly(150), counted=[2, 7]
    )
    np.testing.assert_allclose(model.marginals.sum(-1), 1.0, atol=1e-12)
    assert model.marginals[:, [2, 7]].sum() == pytest.approx(150, abs=1e-9)
    np.testing.assert_allclose(model.edge_marginals.sum(-1), model.marginals[:-1], atol=1e-11)
    assert model.error_bound < 1e-10


def test_evidence_is_a_ratio_of_partition_functions():
    rng = np.random.default_rng(5)
    model = tt.ChainModel(rng.normal(size=(6, 3)), rng.normal(size=(3, 3)), tt.at_least(2))
    given = model.condition({2: 1})
    assert given.log_partition - model.log_partition == pytest.approx(model.log_marginals[2, 1], abs=1e-12)
    counted = model.condition_count(None, 4)
    assert counted.log_partition - model.log_partition == pytest.approx(model.count_log_probs()[4], abs=1e-11)


def test_expected_statistics_are_the_gradient_of_log_partition():
    rng = np.random.default_rng(6)
    unary, transitions, table = rng.normal(size=(4, 3)), rng.normal(size=(3, 3, 3)), rng.normal(size=5)
    model = tt.ChainModel(unary, transitions, table)
    found, step = model.expected_statistics, 1e-5
    for name, values, got in (
        ("log_unary", unary, found.unary),
        ("log_transitions", transitions, found.transitions),
    ):
        for index in np.ndindex(values.shape):
            moved = values.copy()
            moved[index] += step
            change = model.replace(**{name: moved}).log_partition - model.log_partition
            assert change / step == pytest.approx(got[index], abs=2e-5)
    for c in range(5):
        moved = table + step * (np.arange(5) == c)
        change = model.replace(tables=[moved]).log_partition - model.log_partition
        assert change / step == pytest.approx(found.tables[0][c], abs=2e-5)


def test_one_position_and_impossible_sequences():
    one = tt.ChainModel([[0.0, 1.0]], np.zeros((2, 2)), tt.exactly(1))
    assert one.marginals.tolist() == [[0.0, 1.0]]
    with pytest.raises(tt.InfeasibleError, match="zero to every sequence"):
        tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1), scores=[2, 2]).marginals  # noqa: B018


def test_it_pickles_compares_and_says_what_is_wrong():
    model = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1), lengths=[3, 2])
    again = pickle.loads(pickle.dumps(model))
    assert again == model
    assert hash(again) == hash(model)
    assert again != model.replace(tables=[tt.exactly(2)])
    assert repr(model) == "ChainModel(n_positions=3, n_labels=2, n_groups=1, batch_shape=(2,))"
    with pytest.raises(tt.ParameterError, match=r"`log_transitions` .* shape \(..., 2, 2\)"):
        tt.ChainModel(np.zeros((3, 2)), np.zeros((3, 3)))
    with pytest.raises(tt.ParameterError, match="whole numbers of at least 0"):
        tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), scores=[0, -1])
    with pytest.raises(tt.ParameterError, match="`lengths` must be an array of integers from 1 to 3"):
        tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), lengths=[4])
    with pytest.raises(tt.ParameterError, match="below \\+inf"):
        tt.ChainModel(np.full((3, 2), INF), np.zeros((2, 2)))


def test_a_group_of_one_position_behind_the_end_counts_nothing():
    groups = [tt.Group([2], [0.7, 3.0]), tt.Group([0, 1], [0.0, 0.0, 0.5])]
    model = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), groups, lengths=2)
    short = tt.ChainModel(np.zeros((2, 2)), np.zeros((2, 2)), [0.0, 0.0, 0.5])
    assert model.entropy == pytest.approx(short.entropy, rel=1e-14)
    assert model.log_partition == pytest.approx(short.log_partition + 0.7, rel=1e-14)
    assert np.exp(model.count_log_probs(0)).tolist() == [1.0, 0.0]
    assert model.expected_statistics.tables[0].tolist() == [1.0, 0.0]
    one = tt.ChainModel(np.zeros((2, 2)), np.zeros((2, 2)), [tt.Group([1], [0.0, 3.0])], lengths=1)
    assert one.entropy == pytest.approx(math.log(2.0))
    assert np.exp(one.count_log_probs(0)).tolist() == [1.0, 0.0]


def test_a_chain_of_one_position_has_no_transitions():
    for moves in (np.zeros((2, 2)), np.zeros((0, 2, 2)), np.zeros((4, 0, 2, 2))):
        model = tt.ChainModel(np.zeros((4, 1, 2)), moves, tt.exactly(1))
        assert model.marginals[..., 1].tolist() == [[1.0]] * 4
        assert model.edge_marginals.shape == (4, 0, 2, 2)
        assert model.entropy.tolist() == [0.0] * 4
        assert model.sample(3, rng=0).shape == (3, 4, 1)


def test_float32_weights_give_float32_vectors_and_float64_numbers():
    unary = np.array([[0.25, 4e6], [1.0, 0.5], [0.0, -2.0]], np.float32)
    model = tt.ChainModel(unary, np.zeros((2, 2)), [tt.Group(range(2), tt.at_most(1))])
    exact = tt.ChainModel(unary.astype(np.float64), np.zeros((2, 2)), [tt.Group(range(2), tt.at_most(1))])
    for name in ("marginals", "log_marginals", "edge_marginals"):
        assert getattr(model, name).dtype == np.float32
    assert model.count_log_probs().dtype == model.count_log_probs(0).dtype == np.float32
    for found, right in (
        (model.log_partition, exact.log_partition),
        (model.entropy, exact.entropy),
        (model.error_bound, exact.error_bound),
        (model.log_prob([1, 0, 0]), exact.log_prob([1, 0, 0])),
    ):
        assert found.dtype == np.float64
        assert found == right
    assert model.condition({0: 0}).marginals.dtype == np.float32


def test_groups_of_chains_are_numbered_from_either_end():
    groups = [tt.Group([0, 1], tt.at_most(1)), tt.Group(range(3), tt.exactly(2))]
    model = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), groups)
    assert model.count_log_probs(-1).tolist() == model.count_log_probs(1).tolist()
    assert model.condition_count(-2, 1).log_partition == model.condition_count(0, 1).log_partition
    for number in (2, -3):
        with pytest.raises(tt.ParameterError, match="0 to 1, or None for all positions"):
            model.count_log_probs(number)
    with pytest.raises(tt.ParameterError, match="has no groups"):
        tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2))).count_log_probs(0)


def test_wrong_arguments_of_chains_are_named():
    model = tt.ChainModel(np.zeros((4, 3, 2)), np.zeros((2, 2)), tt.exactly(1))
    for size in (-1, 1.5, (2, -1), "a"):
        with pytest.raises(tt.ParameterError, match="`size`"):
            model.sample(size)
    with pytest.raises(tt.ParameterError, match="`labels` has batch shape"):
        model.log_prob(np.zeros((3, 3), int))
    with pytest.raises(tt.ParameterError, match="Mapping"):
        model.condition([1])
    with pytest.raises(tt.ParameterError, match="Wrap each potential in a Group"):
        tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), [tt.Group([0, 1], tt.exactly(1)), tt.exactly(1)])


RAGGED = [[1], [1, 0]]


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("counted", lambda: tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1), counted=RAGGED)),
        ("scores", lambda: tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1), scores=RAGGED)),
        ("lengths", lambda: tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), lengths=RAGGED)),
        ("labels", lambda: tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2))).log_prob(RAGGED)),
    ],
)
def test_rows_of_different_lengths_are_refused_by_name(name, ask):
    with pytest.raises(tt.ParameterError, match=f"^`{name}` must .*rows of different lengths arrived"):
        ask()


def test_lengths_of_a_batch_of_no_chains():
    model = tt.ChainModel(np.zeros((0, 3, 2)), np.zeros((2, 2)), tt.at_most(1), lengths=np.zeros(0, int))
    assert model.log_partition.shape == (0,)
    assert model.sample(2, rng=0).shape == (2, 0, 3)


@pytest.mark.parametrize("potential", [None, tt.exactly(2)], ids=["plain", "counted"])
def test_labels_are_integers_of_the_usual_kind(potential):
    chain = tt.ChainModel(np.zeros((4, 2)), np.zeros((2, 2)), potential)
    assert "dtype" not in repr(chain.mode())
    assert "dtype" not in repr(chain.sample(rng=0))


def beliefs_of_a_chain(unary: np.ndarray, transitions: np.ndarray) -> np.ndarray:
    """Log of the weights of all sequences through every label, by forward and backward sums in extended precision."""
    u, w = unary - unary.max(1, keepdims=True), transitions.astype(np.longdouble)
    forward, backward = [u[0]], [np.zeros_like(u[0])]
    for t in range(1, len(u)):
        forward.append(np.logaddexp.reduce(forward[-1][:, None] + w[t - 1], axis=0) + u[t])
        backward.append(np.logaddexp.reduce(w[-t] + (u[-t] + backward[-1])[None], axis=1))
    return np.array(forward) + np.array(backward[::-1])


@pytest.mark.parametrize("offset", [0.0, 1e5])
@pytest.mark.parametrize("slope", [50.0, 500.0, -500.0])
def test_steep_tables_and_common_weights_do_not_cost_digits(slope, offset):
    """A table that is linear in the count is a weight of every counted label, and its size must not be rounded at."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        unary, transitions = rng.normal(size=(373, 2)) + offset, 2.0 * rng.normal(size=(372, 2, 2))
        chain = tt.ChainModel(unary, transitions, tt.Group(None, slope * np.arange(374)))
        log_weights = unary.astype(np.longdouble)
        log_weights[:, 1] += slope
        off, on = beliefs_of_a_chain(log_weights, transitions).T
        error = np.abs((chain.log_marginals[:, 1] - chain.log_marginals[:, 0]) - (on - off)).max()
        assert error <= chain.error_bound + 1e-14 * (1.0 + np.abs(on - off).max())


def test_chains_that_differ_by_a_constant_are_not_equal():
    unary = np.array([[0.0, 1.0], [0.5, 0.0]])
    first, second = (tt.ChainModel(u, np.zeros((2, 2)), tt.exactly(1)) for u in (unary, unary + 1.0))
    assert first != second
    assert second.log_partition == pytest.approx(first.log_partition + 2.0, abs=1e-14)


@pytest.mark.parametrize("none", [[], ()])
def test_no_groups_are_no_counts(none):
    chain = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), none)
    assert chain.n_groups == 0
    np.testing.assert_allclose(chain.log_partition, 3.0 * np.log(2.0))
