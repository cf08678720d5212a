"""tallytree.jax on an accelerator: correctness against a log-space recursion in NumPy, and timings.

    PYTHONPATH=src python tests/gpu/jax_check.py

Prints one line per check and per size; needs JAX with the accelerator's plugin, NumPy and SciPy. Run by hand: a test
suite cannot count on the device. Sizes may be divided by a number given as the only argument, to try it elsewhere.
"""

from __future__ import annotations

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

import tallytree as tt
import tallytree.jax as ttj
from tallytree.jax import characteristic

SMALLER = int(sys.argv[1]) if len(sys.argv) > 1 else 1


def recursion(logits, log_f):
    """Log Z and posterior log-odds of one model, one variable at a time, in logarithms."""
    n = len(logits)
    ups = [np.array([0.0])]
    for x in logits:
        padded = np.append(ups[-1], -np.inf)
        ups.append(np.logaddexp(padded, np.append(-np.inf, ups[-1]) + x))
    log_z = np.logaddexp.reduce(ups[-1] + log_f)
    down, odds = np.array(log_f, float), np.empty(n)
    for i in range(n - 1, -1, -1):
        on, off = down[1:], down[:-1]
        odds[i] = logits[i] + np.logaddexp.reduce(ups[i] + on) - np.logaddexp.reduce(ups[i] + off)
        down = np.logaddexp(off, on + logits[i])
    return log_z, odds


def timed(label, call, *arguments, repeats=10):
    start = time.perf_counter()
    compiled = jax.jit(call).lower(*arguments).compile()
    compile_time = time.perf_counter() - start
    jax.block_until_ready(compiled(*arguments))
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        found = jax.block_until_ready(compiled(*arguments))
        best = min(best, time.perf_counter() - start)
    print(f"{label}: {best * 1e3:.3f} ms, compile {compile_time:.1f} s", flush=True)
    return found


def one_hot(n, k):
    return np.where(np.arange(n + 1) == k, 0.0, -np.inf)


def flat_batch(rng):
    rows, n, k = 16384 // SMALLER, 512, 51
    logits = rng.normal(size=(rows, n))
    device = jax.device_put(logits)
    odds = timed(
        f"{rows} x {n} exactly {k}, log-odds", lambda x: ttj.posterior_logits(x, tt.exactly(k)), device
    )
    exact = np.stack([recursion(row, one_hot(n, k))[1] for row in logits[:4]])
    print(f"  largest error of log-odds in four rows {np.abs(odds[:4] - exact).max():.1e}", flush=True)
    bound = jax.jit(lambda x: ttj.error_bound(x, tt.exactly(k)))(device)
    print(f"  largest bound {float(jnp.max(bound)):.1e}", flush=True)


def gradient_of_a_loss(rng):
    logits = jax.device_put(rng.normal(size=(16384 // SMALLER, 512)).astype("f4"))
    gradient = jax.grad(lambda x: jnp.sum(ttj.marginals(x, tt.exactly(51)) ** 2))
    timed("gradient of a loss of marginals, float32", gradient, logits, repeats=3)


def doubtful_rows(rng):
    """One row in a hundred has two modes, which the quick pass does not certify."""
    rows, n = 4096 // SMALLER, 256
    logits = rng.normal(size=(rows, n))
    table = np.where(
        (np.arange(rows) % 100 == 0)[:, None], np.logaddexp(one_hot(n, 3), one_hot(n, n - 5)), one_hot(n, 20)
    )
    found = timed(f"{rows} x {n}, 1 % doubtful", lambda x, t: ttj.posterior_logits(x, t), logits, table)
    worst = max(np.abs(found[i] - recursion(logits[i], table[i])[1]).max() for i in (0, 1))
    print(f"  largest error of log-odds, one row of each kind {worst:.1e}", flush=True)


def nested_batch(rng):
    rows, sets, size = 4096 // SMALLER, 8, 64
    n = sets * size
    logits = rng.normal(size=(rows, n))
    groups = [tt.Group(range(i * size, (i + 1) * size), tt.gaussian(8.0, 3.0)) for i in range(sets)]
    tree_groups = [*groups, tt.Group(None, tt.exactly(51))]
    mu = timed(
        f"{rows} x ({sets} x {size}) nested, marginals",
        lambda x: ttj.marginals(x, tree_groups),
        logits,
        repeats=3,
    )
    inner = -0.5 * ((np.arange(size + 1) - 8.0) / 3.0) ** 2
    exact = nested_log_z(logits[0], sets, inner, one_hot(n, 51))
    found = float(ttj.log_partition(logits[0], tree_groups))
    print(
        f"  relative error of log Z {abs(found - exact) / (1 + abs(exact)):.1e}, sums to {float(mu[0].sum()):.12f}",
        flush=True,
    )


def nested_log_z(logits, sets, inner, outer):
    total = np.array([0.0])
    for part in logits.reshape(sets, -1):
        law = np.array([0.0])
        for x in part:
            law = np.logaddexp(np.append(law, -np.inf), np.append(-np.inf, law) + x)
        law = law + inner
        joint = np.full(len(total) + len(law) - 1, -np.inf)
        for j, value in enumerate(total):
            joint[j : j + len(law)] = np.logaddexp(joint[j : j + len(law)], value + law)
        total = joint
    return np.logaddexp.reduce(total + outer)


def one_large_model(rng):
    """The quick pass alone: compiling the slow one for so many variables takes minutes."""
    n = 2**20 // SMALLER
    logits, table = rng.normal(size=(1, n)) - 2.0, one_hot(n, n // 10)[None]
    found = timed(f"{n} flat, exactly n / 10, quick pass", characteristic.solve, logits, table, repeats=5)
    mu = 1.0 / (1.0 + np.exp(-(logits + np.asarray(found.messages))))
    error = abs(float(mu.sum()) - n // 10)
    print(f"  sum of the marginals less n / 10: {error:.1e}; bound {float(found.bound[0]):.1e}", flush=True)


def main():
    print(jax.__version__, jax.devices(), flush=True)
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        for check in (flat_batch, one_large_model, doubtful_rows, gradient_of_a_loss, nested_batch):
            check(rng)


if __name__ == "__main__":
    main()
