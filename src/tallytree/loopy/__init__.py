"""Inference in factor graphs of counts: exact, approximate, bounded."""

from .blocks import GraphSamples
from .bounds import UpperBound, holder_bound, trw_bound
from .dual import DualDecomposition, dual_decomposition
from .exact import ExactResult
from .mean_field import LowerBound, mean_field
from .propagation import LoopyResult, loopy_bp

__all__ = [
    "DualDecomposition",
    "ExactResult",
    "GraphSamples",
    "LoopyResult",
    "LowerBound",
    "UpperBound",
    "dual_decomposition",
    "holder_bound",
    "loopy_bp",
    "mean_field",
    "trw_bound",
]
