"""Inputs that once hung a GPU or overran its limits, each in a process of its own with a time limit.

python tests/gpu/nasty_inputs.py [PART OF A NAME]     every case, eight processes at a time
python tests/gpu/nasty_inputs.py --case NAME          one case, in this process

A case passes if the answer is that of the engine of the host, or if the error is the one that was asked for.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

LIMIT = 150  # seconds for a case: the first launch of every kernel compiles it
SHAPES = {"5": (5,), "64 x 200": (64, 200), "3 x 5000": (3, 5000), "2^20": (1 << 20,), "2^23": (1 << 23,)}


def potentials(n):
    """Every named potential at a size, and tables; made on the host."""
    import numpy as np

    import tallytree as tt

    c = np.arange(n + 1.0)
    table = np.random.default_rng(3).normal(size=n + 1)
    return {
        "exactly": tt.exactly(max(1, n // 10)),
        "exactly one": tt.exactly(1),
        "exactly all but one": tt.exactly(n - 1),
        "at_least": tt.at_least(n // 3),
        "at_most": tt.at_most(n // 10),
        "between wide": tt.between(n // 4, 3 * n // 4),
        "between": tt.between(n // 10, n // 9),
        "one_of": tt.one_of([1, n - 2]),
        "parity": tt.parity("odd"),
        "modulo": tt.modulo(3, 1),
        "noisy_or": tt.noisy_or(rate=0.2, leak=0.01),
        "gaussian": tt.gaussian(n / 3, math.sqrt(n)),
        "poisson": tt.poisson(n / 4),
        "geometric": tt.geometric(0.5),
        "all_or_none": tt.all_or_none(5.0),
        "random table": table,
        "random table, sd 10": 10.0 * table,
        "convex table": 1e-3 * (c - n / 3) ** 2 / math.sqrt(n),
        "spike": np.where(c == n - 3, 30.0, 0.0),
        "holes": np.where(c % 7 == 0, 0.0, -np.inf),
    }


def cases():
    """Names of all cases: (what is wrong, shape, potential)."""
    names = []
    for shape in SHAPES:
        for wrong in ("one NaN", "all NaN", "infinities", "impossible", "NaN in the table", "NaN draws"):
            names.append(f"{wrong} | {shape} | exactly")
    for shape in ("3 x 5000", "2^20"):
        names += [f"values | {shape} | {name}" for name in potentials(100)]
    names += [
        f"values | 2^23 | {name}" for name in ("exactly", "between wide", "between", "random table", "parity")
    ]
    names += [
        f"draws | {shape} | {name}" for shape in ("64 x 200", "2^20") for name in ("between", "random table")
    ]
    names += [
        f"gradient | {shape} | {name}"
        for shape in ("64 x 200", "2^20")
        for name in ("between", "random table")
    ]
    return names


def run(name):
    """One case; raises where it fails."""
    import numpy as np
    import torch

    import tallytree as tt
    import tallytree.torch as ttt

    kind, shape, potential = name.split(" | ")
    size = SHAPES[shape]
    n = size[-1]
    x = torch.randn(*size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    f = potentials(n)[potential]
    f = torch.from_numpy(f) if isinstance(f, np.ndarray) else f

    def on_device(value):
        return value.cuda() if isinstance(value, torch.Tensor) else value

    def refused(error, function, *arguments):
        try:
            function(*(on_device(a) for a in arguments))
        except error:
            torch.cuda.synchronize()
            assert float(ttt.log_partition(torch.zeros(4, device="cuda"), tt.exactly(2)).exp()) > 5.9
            return
        raise AssertionError(f"{error.__name__} was not raised")

    k = max(1, n // 10)
    if kind in ("one NaN", "all NaN", "NaN draws"):
        x[..., n // 2 :] = torch.where(
            torch.arange(n - n // 2) < (1 if kind == "one NaN" else n), math.nan, x[..., n // 2 :]
        )
        function = ttt.sample if kind == "NaN draws" else ttt.marginals
        refused(tt.ParameterError, function, x, tt.exactly(k))
        table = torch.where(torch.arange(n + 1) == k, 0.0, -math.inf).double()
        refused(tt.ParameterError, function, x, table)
        refused(tt.ParameterError, ttt.log_partition, x, tt.between(0, k))
        return
    if kind == "NaN in the table":
        refused(tt.ParameterError, ttt.marginals, x, torch.full((n + 1,), math.nan, dtype=torch.float64))
        return
    if kind == "impossible":
        x[..., : n // 2] = -math.inf
        refused(tt.InfeasibleError, ttt.marginals, x, tt.exactly(n))
        return
    if kind == "infinities":
        x[..., : n // 3], x[..., -1] = -math.inf, math.inf
    if kind == "gradient":
        grads = []
        for place in ("cpu", "cuda"):
            leaf = x.to(place).clone().requires_grad_()
            ttt.marginals(leaf, f.to(place) if isinstance(f, torch.Tensor) else f).square().sum().backward()
            grads.append(leaf.grad.cpu())
        torch.testing.assert_close(grads[1], grads[0], rtol=1e-8, atol=1e-10)
        return
    if kind == "draws":
        drawn = ttt.sample(x.cuda(), on_device(f), (2,)).sum(-1)
        if potential == "between":
            assert bool(((drawn >= n // 10) & (drawn <= n // 9)).all())
        return
    expected, log_z = ttt.marginals(x, f), ttt.log_partition(x, f)
    found = ttt.marginals(x.cuda(), on_device(f)).cpu()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    ttt.marginals(x.cuda(), on_device(f))
    torch.cuda.synchronize()
    print(f"{1e3 * (time.perf_counter() - begin):9.2f} ms  ", end="")
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(ttt.log_partition(x.cuda(), on_device(f)).cpu(), log_z, rtol=1e-10, atol=1e-10)


def child(name):
    """Whether a case passes, in a process of its own."""
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, "--case", name],
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
    except subprocess.TimeoutExpired:
        print(f"HANGS   {name}", flush=True)
        return False
    passed = done.returncode == 0
    print(f"{'passed' if passed else 'FAILED'}  {done.stdout.strip()}  {name}", flush=True)
    if not passed:
        print(done.stderr.strip().splitlines()[-3:], flush=True)
    return passed


def main(arguments):
    """Run the cases whose names contain the argument, or one case here."""
    if arguments[:1] == ["--case"]:
        run(arguments[1])
        return 0
    chosen = [name for name in cases() if not arguments or arguments[0] in name]
    with ThreadPoolExecutor(8) as pool:
        passed = list(pool.map(child, chosen))
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
