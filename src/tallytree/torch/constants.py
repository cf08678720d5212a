"""Tensors that do not change between calls, as a compiler sees them.

A compiled graph may ask a function for a constant tensor only once, so that it is given a number instead, and an
operator that reads the tensor with this number when the graph runs.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

_kept: dict[int, Tensor] = {}
_numbers = itertools.count()


def keep(tensor: Tensor) -> int:
    """The number of a tensor, which is kept for as long as the process lives."""
    number = next(_numbers)
    _kept[number] = tensor
    return number


@torch.library.custom_op("tallytree::constant", mutates_args=())
def read(number: int) -> Tensor:
    """A copy of the tensor with this number."""
    return _kept[number].clone()


@read.register_fake
def _(number: int) -> Tensor:
    tensor = _kept[number]
    return torch.empty(tensor.shape, dtype=tensor.dtype)
