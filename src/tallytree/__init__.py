"""tallytree: probability models that count.

Binary variables with log-odds, and potentials on how many are on in any nested family of groups; partition function,
marginals and count distributions, exactly and in near-linear time.
"""

from ._version import __version__
from .assignment import assignment
from .config import limit_threads, show_config
from .errors import InfeasibleError, ParameterError, PrecisionError, StructureError, TallyTreeError
from .loopy import loopy_bp
from .models.chain import ChainModel
from .models.conditional_sum import ConditionalPoissonBinomial
from .models.count import CountModel, Group
from .models.edges import Forest
from .models.factor_graph import FactorGraph
from .models.forest import ForestCountModel
from .models.maximization import Modes
from .models.poisson_binomial import PoissonBinomial
from .models.ragged import RaggedBatch
from .models.reliability import birnbaum_importance, k_out_of_n, k_to_l_out_of_n
from .models.sampling import SparseSamples
from .models.second_order import ExpectedStatistics
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
from .structure.nested.count_tree import CountTree

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
