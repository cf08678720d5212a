"""Named potentials with one parameter per model, against one scalar potential per model."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import tallytree as tt
from tallytree.assignment import Assignment
from tallytree.errors import InfeasibleError, ParameterError

INF = np.inf
CASES = [
    (tt.exactly, {"k": [0, 3, 5]}),
    (tt.at_least, {"k": [0, 3, 5]}),
    (tt.at_most, {"k": [0, 3, 9]}),
    (tt.between, {"lo": [0, 1, 5], "hi": [0, 3, 9]}),
    (tt.between, {"lo": 1, "hi": [1, 3, 9]}),
    (tt.one_of, {"counts": [[0, 0], [5, 2], [1, 9]]}),
    (tt.modulo, {"m": [1, 2, 7], "r": [0, 1, 5]}),
    (tt.noisy_or, {"rate": [1e-12, 0.5, 1.0], "leak": [0.0, 1e-9, 1.0]}),
    (tt.noisy_or, {"rate": 0.25, "leak": 0.125, "t": [0, 1, 0]}),
    (tt.noisy_or, {"rate": [0.0, 0.5, 1.0], "leak": [0.5, 0.0, 0.25], "t": [0, 1, 0]}),
    (tt.noisy_and, {"rate": [0.5, 1e-3, 1.0], "leak": 0.25, "t": [0, 1, 0]}),
    (tt.gaussian, {"mean": [-4.0, 2.5, 100.0], "sd": [0.5, 2.0, 0.1]}),
    (tt.gaussian, {"mean": [0.0, 0.5, 2.0], "sd": 0.25, "fraction": True}),
    (tt.poisson, {"mean": [0.0, 2.5, 1e6]}),
    (tt.geometric, {"ratio": [0.0, 0.5, 1e300]}),
    (tt.spike_and_slab, {"spike": [0.0, 3.0, 1e-18], "slab": [1.0, 0.0, 1.0]}),
    (tt.all_or_none, {"strength": [0.0, 2.0, INF]}),
    (tt.all_or_none, {"strength": 2.0, "truncation": [1e-310, 1.5, 9.0]}),
    (tt.quadratic, {"curvature": [1.0, -2.0, 0.0]}),
    (tt.quadratic, {"curvature": [1.0, -2.0, 0.0], "center": [0.0, 2.5, 9.0]}),
    (tt.exponential_mixture, {"coefficients": [[1.0, -1.0], [1.0, 2.0], [0.5, 1e-9]], "rates": [1.0, 0.5]}),
    (
        tt.exponential_mixture,
        {"coefficients": [1.0, 1.0], "rates": [[1.0, -1.0], [1e200, 0.0], [1e-200, 3.0]]},
    ),
]
LISTS = (tt.one_of, tt.exponential_mixture)


def scalars(factory, numbers):
    """The three potentials, each made alone."""
    depth = 1 if factory in LISTS else 0

    def own(value, i):
        return value[i] if np.ndim(value) > depth else value

    return [factory(**{name: own(value, i) for name, value in numbers.items()}) for i in range(3)]


@pytest.mark.parametrize(("factory", "numbers"), CASES)
def test_tables_supports_and_texts_are_those_of_the_single_potentials(factory, numbers):
    many, alone = factory(**numbers), scalars(factory, numbers)
    assert many.batch_shape == (3,)
    for n in (5, 20):
        expected = np.stack([p.log_table(n) for p in alone])
        found = many.log_table(n)
        assert found.shape == (3, n + 1)
        np.testing.assert_allclose(found, expected, rtol=2e-15, atol=1e-300)
        assert [tuple(ends) for ends in np.transpose(many.support(n)).tolist()] == [
            _ends(table) for table in expected
        ]
        assert many.mixture(n) is None
    assert eval(repr(many), {"np": np, **vars(tt)}) == many
    copy = pickle.loads(pickle.dumps(many))
    assert copy == many
    assert hash(copy) == hash(many)
    assert many != alone[0]


def _ends(table):
    possible = np.flatnonzero(table > -INF)
    return int(possible[0]), int(possible[-1])


@pytest.mark.parametrize(("factory", "numbers"), CASES)
def test_models_are_those_of_the_single_potentials(factory, numbers):
    logits = np.random.default_rng(0).normal(size=(3, 6))
    many = tt.CountModel(logits, factory(**numbers))
    for i, potential in enumerate(scalars(factory, numbers)):
        alone = tt.CountModel(logits[i], potential.log_table(6))
        np.testing.assert_allclose(many.log_partition[i], alone.log_partition, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(many.marginals[i], alone.marginals, rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize(("factory", "numbers"), CASES)
def test_combinations_are_combined_per_model(factory, numbers):
    many, alone = factory(**numbers), scalars(factory, numbers)
    powers = [0.5, 2.0, 3.0]
    combined = (~many) ** powers * tt.geometric(0.5)
    expected = [((~p) ** e * tt.geometric(0.5)).log_table(5) for p, e in zip(alone, powers)]
    np.testing.assert_allclose(combined.log_table(5), expected, rtol=4e-15, atol=1e-300)
    assert combined.batch_shape == (3,)
    assert eval(repr(combined), {"np": np, **vars(tt)}) == combined
    assert ~~many == many


def test_parameters_broadcast_with_one_another_and_with_the_logits():
    pair = tt.between(np.array([[0], [2]]), np.array([2, 3, 4]))
    assert pair.batch_shape == (2, 3)
    assert pair.log_table(4)[1, 0].tolist() == [-INF, -INF, 0.0, -INF, -INF]
    assert tt.CountModel(np.zeros(4), pair).marginals.shape == (2, 3, 4)
    assert tt.CountModel(np.zeros((3, 4)), pair).batch_shape == (2, 3)
    assert tt.CountModel(np.zeros((0, 4)), tt.exactly(np.zeros(0, int))).marginals.shape == (0, 4)
    assert tt.exactly(np.array([3])).batch_shape == (1,)


def test_groups_of_a_list_take_them():
    rng = np.random.default_rng(1)
    logits, inner, outer = rng.normal(size=(4, 6)), np.array([0, 1, 2, 3]), np.array([3, 4, 5, 6])
    many = tt.CountModel(
        logits, [tt.Group(range(3), tt.exactly(inner)), tt.Group(range(6), tt.at_most(outer))]
    )
    for i in range(4):
        groups = [
            tt.Group(range(3), tt.exactly(int(inner[i]))),
            tt.Group(range(6), tt.at_most(int(outer[i]))),
        ]
        alone = tt.CountModel(logits[i], groups)
        np.testing.assert_allclose(many.marginals[i], alone.marginals, rtol=1e-11)


def test_ragged_models_take_one_parameter_each():
    rows = [[0.0, 1.0], [0.5, -0.5, 2.0], [1.0, -1.0]]
    bags = tt.RaggedBatch(rows, tt.exactly([1, 2, 0]))
    for row, k, found in zip(rows, [1, 2, 0], bags.marginals):
        np.testing.assert_allclose(found, tt.CountModel(row, tt.exactly(k)).marginals, rtol=1e-12)
    with pytest.raises(ParameterError, match=r"batch shape \(2,\), which does not broadcast against \(3,\)"):
        tt.RaggedBatch(rows, tt.exactly([1, 2]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: tt.exactly([1, -1]),
            "Model 1: `k` of `exactly` must be an integer of at least 0; -1 arrived",
        ),
        (lambda: tt.exactly([[1, 2], [3, -4]]), r"Model \(1, 1\): `k` .* -4 arrived"),
        (
            lambda: tt.exactly([1.0, 2.0]),
            "Model 0: `k` of `exactly` must be an integer of at least 0; 1.0 arrived. Convert",
        ),
        (lambda: tt.exactly([True, False]), "Model 0: .* True arrived"),
        (
            lambda: tt.exactly(np.array([1, 2**63], np.uint64)),
            "Model 1: .* 64 bits.*; 9223372036854775808",
        ),
        (lambda: tt.exactly([1, None]), "Model 1: .*None arrived"),
        (lambda: tt.exactly([[1, 2], [3]]), "ragged"),
        (lambda: tt.between([1, 3], [2, 2]), "Model 1: `between` needs lo <= hi; lo = 3 and hi = 2"),
        (lambda: tt.one_of(np.zeros((2, 0), int)), "Model 0: .*at least one count"),
        (lambda: tt.modulo(3, [0, 3]), "Model 1: .*r < m"),
        (lambda: tt.noisy_or([0.5, 0.0]), "Model 1: .*probability is 0 for every count"),
        (lambda: tt.noisy_or(0.5, t=[0, 2]), "Model 1: .*between 0 and 1; 2 arrived"),
        (lambda: tt.gaussian(1.0, [1.0, 0.0]), "Model 1: `sd`"),
        (lambda: tt.gaussian([1.0], 1.0, fraction=2), "`fraction` of `gaussian` must be True or False"),
        (lambda: tt.poisson(["a"]), "Model 0: `mean`"),
        (lambda: tt.exponential_mixture([[1.0, 2.0], [0.0, 0.0]], [1.0, 2.0]), "Model 1: .*other than 0"),
        (lambda: tt.exactly([1, 2]) * tt.exactly([1, 2, 3]), r"shapes \(2,\) and \(3,\) arrived"),
        (lambda: tt.exactly([1, 2]) ** [1.0, 0.0], "Model 1: `exponent`"),
        (lambda: tt.exactly([1, 2]) ** [1.0, 2.0, 3.0], r"shapes \(2,\) and \(3,\)"),
        (lambda: tt.exactly([1, 9]).log_table(3), r"Model 1: `exactly\(9\)` needs a group of at least 9"),
        (lambda: tt.noisy_or([0.5, 0.5], leak=[0.1, 0.0]).log_table(0), "Model 1: .*`leak`"),
        (lambda: tt.gaussian([0.0, 1e200], 1e-200).log_table(3), "Model [01]: .*overflows"),
        (lambda: tt.exponential_mixture([[1.0], [-1.0]], [1.0]).log_table(3), "Model 1: .*negative"),
        (lambda: (tt.quadratic([1.0, -1e300]) ** 1e10).log_table(3), "of model 1 at count 0 overflows"),
        (lambda: tt.CountModel(np.zeros((3, 4)), tt.exactly([1, 2])), "broadcast"),
    ],
)
def test_errors_name_the_model(make, message):
    with pytest.raises(ParameterError, match=message):
        make()


def test_an_impossible_product_is_named():
    with pytest.raises(InfeasibleError, match=r"Model 1: `exactly\(1\) \* exactly\(2\)` allows no count"):
        (tt.exactly(1) * tt.exactly([1, 2])).support(3)


def test_long_columns_print_as_their_length_and_cannot_be_changed():
    ks = np.arange(2000)
    many = tt.at_most(ks)
    assert repr(many) == "at_most(<2000 numbers>)"
    ks[:] = 0
    assert many.log_table(3)[2].tolist() == [0.0, 0.0, 0.0, -INF]


@pytest.mark.parametrize("lengths", [None, [5, 3, 4]])
def test_chains_take_one_parameter_per_sequence(lengths):
    rng = np.random.default_rng(2)
    unary, steps, ks = rng.normal(size=(3, 5, 2)), rng.normal(size=(2, 2)), [0, 2, 3]
    many = tt.ChainModel(unary, steps, counts=tt.exactly(ks), lengths=lengths)
    for i, k in enumerate(ks):
        n = 5 if lengths is None else lengths[i]
        alone = tt.ChainModel(unary[i, :n], steps, counts=tt.exactly(k))
        np.testing.assert_allclose(many.log_partition[i], alone.log_partition, rtol=1e-11)
    with pytest.raises(ParameterError, match="broadcast"):
        _ = tt.ChainModel(unary, steps, counts=tt.exactly([1, 2]), lengths=lengths).log_partition


def test_assignments_take_one_parameter_per_row():
    affinity = np.random.default_rng(3).normal(size=(3, 4))
    listed = [tt.exactly(1), tt.exactly(2), tt.exactly(0)]
    many = Assignment(affinity, rows=tt.exactly([1, 2, 0]), columns=tt.at_most(1))
    alone = Assignment(affinity, rows=listed, columns=tt.at_most(1))
    np.testing.assert_array_equal(many.loopy_bp().marginals, alone.loopy_bp().marginals)
    np.testing.assert_allclose(many.loopy_bp().marginals.sum(axis=1), [1, 2, 0], atol=1e-9)
    with pytest.raises(ParameterError, match=r"parameters of shape \(2,\)"):
        Assignment(affinity, rows=tt.exactly([1, 2]))
