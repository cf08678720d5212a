"""The model that was solved last in this thread, for the backward pass that usually follows."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from torch import Tensor

from ..models.count import CountModel

_slot = threading.local()


def keep(model: CountModel, logits: Tensor, tables: Tensor | None, key: int) -> None:
    """Remember a solved model for as long as its log-odds live; only where a derivative may follow."""
    if logits.requires_grad or (tables is not None and tables.requires_grad):
        _slot.held = (weakref.ref(logits, _forget), _mark(logits), _mark(tables), key, model)


def find(logits: Tensor, tables: Tensor | None, key: int) -> CountModel | None:
    """The model of these very tensors, if it was the last one and nothing was written to them since."""
    held = getattr(_slot, "held", None)
    if held is None or held[0]() is None or held[1:4] != (_mark(logits), _mark(tables), key):
        return None
    model: CountModel = held[4]
    return model


def _forget(dead: Any) -> None:
    held = getattr(_slot, "held", None)
    if held is not None and held[0] is dead:
        _slot.held = None


def _mark(tensor: Tensor | None) -> Any:
    """Where the numbers lie, and how often they were written to."""
    if tensor is None:
        return None
    return tensor.data_ptr(), tensor._version, tensor.shape, tensor.stride()
