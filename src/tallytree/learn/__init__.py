"""Exact learning: maximum likelihood for count models and conditional likelihoods for matched sets."""

from __future__ import annotations

from .conditional import ConditionalLikelihood, Strata, risk_sets, strata_of_groups
from .descent import newton
from .fixed_counts import FixedCounts, fixed_counts, logits_from_inclusion
from .maximum_likelihood import Fit, fit
from .parametric import Parameter, ParametricPotential, parametric
from .regression import ConditionalFit, fit_conditional
from .statistics import CountFeatures, Statistics

__all__ = [
    "ConditionalFit",
    "ConditionalLikelihood",
    "CountFeatures",
    "Fit",
    "FixedCounts",
    "Parameter",
    "ParametricPotential",
    "Statistics",
    "Strata",
    "fit",
    "fit_conditional",
    "fixed_counts",
    "logits_from_inclusion",
    "newton",
    "parametric",
    "risk_sets",
    "strata_of_groups",
]
