"""A k-subset layer in a small network of plain JAX: learn which 3 of 16 features matter, exactly 3 at a time.

The layer draws subsets from the exact law ``p(y) ~ exp(scores . y)`` on subsets of size k, and its gradient is
that of the exact marginals (straight-through). The network sees only the chosen features, and learns scores and
weights together; evaluation takes the mode, the k largest scores.

Run with ``python examples/jax_k_subset.py``; it needs ``pip install tallytree[jax]``.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tallytree as tt
import tallytree.jax as ttj

FEATURES, K, ROWS, DRAWS, STEPS, RATE = 16, 3, 256, 8, 300, 0.1
RELEVANT = np.array([3, 8, 13])


def simulate(rng: np.random.Generator) -> tuple[jax.Array, jax.Array]:
    """Features (rows, features) and an answer that depends on three of them."""
    x = rng.normal(size=(ROWS, FEATURES))
    y = x[:, RELEVANT] @ np.array([1.5, -1.0, 1.2]) + 0.1 * rng.normal(size=ROWS)
    return jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)


def subsets(key: Any, scores: jax.Array) -> jax.Array:
    """Exactly K ones among the zeros, (draws, features): samples going forward, the marginals going backward."""
    marginals = ttj.marginals(scores, tt.exactly(K))
    drawn = jax.lax.stop_gradient(ttj.sample(key, scores, tt.exactly(K), sample_shape=(DRAWS,)))
    return drawn + marginals - jax.lax.stop_gradient(marginals)


def loss(parameters: dict[str, jax.Array], key: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean squared error of a linear network behind the draws of the layer."""
    masks = subsets(key, parameters["scores"])
    predicted = (x * masks[:, None, :]) @ parameters["weights"]
    return jnp.mean((predicted - y) ** 2)


@jax.jit
def step(parameters: dict[str, jax.Array], key: Any, x: jax.Array, y: jax.Array) -> dict[str, jax.Array]:
    """One step down the gradient."""
    gradient = jax.grad(loss)(parameters, key, x, y)
    return {name: value - RATE * gradient[name] for name, value in parameters.items()}


def train(seed: int = 0) -> tuple[np.ndarray, dict[str, jax.Array]]:
    """The features that are chosen in the end, and the parameters."""
    x, y = simulate(np.random.default_rng(seed))
    parameters = {"scores": jnp.zeros(FEATURES), "weights": jnp.zeros(FEATURES)}
    key = jax.random.key(seed)
    for number in range(STEPS):
        parameters = step(parameters, jax.random.fold_in(key, number), x, y)
    chosen = ttj.mode(parameters["scores"], tt.exactly(K))
    return np.flatnonzero(np.asarray(chosen)), parameters


def main() -> None:
    chosen, parameters = train()
    probability = np.asarray(ttj.marginals(parameters["scores"], tt.exactly(K)), float)[chosen]
    print(f"relevant features {RELEVANT.tolist()}")
    print(f"chosen features   {chosen.tolist()}, with probabilities {probability.round(2).tolist()}")


if __name__ == "__main__":
    main()
