"""Count models beyond memory and beyond one machine: the same answers, chunk by chunk."""

from __future__ import annotations

from ..engine.count.chunks import CountWindow
from .model import ChunkedCountModel
from .poisson_binomial import ChunkedPoissonBinomial

__all__ = ["ChunkedCountModel", "ChunkedPoissonBinomial", "CountWindow"]
