"""`tallytree.torch` on the CPU and, where there is one, on a GPU, side by side with what users do today.

    python -m benchmarks.bench_torch [cpu | gpu]

CPU: processor time, the best of several runs, as multiples of the inference of NumPy arrays in the same process.
GPU: device time between events, milliseconds, the best of several runs.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

import tallytree as tt
import tallytree.torch as ttt

# What users of PyTorch do today, written from the published mathematics: batches (B, n), choose k.

_IMPOSSIBLE = -1e30  # as published implementations do: the derivative of logaddexp(-inf, -inf) is NaN


def recursion(scores: Tensor, k: int) -> Tensor:
    """Marginals of k-subsets as the gradient of log e_k, by the O(n k) recursion in logarithms (SIMPLE)."""
    with torch.enable_grad():
        x = scores.detach().requires_grad_()
        state = x.new_full((len(x), k + 1), _IMPOSSIBLE)
        state[:, 0] = 0.0
        for i in range(x.shape[1]):
            moved = torch.cat([x.new_full((len(x), 1), _IMPOSSIBLE), state[:, :-1] + x[:, i : i + 1]], 1)
            state = torch.logaddexp(state, moved)
        (found,) = torch.autograd.grad(state[:, k].sum(), x)
    return found


def gumbel_top_k(scores: Tensor, k: int) -> Tensor:
    """The k largest of perturbed scores, with the gradient of a softmax: not the law of k-subsets, and no marginals."""
    noise = -torch.empty_like(scores).exponential_().log()
    perturbed = scores + noise
    hard = torch.zeros_like(scores).scatter(-1, perturbed.topk(k, dim=-1).indices, 1.0)
    soft = k * torch.softmax(perturbed, -1)
    return hard + (soft - soft.detach())


def poisson_binomial_fft(logits: Tensor) -> Tensor:
    """Law of the number of successes (B, n + 1) by an FFT of its characteristic function, O(n^2)."""
    n = logits.shape[-1]
    p = torch.sigmoid(logits)
    w = 2.0 * torch.pi * torch.arange(n + 1, dtype=logits.dtype, device=logits.device) / (n + 1)
    turn = torch.polar(torch.ones_like(w), w)
    values = torch.ones(len(logits), n + 1, dtype=turn.dtype, device=logits.device)
    for i in range(n):
        values = values * (1.0 + p[:, i : i + 1] * (turn - 1.0))
    return torch.fft.fft(values).real / (n + 1)


class _LaplaceTopK(torch.autograd.Function):
    """Soft top-k by sorting: p_i = F(x_i - b), F the Laplace distribution function, b such that they sum to k."""

    @staticmethod
    def forward(ctx, scores: Tensor, k: int) -> Tensor:
        n = scores.shape[-1]
        ordered = scores.sort(-1).values
        # S(b) = sum_i F(x_i - b) at every score, from running sums of e^x and e^-x.
        up = torch.logcumsumexp(ordered, -1)
        down = torch.logcumsumexp(-ordered.flip(-1), -1).flip(-1)
        below = 0.5 * torch.exp(up - ordered)
        above = 0.5 * torch.exp(down + ordered) - 0.5
        rank = torch.arange(n, dtype=scores.dtype, device=scores.device)
        total = below + (n - 1.0 - rank) - above
        # Between two scores S is a + c e^-(b - x) - d e^(b - x): a quadratic equation.
        j = (total >= k).sum(-1, keepdim=True).clamp(1, n) - 1
        left = ordered.gather(-1, j)
        c = 0.5 * torch.exp(up.gather(-1, j) - left)
        follow = (j + 1).clamp(max=n - 1)
        d = torch.where(j < n - 1, 0.5 * torch.exp(down.gather(-1, follow) + left), 0.0)
        a = n - 1.0 - j.to(scores.dtype) - k
        y = torch.where(
            d > 0.0,
            (a + torch.sqrt(a * a + 4.0 * c * d)) / (2.0 * d.clamp(min=1e-300)),
            -c / a.clamp(max=-1e-300),
        )
        gap = scores - (left + torch.log(y))
        soft = torch.where(gap < 0.0, 0.5 * torch.exp(gap), 1.0 - 0.5 * torch.exp(-gap))
        ctx.save_for_backward(0.5 * torch.exp(-gap.abs()))
        return soft

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None]:
        (density,) = ctx.saved_tensors
        pull = (grad * density).sum(-1, keepdim=True) / density.sum(-1, keepdim=True)
        return density * (grad - pull), None


def sorted_relaxation(scores: Tensor, k: int) -> Tensor:
    """A relaxation of top-k by sorting (LapSum); numbers between 0 and 1 that sum to k, but no probabilities."""
    return _LaplaceTopK.apply(scores, k)


# The rows

CPU_SIZES = ((1000, 100), (4096, 512))
GPU_ROWS = (16384, 512, 51)


def main(part: str | None = None) -> None:
    if part != "gpu":
        on_cpu()
    if torch.cuda.is_available() and part != "cpu":
        on_gpu()
    else:
        print("without a GPU: its figures are left out")


# -- CPU -----------------------------------------------------------------------------------------------------------


def processor_time(call: Callable[[], Any], repeats: int) -> float:
    found = math.inf
    for _ in range(repeats):
        start = time.process_time()
        call()
        found = min(found, time.process_time() - start)
    return found


def on_cpu() -> None:
    torch.set_num_threads(1)
    for batch, n in CPU_SIZES:
        x = np.random.default_rng(0).normal(size=(batch, n))
        k, leaf = n // 10, torch.from_numpy(x).requires_grad_()
        weights = torch.randn(batch, n, dtype=torch.float64)

        def both(leaf: Any = leaf, weights: Any = weights, k: int = k) -> None:
            leaf.grad = None
            (ttt.marginals(leaf, tt.exactly(k)) * weights).sum().backward()

        both()
        plain, ours = math.inf, math.inf
        for _ in range(7):
            plain = min(plain, processor_time(lambda x=x, k=k: tt.CountModel(x, tt.exactly(k)).marginals, 1))
            ours = min(ours, processor_time(both, 1))
        print(
            f"CPU {batch} x {n} exactly {k}: inference {plain * 1e3:.2f} ms, forward + backward {ours * 1e3:.2f} ms, "
            f"{ours / plain:.1f} inferences (target 6)"
        )
    small, p = torch.randn(10), tt.exactly(3)
    array = small.double().numpy()
    ttt.marginals(small, p)
    one = processor_time(lambda: [ttt.marginals(small, p) for _ in range(500)], 5) / 500
    bare = processor_time(lambda: [tt.CountModel(array, p).marginals for _ in range(500)], 5) / 500
    print(
        f"CPU one small call: {one * 1e6:.0f} us, of which inference {bare * 1e6:.0f} us (target: 100 us more at most)"
    )


# -- GPU -----------------------------------------------------------------------------------------------------------


def device_time(call: Callable[[], Any], repeats: int = 10) -> float:
    """Milliseconds between events."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    found = math.inf
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        found = min(found, begin.elapsed_time(end))
    return found


def line(name: str, call: Callable[[], Any], target: float | None = None, repeats: int = 10) -> None:
    try:
        found = f"{device_time(call, repeats):9.3f} ms"
    except Exception as error:  # a line that fails must not take the others with it
        found = f"failed: {type(error).__name__}: {str(error)[:200]}"
    print(f"GPU {name:58s} {found}" + ("" if target is None else f"   (target {target:g})"), flush=True)


def pulled(function: Callable[[Any], Any], x: Any, weights: Any) -> Callable[[], None]:
    """Forward, a loss of the answer, and backward."""

    def both() -> None:
        leaf = x.detach().requires_grad_()
        (function(leaf) * weights).sum().backward()

    return both


def draws(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.float64, device="cuda")


def on_gpu() -> None:
    print("GPU", torch.cuda.get_device_name(), "torch", torch.__version__)
    rows_of_subsets()
    nested()
    adversarial()
    wide_windows()
    long_models()


def rows_of_subsets() -> None:
    batch, n, k = GPU_ROWS
    x, weights, p = draws(batch, n), draws(batch, n), tt.exactly(k)
    name = f"{batch} x {n} exactly {k}"
    line(f"{name}: forward", lambda: ttt.marginals(x, p), 1.0)
    line(f"{name}: forward + backward", pulled(lambda v: ttt.marginals(v, p), x, weights), 3.0)
    line(f"{name}, float32: forward", lambda: ttt.marginals(x.float(), p))
    line(f"{name}: one exact sample per row", lambda: ttt.sample(x, p), repeats=3)
    line(f"{name}: entropy", lambda: ttt.CountDistribution(x, p).entropy())
    line(f"{name}: mode", lambda: ttt.CountDistribution(x, p).mode)
    line(f"{name}: recursion in logarithms, forward", lambda: recursion(x, k), repeats=2)
    line(
        f"{name}: Gumbel top-k, forward + backward",
        pulled(lambda v: gumbel_top_k(v, k), x, weights),
    )
    line(f"{name}: relaxation by sorting, forward", lambda: sorted_relaxation(x, k))
    line(
        f"{name}: relaxation by sorting, forward + backward",
        pulled(lambda v: sorted_relaxation(v, k), x, weights),
    )
    few = x[:1024].contiguous()
    line("1024 x 512 law of the count: ours", lambda: ttt.PoissonBinomial(few).count_log_probs(), repeats=3)
    line("1024 x 512 law of the count: FFT", lambda: poisson_binomial_fft(few), repeats=3)
    exact, soft = ttt.marginals(x[:64], p), sorted_relaxation(x[:64], k)
    truth = recursion(x[:64], k)
    print(
        f"GPU largest error of marginals on 64 rows: ours {float((exact - truth).abs().max()):.1e}, relaxation by "
        f"sorting {float((soft - truth).abs().max()):.1e} (its sum is {float(soft.sum(-1).mean()):.3f})"
    )
    tiny = draws(250_000, 4)
    line("250000 x 4 exactly 2: forward", lambda: ttt.marginals(tiny, tt.exactly(2)))
    tables = draws(4096, n + 1)
    line("4096 x 512 random tables: forward", lambda: ttt.marginals(x[:4096], tables))


def nested() -> None:
    x = draws(4096, 512)
    groups = [tt.Group(range(64 * i, 64 * i + 64), draws(65)) for i in range(8)]
    groups.append(tt.Group(None, draws(513)))
    line("4096 x (8 x 64) nested: forward", lambda: ttt.marginals(x, groups), 10.0, 5)
    weights = draws(4096, 512)
    line(
        "4096 x (8 x 64) nested: forward + backward",
        pulled(lambda v: ttt.marginals(v, groups), x, weights),
        repeats=3,
    )
    line("4096 x (8 x 64) nested: one exact sample per row", lambda: ttt.sample(x, groups), repeats=3)
    line("4096 x (8 x 64) nested: mode", lambda: ttt.CountDistribution(x, groups).mode, repeats=3)
    line("4096 x (8 x 64) nested: entropy", lambda: ttt.CountDistribution(x, groups).entropy(), repeats=3)


def wide_windows() -> None:
    """Tables and intervals with many likely counts, beside exactly n / 10, with backward."""
    for shape in ((1024, 2048), (512, 4096)):
        n = shape[-1]
        x, weights, c = draws(*shape), draws(*shape), torch.arange(n + 1, device="cuda")
        potentials = {
            "exactly n/10": tt.exactly(n // 10),
            "random table": draws(n + 1),
            "parity": torch.where(c % 2 == 0, 0.0, -math.inf).double(),
            "between n/4 and 3n/4": tt.between(n // 4, 3 * n // 4),
            "spike at n - 3": torch.where(c == n - 3, 0.5 * n, 0.0).double(),
        }
        for name, p in potentials.items():
            call = pulled(lambda v, p=p: ttt.marginals(v, p), x, weights)
            line(f"{shape[0]} x {n}, {name}: forward + backward", call, repeats=3)


def adversarial() -> None:
    x = draws(4096, 512)
    k = torch.full((4096,), 51, device="cuda")
    line("4096 x 512, one k per row: forward", lambda: ttt.marginals(x, ttt.exactly(k)))
    y, kk = x.clone(), k.clone()
    kk[0], kk[1], kk[2], kk[3] = 0, 512, 511, 1
    y[4, :3], y[5, :256] = math.inf, -math.inf
    y[6] -= 30.0
    line("the same with k = 0, n, n - 1, 1, masks, a tail", lambda: ttt.marginals(y, ttt.exactly(kk)))
    y[7] *= 1000.0
    line("and with a row of log-odds of sd 1000", lambda: ttt.marginals(y, ttt.exactly(kk)))
    y[8:48] *= 1000.0
    line("and with 41 of them, one in a hundred", lambda: ttt.marginals(y, ttt.exactly(kk)))
    tables = draws(4096, 513)
    line("4096 x 512, random tables", lambda: ttt.marginals(x, tables))
    tables[0] *= 500.0
    line("the same with a table spread over thousands of nats", lambda: ttt.marginals(x, tables))


def long_models() -> None:
    for power, target in ((20, 0.5), (24, None), (27, None), (30, 10.0)):
        n = 1 << power
        x = draws(n)
        p = tt.exactly(n // 10)
        line(f"one model of 2^{power}: forward", lambda x=x, p=p: ttt.marginals(x, p), target, 5)
        found = ttt.marginals(x, p)
        print(
            f"GPU one model of 2^{power}: marginals sum to k within {abs(float(found.sum()) / (n // 10) - 1.0):.1e}"
        )
        if power == 30:
            x[5], x[7] = math.inf, -math.inf
            line("one model of 2^30, masks in it: forward", lambda x=x, p=p: ttt.marginals(x, p), repeats=3)
        del x, found
    x, weights, p = draws(1 << 20), draws(1 << 20), tt.exactly(100_000)
    line("one model of 2^20: forward + backward", pulled(lambda v: ttt.marginals(v, p), x, weights))


if __name__ == "__main__":
    main(*sys.argv[1:])
