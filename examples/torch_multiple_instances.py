"""Multiple instances: a bag is positive if at least two of its items are; which ones, nobody says.

The loss is the exact probability of the bag's label under independent items. Taking the largest score of a bag instead,
the usual shortcut, looks at one item per bag and cannot express "at least two".

Run with ``python examples/torch_multiple_instances.py``; it needs ``pip install tallytree[torch]``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import tallytree.torch as ttt

BAGS, FEATURES, NEEDED = 250, 6, 2


def simulate(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Items, the bag of every item, the items' hidden labels and the bags' labels; bags have 5 to 30 items."""
    sizes = torch.randint(5, 31, (BAGS,), generator=generator)
    bag = torch.arange(BAGS).repeat_interleave(sizes)
    x = torch.randn(len(bag), FEATURES, generator=generator)
    hidden = (x[:, 0] + x[:, 1] > 2.2).long()
    counts = torch.zeros(BAGS, dtype=torch.long).index_add_(0, bag, hidden)
    return x, bag, hidden, (counts >= NEEDED).long()


def largest(logits: Tensor, bag: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the largest score of every bag."""
    top = torch.full((BAGS,), -torch.inf).scatter_reduce(0, bag, logits, "amax")
    return nn.functional.binary_cross_entropy_with_logits(top, labels.float())


def ranking(scores: Tensor, labels: Tensor) -> float:
    """Probability that a positive item scores higher than a negative one."""
    order = scores.argsort().argsort().double()
    positive = labels == 1
    n = int(positive.sum())
    return float((order[positive].sum() - n * (n - 1) / 2) / (n * (len(labels) - n)))


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    x, bag, _, labels = simulate(generator)
    new_x, _, new_hidden, _ = simulate(generator)
    print(
        f"{BAGS} bags, {len(x)} items, {int(labels.sum())} positive bags (at least {NEEDED} positive items)"
    )
    for name in ("at least two, exactly", "largest score"):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1), nn.Flatten(0))
        optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
        for _ in range(80):
            logits = net(x)
            if name == "largest score":
                loss = largest(logits, bag, labels)
            else:
                loss = ttt.losses.mil_nll(logits, bag, labels, at_least=NEEDED)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            logits = net(new_x)
        share = float(torch.sigmoid(logits).mean())
        print(
            f"{name:22s}  single new items: AUC {ranking(logits, new_hidden):.3f}, predicted share of positive items "
            f"{share:.3f} (true {float(new_hidden.double().mean()):.3f})"
        )


if __name__ == "__main__":
    main()
