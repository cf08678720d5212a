"""What every executor returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)
class Answer:
    """Result of one run on a batch of B models; arrays of the executor's own kind.

    Attributes
    ----------
    log_mean : (B,)
        ``log E[prod_k f_k(z_k)]`` under independent variables, -inf for an impossible model.
    messages : (B, D) or None
        Leaf messages ``log d(1)/d(0)``: posterior log-odds minus ``nu``, right also where ``nu`` is infinite.
    log_beliefs : (B, T) or None
        Log of the posterior count distribution of every set, packed like the tables.
    bound : (B,)
        Bound on the absolute error of every message, and of ``log_mean`` beyond the rounding of a number of its size;
        inf where nothing is certified.
    """

    log_mean: Any
    messages: Any
    log_beliefs: Any
    bound: Any
