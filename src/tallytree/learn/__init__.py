"""Exact learning: maximum likelihood for count models and conditional likelihoods for matched sets."""

from __future__ import annotations

from .conditional import ConditionalLikelihood, Strata, newton, risk_sets, strata_of_groups
from .exactly import ExactlyK, exactly_k
from .inclusion import logits_from_inclusion
from .maximum_likelihood import Fit, fit
from .regression import ConditionalFit, fit_conditional
from .statistics import CountFeatures, Statistics

__all__ = [
    "ConditionalFit",
    "ConditionalLikelihood",
    "CountFeatures",
    "ExactlyK",
    "Fit",
    "Statistics",
    "Strata",
    "exactly_k",
    "fit",
    "fit_conditional",
    "logits_from_inclusion",
    "newton",
    "risk_sets",
    "strata_of_groups",
]
