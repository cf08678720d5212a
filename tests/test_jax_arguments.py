"""Wrong arguments of `tallytree.jax`: a typed error that says what to do, or NaN where nothing can be raised."""

from __future__ import annotations

import re

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import tallytree as tt  # noqa: E402
import tallytree.jax as ttj  # noqa: E402

KEY = jax.random.key(0)
ZEROS = jnp.zeros(4)
BAGS, ONES = jnp.array([0, 0, 1, 1]), jnp.array([1, 1])
LOSSES = ttj.losses


def refused(call, *words):
    with pytest.raises(tt.ParameterError) as caught:
        call()
    for word in words:
        assert re.search(word, str(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    ("logits", "words"),
    [
        (KEY, "`logits` must hold real numbers.*key"),
        (np.zeros(3, [("a", float)]), "`logits` must hold real numbers"),
        (np.ma.masked_array([1.0, 2.0], [True, False]), "`logits` must not be masked"),
        ([KEY], "`logits` must be a rectangular array of numbers"),
    ],
    ids=["key", "records", "masked", "list of keys"],
)
def test_what_is_no_array_of_numbers(logits, words):
    refused(lambda: ttj.log_partition(logits, None), words)
    refused(lambda: LOSSES.bag_nll(logits, None, 1), words)


def test_floats_that_jax_has_not_and_lists_of_traced_numbers():
    assert ttj.log_partition(np.zeros(4, np.longdouble)).dtype == np.float64
    found = jax.jit(lambda x: ttj.log_partition([x, x, x]))(0.0)
    assert float(found) == pytest.approx(3.0 * np.log(2.0), rel=1e-6)


@pytest.mark.parametrize("potential", [ttj.exactly, ttj.at_least, ttj.at_most])
def test_counts_of_potentials_are_integers(potential):
    refused(lambda: potential(True), "`k` must be an integer.*True")
    refused(lambda: potential(2**70), "`k` must be an integer of at most 64 bits")
    refused(lambda: potential([[1], [1, 2]]), "`k` must be an integer or an array of integers")
    refused(lambda: potential([KEY]), "`k` must be an integer or an array of integers")
    refused(lambda: potential(1).log_table("a"), "`n` must be an integer of at least 0")
    refused(lambda: potential(1).log_table(1.5), "`n` must be an integer of at least 0")


def test_numbers_of_potentials_are_real_and_go_together():
    refused(
        lambda: ttj.gaussian([1.0, 2.0], [1.0, 2.0, 3.0]), "`gaussian` must broadcast", r"\(2,\) and \(3,\)"
    )
    refused(lambda: ttj.between(jnp.array([1, 2]), jnp.array([1, 2, 3])), "`between` must broadcast")
    refused(lambda: ttj.noisy_or(jnp.full(2, 0.5), jnp.full(3, 0.5)), "`noisy_or` must broadcast")
    for wrong in ("1.5", None, True, 1j, jnp.zeros(2, complex), np.ones(2, bool)):
        refused(lambda wrong=wrong: ttj.gaussian(wrong, 1.0), "`mean` must be real numbers")
        refused(lambda wrong=wrong: ttj.poisson(wrong), "`mean` must be real numbers")
    refused(lambda: jax.jit(lambda x: ttj.gaussian(x, 1.0).log_table(2))(1j), "`mean` must be real numbers")
    refused(lambda: ttj.ArrayPotential("exact", (1,)), "`name` must be one of 'exactly'")
    refused(
        lambda: ttj.ArrayPotential("between", (1,)), "tuple of 2, the lo and the hi of `between`; 1 arrived"
    )
    refused(lambda: ttj.ArrayPotential("exactly", (1, 2)), "tuple of 1, the k of `exactly`; 2 arrived")
    refused(lambda: ttj.ArrayPotential("exactly", 1), "`parameters` must be a tuple of 1")


@pytest.mark.parametrize(
    "potential",
    [
        lambda x: ttj.gaussian(1.0, x),
        ttj.poisson,
        ttj.geometric,
        ttj.noisy_or,
        lambda x: ttj.noisy_or(0.5, x),
        lambda x: ttj.noisy_or(2.0 - x),
    ],
    ids=["gaussian", "poisson", "geometric", "rate", "leak", "rate above 1"],
)
def test_traced_numbers_out_of_range_give_nan(potential):
    assert np.isnan(jax.jit(lambda x: potential(x).log_table(3))(-0.5)).all()


@pytest.mark.parametrize(
    "groups", [None, [tt.Group([0, 1], tt.exactly(1)), tt.Group(None, tt.at_most(3))]], ids=["flat", "nested"]
)
def test_traced_models_without_a_state_have_no_draw_and_no_mode(groups):
    def states(x, table):
        both = [*groups, tt.Group(range(3), table)] if groups else [tt.Group(None, table)]
        both = both if groups is None else [both[0], both[2]]
        return ttj.sample(KEY, x, both, sample_shape=(2,)), ttj.mode(x, both)

    size = 5 if groups is None else 4
    asked = jax.jit(jax.vmap(states))
    x = np.zeros((4, 4))
    x[1, 3] = np.nan
    tables = np.zeros((4, size))
    tables[2], tables[3, 1] = -np.inf, np.nan
    draws, modes = asked(x, tables)
    assert np.isfinite(draws[0]).all()
    assert np.isfinite(modes[0]).all()
    assert np.isnan(draws[1:]).all()
    assert np.isnan(modes[1:]).all()


@pytest.mark.parametrize(
    "key", [jax.random.split(KEY, 2), [KEY], None, 0, jnp.zeros(2), object()], ids=range(6)
)
def test_keys_of_the_wrong_kind(key):
    refused(lambda: ttj.sample(key, ZEROS, tt.exactly(1)), "`key` must be one key of jax.random")


@pytest.mark.parametrize("loss", [LOSSES.bag_nll, LOSSES.proportion_nll, LOSSES.mil_nll])
def test_arguments_of_losses(loss):
    target = {"bag_nll": "counts", "proportion_nll": "proportions", "mil_nll": "labels"}[loss.__name__]
    for wrong in (None, "ab", [[1], [1, 1]], object(), jnp.array([1j, 1]), KEY, ["a", "b"]):
        refused(lambda wrong=wrong: loss(ZEROS, BAGS, wrong), f"`{target}` must be one number per bag")
    for wrong in ("ab", [[1], [1, 1]], object(), KEY, jnp.zeros(4), np.zeros(4, bool)):
        refused(lambda wrong=wrong: loss(ZEROS, wrong, ONES), "`bags` must be integers on one axis")
    for wrong in (None, "ab", jnp.zeros(4, complex), object(), KEY):
        refused(lambda wrong=wrong: loss(wrong, BAGS, ONES), "`logits` must hold real numbers")
    refused(lambda: loss(ZEROS, [0, 2], ONES, offsets="no"), "`offsets` must be True or False")
    refused(lambda: loss(jnp.zeros((2, 2)), None, jnp.array([1])), f"`{target}` must have one entry per bag")


def test_labels_are_zeros_and_ones():
    refused(lambda: LOSSES.mil_nll(ZEROS, BAGS, jnp.array([2, 1])), "`labels` must hold zeros and ones")
    traced = jax.jit(lambda t: LOSSES.mil_nll(ZEROS, BAGS, t, reduction="none"))(jnp.array([2, 1]))
    assert np.isnan(traced[0])
    assert float(traced[1]) == pytest.approx(-np.log(0.75), rel=1e-6)
    for wrong in (
        "abcd",
        [0.5, 0, 0, 0],
        [np.nan, 0, 0, 0],
        [2, 0, 0, 0],
        [[True], [True, False]],
        None,
        KEY,
    ):
        refused(
            lambda wrong=wrong: LOSSES.positive_unlabelled_nll(ZEROS, wrong, BAGS, ONES),
            "`labelled` must (hold|be) zeros and ones",
        )
    marked = jax.jit(lambda t: LOSSES.positive_unlabelled_nll(ZEROS, t, BAGS, ONES, reduction="none"))
    found = marked(jnp.array([0.5, 0.0, 1.0, 0.0]))
    assert np.isnan(found[0])
    assert float(found[1]) == pytest.approx(np.log(4.0), rel=1e-6)


def test_traced_proportions_out_of_range_give_nan():
    share = jnp.array([1.2, 0.5])  # of two items, it would round to two
    found = jax.jit(lambda t: LOSSES.proportion_nll(ZEROS, BAGS, t, reduction="none"))(share)
    assert np.isnan(found[0])
    assert float(found[1]) == pytest.approx(np.log(2.0), rel=1e-6)


def test_arguments_of_distributions():
    numpyro = pytest.importorskip("tallytree.jax.numpyro")
    whole = jnp.zeros(4, int)  # an answer in the dtype of integers would be cut to an integer
    state = jnp.array([1.0, 0.0, 0.0, 0.0])
    assert float(numpyro.CountDistribution(whole, tt.exactly(1)).log_prob(state)) == pytest.approx(
        -np.log(4.0)
    )
    assert float(numpyro.PoissonBinomial(whole).log_prob(1)) == pytest.approx(-np.log(4.0))
    assert float(numpyro.PoissonBinomial(probs=[0.5, 0.5]).log_prob(1)) == pytest.approx(-np.log(2.0))
    for wrong in ("ab", jnp.zeros(2, complex), KEY, object()):
        refused(lambda wrong=wrong: numpyro.PoissonBinomial(wrong), "`logits` must hold real numbers")
        refused(lambda wrong=wrong: numpyro.PoissonBinomial(probs=wrong), "`probs` must hold real numbers")
    refused(
        lambda: numpyro.PoissonBinomial(jnp.array([np.nan, 0.0])),
        "`logits` must be an array of log-odds; entry 0 is NaN",
    )
    subset = numpyro.CountDistribution(ZEROS, tt.exactly(1), validate_args=False)
    count = numpyro.PoissonBinomial(ZEROS, validate_args=False)
    for law in (subset, count):
        refused(lambda law=law: law.sample(0), "`key` must be one key")
        refused(lambda law=law: law.sample(KEY, 3), "`sample_shape` must be a tuple")
        refused(lambda law=law: law.log_prob("ab"), "`value` must be")
        refused(lambda law=law: law.log_prob(None), "`value` must be")
    assert subset.log_prob(jnp.array([0.5, 0.0, 0.0, 0.0])) == -np.inf
    assert subset.log_prob(jnp.array([2.0, 0.0, 0.0, 0.0])) == -np.inf
    np.testing.assert_array_equal(count.log_prob(jnp.array([1.5, -1.0, 5.0, np.nan])), -np.inf)


def test_traced_nan_draws_no_count():
    numpyro = pytest.importorskip("tallytree.jax.numpyro")

    def draw(logits):
        return numpyro.PoissonBinomial(logits, validate_args=False).sample(KEY, (3,))

    found = np.asarray(jax.jit(draw)(jnp.array([[0.0, np.nan], [20.0, -20.0]])))
    np.testing.assert_array_equal(found, [[-1, 1]] * 3)
    np.testing.assert_array_equal(draw(jnp.array([[20.0, 20.0], [20.0, -20.0]])), [[2, 1]] * 3)
