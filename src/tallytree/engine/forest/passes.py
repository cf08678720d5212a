"""Passes over cluster programs: by the compiled engine, or in array code."""

from __future__ import annotations

import math

import numpy as np

from .. import native
from ..answer import Answer
from ..log_sums import anchor
from ..problem import ForestProblem
from .arithmetic import Direct, Fourier
from .certificate import certificate, table_tops
from .sum_product import ForestPass


def both_passes(problem: ForestProblem, kind: type[Direct]) -> Answer:
    """Upwards and downwards, by the compiled engine where it has this arithmetic."""
    with np.errstate(all="ignore"):
        if kind in (Direct, Fourier) and native.present():
            return compiled(problem, kind)
        passes = ForestPass(problem, kind())
        passes.upward()
        return passes.downward()


def compiled(problem: ForestProblem, kind: type[Direct]) -> Answer:
    """Both passes by the compiled engine."""
    log_z, messages, log_edges, log_counts, error, vanished, noise = native.cluster_pass(
        problem, anchor(problem.log_edge, (2, 3)), table_tops(problem), kind.keep, kind is Fourier
    )
    log_z = np.where(np.isnan(log_z), -math.inf, log_z)
    bound = certificate(problem, kind.keep, log_z, messages, error, vanished)
    noise = noise if problem.program.set_top.all() else error
    return Answer(log_z, messages, log_counts, bound, log_edges=log_edges, vanished=vanished, noise=noise)
