"""tallytree: probability models that count.

Binary variables with log-odds, and potentials on how many are on in any nested family of groups; partition function,
marginals and count distributions, exactly and in near-linear time.
"""

from .chain_model import ChainModel
from .config import show_config
from .errors import InfeasibleError, ParameterError, PrecisionError, StructureError, TallyTreeError
from .forest import Forest
from .model import CountModel, ExpectedStatistics, Group
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
from .structure.count_tree import CountTree

__version__ = "0.1.0"

__all__ = [
    "ChainModel",
    "CountModel",
    "CountTree",
    "ExpectedStatistics",
    "Forest",
    "Group",
    "InfeasibleError",
    "ParameterError",
    "PoissonBinomial",
    "Potential",
    "PrecisionError",
    "StructureError",
    "TallyTreeError",
    "all_or_none",
    "at_least",
    "at_most",
    "between",
    "exactly",
    "exponential_mixture",
    "gaussian",
    "geometric",
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
