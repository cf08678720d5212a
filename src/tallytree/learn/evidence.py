"""Densities of binary rows, and what a model says about rows of which only a part is known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64
from ..errors import InfeasibleError
from ..models.count import CountModel

_ROWS = 256  # rows handled in one batch of models


class Density:
    """A density over binary rows, with a model behind it."""

    model: Any

    @property
    def n_variables(self) -> int:
        """Number of variables."""
        return int(self.model.n_variables)

    def log_prob(self, rows: NDArray[Any]) -> Float64:
        """Log-probabilities of complete rows, (N,)."""
        raise NotImplementedError

    def evidence(self, rows: Float64) -> tuple[Float64, Float64]:
        """Log-probability of what is known in rows (NaN: unknown), (N,), and P(y = 1 | known), (N, D)."""
        return evidence(self.model, rows)

    def sample(self, size: int, rng: np.random.Generator) -> NDArray[np.uint8]:
        """Independent rows, (size, D)."""
        found: NDArray[np.uint8] = self.model.sample(size, rng=rng)
        return found


def evidence(model: CountModel, rows: Float64) -> tuple[Float64, Float64]:
    """Log-probability of what is known in rows (N, D), NaN where unknown, (N,), and P(y = 1 | known), (N, D).

    A row that is impossible has log-probability -inf and marginals 0.

    Notes
    -----
    Cost: one inference per row, batched.
    """
    total, marginals = np.empty(len(rows)), np.empty(rows.shape)
    for start in range(0, len(rows), _ROWS):
        part = slice(start, start + _ROWS)
        total[part], marginals[part] = _of_batch(model, rows[part])
    return total, marginals


def _of_batch(model: CountModel, rows: Float64) -> tuple[Float64, Float64]:
    """Forced variables enter log Z with weight one, so their logits are added back."""
    logits = np.asarray(model.logits, np.float64)
    endless, missing = np.isinf(logits), np.isnan(rows)
    own = np.where((rows == 1) & ~endless, logits, 0.0).sum(1)
    own[(~missing & endless & ((rows == 1) != (logits > 0))).any(1)] = -np.inf
    clamped = model.replace(logits=np.where(missing, logits, np.where(rows == 1, np.inf, -np.inf)))
    try:
        log_known, marginals = np.asarray(clamped.log_partition), np.asarray(clamped.marginals)
    except InfeasibleError:
        # Some row is impossible: halves find it without asking about every other one alone.
        if len(rows) == 1:
            return np.full(1, -np.inf), np.zeros(rows.shape)
        halves = [_of_batch(model, half) for half in np.array_split(rows, 2)]
        return np.concatenate([h[0] for h in halves]), np.concatenate([h[1] for h in halves])
    total = log_known + own - float(model.log_partition)
    return total, np.where(own[:, None] > -np.inf, marginals, 0.0)
