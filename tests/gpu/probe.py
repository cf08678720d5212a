# ruff: noqa
"""A look at the kernels on a device: do they compile, are they right, how long do they take."""

import math, time, traceback
import torch
import triton
import tallytree as tt, tallytree.torch as ttt
from tallytree.torch.cuda import answers, logarithms, long, rows, row_kernels as K, wave_kernels as W
from tallytree.torch.groups import pose

dev = "cuda"
g = torch.Generator(device=dev).manual_seed(0)


def randn(*s):
    return torch.randn(*s, dtype=torch.float64, device=dev, generator=g)


def onehot(n, k):
    return torch.where(torch.arange(n + 1, device=dev) == k, 0.0, -math.inf).double()


def bench(f, n=10):
    for _ in range(2):
        f()
    torch.cuda.synchronize()
    best = 1e9
    for _ in range(n):
        a, b = torch.cuda.Event(True), torch.cuda.Event(True)
        a.record()
        f()
        b.record()
        torch.cuda.synchronize()
        best = min(best, a.elapsed_time(b))
    return best


def guard(name, f):
    t = time.time()
    try:
        print(name, f(), "[%.1fs]" % (time.time() - t), flush=True)
    except Exception as e:
        print(name, "FAILED", "".join(traceback.format_exception(e))[-1200:], flush=True)


def against(x, groups):
    P = pose(x, groups)
    st = P.structure
    t = (st.packed_on(x.device) if P.tables is None else P.tables).reshape(-1, st.n_cells)
    got = answers.sums(st, P.logits.contiguous(), None if P.tables is None else t.contiguous(), counts=False)
    ref = logarithms.solve(st, P.logits, t)
    mu = torch.sigmoid(ref.odds)
    rel = ((got.marginals - mu).abs() / mu.clamp(min=1e-250)).max().item()
    return "logz %.1e mu rel %.1e" % (
        ((got.log_z - ref.log_z).abs() / (1 + ref.log_z.abs())).max().item(),
        rel,
    )


x = randn(64, 512)
guard("512/51", lambda: against(x, tt.exactly(51)))


def adversarial(n, B):
    x = randn(B, n)
    k = torch.full((B,), n // 10, device=dev)
    k[0] = 0
    k[1] = n
    k[2] = n - 1
    k[3] = 1
    x[4, :3] = math.inf
    x[5, : n // 2] = -math.inf
    x[6] *= 1000
    x[7] -= 30
    x[8] *= 30
    return x, ttt.exactly(k)


guard("adversarial", lambda: against(*adversarial(512, 64)))
guard("long 5000", lambda: against(randn(2, 5000), tt.exactly(500)))
guard("long at_least", lambda: against(randn(1, 5000), tt.at_least(3000)))
guard("long table", lambda: against(randn(1, 5000), randn(5001)))
nest = [tt.Group(range(64 * i, 64 * i + 64), randn(65)) for i in range(8)] + [tt.Group(None, randn(513))]
guard("nested", lambda: against(randn(32, 512), nest))


def hvp(x, gr):
    xx = x.clone().requires_grad_()
    w = randn(*x.shape)
    (ttt.marginals(xx, gr) * w).sum().backward()
    e = 1e-5
    num = (ttt.marginals(x + e * w, gr) - ttt.marginals(x - e * w, gr)) / (2 * e)
    return "err %.1e" % (num - xx.grad).abs().max().item()


guard("hvp", lambda: hvp(x[:8], tt.exactly(51)))
guard("nested hvp", lambda: hvp(x[:8], nest))
guard("long hvp", lambda: hvp(randn(1, 5000), tt.exactly(500)))


def draws():
    y = ttt.sample(x, tt.exactly(51), (500,))
    mu = ttt.marginals(x, tt.exactly(51))
    return "sums %s z %.2f" % (
        sorted(set(y.sum(-1).flatten().tolist())),
        ((y.mean(0) - mu) / (mu * (1 - mu) / 500).sqrt()).abs().max().item(),
    )


guard("draws", draws)
B, n = 16384, 512
X = randn(B, n)
T = onehot(n, 51)[None]
V = randn(B, n)
info, wave = X.new_empty(B, W.INFO), X.new_empty(B, W.PLANES, 64)
out, lz, bd, dr = torch.empty_like(X), X.new_empty(B), X.new_empty(B), X.new_empty(B)
for w in (1, 2):

    def prep():
        W.prepare[(B,)](X, T, T, info, wave, B, n, 0, 0, WITH_PUSH=False, W=64, R=1, BLOCK=512, num_warps=w)

    def solve():
        K.solve[(B,)](X, info, wave, out, lz, bd, B, n, 1e-14, KEEP=False, W=64, R=1, BLOCK=512, num_warps=w)

    def tang():
        K.tangent[(B,)](
            X,
            V,
            info,
            wave,
            out,
            lz,
            dr,
            bd,
            B,
            n,
            1e-14,
            WITH_PUSH=False,
            KEEP=False,
            W=64,
            R=1,
            BLOCK=512,
            num_warps=w,
        )

    guard(
        "warps %d" % w,
        lambda: "prepare %.3f solve %.3f tangent %.3f ms" % (bench(prep), bench(solve), bench(tang)),
    )
print("M", info[:, 3].mean().item(), "N", info[:, 2].mean().item())


def forward():
    return ttt.marginals(X, tt.exactly(51))


def both():
    xx = X.detach().requires_grad_()
    (ttt.marginals(xx, tt.exactly(51)) * V).sum().backward()


guard("forward, both", lambda: "%.3f %.3f ms" % (bench(forward), bench(both)))
XN = randn(4096, 512)
guard("nested forward", lambda: "%.3f ms" % bench(lambda: ttt.marginals(XN, nest), 5))


def profile(f):
    from torch.profiler import profile, ProfilerActivity

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as p:
        f()
        torch.cuda.synchronize()
    ev = [e for e in p.key_averages() if e.device_time_total > 0 and e.cpu_time_total == 0]
    ev.sort(key=lambda e: -e.device_time_total)
    return "; ".join("%s %.0fus x%d" % (e.key[:28], e.device_time_total, e.count) for e in ev[:12])


guard("profile both", lambda: profile(both))
guard("profile nested", lambda: profile(lambda: ttt.marginals(XN, nest)))
guard("draw 16384x512", lambda: "%.3f ms" % bench(lambda: ttt.sample(X, tt.exactly(51)), 3))
X4 = randn(250000, 4)
guard("250000x4", lambda: "%.3f ms" % bench(lambda: ttt.marginals(X4, tt.exactly(2))))
AX, AK = adversarial(512, 4096)
guard(
    "4096x512 plain / with 9 adversarial rows",
    lambda: (
        "%.3f / %.3f ms"
        % (bench(lambda: ttt.marginals(AX[16:], tt.exactly(51))), bench(lambda: ttt.marginals(AX, AK), 3))
    ),
)
for p in (20, 22):
    XL = randn(1, 2**p)
    guard(
        "2^%d" % p,
        lambda: (
            "%.3f ms bound %.1e"
            % (
                bench(lambda: ttt.marginals(XL, tt.exactly(2**p // 10))),
                long.marginals(XL, long.interval(2**p // 10, 2**p // 10, XL)).bound.item(),
            )
        ),
    )
    guard("profile", lambda: profile(lambda: ttt.marginals(XL, tt.exactly(2**p // 10))))
