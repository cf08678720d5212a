"""What a solved model says about one whose log-odds differ a little, without another pass.

Changing one log-odds by delta multiplies Z by ``1 - P + P e^delta``; with posterior log-odds o,

    log Z' = log Z + log(1 + e^(o + delta)) - log(1 + e^o),

for any groups. Variables in no group change nothing but themselves.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64
from ...structure.nested.count_tree import CountTree

_STRETCH = 1024
_CANCELLED = 16.0  # how much larger than the answer the terms that make it may be


def changed_variables(tree: CountTree, old: Float64, new: Float64) -> NDArray[np.int64] | None:
    """Variables whose log-odds differ in some model of the batch; arrays of equal shape (B, D).

    None if several of them are in groups, which is known before all are compared when everything has changed.
    """
    for stop in (_STRETCH, old.shape[1]):
        changed = np.flatnonzero((old[:, :stop] != new[:, :stop]).any(0))
        if len(changed) > 1 and np.count_nonzero(tree.family.variable_parent[changed] >= 0) > 1:
            return None
    return changed


def only_free(tree: CountTree, variables: NDArray[np.int64]) -> bool:
    """Whether none of the variables is in a group of two or more."""
    return bool((tree.family.variable_parent[variables] < 0).all())


def changed_log_norm(log_norm: Float64, odds: Float64, old: Float64, new: Float64) -> Float64 | None:
    """The new log Z, (B,), when the log-odds of one variable move; None where that is not as good as an inference.

    It is not where log-odds are or become infinite, and where large numbers would cancel.
    """
    if not (np.isfinite(old).all() and np.isfinite(new).all() and np.isfinite(odds).all()):
        return None
    change = new - old
    found = log_norm + (np.logaddexp(0.0, odds + change) - np.logaddexp(0.0, odds))
    terms = np.abs(log_norm) + np.abs(odds) + np.abs(change)
    return found if bool((terms <= _CANCELLED * (1.0 + np.abs(found))).all()) else None
