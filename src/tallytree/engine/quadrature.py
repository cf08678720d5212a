"""Integrals of answers over a path of models."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..arrays import Float64

_NODES = (4, 8, 16, 32, 64)
_AGREED = 1e-11  # relative change from one number of nodes to the next at which to stop
_NOTHING = 1e-15  # and absolute


def integral(values: Callable[[float], Float64]) -> tuple[Float64, Float64]:
    """``integral_0^1 values(t) dt`` of every model, and by how much it changed with the last nodes that were added.

    By Gauss and Legendre, with as many nodes as it takes.
    """
    previous, change = None, np.array(np.inf)
    for nodes in _NODES:
        place, weight = np.polynomial.legendre.leggauss(nodes)
        parts = [0.5 * w * values(float(0.5 * (at + 1.0))) for at, w in zip(place, weight)]
        total = np.sum(parts, axis=0)
        if previous is not None:
            change = np.abs(total - previous)
            if np.all(change <= np.maximum(_AGREED * total, _NOTHING)):
                break
        previous = total
    return np.asarray(np.maximum(total, 0.0)), change  # rounding alone could make it negative
