"""Approximate and bounded inference in factor graphs of counts."""

from .bounds import UpperBound, holder_bound, trw_bound
from .dual import DualDecomposition, dual_decomposition
from .mean_field import LowerBound, mean_field
from .propagation import LoopyResult, loopy_bp

__all__ = [
    "DualDecomposition",
    "LoopyResult",
    "LowerBound",
    "UpperBound",
    "dual_decomposition",
    "holder_bound",
    "loopy_bp",
    "mean_field",
    "trw_bound",
]
