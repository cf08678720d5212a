"""Counts in PyTorch: exact, differentiable to any order, batched, on the CPU and on GPUs.

Functions take log-odds ``(..., D)`` and what :class:`tallytree.CountModel` takes as `groups`.

Examples
--------
>>> import torch, tallytree.torch as ttt
>>> scores = torch.tensor([[2.0, 1.0, 0.0, -1.0]], requires_grad=True)
>>> ttt.marginals(scores, tt.exactly(2)).detach().round(decimals=3)
tensor([[0.8810, 0.6940, 0.3060, 0.1190]])
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401 - the adapter needs it, and this is where its absence is explained
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "`tallytree.torch` needs PyTorch. Install it with pip install 'tallytree[torch]'.", name="torch"
    ) from missing

from . import losses
from .distributions import ConditionalBernoulli, CountDistribution
from .edges import Forest
from .functions import count_log_probs, log_partition, marginals, sample
from .k_subset import KSubset
from .poisson_binomial import PoissonBinomial
from .potentials import at_least, at_most, between, exactly, gaussian, geometric, poisson, quadratic

__all__ = [
    "ConditionalBernoulli",
    "CountDistribution",
    "Forest",
    "KSubset",
    "PoissonBinomial",
    "at_least",
    "at_most",
    "between",
    "count_log_probs",
    "exactly",
    "gaussian",
    "geometric",
    "log_partition",
    "losses",
    "marginals",
    "poisson",
    "quadratic",
    "sample",
]
