"""Choosing k of n features inside a network: exact subsets forward, exact marginals backward.

Every training step uses exactly k features, drawn from the law of k-subsets whose log-odds are learned; the gradient is
that of the exact marginals. In evaluation the layer takes the k best.

Run with ``python examples/torch_feature_selection.py``; it needs ``pip install tallytree[torch]``.
"""

from __future__ import annotations

import torch
from torch import nn

import tallytree.torch as ttt

ROWS, FEATURES, CHOSEN = 1000, 30, 5


class Selected(nn.Module):
    """A small network that sees k features of each row."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(FEATURES))
        self.choose = ttt.KSubset(CHOSEN)
        self.net = nn.Sequential(nn.Linear(FEATURES, 24), nn.ReLU(), nn.Linear(24, 1), nn.Flatten(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.scores.expand(4, FEATURES) if self.training else self.scores.expand(1, FEATURES)
        masks = self.choose(rows)  # four subsets per step share the rows among them
        parts = [self.net(part * mask) for part, mask in zip(x.tensor_split(len(masks)), masks)]
        return torch.cat(parts)


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # tiny layers
    x = torch.randn(ROWS, FEATURES)
    relevant = torch.randperm(FEATURES)[:CHOSEN]
    a, b, *rest = relevant.tolist()
    signal = torch.relu(2.0 * x[:, a]) + torch.tanh(2.0 * x[:, b]) + x[:, rest].sum(1)
    y = signal + 0.3 * torch.randn(ROWS)
    y = (y - y.mean()) / y.std()
    model = Selected()
    optimizer = torch.optim.Adam(
        [{"params": model.net.parameters(), "lr": 1e-2}, {"params": [model.scores], "lr": 0.03}]
    )
    for epoch in range(61):
        for part in torch.randperm(ROWS).split(125):
            loss = (model(x[part]) - y[part]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if epoch % 20 == 0:
            with torch.no_grad():
                marginals = model.choose.marginals(model.scores)
            found = set(marginals.topk(CHOSEN).indices.tolist()) & set(relevant.tolist())
            print(
                f"epoch {epoch:2d}: of the {CHOSEN} most probable features {len(found)} are relevant; they are chosen "
                f"{float(marginals.topk(CHOSEN).values.mean()):.0%} of the time"
            )
    with torch.no_grad():
        left = float((model.eval()(x) - y).square().mean())
    print(f"{CHOSEN} of {FEATURES} features leave {left:.0%} of the variance")


if __name__ == "__main__":
    main()
