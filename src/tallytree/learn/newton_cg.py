"""Truncated Newton: conjugate gradients on exact Hessian products inside a trust region, scaled by a diagonal.

Every step minimises the quadratic model ``g . s + s . H s / 2`` over ``s . D s <= radius^2`` by conjugate gradients
preconditioned with D (Steihaug 1983), no further than the gradient is known to matter. The radius follows how well the
last model predicted the objective.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..arrays import Float64

_ROUNDING = 1e-14  # differences of the objective below this, relative to its size, say nothing
_PRODUCTS = 200  # limit on Hessian products in one step


@dataclass(frozen=True, eq=False)
class Descent:
    """Where an optimiser stopped: the point, steps, evaluations, Hessian products, and why."""

    x: Float64
    nit: int
    nfev: int
    n_products: int
    success: bool
    message: str


def newton_cg(
    evaluate: Callable[[Float64], tuple[float, Float64]],
    product: Callable[[Float64, Float64], Float64],
    scale: Callable[[Float64], Float64],
    start: Float64,
    *,
    tol: float,
    max_iter: int,
    after_step: Callable[[float, Float64], None],
    radius: float = math.inf,
) -> Descent:
    """Minimise a function.

    Parameters
    ----------
    evaluate : callable
        Value and gradient at a point.
    product : callable
        Hessian at a point times a direction.
    scale : callable
        Positive diagonal D at a point.
    tol : float
        Stop when no entry of the gradient is larger.
    after_step : callable
        Told value and gradient after every step that was taken.
    radius : float
        Limit on the first step, in the metric of D.

    Notes
    -----
    Cost: per step one evaluation and as many Hessian products as conjugate gradients take; few far from the optimum.
    """
    x = start
    value, gradient = evaluate(x)
    steps, evaluations, products = 0, 1, 0
    while np.abs(gradient).max() > tol and steps < max_iter:
        model = QuadraticModel(x, gradient, product, scale(x))
        step = model.minimise(radius, 0.3 * tol)
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
        elif step.length <= 1e-12 * (1.0 + float(np.sqrt(x @ (model.scale * x)))):
            return Descent(x, steps, evaluations, products, False, "no step lowers the objective further")
    done = bool(np.abs(gradient).max() <= tol)
    said = "the gradient is below the tolerance" if done else f"stopped after {steps} steps"
    return Descent(x, steps, evaluations, products, done, said)


@dataclass(frozen=True, eq=False)
class _Step:
    """A step, its length in the metric of D, the fall of the objective that it promises, and how it ended."""

    s: Float64
    length: float
    gain: float
    at_the_edge: bool
    n_products: int


class QuadraticModel:
    """The quadratic model of the objective around a point."""

    def __init__(
        self,
        x: Float64,
        gradient: Float64,
        product: Callable[[Float64, Float64], Float64],
        scale: Float64,
    ) -> None:
        self._x, self._gradient, self._product, self.scale = x, gradient, product, scale

    def minimise(self, radius: float, enough: float) -> _Step:
        """Conjugate gradients from the origin, to the edge of the region or until the residual is small."""
        d, r = self.scale, -self._gradient
        s, image = np.zeros_like(r), np.zeros_like(r)  # the step and H s
        z = r / d
        q, rz = z, float(r @ z)
        # Superlinear: the residual is asked to fall with the gradient itself.
        stop = rz * min(0.25, rz)
        for done in range(1, _PRODUCTS + 1):
            moved = self._product(self._x, q)
            curvature = float(q @ moved)
            alpha = rz / curvature if curvature > 0.0 else math.inf
            reach = _to_the_edge(s, q, d, radius)
            if not alpha < reach:
                far = reach if math.isfinite(reach) else 1.0 / math.sqrt(rz)  # flat: a step of length one
                return self._step(s + far * q, image + far * moved, True, done)
            s, image, r = s + alpha * q, image + alpha * moved, r - alpha * moved
            z = r / d
            rz, before = float(r @ z), rz
            if rz <= stop or np.abs(r).max() <= enough:
                break
            q = z + (rz / before) * q
        return self._step(s, image, False, done)

    def _step(self, s: Float64, image: Float64, at_the_edge: bool, products: int) -> _Step:
        gain = -float(self._gradient @ s + 0.5 * (s @ image))
        return _Step(s, float(np.sqrt(s @ (self.scale * s))), gain, at_the_edge, products)


def _to_the_edge(s: Float64, q: Float64, d: Float64, radius: float) -> float:
    """The t >= 0 at which ``s + t q`` has length `radius`."""
    if radius == math.inf:
        return math.inf
    a, b, c = float(q @ (d * q)), float(s @ (d * q)), float(s @ (d * s)) - radius * radius
    root = math.sqrt(max(b * b - a * c, 0.0))
    return -c / (b + root) if b > 0.0 else (root - b) / a
