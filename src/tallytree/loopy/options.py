"""Checks of the options that iterative methods on factor graphs share."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any

from .. import checks
from .._progress import Iterations, Report
from ..errors import ParameterError
from ..models.factor_graph import FactorGraph


def check_run(graph: Any, tol: Any, max_iter: Any) -> None:
    """Refuse what is not a graph, tolerances that no number meets, and numbers of iterations that are none."""
    if not isinstance(graph, FactorGraph):
        raise ParameterError(
            f"`graph` must be a FactorGraph; {checks.describe(graph)} arrived. Make one with FactorGraph(logits, "
            "groups)."
        )
    if not (isinstance(tol, Real) and float(tol) >= 0.0):
        raise ParameterError(
            f"`tol` must be a number of at least 0; {checks.describe(tol)} arrived. Use 0 to run to `max_iter`."
        )
    if checks.integer("max_iter", max_iter) < 0:
        raise ParameterError(f"`max_iter` must be at least 0; {max_iter} arrived. Use 0 for the start alone.")


@contextmanager
def stoppable(progress: bool | Report, total: int, label: str) -> Iterator[Iterations]:
    """Iterations that Ctrl-C ends early: what follows the ``with`` block returns what has been reached."""
    with Iterations(progress, total, label) as shown:
        try:
            yield shown
        except KeyboardInterrupt:
            shown.interrupted = True


def positive_numbers(name: str, values: Any) -> list[float]:
    """A list of positive finite numbers."""
    try:
        found = [float(v) for v in values]
    except (TypeError, ValueError):
        found = []
    if not found or not all(0.0 < v < math.inf for v in found):
        raise ParameterError(
            f"`{name}` must be a list of positive numbers; {checks.describe(values)} arrived. Leave it out for the "
            "default."
        )
    return found
