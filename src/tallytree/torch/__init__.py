"""Counts in PyTorch: exact, differentiable to any order, batched, on the CPU and on GPUs.

Functions take log-odds ``(..., D)`` and what :class:`tallytree.CountModel` takes as `groups`.

Examples
--------
>>> import torch, tallytree.torch as ttt
>>> scores = torch.tensor([[2.0, 1.0, 0.0, -1.0]], requires_grad=True)
>>> ttt.marginals(scores, tt.exactly(2)).detach().round(decimals=3)
tensor([[0.8870, 0.7030, 0.3130, 0.0980]])
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401 - the adapter needs it, and this is where its absence is explained
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "`tallytree.torch` needs PyTorch. Install it with pip install 'tallytree[torch]'.", name="torch"
    ) from missing

from . import compiled as compiled
from .functions import count_log_probs, log_partition, marginals, sample
from .potentials import at_least, at_most, between, exactly, gaussian, geometric, poisson, quadratic

__all__ = [
    "at_least",
    "at_most",
    "between",
    "count_log_probs",
    "exactly",
    "gaussian",
    "geometric",
    "log_partition",
    "marginals",
    "poisson",
    "quadratic",
    "sample",
]
