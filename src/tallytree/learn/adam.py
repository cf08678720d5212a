"""Adam on minibatches of rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._progress import Report
from ..arrays import Float64, Ints
from .descent import Steps


def adam(
    evaluate: Callable[[Float64, Ints], tuple[float, Float64]],
    n_rows: int,
    values: Float64,
    *,
    batch_size: int,
    epochs: int,
    rate: float,
    rng: np.random.Generator | int | None,
    progress: bool | Report,
) -> tuple[Float64, list[float]]:
    """The point after some epochs, and the mean objective per row of each; steps decay to a tenth over the epochs.

    `evaluate` gives value and gradient at a point, per row, on some rows.
    """
    generator = np.random.default_rng(rng)
    first, second = np.zeros_like(values), np.zeros_like(values)
    history: list[float] = []
    step = 0
    with Steps(progress, epochs) as shown:
        for epoch in range(epochs):
            order = generator.permutation(n_rows)
            total, norm = 0.0, 0.0
            for start in range(0, len(order), batch_size):
                rows = order[start : start + batch_size]
                value, gradient = evaluate(values, rows)
                step += 1
                first = 0.9 * first + 0.1 * gradient
                second = 0.999 * second + 0.001 * gradient**2
                size = rate * (1.0 - 0.9 * epoch / max(1, epochs))
                move = (first / (1.0 - 0.9**step)) / (np.sqrt(second / (1.0 - 0.999**step)) + 1e-8)
                values = values - size * move
                total += value * len(rows)
                norm = float(np.abs(gradient).max(initial=0.0))
            history.append(total / n_rows)
            shown.update(-history[-1], norm)
    return values, history
