"""The rule for `torch.func.vmap`, a mapped axis becomes a batch axis of one call; and what can be read under it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def readable(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor can be looked at now: not while they are traced or mapped."""
    return not torch.compiler.is_compiling() and not torch._C._functorch.is_batchedtensor(_bottom(tensor))


def _bottom(tensor: Tensor) -> Tensor:
    """What a derivative of `torch.func` wraps; a mapped axis below it stays visible."""
    while torch._C._functorch.is_gradtrackingtensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


class Function(torch.autograd.Function):
    """A function with derivatives: of tensors, of which log-odds (*b, D) are the first, and then of numbers.

    All arguments are kept for both modes of differentiation; a mapped axis becomes a batch axis.
    """

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        tensors = [value for value in inputs if value is None or isinstance(value, Tensor)]
        ctx.numbers = inputs[len(tensors) :]
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, *arguments: Any) -> Any:
        found = cls.apply(*as_batch(info.batch_size, in_dims, arguments))
        return found, (0,) * len(found) if isinstance(found, tuple) else 0


def as_batch(size: int, dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> list[Any]:
    """Arguments with the mapped axis in front; the first is (*b, D) and says what the batch axes are.

    Tensors without batch axes that are not mapped, such as tables that all models share, stay as they are.
    """
    inner = arguments[0].dim() - 1 - (dims[0] is not None)
    batch = arguments[0].shape if dims[0] is None else arguments[0].movedim(dims[0], 0).shape[1:]
    out: list[Any] = []
    for place, (value, dim) in enumerate(zip(arguments, dims)):
        # A direction (place 2) has the batch axes of the log-odds; tables may have none, if all models share them.
        unbatched = isinstance(value, Tensor) and value.dim() == 1 and (place == 1 or inner > 0)
        if not isinstance(value, Tensor) or (dim is None and unbatched):
            out.append(value)
        elif dim is None:
            out.append(value.expand(size, *value.shape))
        else:
            moved = value.movedim(dim, 0)
            if moved.dim() == 2 and inner:
                moved = moved.reshape(size, *[1] * inner, moved.shape[-1])
            out.append(moved.expand(size, *batch[:-1], moved.shape[-1]))
    return out
