"""Exact learning: maximum likelihood for count models and conditional likelihoods for matched sets."""

from __future__ import annotations

from .conditional import ConditionalLikelihood
from .descent import newton
from .fixed_counts import FixedCounts, fixed_counts, logits_from_inclusion
from .maximum_likelihood import Fit, fit
from .noisy_or import NoisyOrFit, fit_noisy_or
from .parametric import Parameter, ParametricPotential, parametric
from .regression import ConditionalFit, fit_conditional
from .statistics import CountFeatures, Statistics
from .strata import Strata, risk_sets, strata_of_groups
from .sums import SumFit, fit_sums

__all__ = [
    "ConditionalFit",
    "ConditionalLikelihood",
    "CountFeatures",
    "Fit",
    "FixedCounts",
    "NoisyOrFit",
    "Parameter",
    "ParametricPotential",
    "Statistics",
    "Strata",
    "SumFit",
    "fit",
    "fit_conditional",
    "fit_noisy_or",
    "fit_sums",
    "fixed_counts",
    "logits_from_inclusion",
    "newton",
    "parametric",
    "risk_sets",
    "strata_of_groups",
]
