"""Optimisers of penalised negative log-likelihoods, with reports on the way.

Truncated Newton: every step minimises the quadratic model ``g . s + s . H s / 2`` over ``s . D s <= radius^2`` by
conjugate gradients preconditioned with D (Steihaug 1983), no further than the gradient is known to matter. The radius
follows how well the last model predicted the objective. SciPy's `trust-ncg` knows no D and took 2 to 100 times as many
Hessian products. L-BFGS and nonlinear conjugate gradients are SciPy's.

Concave log-likelihoods with few coefficients have exact Hessians, for Newton's method itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import optimize

from .. import checks
from .._progress import Progress, Report, check_progress
from ..arrays import Bools, Float64, Ints
from ..errors import ParameterError

MOST_STEPS = 10**8  # more than anybody waits for, and fewer than optimisers count
_ROUNDING = 1e-14  # differences of the objective below this, relative to its size, say nothing
_Result: Any = optimize.OptimizeResult
_PRODUCTS = 200  # limit on Hessian products in one step

Evaluate = Callable[[Float64], tuple[float, Float64]]  # value and gradient


def stopping(tol: Any, max_iter: Any, progress: Any) -> tuple[float, int, bool | Report]:
    """Read the tolerance, the limit on steps, and who is told about them."""
    told = check_progress(progress)
    limit = min(checks.integer("max_iter", max_iter, 0), MOST_STEPS)
    return checks.real("tol", tol, 0.0, infinite=True), limit, told


def minimise(
    evaluate: Evaluate,
    start: Float64,
    tol: float,
    max_iter: int,
    progress: bool | Report,
    *,
    method: str = "l-bfgs",
    curvature: Any = None,
    flat: float = 0.0,
    bounds: Any = None,
    work: str = "fit",
) -> tuple[Any, list[float]]:
    """Run an optimiser until no entry of the gradient is above `tol`; its report and the values on the way.

    The report is as SciPy's, whose are "l-bfgs", which knows `bounds` and ends when a step gains less than `flat`, and
    "cg"; "newton-cg" asks `curvature`, an `Objective`, for Hessian products.
    """
    history: list[float] = []
    if len(start) == 0:
        value, nothing = evaluate(start)[0], "nothing is free"
        return _Result(x=start, fun=value, nit=0, nfev=1, success=True, message=nothing), history

    def after_step(value: float, gradient: Float64) -> None:
        history.append(value)
        shown.advance(log_likelihood=-value, gradient=float(np.abs(gradient).max()))

    last: list[tuple[float, Float64]] = []

    def evaluated(values: Float64) -> tuple[float, Float64]:
        last[:] = [evaluate(values)]
        return last[0]

    with Progress(work, max_iter, progress) as shown, one_blas_thread():
        if method == "newton-cg":
            return newton_cg(evaluate, curvature, start, tol, max_iter, after_step), history
        options = {"maxiter": max_iter, "gtol": tol}
        if method == "l-bfgs":
            options |= {"ftol": flat, "maxcor": 20, "maxfun": 5 * max_iter + 20}
        settings = {
            "method": {"l-bfgs": "L-BFGS-B", "cg": "CG"}[method],
            "bounds": bounds,
            "options": options,
        }
        run: Any = optimize.minimize  # its overloads do not know `jac=True` with a callback
        return run(evaluated, start, jac=True, callback=lambda _: after_step(*last[0]), **settings), history


def one_blas_thread() -> AbstractContextManager[Any]:
    """Context in which BLAS runs on one thread, if threadpoolctl (which scikit-learn needs) is there.

    In the small vector operations of optimisers threads only wait for one another.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    limits: AbstractContextManager[Any] = threadpool_limits(1, user_api="blas")
    return limits


def newton_cg(
    evaluate: Evaluate,
    curvature: Any,
    start: Float64,
    tol: float,
    max_iter: int,
    after_step: Callable[[float, Float64], None],
) -> Any:
    """Minimise a function until no entry of its gradient is above `tol`.

    Of `curvature`, ``hessian_product(point, direction)`` is what it says, ``scale(point)`` a positive diagonal D near
    that of the Hessian, and ``first_radius(point)`` limits the first step in the metric of D. `after_step` is told
    value and gradient after every step that was taken.

    Notes
    -----
    Cost: per step one evaluation and as many Hessian products as conjugate gradients take; few far from the optimum.
    """
    x, message = start, "the gradient is below the tolerance"
    value, gradient = evaluate(x)
    radius = curvature.first_radius(x)
    steps, evaluations, products = 0, 1, 0
    while np.abs(gradient).max() > tol:
        if steps == max_iter:
            message = f"stopped after {steps} steps"
            break
        scale = curvature.scale(x)
        step = conjugate_gradients(partial(curvature.hessian_product, x), gradient, scale, radius, 0.3 * tol)
        products += step.n_products
        found, slope = evaluate(x + step.s)
        evaluations += 1
        slack = _ROUNDING * (1.0 + abs(value))
        lost = found - value
        better = math.isfinite(found) and (
            lost < 0.0 or (lost <= slack and np.abs(slope).max() < np.abs(gradient).max())
        )
        agreement = -lost / step.gain if step.gain > slack else float(better)
        if not agreement > 0.25:
            radius = 0.25 * step.length
        elif agreement > 0.75 and step.at_the_edge:
            radius = 2.0 * radius
        if better:
            x, value, gradient = x + step.s, found, slope
            steps += 1
            after_step(value, gradient)
        elif step.length <= 1e-12 * (1.0 + float(np.sqrt(x @ (scale * x)))):
            message = "no step lowers the objective further"
            break
    success = bool(np.abs(gradient).max() <= tol)
    return _Result(
        x=x, fun=value, nit=steps, nfev=evaluations, n_products=products, success=success, message=message
    )


@dataclass(frozen=True, eq=False)
class _Step:
    """A step, its length in the metric of D, the fall of the objective that it promises, and how it ended."""

    s: Float64
    length: float
    gain: float
    at_the_edge: bool
    n_products: int


def conjugate_gradients(
    product: Callable[[Float64], Float64], gradient: Float64, d: Float64, radius: float, enough: float
) -> _Step:
    """Minimise the quadratic model from the origin, to the edge of the region or until the residual is small.

    `product` multiplies by the Hessian, `d` is the diagonal D of the metric in which the region has its radius.
    """
    r = -gradient
    s, image = np.zeros_like(r), np.zeros_like(r)  # the step and H s
    z = r / d
    q, rz = z, float(r @ z)
    # Superlinear: the residual is asked to fall with the gradient itself.
    stop = rz * min(0.25, rz)
    for products in range(1, _PRODUCTS + 1):  # noqa: B007 - it counts
        moved = product(q)
        curvature = float(q @ moved)
        alpha = rz / curvature if curvature > 0.0 else math.inf
        reach = _to_the_edge(s, q, d, radius)
        at_the_edge = not alpha < reach
        if at_the_edge:
            alpha = reach if math.isfinite(reach) else 1.0 / math.sqrt(rz)  # flat: a step of length one
        s, image, r = s + alpha * q, image + alpha * moved, r - alpha * moved
        z = r / d
        rz, before = float(r @ z), rz
        if at_the_edge or rz <= stop or np.abs(r).max() <= enough:
            break
        q = z + (rz / before) * q
    gain = -float(gradient @ s + 0.5 * (s @ image))
    return _Step(s, float(np.sqrt(s @ (d * s))), gain, at_the_edge, products)


def _to_the_edge(s: Float64, q: Float64, d: Float64, radius: float) -> float:
    """The t >= 0 at which ``s + t q`` has length `radius`."""
    if radius == math.inf:
        return math.inf
    a, b, c = float(q @ (d * q)), float(s @ (d * q)), float(s @ (d * s)) - radius * radius
    root = math.sqrt(max(b * b - a * c, 0.0))
    return -c / (b + root) if b > 0.0 else (root - b) / a


def adam(
    evaluate: Callable[[Float64, Ints], tuple[float, Float64]],
    n_rows: int,
    values: Float64,
    batch_size: int,
    epochs: int,
    rate: float,
    rng: np.random.Generator,
    progress: bool | Report,
) -> tuple[Float64, list[float]]:
    """The point after some epochs of minibatches, and the mean objective per row of each.

    `evaluate` gives value and gradient at a point, per row, on some rows; steps decay to a tenth over the epochs.
    """
    first, second = np.zeros_like(values), np.zeros_like(values)
    history: list[float] = []
    step = 0
    with Progress("fit", epochs, progress, "epochs") as shown:
        for epoch in range(epochs):
            order = rng.permutation(n_rows)
            total, norm = 0.0, 0.0
            for start in range(0, n_rows, batch_size):
                rows = order[start : start + batch_size]
                value, gradient = evaluate(values, rows)
                step += 1
                first = 0.9 * first + 0.1 * gradient
                second = 0.999 * second + 0.001 * gradient**2
                move = (first / (1.0 - 0.9**step)) / (np.sqrt(second / (1.0 - 0.999**step)) + 1e-8)
                values = values - rate * (1.0 - 0.9 * epoch / epochs) * move
                total += value * len(rows)
                norm = float(np.abs(gradient).max(initial=0.0))
            history.append(total / n_rows)
            shown.advance(log_likelihood=-history[-1], gradient=norm)
    return values, history


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
    likelihood: Any,
    beta: Float64,
    *,
    l2: float = 0.0,
    tolerance: float = 1e-10,
    max_iterations: int = 50,
    spread: Float64 | None = None,
    progress: bool | Report = False,
) -> NewtonFit:
    """Maximise ``log L(beta) - l2 / 2 |beta|^2`` with exact Hessians and step halving.

    ``log L`` is concave, so a step that does not raise it is halved until it does. The method ends when the expected
    gain of a full step falls below ``tolerance (1 + |log L|)``, after taking that step.

    With `spread` it also ends, without convergence, if the maximum is at infinity: when a step changes linear
    predictors by more than a half and gains next to nothing.

    Parameters
    ----------
    likelihood : ConditionalLikelihood
        The likelihood to be maximised.
    beta : (p,) array
        Coefficients from which the search starts.
    l2 : float
        Penalty ``l2 / 2 |beta|^2``.
    tolerance : float
        Stop when the gain of a full step is below ``tolerance (1 + abs(log L))``.
    max_iterations : int
        Largest number of steps.
    spread : (p,) array, optional
        How much each covariate varies within strata, its standard deviation for instance.
    progress : bool or callable
        True shows the steps. A function is called after each of them with ``log_likelihood`` and the norm ``gradient``.

    Returns
    -------
    NewtonFit
        Fields ``beta`` (the coefficients), ``value``, ``gradient`` and ``information`` (of the likelihood there),
        ``last_step``, ``n_iterations`` and ``converged``.

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
        raise ParameterError(
            f"`likelihood` must be a ConditionalLikelihood; {checks.describe(likelihood)} arrived."
        )
    known = getattr(likelihood, "x", None)
    beta = checks.array("beta", beta, ("p" if known is None else known.shape[1],))
    p = len(beta)
    l2, tolerance = checks.real("l2", l2, 0.0), checks.real("tolerance", tolerance, 0.0)
    max_iterations = checks.integer("max_iterations", max_iterations, 0)
    told = check_progress(progress)
    spread = None if spread is None else checks.array("spread", spread, (p,))

    def penalised(at: Float64, value: float) -> float:
        return value - 0.5 * l2 * float(at @ at)

    value, gradient = likelihood.first_order(beta)
    information = likelihood.information(beta)
    converged = p == 0
    iteration, step = 0, np.zeros(p)
    with Progress("fit", max_iterations, told) as shown:
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
            far = spread is not None and (np.abs(step) * spread > 0.5).any()
            if far and gain <= 1e-5 * (1.0 + abs(before)):
                break
            shown.advance(log_likelihood=value, gradient=float(np.abs(gradient - l2 * beta).max()))
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
