"""Newton's method on a concave log-likelihood with exact Hessians, and columns that it cannot tell apart."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .. import checks
from ..arrays import Bools, Float64
from .conditional import ConditionalLikelihood


@dataclass(frozen=True, eq=False)
class NewtonFit:
    """Where Newton's method ended: the last point, its derivatives, and whether it converged."""

    beta: Float64
    value: float
    gradient: Float64
    information: Float64
    last_step: Float64
    n_iterations: int
    converged: bool


def newton(
    likelihood: ConditionalLikelihood,
    beta: Float64,
    *,
    l2: float = 0.0,
    tolerance: float = 1e-10,
    max_iterations: int = 50,
    spread: Float64 | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> NewtonFit:
    """Maximise ``log L(beta) - l2 / 2 |beta|^2`` with exact Hessians and step halving.

    ``log L`` is concave, so a step that does not raise it is halved until it does; the method ends when the
    expected gain of a full step falls below ``tolerance (1 + |log L|)``, after taking that step.

    With `spread` (p,), how much the covariates vary within strata, the method also ends, not converged, when a
    step moves linear predictors by more than a half and gains next to nothing: the maximum is at infinity, and
    the curvature left there is soon nothing but rounding.

    Parameters
    ----------
    likelihood : ConditionalLikelihood
        What is maximised.
    beta : (p,) array
        Where to begin.
    l2 : float
        Penalty ``l2 / 2 |beta|^2``.
    tolerance : float
        Stop when the gain of a full step is below ``tolerance (1 + abs(log L))``.
    max_iterations : int
        Limit on steps.
    spread : (p,) array, optional
        Scales of the covariates, for judging columns that say nothing new.
    progress : callable, optional
        Called after every step.

    Returns
    -------
    NewtonFit
        Coefficients, their information and how the search ended.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.learn.ConditionalLikelihood
    tallytree.estimators.ConditionalLogit

    Examples
    --------
    >>> sets = tt.learn.strata_of_groups(np.zeros(4, int), np.array([True, False, True, False]))
    >>> likelihood = tt.learn.ConditionalLikelihood(np.array([[1.0], [0.0], [0.0], [0.5]]), sets)
    >>> bool(tt.learn.newton(likelihood, np.zeros(1)).converged)
    True
    """
    if not (hasattr(likelihood, "first_order") and hasattr(likelihood, "information")):
        checks.instance("likelihood", likelihood, ConditionalLikelihood)
    known = getattr(likelihood, "x", None)
    beta = checks.array("beta", beta, ("p" if known is None else known.shape[1],))
    p = len(beta)
    l2, tolerance = checks.real("l2", l2, 0.0), checks.real("tolerance", tolerance, 0.0)
    max_iterations = checks.integer("max_iterations", max_iterations, 0)
    spread = None if spread is None else checks.array("spread", spread, (p,))
    checks.callback("progress", progress)

    def penalised(at: Float64, value: float) -> float:
        return value - 0.5 * l2 * float(at @ at)

    value, gradient = likelihood.first_order(beta)
    information = likelihood.information(beta)
    converged = p == 0
    iteration, step = 0, np.zeros(p)
    while iteration < max_iterations and not converged:
        iteration += 1
        slope, curvature = gradient - l2 * beta, information + l2 * np.eye(p)
        step = _solve(curvature, slope)
        gain = 0.5 * float(step @ slope)
        before = penalised(beta, value)
        for _ in range(40):
            trial = beta + step
            found = likelihood.first_order(trial)
            if penalised(trial, found[0]) >= before - 1e-13 * (1.0 + abs(before)):
                break
            step = 0.5 * step
        else:
            break
        beta, (value, gradient) = trial, found
        information = likelihood.information(beta)
        converged = gain <= tolerance * (1.0 + abs(before))
        if spread is not None and gain <= 1e-5 * (1.0 + abs(before)) and (np.abs(step) * spread > 0.5).any():
            break
        if progress is not None:
            progress(iteration, value)
    return NewtonFit(beta, value, gradient, information, step, iteration, converged)


def _solve(curvature: Float64, slope: Float64) -> Float64:
    """Newton step; directions in which the likelihood has become flat are left alone."""
    scaled, scale = equilibrated(curvature)
    return np.asarray(np.linalg.lstsq(scaled, slope / scale, rcond=1e-12)[0] / scale)


def equilibrated(matrix: Float64) -> tuple[Float64, Float64]:
    """A symmetric matrix with ones on its diagonal where that was positive, and the scales (p,) taken out of it."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    return matrix / np.outer(scale, scale), scale


def aliased_columns(within: Float64, size: Float64, tolerance: float = 1e-9) -> Bools:
    """Columns that are linear combinations of earlier ones, (p,), by Gram-Schmidt in the given order.

    `size` (p,) is the largest absolute value of each column before means were taken off: what remains of a
    column constant within strata is rounding of that size.
    """
    n, p = within.shape
    aliased = np.zeros(p, bool)
    basis = np.zeros((n, 0))
    for j in range(p):
        column = within[:, j]
        norm = float(np.linalg.norm(column))
        rest = column - basis @ (basis.T @ column)
        rest = rest - basis @ (basis.T @ rest)
        left = float(np.linalg.norm(rest))
        if norm <= 1e-12 * size[j] * math.sqrt(n) or left <= tolerance * norm:
            aliased[j] = True
        else:
            basis = np.column_stack([basis, rest / left])
    return aliased
