"""Weighted sums in NumPyro: values and gradients against NumPy, under jit and vmap."""

from __future__ import annotations

import numpy as np
import pytest

import tallytree as tt

jax = pytest.importorskip("jax")
pytest.importorskip("numpyro")

from tallytree.jax.numpyro import PoissonBinomial  # noqa: E402

WEIGHTS = [3, 1, 4, 1, 5, 9, 2, 6]


def test_values_and_gradients_are_right_under_transformations():
    logits = (np.random.default_rng(0).normal(size=(3, 8)) - 2.0).astype(np.float32)
    law = tt.PoissonBinomial(logits=logits.astype(float), weights=WEIGHTS)
    at = law.ppf(0.9)
    d = PoissonBinomial(logits, weights=WEIGHTS)
    np.testing.assert_allclose(d.log_sf(at), law.logsf(at), rtol=1e-5)
    np.testing.assert_allclose(d.log_prob(at), law.logpmf(at), rtol=1e-5)
    np.testing.assert_allclose(d.cdf(at), law.cdf(at), rtol=1e-5)
    np.testing.assert_allclose(d.mean, law.mean(), rtol=1e-5)

    def question(x, v):
        return PoissonBinomial(x, weights=WEIGHTS).log_sf(v)

    slope = jax.jit(jax.vmap(jax.grad(question)))(logits, at.astype(np.float32))
    want = np.stack([law._member(i).given(low=int(at[i]) + 1).marginals for i in range(3)]) - law.probs
    np.testing.assert_allclose(slope, want, rtol=2e-5, atol=1e-7)
    probs = jax.grad(lambda p: PoissonBinomial(probs=p, weights=WEIGHTS).log_sf(at[0]))(
        law.probs[0].astype(np.float32)
    )
    np.testing.assert_allclose(probs, want[0] / (law.probs[0] * (1 - law.probs[0])), rtol=2e-4)
    draws = d.sample(jax.random.key(0), (50,))
    assert draws.shape == (50, 3)
    leaves, structure = jax.tree_util.tree_flatten(d)
    np.testing.assert_allclose(structure.unflatten(leaves).log_sf(at), d.log_sf(at))


def test_what_weights_cannot_do_is_said():
    d = PoissonBinomial(np.zeros(3, np.float32), weights=[1, 2, 3])
    for ask in (d.entropy, d.count_log_probs, d.enumerate_support):
        with pytest.raises(tt.ParameterError, match="law of all sums"):
            ask()
    with pytest.raises(tt.ParameterError, match="`step` must be given with real"):
        PoissonBinomial(np.zeros(2, np.float32), weights=[0.5, 1.25])


def test_probabilities_of_0_and_1_have_gradients():
    p, weights = np.array([0.0, 1.0, 0.3, 0.5]), np.array([3, 1, 4, 2])
    states = np.indices((2,) * 4).reshape(4, -1).T

    def law(q, event):
        return np.where(states == 1, q, 1 - q).prod(1)[event].sum()

    for name, at, event in (("log_sf", 4, states @ weights > 4), ("log_prob", 5, states @ weights == 5)):
        ends = [[law(np.where(np.arange(4) == i, end, p), event) for end in (1.0, 0.0)] for i in range(4)]
        want = [(on - off) / law(p, event) for on, off in ends]
        found = jax.grad(lambda q, a=at, n=name: getattr(PoissonBinomial(probs=q, weights=weights), n)(a))
        np.testing.assert_allclose(found(p.astype(np.float32)), want, rtol=1e-5, atol=1e-6)


def test_second_derivatives_are_refused_and_values_have_none():
    """JAX said that pure callbacks do not support JVP, and that a tracer had escaped."""
    x = np.array([0.3, -1.2, 0.7], np.float32)

    def log_prob(x, value):
        return PoissonBinomial(x, weights=[1, 2, 3]).log_prob(value)

    for second in (
        jax.hessian,
        lambda f: jax.jacfwd(jax.jacfwd(f)),
        lambda f: jax.jit(jax.jacrev(jax.grad(f))),
    ):
        with pytest.raises(tt.ParameterError, match="a higher one was asked for"):
            second(log_prob)(x, 3.0)
    by_x, by_value = jax.grad(log_prob, (0, 1))(x, 3.0)
    np.testing.assert_allclose(by_x, jax.grad(log_prob)(x, 3.0))
    assert by_value == 0.0
