"""tallytree: probability models that count.

Binary variables with log-odds, and potentials on how many are on in any nested family of groups; partition function,
marginals and count distributions, exactly and in near-linear time.
"""

from ._version import __version__
from .assignment import assignment
from .chain_model import ChainModel
from .conditional_sum import ConditionalPoissonBinomial
from .config import limit_threads, show_config
from .draws import SparseSamples
from .errors import InfeasibleError, ParameterError, PrecisionError, StructureError, TallyTreeError
from .factor_graph import FactorGraph
from .forest import Forest
from .forest_model import ForestCountModel
from .loopy import loopy_bp
from .maximization import Modes
from .model import CountModel, Group
from .poisson_binomial import PoissonBinomial
from .potentials import (
    Potential,
    all_or_none,
    at_least,
    at_most,
    between,
    exactly,
    exponential_mixture,
    gaussian,
    geometric,
    modulo,
    noisy_and,
    noisy_or,
    one_of,
    parity,
    poisson,
    quadratic,
    spike_and_slab,
    table,
    uniform,
)
from .ragged import RaggedBatch
from .reliability import birnbaum_importance, k_out_of_n, k_to_l_out_of_n
from .second_order import ExpectedStatistics
from .structure.count_tree import CountTree

__all__ = [
    "ChainModel",
    "ConditionalPoissonBinomial",
    "CountModel",
    "CountTree",
    "ExpectedStatistics",
    "FactorGraph",
    "Forest",
    "ForestCountModel",
    "Group",
    "InfeasibleError",
    "Modes",
    "ParameterError",
    "PoissonBinomial",
    "Potential",
    "PrecisionError",
    "RaggedBatch",
    "SparseSamples",
    "StructureError",
    "TallyTreeError",
    "__version__",
    "all_or_none",
    "assignment",
    "at_least",
    "at_most",
    "between",
    "birnbaum_importance",
    "exactly",
    "exponential_mixture",
    "gaussian",
    "geometric",
    "k_out_of_n",
    "k_to_l_out_of_n",
    "limit_threads",
    "loopy_bp",
    "modulo",
    "noisy_and",
    "noisy_or",
    "one_of",
    "parity",
    "poisson",
    "quadratic",
    "show_config",
    "spike_and_slab",
    "table",
    "uniform",
]
