"""Approximate and bounded inference in factor graphs of counts."""

from .dual import DualDecomposition, dual_decomposition
from .holder import UpperBound, holder_bound
from .mean_field import LowerBound, mean_field
from .propagation import LoopyResult, loopy_bp
from .tree_reweighted import trw_bound

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
