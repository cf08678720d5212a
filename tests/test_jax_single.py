"""32-bit arithmetic of tallytree.jax, for devices that have no other: its bound is stated and kept."""

from __future__ import annotations

import numpy as np
import pytest

import tallytree as tt

jax = pytest.importorskip("jax", reason="tallytree.jax needs JAX: pip install tallytree[jax]")
jnp = jax.numpy
ttj = pytest.importorskip("tallytree.jax")

INF = np.inf
D = 12
TREES = {"flat": tt.CountTree.flat(D), "nested": tt.CountTree.from_groups([[0, 1, 2, 3], range(8), None], D)}


def batch(width):
    """Log-odds (48, 12) and tables (48, width) in float32: ordinary, far out, and with impossible entries."""
    rng = np.random.default_rng(width)
    logits = rng.normal(size=(48, D)) * np.repeat([0.1, 1.0, 8.0, 60.0], 12)[:, None]
    logits[rng.random(logits.shape) < 0.02] = -INF
    logits[:, 0] = np.where(np.arange(48) % 6 == 1, INF, logits[:, 0])
    tables = rng.normal(size=(48, width)) * np.tile([0.0, 1.0, 30.0, 300.0], 12)[:, None]
    tables[rng.random(tables.shape) < 0.05] = -INF
    return logits.astype(np.float32), tables.astype(np.float32)


@pytest.mark.parametrize("kind", ["flat", "nested"])
def test_errors_stay_below_the_bound_and_infinities_are_exact(kind):
    tree = TREES[kind]
    logits, tables = batch(int(tree.family.group_offset[-1]))
    model = tt.CountModel.from_tree(tree, logits.astype(float), tables.astype(float))
    exact = np.asarray(model.posterior_logits)

    def answers(x, t):
        return ttj.posterior_logits(x, tree, t), ttj.log_partition(x, tree, t), ttj.error_bound(x, tree, t)

    with ttj.single_precision():
        program = jax.make_jaxpr(answers)(logits, tables)
        odds, log_z, bound = (np.asarray(x, float) for x in jax.jit(answers)(logits, tables))
    assert "f64" not in str(program)
    finite = np.isfinite(exact)
    np.testing.assert_array_equal(odds[~finite], exact[~finite])
    error = np.abs(np.where(finite, odds, 0.0) - np.where(finite, exact, 0.0)).max(1)
    assert (error <= bound).all()
    rounded = 2.0**-23 * np.abs(model.log_partition)
    assert (np.abs(log_z - model.log_partition) <= bound + rounded).all()
    assert bound[0] < 1e-3  # log-odds and tables of ordinary size
    assert bound.max() < 1.0


def test_tails_of_counts_and_derivatives():
    logits = np.full(40, -20.0, np.float32)
    exact = tt.PoissonBinomial(logits=logits.astype(float)).logpmf(np.arange(41))
    with ttj.single_precision():
        found = np.asarray(ttj.count_log_probs(logits), float)  # down to -800 nats
        x = np.random.default_rng(0).normal(size=40).astype(np.float32)
        gradient = jax.jit(jax.grad(lambda x: jnp.sum(ttj.marginals(x, tt.exactly(7)) ** 2)))(x)
    np.testing.assert_allclose(found, exact, rtol=2e-6, atol=1e-4)
    model = tt.CountModel(x.astype(float), tt.exactly(7))
    along = np.asarray(model.covariance()) @ (2.0 * np.asarray(model.marginals))
    np.testing.assert_allclose(gradient, along, atol=2e-6)


def test_draws_and_modes_obey_the_potential():
    x = np.random.default_rng(1).normal(size=(200, D)).astype(np.float32)
    with ttj.single_precision():
        drawn = ttj.sample(jax.random.key(0), x, tt.exactly(5))
        best = ttj.mode(x, tt.exactly(5))
    np.testing.assert_array_equal(drawn.sum(-1), 5.0)
    np.testing.assert_array_equal(best, tt.CountModel(x.astype(float), tt.exactly(5)).mode())


def test_answers_keep_the_dtype_of_the_input():
    with jax.enable_x64(True), ttj.single_precision():
        found = ttj.marginals(jnp.zeros(4), tt.exactly(1))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, 0.25, rtol=1e-6)
