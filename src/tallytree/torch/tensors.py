"""Tensors from what users pass; what is none, and shapes that do not fit, are refused by name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import checks
from ..checks import unmasked
from ..errors import InfeasibleError, ParameterError


def known(condition: Tensor) -> bool | None:
    """Whether a condition holds for some entry; None while numbers are traced or mapped and cannot be looked at."""
    if torch.compiler.is_compiling():
        return None
    try:
        return bool(condition.any())
    except RuntimeError:
        return None


def anywhere(condition: Tensor) -> bool:
    """Whether a condition is known to hold for some entry."""
    return known(condition) is True


def as_tensor(name: str, value: Any, device: Any = None) -> Tensor:
    """A tensor of numbers."""
    if isinstance(value, Tensor):
        if value.device.type == "meta" or value.layout != torch.strided:
            raise ParameterError(
                f"`{name}` must be a dense tensor with numbers; one with layout {value.layout} on {value.device} "
                "arrived. Convert it with .to_dense(), or load it onto a device."
            )
        if not torch.compiler.is_compiling():
            value = value.resolve_neg()  # several operations of PyTorch refuse views that are negated
        return value if device is None else value.to(device)
    if isinstance(value, np.ndarray):
        unmasked(f"`{name}`", value)
    try:
        return torch.as_tensor(value, device=device)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ParameterError(
            f"`{name}` must be a tensor, or numbers that make one; {checks.describe(value)} arrived. "
            "Lists must hold numbers only and be of equal lengths."
        ) from None


def as_double(name: str, value: Any) -> Tensor:
    """A tensor of real numbers as it is; Python's numbers in double precision, whatever the default of PyTorch."""
    tensor = as_real(name, value)
    if tensor.dtype == torch.bool:
        raise ParameterError(f"`{name}` must hold real numbers; truth values arrived. Convert them first.")
    if isinstance(value, (Tensor, np.ndarray, np.generic)) or not tensor.dtype.is_floating_point:
        return tensor
    return torch.as_tensor(value, dtype=torch.float64)


def as_real(name: str, value: Any, device: Any = None) -> Tensor:
    """A tensor of real numbers."""
    tensor = as_tensor(name, value, device)
    if tensor.dtype.is_complex:
        raise ParameterError(
            f"`{name}` must hold real numbers; a tensor of dtype {tensor.dtype} arrived. Take its real part."
        )
    return tensor


def as_mask(name: str, value: Any, device: Any = None) -> Tensor:
    """Truth values; zeros and ones are taken for them."""
    tensor = as_real(name, value, device)
    if tensor.dtype != torch.bool and anywhere((tensor != 0) & (tensor != 1)):
        raise ParameterError(
            f"`{name}` must hold truth values; other numbers than 0 and 1 arrived. Compare first."
        )
    return tensor.to(torch.bool)


def as_logits(value: Any) -> Tensor:
    """A real tensor with the variables on its last axis."""
    tensor = as_real("logits", value)
    if not tensor.dtype.is_floating_point:
        tensor = tensor.to(torch.get_default_dtype())
    if tensor.dim() == 0:
        raise ParameterError(
            "`logits` must have the variables on its last axis, but a single number arrived. "
            "For one variable pass a tensor of length one."
        )
    return tensor


def masked(logits: Tensor, mask: Any, never: float = -math.inf) -> Tensor:
    """Log-odds with `never` where a mask is not true."""
    allowed = as_mask("mask", mask, logits.device)
    shape = common_shape("`mask` and the scores", allowed.shape, logits.shape)
    if shape[-1] != logits.shape[-1]:
        raise ParameterError(
            f"`mask` must have {logits.shape[-1]} entries on its last axis, one per variable; shape "
            f"{tuple(allowed.shape)} arrived."
        )
    return logits.expand(shape).masked_fill(~allowed, never)


def require_enough(logits: Tensor, least: Tensor | None) -> None:
    """Refuse rows in which fewer variables than the least count can be on; it is known what they can be."""
    if least is None or torch.compiler.is_compiling():
        return
    left = (logits != -math.inf).sum(-1)
    wanted = least.to(left.device)
    shape = common_shape("`k` and the rows of `logits`", left.shape, wanted.shape)
    if anywhere(wanted > left):
        checks.unmasked_rows(left.expand(shape).cpu().numpy(), wanted.expand(shape).cpu().numpy())


def common_shape(what: str, *shapes: Any) -> torch.Size:
    """The shape to which all of these broadcast."""
    try:
        return torch.broadcast_shapes(*shapes)
    except RuntimeError:
        shown = " and ".join(str(tuple(shape)) for shape in shapes)
        raise ParameterError(
            f"{what} must have batch shapes that broadcast; {shown} arrived. Batch axes lead, and must be equal or 1."
        ) from None


def side_by_side(tables: Sequence[Tensor]) -> Tensor:
    """Tables one after the other, (..., T), with the batch axes that any of them has."""
    shape = torch.broadcast_shapes(*(table.shape[:-1] for table in tables))
    return torch.cat([table.expand(*shape, table.shape[-1]) for table in tables], dim=-1)


def as_shape(name: str, value: Any) -> tuple[int, ...]:
    """Axes, each a whole number of at least 0."""
    if not isinstance(value, (tuple, list, range)) and getattr(value, "ndim", 0) != 1:
        raise ParameterError(
            f"`{name}` must be a sequence of whole numbers, such as (5,); {checks.describe(value)} arrived."
        )
    return checks.shape(name, value)


def as_batch_shape(value: Any, own: torch.Size) -> torch.Size:
    """A batch shape to which that of models can be expanded."""
    shape = torch.Size(as_shape("batch_shape", value))
    if common_shape("`batch_shape` and that of the models", shape, own) != shape:
        raise ParameterError(
            f"`batch_shape` must keep the batch axes of the models, {tuple(own)}, with more in front or in place of "
            f"ones; {tuple(shape)} arrived."
        )
    return shape


def generator(value: Any) -> torch.Generator | None:
    """A source of randomness of PyTorch."""
    if value is None or isinstance(value, torch.Generator):
        return value
    raise ParameterError(
        f"`generator` must be a torch.Generator or None; {checks.describe(value)} arrived. For a seed pass "
        "torch.Generator().manual_seed(seed)."
    )


def refuse_nan(logits: Tensor, tables: Tensor) -> None:
    """Refuse what are no log-odds and no log-tables."""
    if bool(torch.isnan(logits).any()):
        raise ParameterError("`logits` must not contain NaN. Use -inf to exclude a variable.")
    if bool((torch.isnan(tables) | (tables == math.inf)).any()):
        raise ParameterError(
            "Log-tables must be finite or -inf, but NaN or inf arrived. Use -inf to forbid a count."
        )


def refuse_impossible(log_z: Tensor) -> None:
    """Refuse models without a possible configuration."""
    if bool((log_z == -math.inf).any()):
        raise InfeasibleError(
            "A model of the batch gives probability zero to every configuration. Relax a potential or an infinite "
            "logit."
        )
