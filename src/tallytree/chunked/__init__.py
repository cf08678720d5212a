"""Count models beyond memory and beyond one machine: the same answers, chunk by chunk."""

from __future__ import annotations

from .model import ChunkedCountModel
from .windows import CountWindow

__all__ = ["ChunkedCountModel", "CountWindow"]
