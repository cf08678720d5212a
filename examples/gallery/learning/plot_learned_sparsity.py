"""
Learned N:M sparsity
====================

*Hardware multiplies matrices twice as fast if at most 2 of every 4 weights are non-zero. Which ones should
stay?*

Magnitude pruning keeps the largest. Learning the mask is better: each block of M weights gets a distribution
over its N-subsets. Current methods enumerate all patterns of a block (6 for 2:4), which ends at 4:8; for 8:32
there are ten million. With :mod:`tallytree.torch` a block is "exactly N of M": samples, marginals and
gradients are exact for any N and M.
"""

# %%
# Exact marginals and gradients, checked by enumeration
# -----------------------------------------------------

import itertools
import math

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits

import tallytree as tt
import tallytree.torch as ttt

torch.manual_seed(0)
torch.set_num_threads(1)

scores = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
patterns = torch.tensor(
    [[float(i in s) for i in range(4)] for s in itertools.combinations(range(4), 2)],
    dtype=torch.float64,
)
by_enumeration = torch.softmax(scores @ patterns.T, -1) @ patterns
exact = ttt.marginals(scores, tt.exactly(2))
weights = torch.randn(5, 4, dtype=torch.float64)
want = torch.autograd.grad((by_enumeration * weights).sum(), scores)[0]
got = torch.autograd.grad((exact * weights).sum(), scores)[0]
difference = max(
    (exact - by_enumeration).abs().max().item(), (got - want).abs().max().item()
)
print(
    f"2:4, marginals and gradients against all {len(patterns)} patterns: {difference:.1e}"
)
assert difference < 1e-12
for n, m in ((2, 4), (4, 8), (8, 16), (8, 32)):
    print(f"{n}:{m} has {math.comb(m, n):,} patterns")

# %%
# A network for handwritten digits
# --------------------------------
# A small dense network is trained first. Then its first layer is cut to N of every M weights; all other
# numbers stay frozen and only the mask is chosen.

digits = load_digits()
x = torch.tensor(digits.data / 16.0, dtype=torch.float32)
y = torch.tensor(digits.target)
shuffled = torch.randperm(len(x))
train, test = shuffled[:1200], shuffled[1200:]
network = torch.nn.Sequential(
    torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 10)
)
optimiser = torch.optim.Adam(network.parameters(), 5e-3)
for _ in range(250):
    loss = torch.nn.functional.cross_entropy(network(x[train]), y[train])
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
first, _, last = network
for parameter in network.parameters():
    parameter.requires_grad_(False)


def accuracy(mask):
    """On test digits, with the first layer masked."""
    hidden = torch.relu(
        torch.nn.functional.linear(x[test], first.weight * mask, first.bias)
    )
    return float((last(hidden).argmax(-1) == y[test]).float().mean())


def magnitude_mask(n, m):
    """The usual choice: the N largest weights of every block of M."""
    blocks = first.weight.abs().reshape(-1, m)
    return (
        torch.zeros_like(blocks)
        .scatter(1, blocks.topk(n, -1).indices, 1.0)
        .reshape(first.weight.shape)
    )


def learned_mask(n, m, steps=70):
    """Scores of the weights, learned through exact samples with exact marginal gradients."""
    layer = ttt.KSubset(n)
    scores = (
        (4 * first.weight.abs() / first.weight.abs().mean())
        .reshape(-1, m)
        .clone()
        .requires_grad_(True)
    )
    optimiser = torch.optim.Adam([scores], 0.25)
    for _ in range(steps):
        mask = layer(scores).reshape(first.weight.shape)
        hidden = torch.relu(
            torch.nn.functional.linear(x[train], first.weight * mask, first.bias)
        )
        loss = torch.nn.functional.cross_entropy(last(hidden), y[train])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    layer.eval()
    return layer(scores).reshape(first.weight.shape).detach(), layer.marginals(
        scores
    ).reshape(first.weight.shape).detach()


settings = [(2, 4), (1, 4), (1, 8), (4, 32), (2, 32)]
dense = accuracy(torch.ones_like(first.weight))
rows = []
for n, m in settings:
    learned, marginals = learned_mask(n, m)
    assert bool((learned.reshape(-1, m).sum(-1) == n).all())
    rows.append((accuracy(magnitude_mask(n, m)), accuracy(learned)))
    print(
        f"{n}:{m:<3} magnitude {rows[-1][0]:.3f}   learned {rows[-1][1]:.3f}   (dense {dense:.3f})"
    )

# %%
# Pictures
# --------

left, right = (plt.figure(figsize=(6, 3.8)).add_subplot() for _ in range(2))
place = np.arange(len(settings))
left.bar(place - 0.2, [r[0] for r in rows], 0.4, color="0.75", label="largest weights")
left.bar(place + 0.2, [r[1] for r in rows], 0.4, label="learned mask")
left.axhline(dense, color="0.4", ls="--", lw=1, label="dense")
left.set_xticks(place, [f"{n}:{m}" for n, m in settings])
left.set(ylabel="accuracy on test digits", ylim=(0, 1.22))
left.legend(ncols=3, loc="upper center")
image = right.imshow(marginals[:40], cmap="viridis", vmin=0, vmax=1, aspect="auto")
right.set(xlabel="input pixel", ylabel="hidden unit", title="P(weight stays), 2 of 32")
plt.colorbar(image, ax=right)
plt.show()

# %%
assert np.mean([r[1] - r[0] for r in rows]) > 0.02

# %%
# **Claim, computed above:** marginals and gradients equal enumeration; masks with exactly N of M are learned
# for patterns that cannot be enumerated, and on the whole they keep more accuracy than the largest weights
# do.
