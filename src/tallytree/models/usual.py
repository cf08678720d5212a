"""The usual call, one table or potential over a few variables: its parameters are read at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..engine import far
from ..engine.count.leaves import Folded
from ..potentials import Potential
from ..structure.nested.count_tree import flat
from .parameters import Parameters

_DOUBLE = np.dtype(np.float64)

# Unlike `ndarray.dot` it may overflow in silence; as it is, without the search for other kinds of arrays around it.
_dot = getattr(np.vdot, "__wrapped__", np.vdot)


def of_usual(logits: Any, groups: Any) -> Parameters | None:
    """One log-table or potential over a few variables, the usual case, kept short; None if it is not this case.

    A small sum of squares tells at once that there is no NaN, nothing infinite and nothing far among the numbers.
    """
    if (
        type(logits) is not np.ndarray
        or logits.ndim != 1
        or logits.dtype is not _DOUBLE  # not of the other byte order
        or not 1 < logits.size < 8192
    ):
        return None
    n = logits.size
    if type(groups) is np.ndarray:
        if groups.shape != (n + 1,) or groups.dtype is not _DOUBLE:
            return None
        own = finite = groups.copy()
        given: Any = own
    elif isinstance(groups, Potential):
        given, own = groups, groups._table(n)
        if own.ndim > 1:  # one parameter per model
            return None
        finite = own[own > -math.inf]
    else:
        return None
    if not (_dot(logits, logits) < far.SMALL_SQUARE and _dot(finite, finite) < far.SMALL_SQUARE):
        return None
    kept = logits.copy()
    kept.flags.writeable = own.flags.writeable = False
    new = Parameters(flat(n), kept, kept.dtype, (given,), (own,), (), 0.0)
    new._replaced = None
    new.leaves = Folded(kept.reshape(1, n), 0.0, None)
    new.packed = own.reshape(1, n + 1)
    return new
