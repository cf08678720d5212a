"""Joint inclusion probabilities of some units of a maximum-entropy design.

The other units matter only by how many of them are drawn: given the count c among the units asked for, they contribute
e_(n - c) of their odds, a potential on c.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..arrays import Float64, Ints
from ..models.count import CountModel
from ..potentials import exactly

_PAIRS = 1 << 22  # joint probabilities held at a time


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
