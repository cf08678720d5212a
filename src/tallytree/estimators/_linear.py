"""Linear scores under L1 and L2 penalties: the optimisation that bag models share.

The absolute value is smooth on each side of zero: with ``w = a - b``, ``a, b >= 0``, the penalty is ``l1
sum(a + b)`` and L-BFGS-B handles the bounds, so zeros come out exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize

from .. import checks
from ..arrays import Float64
from ..checks.numbers import check_count, check_real
from ..errors import ParameterError
from ..learn.blas import one_blas_thread

# (weights, others) -> loss, gradient of weights, gradient of others
Loss = Callable[[Float64, Float64], tuple[float, Float64, Float64]]
_MOST_STEPS = 10**8


@dataclass(frozen=True, eq=False)
class LinearFit:
    """Weights, the other parameters, the penalised loss, and how the optimiser ended."""

    weights: Float64
    others: Float64
    value: float
    n_iterations: int
    converged: bool


def minimise(
    loss: Loss,
    weights: Float64,
    others: Float64,
    *,
    l1: float,
    l2: float,
    other_l2: Float64,
    tol: float,
    max_iter: int,
) -> LinearFit:
    """Minimise ``loss + l1 |w|_1 + l2 / 2 |w|^2 + other_l2 / 2 . others^2``."""
    p = len(weights)
    split = l1 > 0

    def unpack(z: Float64) -> tuple[Float64, Float64]:
        return (z[:p] - z[p : 2 * p], z[2 * p :]) if split else (z[:p], z[p:])

    def evaluate(z: Float64) -> tuple[float, Float64]:
        w, rest = unpack(z)
        value, by_w, by_rest = loss(w, rest)
        value += 0.5 * l2 * float(w @ w) + 0.5 * float(other_l2 @ rest**2)
        by_w = by_w + l2 * w
        by_rest = by_rest + other_l2 * rest
        if not split:
            return value, np.concatenate([by_w, by_rest])
        return value + l1 * float(z[: 2 * p].sum()), np.concatenate([by_w + l1, l1 - by_w, by_rest])

    if split:
        start = np.concatenate([np.maximum(weights, 0.0), np.maximum(-weights, 0.0), others])
        bounds: Any = [(0.0, None)] * (2 * p) + [(None, None)] * len(others)
    else:
        start, bounds = np.concatenate([weights, others]), None
    options = {"maxiter": max_iter, "gtol": tol, "ftol": 1e-12, "maxcor": 20, "maxfun": 5 * max_iter}
    run: Any = optimize.minimize
    with one_blas_thread():
        found = run(evaluate, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    w, rest = unpack(np.asarray(found.x))
    return LinearFit(np.asarray(w), np.asarray(rest), float(found.fun), int(found.nit), bool(found.success))


def check_penalties(**values: Any) -> None:
    """Refuse negative numbers by name."""
    for name, value in values.items():
        check_real(value, name, 0.0)


def check_stopping(tol: Any, max_iter: Any, fit_intercept: Any) -> None:
    check_real(tol, "tol", 0.0)
    if check_count(max_iter, "max_iter", 1) > _MOST_STEPS:
        raise ParameterError(
            f"`max_iter` must be at most {_MOST_STEPS}; {max_iter} arrived. Choose fewer steps."
        )
    checks.flag("fit_intercept", fit_intercept)
