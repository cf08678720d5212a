"""tallytree: probability models that count.

Binary variables with log-odds, and potentials on how many are on in any nested family of groups; partition function,
marginals and count distributions, exactly and in near-linear time.
"""

from __future__ import annotations

import os
from importlib import import_module
from threading import get_ident
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .assignment import assignment
from .errors import (
    InfeasibleError,
    OutputError,
    ParameterError,
    PrecisionError,
    SlowWarning,
    SourceError,
    StructureError,
    TallyTreeError,
)

if TYPE_CHECKING:
    from .chunked import ChunkedCountModel as ChunkedCountModel
    from .chunked import ChunkedPoissonBinomial as ChunkedPoissonBinomial
    from .config import limit_threads as limit_threads
    from .config import show_config as show_config
    from .loopy import loopy_bp as loopy_bp
    from .loopy.factor_graph import FactorGraph as FactorGraph
    from .models.chain import ChainModel as ChainModel
    from .models.conditional_sum import ConditionalPoissonBinomial as ConditionalPoissonBinomial
    from .models.count import CountModel as CountModel
    from .models.edges import Forest as Forest
    from .models.group import Group as Group
    from .models.linear import LinearModel as LinearModel
    from .models.mixture import SumMixture as SumMixture
    from .models.poisson_binomial import PoissonBinomial as PoissonBinomial
    from .models.ragged import RaggedBatch as RaggedBatch
    from .models.reliability import birnbaum_importance as birnbaum_importance
    from .models.reliability import k_out_of_n as k_out_of_n
    from .models.reliability import k_to_l_out_of_n as k_to_l_out_of_n
    from .models.results import ExpectedStatistics as ExpectedStatistics
    from .models.results import Modes as Modes
    from .models.results import SparseSamples as SparseSamples
    from .models.thinned import ThinnedModel as ThinnedModel
    from .models.thinned import noisy_or_model as noisy_or_model
    from .potentials import *  # noqa: F403 - all of them but the two readers are names of this package too
    from .structure.nested.count_tree import CountTree as CountTree

# Where the public names live. They are imported when first used, so that `import tallytree` costs next to nothing.
_HOMES = {
    "chunked": ("ChunkedCountModel", "ChunkedPoissonBinomial"),
    "config": ("limit_threads", "show_config"),
    "loopy": ("loopy_bp",),
    "models.chain": ("ChainModel",),
    "models.conditional_sum": ("ConditionalPoissonBinomial",),
    "models.count": ("CountModel",),
    "models.edges": ("Forest",),
    "loopy.factor_graph": ("FactorGraph",),
    "models.group": ("Group",),
    "models.linear": ("LinearModel",),
    "models.mixture": ("SumMixture",),
    "models.poisson_binomial": ("PoissonBinomial",),
    "models.ragged": ("RaggedBatch",),
    "models.reliability": ("birnbaum_importance", "k_out_of_n", "k_to_l_out_of_n"),
    "models.results": ("ExpectedStatistics", "Modes", "SparseSamples"),
    "models.thinned": ("ThinnedModel", "noisy_or_model"),
    "potentials": (
        "Potential",
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
        "spike_and_slab",
        "table",
        "uniform",
    ),
    "structure.nested.count_tree": ("CountTree",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_SUBMODULES = ("chunked", "estimators", "jax", "learn", "loopy", "plot", "potentials", "torch")

__all__ = [
    *_HOME,
    "InfeasibleError",
    "OutputError",
    "ParameterError",
    "PrecisionError",
    "SlowWarning",
    "SourceError",
    "StructureError",
    "TallyTreeError",
    "__version__",
    "assignment",
]


_importing: list[int] = []  # the threads that are importing a part of the package


def _part(name: str) -> Any:
    _importing.append(get_ident())
    try:
        return import_module(f".{name}", __name__)
    finally:
        _importing.remove(get_ident())


def _before_fork() -> None:
    """Wait until no other thread is importing: the child would wait for ever for what it had begun."""
    latest = monotonic() + 10.0
    while any(thread != get_ident() for thread in _importing) and monotonic() < latest:
        sleep(0.001)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(_part(_HOME[name]), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        try:
            return _part(name)
        except ModuleNotFoundError as error:
            if error.name == f"{__name__}.{name}":
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
            raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in _SUBMODULES if name not in ("jax", "torch"))])
