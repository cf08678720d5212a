"""JAX against the native engine, in one process: compile times, and marginals of batches after compilation.

    python -m benchmarks.bench_jax

Times are processor time, the best of several runs, so that the ratios mean something on a shared machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

import tallytree as tt
import tallytree.jax as ttj

SIZES = ((1000, 100, 10.0), (4096, 512, 5.0))


def best(call: Callable[[], Any], repeats: int) -> float:
    """Least processor time of a call, in seconds."""
    found = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        call()
        found = min(found, time.process_time() - start)
    return found


def row(batch: int, n: int, limit: float) -> None:
    """One size: exactly n / 10 of n, marginals."""
    logits = np.random.default_rng(0).normal(size=(batch, n))
    k = n // 10
    with jax.enable_x64(True):
        device = jnp.asarray(logits)
        question = jax.jit(lambda x: ttj.marginals(x, tt.exactly(k)))
        start = time.process_time()
        compiled = question.lower(device).compile()
        compile_time = time.process_time() - start
        ours = best(lambda: compiled(device).block_until_ready(), 5)
        native = best(lambda: tt.CountModel(logits, tt.exactly(k)).marginals, 5)
        error = np.abs(np.asarray(compiled(device)) - tt.CountModel(logits, tt.exactly(k)).marginals).max()
        backward = jax.jit(jax.grad(lambda x: jnp.sum(ttj.marginals(x, tt.exactly(k)) ** 2)))
        backward(device).block_until_ready()
        both = best(lambda: backward(device).block_until_ready(), 3)
    print(
        f"{batch} x {n}: JAX {ours * 1e3:8.1f} ms, native {native * 1e3:8.1f} ms, ratio {ours / native:5.1f} "
        f"(target {limit:.0f}); forward and backward {both * 1e3:8.1f} ms; compile {compile_time:.1f} s; "
        f"largest difference {error:.1e}"
    )


def main() -> None:
    for batch, n, limit in SIZES:
        row(batch, n, limit)


if __name__ == "__main__":
    main()
