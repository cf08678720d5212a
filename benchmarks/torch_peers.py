"""What users of PyTorch do today, written from the published mathematics: batches (B, n), choose k.

Exact recursions, a sampler with a softmax surrogate, a Poisson-binomial law by FFT, and a relaxation by sorting.
"""

from __future__ import annotations

import torch
from torch import Tensor

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
