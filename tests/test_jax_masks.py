"""Masks in `tallytree.jax` and its NumPyro distributions: padded rows are rows without the padding."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tallytree as tt

jax = pytest.importorskip("jax", reason="tallytree.jax needs JAX: pip install tallytree[jax]")
numpyro = pytest.importorskip("numpyro", reason="these tests need NumPyro: pip install tallytree[numpyro]")
jnp = jax.numpy

import tallytree.jax as ttj  # noqa: E402
from tallytree.jax.numpyro import ConditionalBernoulli, CountDistribution, PoissonBinomial  # noqa: E402

MASK = np.array([[1, 1, 1, 0, 1, 0], [1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0]], bool)
K = np.array([2, 4, 1])
X = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32)


def enumerated(row):
    """The subsets of a row (subsets, 6), and their log-weights."""
    subsets = [np.isin(np.arange(6), s) for s in itertools.combinations(np.flatnonzero(MASK[row]), K[row])]
    return np.array(subsets, float), np.array([X[row].astype(float)[s].sum() for s in subsets])


def test_masked_rows_are_rows_of_what_is_left():
    k = ttj.exactly(K)
    laws = CountDistribution(X, k, mask=MASK), ConditionalBernoulli(K, X, mask=MASK, validate_args=True)
    marginals = [ttj.marginals(X, k, mask=MASK), *(law.mean for law in laws)]
    marginals.append(jax.jit(lambda x, m: ttj.marginals(x, k, mask=m))(X, MASK))
    log_z, entropy = ttj.log_partition(X, k, mask=MASK), ttj.entropy(X, k, mask=MASK)
    slopes = jax.grad(lambda x: ttj.log_partition(x, k, mask=MASK).sum())(X)
    counts = np.exp(ttj.count_log_probs(X, k, mask=MASK))
    best = ttj.mode(X, k, mask=MASK)
    for row in range(3):
        states, weight = enumerated(row)
        norm = np.log(np.exp(weight).sum())
        p = np.exp(weight - norm)
        for found in (*marginals, slopes):
            np.testing.assert_allclose(found[row], p @ states, rtol=2e-6, atol=1e-7)
        np.testing.assert_allclose(log_z[row], norm, rtol=1e-6)
        np.testing.assert_allclose(entropy[row], -(p * np.log(p)).sum(), rtol=1e-5)
        np.testing.assert_allclose(counts[row], np.arange(7) == K[row], atol=1e-6)
        np.testing.assert_array_equal(best[row], states[p.argmax()])
        np.testing.assert_allclose(laws[1].log_prob(states[:, None])[:, row], weight - norm, rtol=2e-5)
    draws = np.asarray(ttj.sample(jax.random.key(0), X, k, sample_shape=(500,), mask=MASK))
    assert not draws[:, ~MASK].any()
    np.testing.assert_array_equal(draws.sum(-1), np.broadcast_to(K, (500, 3)))


def test_masked_trials_are_left_out_of_counts():
    p = 1.0 / (1.0 + np.exp(-X))
    for law in (PoissonBinomial(X, mask=MASK), PoissonBinomial(probs=p, mask=MASK, validate_args=True)):
        for row in range(3):
            wanted = [1.0]
            for chance in p[row][MASK[row]]:
                wanted = np.convolve(wanted, [1.0 - chance, chance])
            found = np.exp(law.count_log_probs())[row, : len(wanted)]
            np.testing.assert_allclose(found, wanted, rtol=2e-5)


def test_an_inverted_mask_is_named_by_row_number_and_k():
    mask = np.ones((3, 20), bool)
    mask[2, 4:] = False
    x = jnp.zeros((3, 20))
    calls = [
        lambda: ttj.marginals(x, tt.exactly(15), mask=mask),
        lambda: ttj.log_partition(x, ttj.at_least(15), mask=mask),
        lambda: ttj.sample(jax.random.key(0), x, ttj.exactly(np.array([1, 2, 15])), mask=mask),
        lambda: ConditionalBernoulli(15, x, mask=mask),
        lambda: CountDistribution(x, tt.exactly(15), mask=mask),
    ]
    for call in calls:
        with pytest.raises(tt.ParameterError, match="row 2 has 4 unmasked entries, k = 15"):
            call()
    with pytest.raises(tt.ParameterError, match="20 entries"):
        ttj.marginals(x, tt.exactly(1), mask=mask[:, :3])
    with pytest.raises(tt.ParameterError, match="truth values"):
        ttj.marginals(x, tt.exactly(1), mask=0.5 * mask)


def test_rsample_says_what_to_use_instead():
    for law in (ConditionalBernoulli(1, jnp.zeros(3)), PoissonBinomial(jnp.zeros(3))):
        with pytest.raises(NotImplementedError, match="log_prob"):
            law.rsample(jax.random.key(0))
