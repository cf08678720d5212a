"""Losses of bags inside `torch.compile` and `torch.func`: the numbers, slopes and errors that they have outside."""

from __future__ import annotations

import math

import pytest

import tallytree as tt

torch = pytest.importorskip("torch", reason="tallytree.torch needs PyTorch: pip install 'tallytree[torch]'")
from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch.func import grad, hessian, jacrev, vmap  # noqa: E402

import tallytree.torch as ttt  # noqa: E402

BAGS = torch.tensor([0, 1, 0, 3, 1, 1, 0, 3, 1])  # bag 2 is empty
STARTS = torch.tensor([0, 3, 7, 7])
COUNTS = torch.tensor([1, 3, 0, 0])
SHARES = torch.tensor([0.34, 0.75, 0.0, 0.4])
LABELS = torch.tensor([1, 0, 0, 1])
LOSSES = {
    "bag": lambda x, b, **how: ttt.losses.bag_nll(x, b, COUNTS, **how),
    "proportion": lambda x, b, **how: ttt.losses.proportion_nll(x, b, SHARES, **how),
    "tolerance": lambda x, b, **how: ttt.losses.proportion_nll(x, b, SHARES, tolerance=0.3, **how),
    "mil": lambda x, b, **how: ttt.losses.mil_nll(x, b, LABELS, **how),
    "mil two": lambda x, b, **how: ttt.losses.mil_nll(x, b, LABELS, at_least=2, **how),
}


def logits(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.filterwarnings("ignore")  # what compilers say about the machine
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("name", LOSSES)
def test_a_compiler_sees_through_the_losses(name, reduction):
    def step(x, bags, offsets):
        return (LOSSES[name](2.0 * x, bags, offsets=offsets, reduction=reduction) ** 2).sum()

    torch._dynamo.reset()
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for bags, offsets in ((BAGS, False), (STARTS, True)):
        found = []
        for function in (step, compiled):
            x = logits(9).requires_grad_()
            value = function(x, bags, offsets)
            value.backward()
            found.append((value.detach(), x.grad))
        close(found[1], found[0])


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_loss_refuses_what_the_loss_refuses():
    torch._dynamo.reset()
    compiled = torch.compile(ttt.losses.bag_nll, fullgraph=True, backend="aot_eager")
    with pytest.raises(tt.ParameterError, match="size of the bag"):
        compiled(logits(9), BAGS, COUNTS + 5)
    with pytest.raises(tt.ParameterError, match="one bag per target"):
        compiled(logits(9), BAGS + 2, COUNTS)


@pytest.mark.parametrize("name", LOSSES)
def test_mapped_losses_are_those_of_every_row(name):
    x, loss = logits(4, 9), LOSSES[name]
    close(vmap(lambda v: loss(v, BAGS))(x), torch.stack([loss(v, BAGS) for v in x]))
    close(vmap(lambda v: loss(v, BAGS), in_dims=1)(x.T), torch.stack([loss(v, BAGS) for v in x]))
    bags = torch.stack([BAGS, BAGS.flip(0), BAGS, BAGS.roll(1)])
    close(vmap(loss)(x, bags), torch.stack([loss(v, b) for v, b in zip(x, bags)]))
    close(vmap(lambda b: loss(x[0], b))(bags), torch.stack([loss(x[0], b) for b in bags]))
    starts = torch.stack([STARTS, torch.tensor([0, 2, 6, 6])])
    found = vmap(lambda v, b: loss(v, b, offsets=True, reduction="none"))(x[:2], starts)
    close(found, torch.stack([loss(v, b, offsets=True, reduction="none") for v, b in zip(x, starts)]))


@pytest.mark.filterwarnings("ignore")  # what the checks of PyTorch use is deprecated
def test_mapped_derivatives_are_those_of_every_row():
    x, loss = logits(3, 9), LOSSES["bag"]

    def one(v):
        return loss(v, BAGS)

    close(vmap(grad(one))(x), torch.stack([grad(one)(v) for v in x]))
    bent = torch.stack([hessian(one)(v) for v in x])
    close(vmap(hessian(one))(x), bent)
    close(vmap(jacrev(jacrev(one)))(x), bent)
    third = vmap(grad(lambda v: grad(lambda w: grad(one)(w).pow(3).sum())(v).sin().sum()))(x)
    close(
        third,
        torch.stack([grad(lambda v: grad(lambda w: grad(one)(w).pow(3).sum())(v).sin().sum())(v) for v in x]),
    )
    # Two mapped axes, and an outer derivative through a mapped one.
    close(vmap(vmap(one))(x[None].expand(2, 3, 9)), torch.stack([vmap(one)(x)] * 2))
    y = x.clone().requires_grad_()
    assert gradcheck(vmap(one), y)
    assert gradgradcheck(vmap(one), y)


def test_mapped_counts_and_unlikely_bags():
    x = torch.full((60,), -12.0, dtype=torch.float64)
    bags, counts = torch.zeros(60, dtype=torch.long), torch.tensor([[0], [1], [58]])
    found = vmap(lambda c: grad(lambda v: ttt.losses.bag_nll(v, bags, c))(x))(counts)
    on = 1.0 / (1.0 + math.exp(12.0))
    close(found, (on - counts.double() / 60.0).expand(3, 60))


def test_mapped_losses_refuse_what_the_losses_refuse():
    x = logits(2, 9)
    with pytest.raises(tt.ParameterError, match="size of the bag"):
        vmap(lambda v: ttt.losses.bag_nll(v, BAGS, COUNTS + 5))(x)
    with pytest.raises(tt.ParameterError, match="one bag per target"):
        vmap(lambda v, b: ttt.losses.bag_nll(v, b, COUNTS))(x, torch.stack([BAGS, BAGS + 1]))
    with pytest.raises(tt.ParameterError, match="start of every bag"):
        vmap(lambda v, b: ttt.losses.bag_nll(v, b, COUNTS, offsets=True))(
            x, torch.stack([STARTS, STARTS + 1])
        )
    with pytest.raises(tt.ParameterError, match="mapped"):
        vmap(lambda v: ttt.losses.positive_unlabelled_nll(v, torch.arange(9) < 3, 0.5))(x)
