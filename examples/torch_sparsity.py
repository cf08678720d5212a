"""Learned 2:4 sparsity of a weight matrix: in every group of four weights exactly two stay.

A million weights are 262144 models of four variables, "exactly 2 of 4". Their log-odds start at the size of the weights
and are trained so that the layer with its expected mask answers as the whole one does, on data whose inputs are
correlated; a falling temperature makes the expected mask a mask. Magnitudes alone, the usual rule, do not see the data.

Run with ``python examples/torch_sparsity.py``; it needs ``pip install tallytree[torch]``.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

import tallytree.torch as ttt

OUT, IN, STEPS = 1024, 1024, 25


def error(x: Tensor, weights: Tensor, mask: Tensor) -> Tensor:
    """Mean square of what pruning changes, relative to the answers."""
    whole = x @ weights.T
    return (whole - x @ (weights * mask).T).square().mean() / whole.square().mean()


def main() -> None:
    torch.manual_seed(0)
    mix = torch.randn(IN, 64) @ torch.randn(64, IN) / 8.0 + torch.randn(IN, IN) * 0.3
    x, fresh = torch.randn(512, IN) @ mix, torch.randn(512, IN) @ mix
    weights = torch.randn(OUT, IN) / IN**0.5
    groups = weights.reshape(-1, 4)
    # Log-odds that prefer large weights, as magnitude pruning does, to begin with.
    scores = (2.0 * groups.abs() / groups.abs().mean()).requires_grad_()
    optimizer = torch.optim.Adam([scores], lr=0.2)
    print(f"{weights.numel()} weights, {len(groups)} groups of four, two of each stay")
    with torch.no_grad():
        largest = ttt.KSubset(2).eval()(scores).reshape_as(weights)
        print(f"the two largest of four: error {float(error(fresh, weights, largest)):.4f} on new data")
    began = time.perf_counter()
    for step in range(STEPS):
        layer = ttt.KSubset(2, temperature=0.25 ** (step / STEPS))
        loss = error(x, weights, layer.marginals(scores).reshape_as(weights))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 8 == 0:
            print(f"step {step:2d}: error with the expected mask {float(loss.detach()):.4f}")
    seconds = (time.perf_counter() - began) / STEPS
    with torch.no_grad():
        best = ttt.KSubset(2).eval()(scores).reshape_as(weights)
    assert bool((best.reshape(-1, 4).sum(-1) == 2.0).all())
    print(
        f"learned masks: error {float(error(fresh, weights, best)):.4f} on new data; {seconds:.2f} s per step"
    )


if __name__ == "__main__":
    main()
