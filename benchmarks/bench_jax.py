"""`tallytree.jax` beside the native engine on a CPU, and beside the kernels for torch on a GPU, each in one process.

    python benchmarks/bench_jax.py [cpu | gpu]
    python benchmarks/bench_jax.py cpu --write      # the table of docs/guide/jax.md

CPU: processor time, the best of several runs, so that the ratios mean something on a shared machine.
GPU: milliseconds until the answer is there, the best of several runs, the same clock for both.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import machine
import pages
import tallytree as tt

CPU_SIZES = ((1000, 100), (4096, 512), (1, 100), (1, 1000), (1, 10**4), (1, 10**5))
WITH_GRADIENTS = 10**4  # longer models take their time: the gradient has the slow pass in it
GPU_TARGET = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "part", nargs="?", choices=("cpu", "gpu"), help="both, where there is a GPU, unless given"
    )
    parser.add_argument("--write", action="store_true", help="write the table of the CPU")
    chosen = parser.parse_args()
    if chosen.part == "gpu" or (chosen.part is None and sees_a_gpu()):
        on_gpu()
    if chosen.part != "gpu":
        about = machine.describe()
        rows = on_cpu()
        if chosen.write and rows:
            text = (
                f"{pages.measured(about)} Processor times of marginals, exactly a tenth of the variables on; "
                "the native engine is asked for the same batch."
            )
            print(pages.write("guide/jax_table.md", [text, pages.table(HEAD, rows)]))


def sees_a_gpu() -> bool:
    """Whether JAX has a GPU to work on; must come before anything that settles where it runs."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # torch needs some of its memory, too
    import jax

    return bool(jax.default_backend() == "gpu")


# -- CPU -----------------------------------------------------------------------------------------------------------


def best(call: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.process_time) -> float:
    """Least time of a call, in seconds."""
    found = float("inf")
    for _ in range(repeats):
        start = clock()
        call()
        found = min(found, clock() - start)
    return found


HEAD = ["models x variables", "native", "JAX", "ratio", "JAX, forward and backward", "compilation"]


def on_cpu() -> list[list[str]]:
    import jax

    with jax.default_device(jax.devices("cpu")[0]), jax.enable_x64(True):
        if jax.default_backend() != "cpu":
            print("CPU figures are left out: JAX runs on a GPU here; set JAX_PLATFORMS=cpu")
            return []
        return [cpu_row(batch, n) for batch, n in CPU_SIZES]


def cpu_row(batch: int, n: int) -> list[str]:
    """One size: exactly n / 10 of n, marginals."""
    import jax
    import jax.numpy as jnp

    import tallytree.jax as ttj

    logits = np.random.default_rng(0).normal(size=(batch, n))
    k, device = n // 10, jnp.asarray(logits)
    question = jax.jit(lambda x: ttj.marginals(x, tt.exactly(k)))
    start = time.process_time()
    compiled = question.lower(device).compile()
    compilation = time.process_time() - start
    ours, native = float("inf"), float("inf")
    for _ in range(7):  # in turn, so that what else the machine does hits both
        native = min(native, best(lambda: tt.CountModel(logits, tt.exactly(k)).marginals, 2))
        ours = min(ours, best(lambda: compiled(device).block_until_ready(), 2))
    error = np.abs(np.asarray(compiled(device)) - tt.CountModel(logits, tt.exactly(k)).marginals).max()
    both = None
    if n <= WITH_GRADIENTS:
        backward = jax.jit(jax.grad(lambda x: jnp.sum(ttj.marginals(x, tt.exactly(k)) ** 2)))
        backward(device).block_until_ready()
        both = best(lambda: backward(device).block_until_ready(), 3)
    figures = [pages.seconds(native), pages.seconds(ours), f"{ours / native:.1f}", pages.seconds(both)]
    row = [f"{batch:,} x {n:,}", *figures, f"{compilation:.1f} s"]
    print(
        "CPU",
        *(f"{name}: {cell}" for name, cell in zip(HEAD, row)),
        f"largest difference {error:.1e}",
        sep="; ",
    )
    return row


# -- GPU -----------------------------------------------------------------------------------------------------------


def on_gpu() -> None:
    if not sees_a_gpu():
        print("without a GPU: its figures are left out")
        return
    import jax

    with jax.enable_x64(True):
        print("GPU", jax.devices()[0].device_kind, "jax", jax.__version__, flush=True)
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(16384, 512))
        parts = [tt.Group(range(start, start + 64), tt.gaussian(8.0, 3.0)) for start in range(0, 512, 64)]
        nested = [*parts, tt.Group(None, tt.exactly(51))]
        gpu_row("16384 x 512 exactly 51: forward", rows, tt.exactly(51))
        gpu_row("16384 x 512 exactly 51: forward + backward", rows, tt.exactly(51), backward=True)
        gpu_row("4096 x (8 x 64) nested: forward", rows[:4096], nested)
        gpu_row("4096 x (8 x 64) nested: forward + backward", rows[:4096], nested, backward=True)
        gpu_row("one model of 2^20: forward", rng.normal(size=2**20) - 2.0, tt.exactly(2**20 // 10))


def gpu_row(name: str, logits: Any, groups: Any, *, backward: bool = False) -> None:
    """Marginals, or the gradient of the sum of their squares."""
    ours, compile_time, answer = jax_side(logits, groups, backward)
    text = f"GPU {name:44s} JAX {ours * 1e3:8.3f} ms, compile {compile_time:.1f} s"
    found = torch_side(logits, groups, backward)
    if found is None:
        print(f"{text}; without torch for CUDA nothing to compare with", flush=True)
        return
    theirs, other = found
    difference = np.abs(answer - other).max()
    print(
        f"{text}; torch {theirs * 1e3:8.3f} ms, ratio {ours / theirs:.2f} (target {GPU_TARGET:.0f}); "
        f"largest difference {difference:.1e}",
        flush=True,
    )


def jax_side(logits: Any, groups: Any, backward: bool) -> tuple[float, float, Any]:
    """Seconds per call, seconds to compile, and the answer."""
    import jax
    import jax.numpy as jnp

    import tallytree.jax as ttj

    def marginals(x: Any) -> Any:
        return ttj.marginals(x, groups)

    device = jax.device_put(logits)
    question = jax.grad(lambda x: jnp.sum(marginals(x) ** 2)) if backward else marginals
    start = time.perf_counter()
    compiled = jax.jit(question).lower(device).compile()
    compile_time = time.perf_counter() - start
    answer = np.asarray(compiled(device))
    return (
        best(lambda: compiled(device).block_until_ready(), 20, time.perf_counter),
        compile_time,
        answer,
    )


def torch_side(logits: Any, groups: Any, backward: bool) -> tuple[float, Any] | None:
    """Seconds per call and the answer, or None where torch sees no GPU."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    import tallytree.torch as ttt

    x = torch.from_numpy(logits).cuda()

    def call() -> Any:
        if backward:
            leaf = x.detach().requires_grad_()
            (ttt.marginals(leaf, groups) ** 2).sum().backward()
            found = leaf.grad
        else:
            found = ttt.marginals(x, groups)
        torch.cuda.synchronize()
        return found

    answer = call().cpu().numpy()
    for _ in range(3):
        call()
    return best(call, 20, time.perf_counter), answer


if __name__ == "__main__":
    main()
