"""Messages kept step by step and read by cells: whatever the cells, the entries are those of one long vector."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="tallytree.jax needs JAX: pip install tallytree[jax]")
jnp = jax.numpy
pytest.importorskip("tallytree.jax")

from tallytree.jax.tree import Messages  # noqa: E402

ROW = np.arange(3)
CELLS = {
    "at equal distances": 1 + 6 * np.arange(4)[:, None] + ROW,
    "touching the end": 13 + 6 * np.arange(3)[:, None] + ROW,
    "every one twice": 1 + 3 * np.repeat(np.arange(4), 2)[:, None] + ROW,
    "pairs that change places": 1 + 3 * (np.arange(8) ^ 1)[:, None] + ROW,
    "one": 7 + ROW[None],
    "padding": np.array([[4, 5, 0], [8, 9, 10]]),
    "of several steps": np.array([[24, 25, 26], [1, 2, 3], [12, 13, 14]]),
    "in no order": np.array([[9, 2, 17], [17, 2, 9]]),
    "backwards": 20 - 3 * np.arange(4)[:, None] + ROW,
    "overlapping": np.arange(4)[:, None] + ROW,
    "a vector": np.array([3, 1, 28, 0]),
    "none": np.zeros((0, 2), int),
}


@pytest.mark.parametrize("name", CELLS)
def test_entries_and_tangents_are_those_of_one_vector(name):
    cells, rng = CELLS[name], np.random.default_rng(0)
    parts = [rng.normal(size=(2, size)) for size in (1, 24, 5)]
    whole = np.concatenate(parts, -1)
    weights = rng.normal(size=(2, *cells.shape))
    with jax.enable_x64(True):
        given = [jnp.asarray(p) for p in parts]

        def read(*parts):
            return Messages(parts).at(cells)

        found, back = jax.vjp(read, *given)
        pulled = np.concatenate(back(jnp.asarray(weights)), -1)
    np.testing.assert_array_equal(found, whole[:, cells])
    exact = np.zeros_like(whole)
    np.add.at(exact, (slice(None), cells), weights)
    np.testing.assert_allclose(pulled, exact, rtol=1e-12)
