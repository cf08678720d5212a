"""What users pass to a sampling design: inclusion probabilities, and units of the population."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..arrays import Float64, Ints
from ..errors import ParameterError


def inclusion_vector(pik: ArrayLike) -> Float64:
    """Inclusion probabilities, one per unit."""
    try:
        pi = np.asarray(checks.unmasked("`pik`", pik), np.float64)
    except ParameterError:
        raise
    except (TypeError, ValueError):
        raise ParameterError(
            f"`pik` must be a vector of probabilities; {checks.describe(pik)} arrived."
        ) from None
    if pi.ndim != 1:
        raise ParameterError(
            f"`pik` must be a vector of probabilities; an array of shape {pi.shape} arrived. Fit one design at a time."
        )
    bad = np.flatnonzero(~((pi >= 0) & (pi <= 1)))
    if len(bad):
        raise ParameterError(
            f"`pik` must be a vector of probabilities between 0 and 1; {pi[bad[0]]:g} arrived for unit {bad[0]}. "
            "Sizes are turned into probabilities by `MaxEntropySampler.inclusion_probabilities`."
        )
    return pi


def distinct_units(chosen: ArrayLike, size: int, name: str) -> Ints:
    """Indices of distinct units, from indices or from one truth value per unit."""
    array = checks.rectangular(name, chosen, "the indices of units, or one truth value for each")
    if array.dtype == bool and array.shape in ((size,), (1, size)):
        return np.flatnonzero(array)
    if array.ndim == 2 and array.shape[1] == size:
        raise ParameterError(
            f"`{name}` must be one sample; an array of {len(array)} arrived. Call it for every row."
        )
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ParameterError(
            f"`{name}` must hold the indices of units, or one truth value for each of the {size} units; "
            f"{checks.describe(array)} arrived."
        )
    index = array.astype(np.int64)
    outside = index[(index < 0) | (index >= size)]
    if len(outside):
        raise ParameterError(f"`{name}` names unit {outside[0]}, but units are numbered 0 to {size - 1}.")
    distinct, times = np.unique(index, return_counts=True)
    if (times > 1).any():
        raise ParameterError(
            f"`{name}` names unit {distinct[times > 1][0]} more than once, but the design draws without replacement. "
            "List every unit once; zeros and ones that mark units must be truth values, as of astype(bool)."
        )
    return index
