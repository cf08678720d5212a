"""Optimisers of a penalised negative log-likelihood, with reports on the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from scipy import optimize

from .._progress import Progress, Report
from ..arrays import Float64
from .blas import one_blas_thread
from .newton_cg import Descent, newton_cg


class Steps(Progress):
    """Steps of an optimiser; a function is told the step, the mean log-likelihood and the gradient's norm."""

    def __init__(self, progress: bool | Report, total: int, label: str = "fit") -> None:
        super().__init__(label, total, progress)
        self.taken = 0

    def update(self, value: float, norm: float) -> None:
        self.taken += 1
        note = f"mean log-likelihood {value:.6f}, gradient {norm:.2e}"
        self.advance(note=note, told=(self.taken, value, norm))


class Objective(Protocol):
    """A function of the free parameters with derivatives."""

    def value_and_gradient(self, values: Float64) -> tuple[float, Float64]:
        """The function and its gradient."""
        ...

    def hessian_product(self, values: Float64, direction: Float64) -> Float64:
        """Its Hessian times a direction."""
        ...

    def scale(self, values: Float64) -> Float64:
        """A positive diagonal near that of the Hessian."""
        ...

    def first_radius(self, values: Float64) -> float:
        """Limit on the first step of Newton's method, in the metric of :meth:`scale`."""
        ...


def minimise(
    objective: Objective, start: Float64, method: str, tol: float, max_iter: int, progress: bool | Report
) -> tuple[Float64, Descent, list[float]]:
    """Run an optimiser; returns the point, its report and the values on the way."""
    if len(start) == 0:
        return start, Descent(start, 0, 0, 0, True, "nothing is free"), []
    history: list[float] = []

    def after_step(value: float, gradient: Float64) -> None:
        history.append(value)
        shown.update(-value, float(np.abs(gradient).max()))

    with one_blas_thread(), Steps(progress, max_iter) as shown:
        if method == "newton-cg":
            outcome = newton_cg(
                objective.value_and_gradient,
                objective.hessian_product,
                objective.scale,
                start,
                tol=tol,
                max_iter=max_iter,
                after_step=after_step,
                radius=objective.first_radius(start),
            )
        else:
            outcome = _first_order(
                objective.value_and_gradient, start, method, tol=tol, max_iter=max_iter, after_step=after_step
            )
    return outcome.x, outcome, history


def _first_order(
    evaluate: Callable[[Float64], tuple[float, Float64]],
    start: Float64,
    method: str,
    *,
    tol: float,
    max_iter: int,
    after_step: Callable[[float, Float64], None],
) -> Descent:
    """SciPy's L-BFGS or nonlinear conjugate gradients."""
    last: list[tuple[float, Float64]] = []

    def evaluated(values: Float64) -> tuple[float, Float64]:
        last[:] = [evaluate(values)]
        return last[0]

    options: dict[str, Any] = {"maxiter": max_iter, "gtol": tol}
    if method == "l-bfgs":
        options.update(ftol=0.0, maxcor=20, maxfun=4 * max_iter + 20)
    run: Any = optimize.minimize  # its overloads do not know `jac=True` with a callback
    name = "L-BFGS-B" if method == "l-bfgs" else "CG"
    found = run(
        evaluated, start, jac=True, method=name, options=options, callback=lambda _: after_step(*last[0])
    )
    x = np.asarray(found.x, np.float64)
    return Descent(x, int(found.nit), int(found.nfev), 0, bool(found.success), str(found.message))
