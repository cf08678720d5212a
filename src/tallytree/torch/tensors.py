"""Tensors from what users pass; what is none, and shapes that do not fit, are refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import checks
from ..errors import ParameterError


def as_tensor(name: str, value: Any, device: Any = None) -> Tensor:
    """A tensor of numbers."""
    if isinstance(value, Tensor):
        return value if device is None else value.to(device)
    try:
        return torch.as_tensor(value, device=device)
    except (TypeError, ValueError, RuntimeError):
        raise ParameterError(
            f"`{name}` must be a tensor, or numbers that make one; {checks.describe(value)} arrived. "
            "Lists must hold numbers only and be of equal lengths."
        ) from None


def as_logits(value: Any) -> Tensor:
    """A real tensor with the variables on its last axis."""
    tensor = as_tensor("logits", value)
    if tensor.dtype.is_complex:
        raise ParameterError("`logits` must hold real numbers, but complex numbers arrived.")
    if not tensor.dtype.is_floating_point:
        tensor = tensor.to(torch.get_default_dtype())
    if tensor.dim() == 0:
        raise ParameterError(
            "`logits` must have the variables on its last axis, but a single number arrived. "
            "For one variable pass a tensor of length one."
        )
    return tensor


def common_shape(what: str, *shapes: Any) -> torch.Size:
    """The shape to which all of these broadcast."""
    try:
        return torch.broadcast_shapes(*shapes)
    except RuntimeError:
        shown = " and ".join(str(tuple(shape)) for shape in shapes)
        raise ParameterError(
            f"{what} must have shapes that broadcast; {shown} arrived. Batch axes lead, and must be equal or 1."
        ) from None


def sample_shape(value: Any) -> tuple[int, ...]:
    """Leading axes of draws."""
    if not isinstance(value, Sequence):
        raise ParameterError(
            f"`sample_shape` must be a sequence of integers, such as (5,) for five draws; {checks.describe(value)} "
            "arrived."
        )
    shape = tuple(checks.integer("sample_shape", size) for size in value)
    if min(shape, default=0) < 0:
        raise ParameterError(f"`sample_shape` must not hold negative numbers; {shape} arrived.")
    return shape


def generator(value: Any) -> torch.Generator | None:
    """A source of randomness of PyTorch."""
    if value is None or isinstance(value, torch.Generator):
        return value
    raise ParameterError(
        f"`generator` must be a torch.Generator or None; {checks.describe(value)} arrived. For a seed pass "
        "torch.Generator().manual_seed(seed)."
    )
