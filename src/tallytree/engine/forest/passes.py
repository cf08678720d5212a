"""Passes over cluster programs: by the compiled engine, or in array code."""

from __future__ import annotations

import math

import numpy as np

from .. import native
from ..answer import Answer
from .arithmetic import Direct, Fourier
from .problem import ForestProblem, certificate
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
    program = problem.program.compiled
    log_edge = problem.log_edge
    edge_top = log_edge.max(axis=(2, 3), initial=-math.inf)
    edge_top[edge_top == -math.inf] = 0.0
    tables = problem.tables
    table_top = np.zeros((len(tables), len(problem.offset) - 1))
    if tables.shape[1]:
        table_top = np.maximum.reduceat(tables, problem.offset[:-1], axis=1)
        table_top[table_top == -math.inf] = 0.0
    log_z, messages, log_edges, log_counts, error, vanished, noise = native.cluster_pass(
        program.nodes, program.level_start, program.order, program.roots, program.counted, program.top,
        np.ascontiguousarray(problem.score, np.int32), np.ascontiguousarray(problem.log_leaf, np.float64),
        np.ascontiguousarray(np.exp(log_edge - edge_top[:, :, None, None])), edge_top,
        np.ascontiguousarray(tables, np.float64), table_top, np.ascontiguousarray(problem.offset, np.int64),
        kind.keep, kind is Fourier,
    )  # fmt: skip
    log_z = np.where(np.isnan(log_z), -math.inf, log_z)
    bound = certificate(problem, kind.keep, log_z, messages, error, vanished)
    noise = noise if problem.program.set_top.all() else error
    return Answer(log_z, messages, log_counts, bound, log_edges=log_edges, vanished=vanished, noise=noise)
