"""What users say about a fit besides data and structure, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import checks
from .._progress import Report, check_progress
from ..arrays import Float64
from ..checks.numbers import check_count, check_real
from ..errors import ParameterError

_MOST_STEPS = 10**8  # more than anybody waits for, and fewer than optimisers count


def stopping(tol: Any, max_iter: Any, progress: Any) -> tuple[float, int, bool | Report]:
    """The tolerance, the limit on steps, and who is told about them."""
    told = check_progress(progress, "step, log-likelihood and gradient norm")
    limit = min(check_count(max_iter, "max_iter"), _MOST_STEPS)
    return check_real(tol, "tol", 0.0, infinite=True), limit, told


def penalty(name: str, value: Any) -> float:
    return check_real(value, name, 0.0, infinite=True)


def finite_array(name: str, value: Any, what: str) -> Float64:
    """Finite numbers in float64, of any shape."""
    array = checks.rectangular(name, value, what)
    if array.dtype.kind not in "biuf":
        raise ParameterError(
            f"`{name}` must be {what}; {checks.describe(value)} arrived. Convert it to numbers."
        )
    if not np.isfinite(array).all():
        raise ParameterError(
            f"`{name}` must hold finite numbers; NaN or infinity arrived. Drop or fill in those rows."
        )
    return array.astype(np.float64)
