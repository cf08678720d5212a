"""Approximate and bounded inference in factor graphs of counts."""

from .dual import DualDecomposition, dual_decomposition
from .holder import UpperBound, holder_bound
from .propagation import LoopyResult, loopy_bp

__all__ = ["DualDecomposition", "LoopyResult", "UpperBound", "dual_decomposition", "holder_bound", "loopy_bp"]
