"""Sampling designs: the arguments of users, and joint inclusion probabilities of some units.

The other units matter only by how many of them are drawn: given the count c among the units asked for, they contribute
e_(n - c) of their odds, a potential on c.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..models.count import CountModel
from ..potentials import exactly

_PAIRS = 1 << 22  # joint probabilities held at a time


def inclusion_vector(pik: ArrayLike) -> Float64:
    """Inclusion probabilities, one per unit."""
    hint = " `MaxEntropySampler.inclusion_probabilities` turns sizes into probabilities."
    pi = checks.array("pik", pik, ("N",), checks.PROBABILITIES, hint=hint)
    if not len(pi):
        raise ParameterError("`pik` must hold the probabilities of at least one unit; none arrived.")
    return pi


def distinct_units(chosen: ArrayLike, size: int, name: str) -> Ints:
    """Indices of distinct units, from indices or from one truth value per unit."""
    array = checks.rectangular(name, chosen, "the indices of units, or one truth value for each")
    if array.ndim == 2 and array.shape[1] == size and len(array) != 1:
        raise ParameterError(
            f"`{name}` must be one sample; an array of {len(array)} arrived. Call it for every row."
        )
    if array.dtype == bool and array.size == size:
        return np.flatnonzero(array)
    index = checks.array(name, array, ("n",), checks.integers(0, size - 1, "units"))
    if len(np.unique(index)) < len(index):
        raise ParameterError(
            f"`{name}` must hold distinct units, because the design draws without replacement; "
            f"{checks.describe(chosen)} arrived. Zeros and ones that mark units must be truth values: astype(bool)."
        )
    return index


def joint_rows(
    logits: Float64, inclusion: Float64, drawn: int, units: Ints
) -> Iterator[tuple[Ints, Float64]]:
    """Joint probabilities of `units` with one another, a few rows at a time, when `drawn` of all units are."""
    pi = inclusion[units]
    inner = np.flatnonzero(np.isfinite(logits[units]))
    model = _restricted(logits, drawn, units[inner]) if len(inner) else None
    place = np.full(len(units), -1)
    place[inner] = np.arange(len(inner))
    step = max(1, _PAIRS // max(1, len(units)))
    for start in range(0, len(units), step):
        rows = np.arange(start, min(start + step, len(units)))
        joint = np.outer(pi[rows], pi)  # certain and excluded units are independent of all others
        random = rows[place[rows] >= 0]
        if model is not None and len(random):
            found = model.pairwise(place[random][:, None], np.arange(len(inner)))
            joint[np.ix_(random - start, inner)] = found
        joint[rows - start, rows] = pi[rows]
        yield rows, joint


def _restricted(logits: Float64, drawn: int, units: Ints) -> CountModel:
    """The design restricted to some random units, its other units summed over."""
    theta = logits[units]
    k = drawn - int((logits == np.inf).sum())
    others = np.isfinite(logits)
    others[units] = False
    if not others.any():
        return CountModel(theta, exactly(k))
    law = np.asarray(CountModel(logits[others], np.zeros(int(others.sum()) + 1)).count_log_probs())
    left = k - np.arange(len(units) + 1)  # drawn among the others
    possible = (left >= 0) & (left < len(law))
    return CountModel(theta, np.where(possible, law[np.where(possible, left, 0)], -np.inf))
