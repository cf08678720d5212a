"""Passes over cluster programs: by the compiled engine, or in array code."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import config
from .forest_arithmetic import Direct, Fourier
from .forest_pass import ForestPass
from .forest_problem import ForestAnswer, ForestProblem, certificate


def both_passes(problem: ForestProblem, kind: type[Direct]) -> ForestAnswer:
    """Upwards and downwards, by the compiled engine where it can."""
    engine = available(kind)
    with np.errstate(all="ignore"):
        if engine is not None:
            return run(engine, problem, kind)
        passes = ForestPass(problem, kind())
        passes.upward()
        return passes.downward()


def available(kind: type[Direct]) -> Any:
    """The compiled engine, if it has this arithmetic."""
    engine = config.native()
    return engine if kind in (Direct, Fourier) and hasattr(engine, "cluster_pass") else None


def run(engine: Any, problem: ForestProblem, kind: type[Direct]) -> ForestAnswer:
    """Both passes."""
    program = problem.program.compiled
    log_edge = problem.log_edge
    edge_top = log_edge.max(axis=(2, 3), initial=-math.inf)
    edge_top[edge_top == -math.inf] = 0.0
    tables = problem.tables
    table_top = np.zeros((len(tables), len(problem.offset) - 1))
    if tables.shape[1]:
        table_top = np.maximum.reduceat(tables, problem.offset[:-1], axis=1)
        table_top[table_top == -math.inf] = 0.0
    keep = kind.keep
    log_z, messages, log_edges, log_counts, error, vanished = engine.cluster_pass(
        program.nodes, program.level_start, program.order, program.roots, program.counted, program.top,
        np.ascontiguousarray(problem.score, np.int32), np.ascontiguousarray(problem.log_leaf, np.float64),
        np.ascontiguousarray(np.exp(log_edge - edge_top[:, :, None, None])), edge_top,
        np.ascontiguousarray(tables, np.float64), table_top, np.ascontiguousarray(problem.offset, np.int64),
        keep, kind is Fourier, config.threads(), config.level(),
    )  # fmt: skip
    log_z = np.where(np.isnan(log_z), -math.inf, log_z)
    bound = certificate(problem, keep, log_z, messages, error, vanished)
    return ForestAnswer(log_z, messages, log_edges, log_counts, bound, vanished)
