"""The NumPyro distributions: laws against enumeration, moments, pytrees, and NUTS against ConditionalLogit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tallytree as tt

jax = pytest.importorskip("jax", reason="tallytree.jax needs JAX: pip install tallytree[jax]")
numpyro = pytest.importorskip("numpyro", reason="these tests need NumPyro: pip install tallytree[numpyro]")
jnp = jax.numpy

from numpyro import distributions as dist  # noqa: E402

from tallytree.jax.numpyro import ConditionalBernoulli, CountDistribution, PoissonBinomial  # noqa: E402

STATES = np.array(list(itertools.product([0, 1], repeat=4)))
LOGITS = np.array([0.3, -1.0, 2.0, 0.1], np.float32)
TABLE = np.array([0.0, 1.0, -0.5, 0.3, -np.inf], np.float32)


def exact_law(logits, log_f):
    weight = np.exp(STATES @ logits + np.asarray(log_f)[STATES.sum(1)])
    return weight / weight.sum()


def test_log_prob_is_the_law_by_enumeration():
    found = CountDistribution(LOGITS, TABLE).log_prob(STATES)
    np.testing.assert_allclose(np.exp(found), exact_law(LOGITS, TABLE), rtol=2e-6)
    one = np.where(np.arange(5) == 2, 0.0, -np.inf)
    subset = ConditionalBernoulli(2, LOGITS)
    np.testing.assert_allclose(np.exp(subset.log_prob(STATES)), exact_law(LOGITS, one), rtol=2e-6)
    law = np.bincount(STATES.sum(1), exact_law(LOGITS, np.zeros(5)))
    sums = PoissonBinomial(LOGITS)
    np.testing.assert_allclose(np.exp(sums.log_prob(np.arange(5))), law, rtol=2e-6)
    np.testing.assert_allclose(sums.mean, law @ np.arange(5), rtol=1e-6)


def test_moments_entropy_and_mode():
    d = CountDistribution(LOGITS, TABLE)
    p = exact_law(LOGITS, TABLE)
    np.testing.assert_allclose(d.mean, p @ STATES, rtol=1e-5)
    np.testing.assert_allclose(d.variance, (p @ STATES) * (1 - p @ STATES), rtol=1e-5)
    np.testing.assert_allclose(d.entropy(), -(p[p > 0] * np.log(p[p > 0])).sum(), rtol=1e-5)
    np.testing.assert_array_equal(d.mode, STATES[np.argmax(p)])
    draws = np.asarray(d.sample(jax.random.key(0), (4000,)))
    assert draws.shape == (4000, 4)
    np.testing.assert_allclose(draws.mean(0), p @ STATES, atol=0.04)
    counts = np.asarray(PoissonBinomial(LOGITS).sample(jax.random.key(0), (4000,)))
    assert abs(counts.mean() - float(PoissonBinomial(LOGITS).mean)) < 0.08


def test_pytree_round_trip_and_vmap_over_parameters():
    rows = jnp.stack([LOGITS, -LOGITS])
    d = ConditionalBernoulli(np.array([1, 2]), rows)
    leaves, structure = jax.tree_util.tree_flatten(d)
    again = jax.tree_util.tree_unflatten(structure, leaves)
    assert type(again) is ConditionalBernoulli
    assert again.batch_shape == (2,)
    assert again.event_shape == (4,)
    y = jnp.array([1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(again.log_prob(y), d.log_prob(y))
    found = jax.vmap(lambda x: CountDistribution(x, TABLE).log_prob(y))(rows)
    np.testing.assert_allclose(found, CountDistribution(rows, TABLE).log_prob(y), rtol=1e-6)
    jitted = jax.jit(lambda d, y: d.log_prob(y))(d, y)
    np.testing.assert_allclose(jitted, d.log_prob(y), rtol=1e-6)
    expanded = CountDistribution(LOGITS, TABLE).expand((3,))
    assert expanded.sample(jax.random.key(1)).shape == (3, 4)
    assert expanded.log_prob(y).shape == (3,)
    masked = CountDistribution(LOGITS, TABLE).mask(False)
    assert masked.log_prob(y) == 0.0


def test_bad_values_are_refused():
    with pytest.raises(tt.ParameterError, match="one of"):
        PoissonBinomial()
    with pytest.raises(tt.ParameterError, match=r"\[0, 1\]"):
        PoissonBinomial(probs=np.array([0.5, 1.5]))
    with pytest.raises(tt.ParameterError, match="k <= n = 4"):
        ConditionalBernoulli(5, LOGITS)
    with pytest.raises(tt.ParameterError, match="4 entries on the last axis"):
        ConditionalBernoulli(2, LOGITS).log_prob(jnp.array([1, 1]))


def test_nuts_on_matched_sets_agrees_with_conditional_logit():
    pytest.importorskip("sklearn")
    from tallytree.estimators import ConditionalLogit

    rng = np.random.default_rng(2)
    x = rng.normal(size=(150, 4, 2))
    truth = np.array([1.0, -0.7])
    cases = rng.integers(1, 3, 150)
    y = np.stack(
        [tt.CountModel(row @ truth, tt.exactly(int(k))).sample(rng=rng) for row, k in zip(x, cases)]
    ).reshape(150, 4)

    def model(x, cases, y=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 10.0).expand([2]).to_event(1))
        with numpyro.plate("sets", len(x)):
            numpyro.sample("y", ConditionalBernoulli(cases, x @ beta), obs=y)

    kernel = numpyro.infer.NUTS(model)
    run = numpyro.infer.MCMC(kernel, num_warmup=150, num_samples=250, progress_bar=False)
    run.run(jax.random.key(0), jnp.asarray(x, jnp.float32), jnp.asarray(cases), jnp.asarray(y, jnp.float32))
    draws = np.asarray(run.get_samples()["beta"])
    spread = draws.std(0)
    assert (np.abs(draws.mean(0) - truth) < 2 * spread + 0.05).all()
    groups = np.repeat(np.arange(150), 4)
    fit = ConditionalLogit().fit(x.reshape(-1, 2), y.reshape(-1), groups=groups)
    assert (np.abs(draws.mean(0) - np.ravel(fit.coef_)) < 0.5 * spread).all()
    predicted = numpyro.infer.Predictive(model, run.get_samples())(
        jax.random.key(1), jnp.asarray(x[:3], jnp.float32), jnp.asarray(cases[:3])
    )["y"]
    np.testing.assert_array_equal(predicted.sum(-1), np.broadcast_to(cases[:3], (250, 3)))


def test_svi_with_plates_and_masks_finds_the_mode_of_the_posterior():
    """Three k-subsets of four with one common slope; masked rows must not matter. The mode is found by a search."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=(3, 4)).astype(np.float32)
    k, y = np.array([1, 2, 2]), np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, 1]], np.float32)
    seen = np.array([True, True, False])

    def model(x, y=None):
        beta = numpyro.sample("beta", dist.Normal(0.0, 2.0))
        with numpyro.plate("sets", 3), numpyro.handlers.mask(mask=seen):
            numpyro.sample("y", ConditionalBernoulli(k, beta * x), obs=y)

    guide = numpyro.infer.autoguide.AutoDelta(model)
    svi = numpyro.infer.SVI(model, guide, numpyro.optim.Adam(0.1), numpyro.infer.Trace_ELBO())
    found = svi.run(jax.random.key(0), 200, x, y, progress_bar=False)
    grid = np.linspace(-5, 5, 2001)
    log_posterior = -(grid**2) / 8
    for row, count, on in zip(x[:2].astype(float), k, y):
        subsets = STATES[STATES.sum(1) == count]
        weights = grid[:, None] * (subsets @ row)
        log_posterior += grid * (on @ row) - np.logaddexp.reduce(weights, 1)
    assert abs(float(found.params["beta_auto_loc"]) - grid[np.argmax(log_posterior)]) < 0.02
    drawn = numpyro.infer.Predictive(model, params=found.params, guide=guide, num_samples=5)
    np.testing.assert_array_equal(drawn(jax.random.key(1), x)["y"].sum(-1), np.broadcast_to(k, (5, 3)))
