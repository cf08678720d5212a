"""Potentials: non-negative functions of how many variables of a group are on.

Each lower-case function makes one frozen value. ``*`` multiplies potentials, ``**`` tempers one and ``~``
applies one to the number of variables that are off.
"""

from __future__ import annotations

from tallytree.potentials.base import Potential
from tallytree.potentials.constraints import (
    at_least,
    at_most,
    between,
    exactly,
    modulo,
    one_of,
    parity,
)
from tallytree.potentials.exponentials import (
    exponential_mixture,
    geometric,
    noisy_and,
    noisy_or,
    spike_and_slab,
    uniform,
)
from tallytree.potentials.parsing import parse_potential
from tallytree.potentials.profiles import all_or_none, gaussian, poisson, quadratic
from tallytree.potentials.tables import as_potential, table

__all__ = [
    "Potential",
    "all_or_none",
    "as_potential",
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
    "parse_potential",
    "poisson",
    "quadratic",
    "spike_and_slab",
    "table",
    "uniform",
]
