"""Convolutions and transforms of the compiled engine, and trees that it refuses."""

import numpy as np
import pytest

from helpers import tree_pass

native = pytest.importorskip("tallytree._native")
LEVELS = native.levels()
METHODS = ["direct", "fft", "wide"]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("method", METHODS)
def test_convolution_and_correlation_kernels_are_right_at_every_length(method, level):
    hooks = pytest.importorskip("tallytree._native.hooks")
    rng = np.random.default_rng(9)
    lengths = [1, 1, 2, 7, 16, 17, 33, 65, 128, 257, 1], [1, 2, 3, 9, 16, 33, 200, 65, 129, 300, 900]
    for na, nb in zip(*lengths):
        a, b = rng.random(na), rng.random(nb)
        want = np.convolve(a, b)
        np.testing.assert_allclose(hooks.convolve(a, b, method, level), want, rtol=0, atol=1e-14 * want.max())
        g = rng.random(na + nb - 1)
        want = np.correlate(g, b, "valid")
        np.testing.assert_allclose(
            hooks.correlate(g, b, method, level), want, rtol=0, atol=1e-14 * want.max()
        )
        if method != "fft":
            a, b = a * 10.0 ** rng.uniform(-90, 0, na), b * 10.0 ** rng.uniform(-90, 0, nb)
            np.testing.assert_allclose(hooks.convolve(a, b, method, level), np.convolve(a, b), rtol=1e-13)


@pytest.mark.parametrize("level", LEVELS)
def test_the_transform_survives_a_round_trip_at_every_planned_length(level):
    rng = np.random.default_rng(10)
    hooks = pytest.importorskip("tallytree._native.hooks")
    for n in (128, 256, 384, 512, 768, 1024, 1536, 3072, 4096, 8192):
        a = rng.random(n)
        np.testing.assert_allclose(hooks.convolve(a, np.ones(1), "fft", level), a, rtol=0, atol=1e-14)


def test_a_malformed_forest_is_refused():
    f = np.array([0], np.int64)
    nu, tables = np.zeros((1, 2)), np.zeros((1, 3))
    i32 = lambda *x: np.array(x, np.int32)  # noqa: E731
    for left, right, offset in [(0, 0, f), (0, 2, f), (0, 1, f - 1), (0, 1, f + 1)]:
        with pytest.raises(ValueError):
            tree_pass(i32(left), i32(right), offset, nu, tables, None, "direct")
    with pytest.raises(ValueError):
        tree_pass(i32(0), i32(1), f, nu, tables, None, "magic")
