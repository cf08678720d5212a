"""Learning from label proportions: a classifier of single items that has only seen how many of a bag are positive.

The loss is the exact negative log-probability of the count, so that every bag teaches, however unlikely it is. Beside
it, the usual surrogate: squared difference between the mean prediction and the proportion.

Run with ``python examples/torch_label_proportions.py``; it needs ``pip install tallytree[torch]``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import tallytree.torch as ttt

BAGS, SIZE, FEATURES = 150, 32, 6


def simulate(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Items (items, features), their labels, and the bag of every item; bags differ in where their items lie."""
    centre = torch.randn(BAGS, 1, FEATURES, generator=generator) * 0.7
    x = (centre + torch.randn(BAGS, SIZE, FEATURES, generator=generator)).reshape(-1, FEATURES)
    score = 1.5 * x[:, 0] - x[:, 1] * x[:, 2] + torch.sin(2.0 * x[:, 3])
    y = torch.bernoulli(torch.sigmoid(3.0 * (score - 2.5)), generator=generator)
    return x, y, torch.arange(BAGS).repeat_interleave(SIZE)


def train(x: Tensor, bag: Tensor, share: Tensor, exact: bool) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1), nn.Flatten(0))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
    for _ in range(80):
        logits = net(x)
        if exact:
            loss = ttt.losses.proportion_nll(logits, bag, share)
        else:
            loss = (torch.sigmoid(logits).reshape(BAGS, SIZE).mean(1) - share).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def main() -> None:
    generator = torch.Generator().manual_seed(1)
    x, y, bag = simulate(generator)
    share = y.reshape(BAGS, SIZE).mean(1)
    new_x, new_y, _ = simulate(generator)
    print(f"{BAGS} bags of {SIZE} items, {float(y.mean()):.0%} positive; known: the share of every bag")
    for name, exact in (("exact count likelihood", True), ("squared difference of means", False)):
        net = train(x, bag, share, exact)
        with torch.no_grad():
            logits = net(new_x)
        right = ((logits > 0) == (new_y == 1)).double().mean()
        loss = nn.functional.binary_cross_entropy_with_logits(logits, new_y)
        print(f"{name:28s}  single new items: {right:.1%} right, log loss {loss:.3f}")


if __name__ == "__main__":
    main()
