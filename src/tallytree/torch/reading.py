"""What users pass in as tensors, shapes and generators: converted, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import checks
from ..checks.values import unmasked
from ..errors import ParameterError
from .mapping import readable


def as_tensor(name: str, value: Any) -> Tensor:
    """A tensor of what can be one."""
    if isinstance(value, Tensor):
        return value
    unmasked(f"`{name}`", value)
    try:
        return torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ParameterError(
            f"`{name}` must be a tensor of numbers, or what torch.as_tensor makes one of; {checks.describe(value)} "
            "arrived. Give all rows one length."
        ) from None


def as_double(name: str, value: Any) -> Tensor:
    """A tensor as it is; Python's numbers in double precision, whatever the default of PyTorch."""
    tensor = as_tensor(name, value)
    if isinstance(value, (Tensor, np.ndarray, np.generic)) or not tensor.dtype.is_floating_point:
        return tensor
    return torch.as_tensor(value, dtype=torch.float64)


def as_real(name: str, value: Any) -> Tensor:
    """A tensor of real numbers."""
    tensor = as_tensor(name, value)
    if tensor.dtype.is_complex:
        raise ParameterError(
            f"`{name}` must hold real numbers; a tensor of dtype {tensor.dtype} arrived. Take its real part."
        )
    return tensor


def as_shape(name: str, value: Any) -> tuple[int, ...]:
    """Axes, each a whole number of at least 0."""
    if not isinstance(value, (tuple, list, range)) and getattr(value, "ndim", 0) != 1:
        raise ParameterError(
            f"`{name}` must be a sequence of whole numbers, such as (5,); {checks.describe(value)} arrived."
        )
    shape = tuple(checks.integer(name, size) for size in value)
    if min(shape, default=0) < 0:
        raise ParameterError(f"`{name}` must not hold negative numbers; {shape} arrived.")
    return shape


def as_mask(name: str, value: Any) -> Tensor:
    """Truth values; zeros and ones are taken for them."""
    tensor = as_real(name, value)
    if tensor.dtype != torch.bool and readable(tensor) and not bool(((tensor == 0) | (tensor == 1)).all()):
        raise ParameterError(
            f"`{name}` must hold truth values; other numbers than 0 and 1 arrived. Compare first."
        )
    return tensor.to(torch.bool)


def check_generator(generator: Any) -> None:
    """Refuse what draws no random numbers for PyTorch."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise ParameterError(
            f"`generator` must be a torch.Generator or None; {checks.describe(generator)} arrived. Make one with "
            "torch.Generator().manual_seed(0)."
        )


def common_shape(name: str, shape: Any, batch: Any) -> torch.Size:
    """The shape of values together with a batch of models."""
    try:
        return torch.broadcast_shapes(tuple(shape), tuple(batch))
    except RuntimeError:
        raise ParameterError(
            f"`{name}` of shape {tuple(shape)} does not broadcast against the batch {tuple(batch)}. Axes of samples "
            "lead."
        ) from None
