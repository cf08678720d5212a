"""Sums over frequencies by polynomials, and the logarithm in plain operations, beside extended precision."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="tallytree.jax needs JAX: pip install tallytree[jax]")
jnp = jax.numpy
pytest.importorskip("tallytree.jax")

from tallytree.jax import arithmetic, frequencies  # noqa: E402

UNIT = 2.0**-53


def decaying(rng, rows, variance, period, most=40):
    """Versines and three families of numbers that decay like a characteristic function of this variance."""
    m = np.arange(most)
    versine = np.where(2 * m < period, 2.0 * np.sin(np.pi * m / period) ** 2, 0.0)
    size = np.where(2 * m < period, np.exp(-variance * versine), 0.0)
    given = tuple(size * rng.uniform(-1.0, 1.0, size=(rows, most)) for _ in range(3))
    return np.broadcast_to(versine, (rows, most)), given


def exact(v, versine, given):
    wide = 1.0 / (1.0 - v.astype(np.longdouble)[:, None] * versine[:, :, None])
    return [np.sum(a[:, :, None] * wide, 1) for a in given]


def sums(v, versine, given, needed=40):
    with jax.enable_x64(True):
        v, versine = jnp.asarray(v), jnp.asarray(versine)
        given = tuple(jnp.asarray(a) for a in given)
        found = jax.jit(
            lambda *args: (
                frequencies.over_frequencies(1, *args),
                frequencies.series_of(*args[:3]).serves,
            )
        )(v, versine, given, jnp.full(v.shape[0], needed, jnp.int32))
        return [np.asarray(x) for x in found[0]], bool(found[1])


@pytest.mark.parametrize(
    ("variance", "period", "largest", "serves"),
    [
        (300.0, 200, 0.5, True),
        (40.0, 65, 0.5, True),
        (24.0, 45, 0.5, True),
        (3.0, 31, 0.01, True),  # rare variables: no frequency comes close
        (3.0, 31, 0.0, True),  # all variables decided
        (8.0, 35, 0.5, False),
        (0.3, 21, 0.499, False),
    ],
)
def test_series_serve_where_the_variance_is_large_and_sums_are_right_everywhere(
    variance, period, largest, serves
):
    rng = np.random.default_rng(0)
    versine, given = decaying(rng, 3, variance, period)
    v = largest * rng.uniform(size=(3, frequencies.SERIES_FROM)) ** 2
    v[:, :2] = [0.0, largest]
    found, used = sums(v, versine, given)
    assert used is serves
    for a, x, y in zip(given, found, exact(v, versine, given)):
        # The size of a sum whose terms do not cancel, with the condition of its nearest pole.
        scale = np.sum(np.abs(a) / (1.0 - largest * versine) ** 2, -1, keepdims=True)
        assert np.all(np.abs(x - y) <= 32 * UNIT * scale)


def test_sums_over_frequencies_of_short_models_are_right():
    rng = np.random.default_rng(3)
    versine, given = decaying(rng, 3, 4.0, 31)
    v = 0.5 * rng.uniform(size=(3, 32))
    found, _ = sums(v, versine, given)
    for x, y in zip(found, exact(v, versine, given)):
        np.testing.assert_allclose(x, y.astype(float), rtol=0, atol=1e-13)


def test_one_model_that_needs_all_frequencies_decides_for_its_block():
    rng = np.random.default_rng(1)
    good, bad = decaying(rng, 1, 60.0, 75), decaying(rng, 1, 2.0, 25)
    versine = np.concatenate([good[0], bad[0]])
    given = tuple(np.concatenate(pair) for pair in zip(good[1], bad[1]))
    v = 0.5 * rng.uniform(size=(2, frequencies.SERIES_FROM))
    found, used = sums(v, versine, given)
    assert used is False
    for x, y in zip(found, exact(v, versine, given)):
        np.testing.assert_allclose(x, y.astype(float), rtol=0, atol=1e-13)


def test_the_plain_logarithm_is_right_to_four_units_of_round_off():
    rng = np.random.default_rng(2)
    near_one = 1.0 + rng.normal(size=2000) * 10.0 ** rng.uniform(-16, -1, size=2000)
    bounds = np.sqrt(0.5) * 2.0 ** np.arange(-3, 4)
    edges = np.concatenate([bounds, np.nextafter(bounds, 0), np.nextafter(bounds, 9), [1.0, 1e-300, 1e300]])
    x = np.concatenate([10.0 ** rng.uniform(-300, 300, size=2000), near_one, edges])
    truth = np.log(x.astype(np.longdouble))
    with jax.enable_x64(True):
        found = np.asarray(jax.jit(arithmetic.log_of_normal)(x))
    assert np.all(np.abs(found - truth) <= 4 * UNIT * np.abs(truth))


def test_the_plain_logarithm_has_the_derivatives_of_the_logarithm():
    with jax.enable_x64(True):
        x = jnp.asarray(0.37)
        first, second = jax.grad(arithmetic.log_of_normal), jax.grad(jax.grad(arithmetic.log_of_normal))
        assert float(first(x)) == pytest.approx(1.0 / 0.37, rel=1e-15)
        assert float(second(x)) == pytest.approx(-1.0 / 0.37**2, rel=1e-15)
