"""First look at the kernels on a device: do they compile, are they right, how long do they take."""
import math, time, traceback
import torch
import triton
import tallytree as tt, tallytree.torch as ttt
from tallytree.torch import log_pass
from tallytree.torch.cuda import answers, rows, row_kernels as K, nested
from tallytree.torch.groups import pose
print(torch.__version__, triton.__version__, torch.cuda.get_device_name(), flush=True)
dev = "cuda"
g = torch.Generator(device=dev).manual_seed(0)
def randn(*s): return torch.randn(*s, dtype=torch.float64, device=dev, generator=g)
def onehot(n, k): return torch.where(torch.arange(n + 1, device=dev) == k, 0.0, -math.inf).double()
def bench(f, n=10):
    for _ in range(2): f()
    torch.cuda.synchronize(); best = 1e9
    for _ in range(n):
        a, b = torch.cuda.Event(True), torch.cuda.Event(True)
        a.record(); f(); b.record(); torch.cuda.synchronize(); best = min(best, a.elapsed_time(b))
    return best
def guard(name, f):
    t = time.time()
    try: print(name, f(), "[%.1fs]" % (time.time() - t), flush=True)
    except Exception as e:
        print(name, "FAILED", "".join(traceback.format_exception(e))[-1500:], flush=True)
def against(x, groups):
    P = pose(x, groups); st = P.structure
    t = (st.packed_on(x.device) if P.tables is None else P.tables).reshape(-1, st.n_cells)
    got = answers.sums(st, P.logits.contiguous(), t.contiguous(), counts=True)
    ref = log_pass.solve(st, P.logits, t.expand(len(x), -1))
    mu = torch.sigmoid(ref.odds)
    rel = ((got.marginals - mu).abs() / mu.clamp(min=1e-250)).max().item()
    return "logz %.1e mu rel %.1e" % (((got.log_z - ref.log_z).abs() / (1 + ref.log_z.abs())).max().item(), rel)
x = randn(64, 512)
guard("512/51", lambda: against(x, onehot(512, 51)))
guard("100/10", lambda: against(randn(50, 100), onehot(100, 10)))
guard("2of4", lambda: against(randn(5000, 4), onehot(4, 2)))
guard("random", lambda: against(x, randn(64, 513)))
guard("500 nats", lambda: against(randn(16, 100), 200 * randn(16, 101)))
def adversarial(n, B):
    x = randn(B, n); k = torch.full((B,), n // 10, device=dev)
    k[0] = 0; k[1] = n; k[2] = n - 1; k[3] = 1; x[4, :3] = math.inf; x[5, : n // 2] = -math.inf; x[6] *= 1000; x[7] -= 30; x[8] *= 30
    return x, ttt.exactly(k)
guard("adversarial", lambda: against(*adversarial(512, 64)))
guard("1000", lambda: against(randn(8, 1000), onehot(1000, 100)))
guard("4096", lambda: against(randn(2, 4096), onehot(4096, 400)))
nest = [tt.Group(range(64 * i, 64 * i + 64), randn(65)) for i in range(8)] + [tt.Group(None, randn(513))]
guard("nested", lambda: against(randn(32, 512), nest))
def hvp():
    xx = x[:8].clone().requires_grad_(); w = randn(8, 512)
    (ttt.marginals(xx, tt.exactly(51)) * w).sum().backward()
    e = 1e-5
    num = ((ttt.marginals(x[:8] + e * w, tt.exactly(51)) - ttt.marginals(x[:8] - e * w, tt.exactly(51))) / (2 * e))
    return "err %.1e" % (num - xx.grad).abs().max().item()
guard("hvp", hvp)
def tree_hvp():
    xx = x[:8].clone().requires_grad_(); w = randn(8, 512)
    (ttt.marginals(xx, nest) * w).sum().backward()
    e = 1e-5
    num = ((ttt.marginals(x[:8] + e * w, nest) - ttt.marginals(x[:8] - e * w, nest)) / (2 * e))
    return "err %.1e" % (num - xx.grad).abs().max().item()
guard("nested hvp", tree_hvp)
def draws():
    y = ttt.sample(x, tt.exactly(51), (500,)); 
    mu = ttt.marginals(x, tt.exactly(51))
    return "sums %s z %.2f" % (sorted(set(y.sum(-1).flatten().tolist())), ((y.mean(0) - mu) / (mu * (1 - mu) / 500).sqrt()).abs().max().item())
guard("draws", draws)
B, n = 16384, 512
X = randn(B, n); T = onehot(n, 51)[None]; V = randn(B, n)
st = pose(X, tt.exactly(51)).structure
info, wave = X.new_empty(B, K.INFO), X.new_empty(B, K.PLANES, 64)
out, lz, bd, dr = torch.empty_like(X), X.new_empty(B), X.new_empty(B), X.new_empty(B)
for w in (1, 2, 4):
    def prep(): K.prepare[(B,)](X, T, T, info, wave, B, n, 0, 0, WITH_PUSH=False, W=64, R=1, BLOCK=512, num_warps=w)
    def solve(): K.solve[(B,)](X, info, wave, out, lz, bd, B, n, 1e-14, KEEP=False, W=64, R=1, BLOCK=512, num_warps=w)
    def tang(): K.tangent[(B,)](X, V, info, wave, out, lz, dr, bd, B, n, 1e-14, WITH_PUSH=False, KEEP=False, W=64, R=1, BLOCK=512, num_warps=w)
    guard("warps %d" % w, lambda: "prepare %.3f solve %.3f tangent %.3f ms" % (bench(prep), bench(solve), bench(tang)))
print("M", info[:, 3].mean().item(), "N", info[:, 2].mean().item())
guard("call forward", lambda: "%.3f ms" % bench(lambda: ttt.marginals(X, tt.exactly(51))))
def both():
    xx = X.detach().requires_grad_(); (ttt.marginals(xx, tt.exactly(51)) * V).sum().backward()
guard("forward+backward", lambda: "%.3f ms" % bench(both))
XN = randn(4096, 512)
guard("nested forward", lambda: "%.3f ms" % bench(lambda: ttt.marginals(XN, nest), 5))
guard("draw 16384x512", lambda: "%.3f ms" % bench(lambda: ttt.sample(X, tt.exactly(51)), 3))
X4 = randn(250000, 4)
guard("250000x4", lambda: "%.3f ms" % bench(lambda: ttt.marginals(X4, tt.exactly(2))))
AX, AK = adversarial(512, 4096)
guard("4096x512 plain / with 9 adversarial rows", lambda: "%.3f / %.3f ms" % (bench(lambda: ttt.marginals(AX[16:], tt.exactly(51))), bench(lambda: ttt.marginals(AX, AK), 3)))
