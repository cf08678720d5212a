"""Answers on devices other than the CPU; on the CPU where a test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

_forced = False


@contextmanager
def everywhere() -> Iterator[None]:
    """Use this code for CPU tensors too."""
    global _forced
    before, _forced = _forced, True
    try:
        yield
    finally:
        _forced = before


def serves(logits: Tensor) -> bool:
    return _forced or logits.device.type != "cpu"
