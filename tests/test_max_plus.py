"""(max, +) convolutions by every method against the definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.engine import native
from tallytree.engine.maximize import convolve
from tallytree.engine.maximize.convolve import convolve_pieces, merge_slopes, monotone_rows, pieces

INF = math.inf
KINDS = ("arbitrary", "concave", "linear", "spiked", "ends", "holes", "short support", "empty", "integers")


def by_definition(a, b):
    table = np.full((len(b), len(a) + len(b) - 1), -INF)
    for j, value in enumerate(b):
        table[j, j : j + len(a)] = a + value
    return table.max(0)


def sequence(rng, n, kind):
    values = np.concatenate([[0.0], np.cumsum(np.sort(rng.normal(size=n))[::-1])])
    if kind == "arbitrary":
        return 3 * rng.normal(size=n + 1)
    if kind == "integers":
        return np.rint(np.concatenate([[0.0], np.cumsum(np.sort(rng.normal(size=n))[::-1].round())]))
    if kind == "linear":
        return 0.1 * np.arange(n + 1.0) + 1e3
    if kind == "spiked":
        values[rng.integers(n + 1)] += 5
    if kind == "ends":
        values[[0, -1]] += 3
    if kind == "holes":
        values[rng.random(n + 1) < 0.3] = -INF
    if kind == "short support":
        first, last = np.sort(rng.integers(0, n + 1, 2))
        values[:first] = -INF
        values[last + 1 :] = -INF
    if kind == "empty":
        values[:] = -INF
    return values


pairs = st.tuples(st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.sampled_from(KINDS))


@settings(max_examples=300, deadline=None)
@given(pairs, st.integers(0, 150), st.integers(0, 150))
def test_convolution_and_correlation_agree_with_the_definition(chosen, m, n):
    rng = np.random.default_rng(chosen[0])
    a, b = sequence(rng, m, chosen[1]), sequence(rng, n, chosen[2])
    np.testing.assert_allclose(convolve.convolve(a, b), by_definition(a, b), rtol=1e-12, atol=1e-11)
    if m >= n:
        want = by_definition(a, b[::-1])[n : m + 1]
        np.testing.assert_allclose(convolve.correlate(a, b), want, rtol=1e-12, atol=1e-11)


@settings(max_examples=200, deadline=None)
@given(pairs, st.integers(0, 60), st.integers(0, 60))
def test_each_method_agrees_with_the_definition(chosen, m, n):
    rng = np.random.default_rng(chosen[0])
    a, b = sequence(rng, m, chosen[1]), sequence(rng, n, chosen[2])
    want = by_definition(a, b)
    start, stop = np.sort(rng.integers(0, len(want) + 1, 2))
    found = {"direct": convolve.direct(a, b, start, stop), "rows": convolve._row_by_row(a, b, start, stop)}
    found["batch"] = convolve.convolve_batch(a, b)[start:stop]
    parts_a, parts_b = pieces(a), pieces(b)
    if parts_a is not None:
        found["monotone"] = convolve._by_pieces(b, a, parts_a, int(start), int(stop))
        if parts_b is not None:
            found["pieces"] = convolve_pieces(a, b, parts_a, parts_b)[start:stop]
    for values in found.values():
        np.testing.assert_allclose(values, want[start:stop], rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("kind_a", KINDS)
@pytest.mark.parametrize("kind_b", KINDS)
def test_long_sequences_agree_with_the_definition(kind_a, kind_b):
    rng = np.random.default_rng(7)
    a, b = sequence(rng, 1500, kind_a), sequence(rng, 1200, kind_b)
    np.testing.assert_allclose(convolve.convolve(a, b), by_definition(a, b), rtol=1e-12, atol=1e-9)


def test_pieces_are_few_for_the_named_shapes():
    rng = np.random.default_rng(8)
    for kind, most in {
        "concave": 1,
        "linear": 1,
        "short support": 1,
        "empty": 0,
        "ends": 3,
        "spiked": 3,
    }.items():
        found = pieces(sequence(rng, 500, kind))
        assert found is not None
        assert len(found) <= most
    assert pieces(sequence(rng, 500, "arbitrary")) is None


def test_a_convex_sequence_below_rounding_does_not_pass_for_a_concave_one():
    # Every slope rises by less than the rounding of the values, all of them together by far more.
    c = np.arange(20001.0)
    a = 1e5 + 1e-11 * c * c
    found = pieces(a)
    assert found is None or len(found) > 1


def test_merging_slopes_keeps_integers_exact():
    a, b = np.array([0.0, 5.0, 7.0, 7.0]), np.array([2.0, 4.0, 4.0])
    np.testing.assert_array_equal(merge_slopes(a, b), [2, 7, 9, 11, 11, 11])


def test_rows_outside_the_reach_are_impossible():
    b, c = np.array([-INF, 1.0, -INF, 2.0]), np.array([-INF, 0.0, -INF])
    np.testing.assert_array_equal(monotone_rows(b, c, (1, 1), 0, 6), [-INF, -INF, 1.0, -INF, 2.0, -INF])


@pytest.mark.skipif(not native.present(), reason="needs the compiled engine")
@pytest.mark.parametrize(("m", "n"), [(1, 1), (2, 9), (9, 2), (40, 17), (33, 200), (300, 300), (5000, 70)])
def test_the_compiled_product_is_the_definition(m, n):
    rng = np.random.default_rng(m + n)
    a, b = rng.normal(size=(3, m)), rng.normal(size=(3, n))
    a[1, rng.random(m) < 0.5] = -INF
    b[2] = -INF
    want = np.stack([by_definition(x, y) for x, y in zip(a, b)])
    np.testing.assert_array_equal(native.max_plus(a, b, 0, m + n - 1), want)
    padded = np.concatenate([want, np.full((3, 7), -INF)], axis=1)
    start = (m + n) // 3
    np.testing.assert_array_equal(native.max_plus(a, b, start, m + n + 6 - start), padded[:, start:])
    assert native.max_plus(a[:0], b[:0], 0, 4).shape == (0, 4)
