"""Tensors that do not change between calls, as a compiler sees them.

A compiled graph may ask a function for a constant tensor only once, so that it is given a number instead, and an
operator that reads the tensor with this number when the graph runs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import ParamSpec

import torch
from torch import Tensor

P = ParamSpec("P")
_kept: dict[int, Tensor] = {}
_numbers = itertools.count()


def constant(make: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """A function whose tensors compiled graphs refer to by number; they are kept for as long as the process lives."""

    @torch.compiler.assume_constant_result
    def number(*arguments: P.args, **named: P.kwargs) -> int:
        new = next(_numbers)
        _kept[new] = make(*arguments, **named)
        return new

    def found(*arguments: P.args, **named: P.kwargs) -> Tensor:
        compiling = torch.compiler.is_compiling()
        return read(number(*arguments, **named)) if compiling else make(*arguments, **named)

    return found


@torch.library.custom_op("tallytree::constant", mutates_args=())
def read(number: int) -> Tensor:
    """A copy of the tensor with this number."""
    return _kept[number].clone()


@read.register_fake
def _(number: int) -> Tensor:
    tensor = _kept[number]
    return torch.empty(tensor.shape, dtype=tensor.dtype)
