"""The native executor: thin calls into the compiled extension."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import config
from ..arrays import Float64
from ..structure.nested.tree import TreeProgram
from .answer import Answer
from .solution import Solution

LARGEST_MIXTURE = 8  # terms: kMaxPowers of the C++ layer


def flat(native: Any, nu: Float64, tables: Float64, cavities: bool = True) -> Solution:
    """Standard models (B, n) with tables (1 or B, n + 1)."""
    return _flat_solution(
        native, nu, native.flat_solve(nu, tables, cavities, config.threads(), config.level())
    )


def closed_form(native: Any, nu: Float64, coefficients: Float64, rates: Float64) -> Solution:
    """Standard models (B, n) with the potential ``sum_j coefficients[j] rates[j]^c``."""
    found = native.flat_solve_powers(nu, coefficients, rates, config.threads(), config.level())
    return _flat_solution(native, nu, found)


def has_closed_form(coefficients: NDArray[Any], rates: NDArray[Any]) -> bool:
    """Whether the compiled closed form serves this mixture; the solver serves the others as well."""
    if len(rates) > LARGEST_MIXTURE or coefficients.dtype != np.float64 or rates.dtype != np.float64:
        return False
    return bool(np.all(np.isfinite(coefficients) & np.isfinite(rates) & (rates >= -1.0)))


def _flat_solution(native: Any, nu: Float64, found: Any) -> Solution:
    log_mean, softplus, bound = found.totals()
    return Solution(
        log_mean,
        bound,
        lambda: native.flat_messages(found, nu),
        lambda: native.flat_marginals(found, nu),
        softplus,
    )


def _plan(native: Any, program: TreeProgram) -> Any:
    """Analysis of the forest, FFT plans and memory outlive a call: they belong to the forest they serve."""
    plan = program.__dict__.get("_native_plan")
    if plan is None:
        made = native.TreePlan(
            program.left, program.right, program.table_offset, program.n_leaves, program.table_total
        )
        plan = program.__dict__["_native_plan"] = made
    return plan


def has_waves(native: Any, program: TreeProgram) -> bool:
    """Whether parts of the forest can be solved by characteristic functions."""
    return bool(_plan(native, program).has_waves())


def tree_pass(
    native: Any,
    program: TreeProgram,
    nu: Float64,
    tables: Float64,
    method: str,
    *,
    tilt: Float64 | None = None,
    beliefs: bool = False,
    messages: bool = True,
    cavities: bool = True,
) -> Answer:
    """Both passes over a forest: ``method`` is "direct", "fft", "waves", "tiled" or "wide"."""
    found = _plan(native, program).tree_pass(
        nu, tables, tilt, method, beliefs, messages, cavities, config.threads(), config.level()
    )
    log_mean, sent, log_beliefs, bound = found
    if method != "wide":
        # Zero may be an impossible model or an underflow; only per-entry exponents can tell.
        bound[log_mean == -math.inf] = math.inf
    return Answer(log_mean, sent, log_beliefs, bound)


Tangent = tuple[Float64, Float64, Float64, Float64]


def flat_tangent(
    native: Any, nu: Float64, tables: Float64, v: Float64, h: Float64 | None, counts: bool
) -> Tangent:
    """Derivatives of standard models along v (R, B, n) and h (R, B, n + 1).

    Those of the marginals, the counts themselves if R is 0, those of the counts, and a bound.
    """
    found: Tangent = native.flat_tangent(
        nu, tables, v, h, counts, threads=config.threads(), level=config.level()
    )
    return found


def tree_tangent(
    native: Any,
    program: TreeProgram,
    nu: Float64,
    tables: Float64,
    v: Float64,
    h: Float64 | None,
    counts: bool,
    direct: bool = False,
) -> Tangent:
    """The same on a forest, h (R, B, T) packed like the tables; `direct` merges at any cost."""
    found: Tangent = native.tree_tangent(
        _plan(native, program),
        nu,
        tables,
        v,
        h,
        counts,
        direct,
        threads=config.threads(),
        level=config.level(),
    )
    return found
