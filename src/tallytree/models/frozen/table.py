"""The table of log-probabilities that every answer of a frozen distribution comes from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tallytree.arrays import Float64, Ints
from tallytree.checks.sums import broadcast_shape, real_array
from tallytree.engine.pmf.tails import log_tails
from tallytree.engine.pmf.weighted import Lattice
from tallytree.memo import cached


class LatticeTable(ABC):
    """Distributions of integers ``start + step * (0, 1, ..., m - 1)``, one per member of a batch."""

    @property
    @abstractmethod
    def batch_shape(self) -> tuple[int, ...]: ...

    @property
    @abstractmethod
    def _lattice(self) -> Lattice: ...

    @property
    def _start(self) -> int:
        return self._lattice.offset

    @property
    def _step(self) -> int:
        return self._lattice.step

    @property
    def _n_values(self) -> int:
        """Length of the table, known before there is one."""
        return int(self._lattice.weights.sum()) + 1

    @property
    @abstractmethod
    def _log_table(self) -> Float64:
        """Log pmf (B, m), read-only."""

    @cached
    def _bounds(self) -> tuple[Any, Any]:
        """Smallest and largest possible value, each of the shape of the batch."""
        possible = self._log_table > -np.inf
        first, last = possible.argmax(axis=1), possible.shape[1] - 1 - possible[:, ::-1].argmax(axis=1)
        low, high = (self._start + self._step * end.reshape(self.batch_shape) for end in (first, last))
        return low[()], high[()]

    @property
    def values(self) -> Ints:
        """The values (m,) that ``count_log_probs`` refers to: 0 .. n for a sum without weights.

        See Also
        --------
        count_log_probs, support

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.5]).given(1).values
        array([0, 1, 2])
        """
        return self._start + self._step * np.arange(self._n_values, dtype=np.int64)

    @property
    def count_log_probs(self) -> Float64:
        """``log P(X = values)`` (..., m).

        See Also
        --------
        values, logpmf

        Examples
        --------
        >>> np.exp(tt.PoissonBinomial([0.5, 0.5]).count_log_probs)
        array([0.25, 0.5 , 0.25])
        """
        return self._log_table.reshape(*self.batch_shape, self._log_table.shape[1])

    @cached
    def _log_tails(self) -> tuple[Float64, Float64]:
        """``log P(X <= v)`` and ``log P(X > v)`` on the lattice."""
        tails = log_tails(self._log_table)
        for tail in tails:
            tail.flags.writeable = False
        return tails

    @cached
    def _tails(self) -> tuple[Float64, Float64]:
        """The tails themselves: quantiles invert exactly these numbers."""
        return np.exp(self._log_tails[0]), np.exp(self._log_tails[1])

    def _look_up(
        self, table: Float64, name: str, k: ArrayLike, before: float, after: float, between: float | None
    ) -> Float64:
        """Read ``table`` at ``k``; ``between`` is the answer off the lattice, None to round down."""
        x = real_array(name, k, least_axes=0).astype(np.float64)
        shape = broadcast_shape(name, x.shape, self.batch_shape)
        x = np.broadcast_to(x, shape)
        rows = np.broadcast_to(np.arange(table.shape[0]).reshape(self.batch_shape), shape)
        place = (x - self._start) / self._step
        last = table.shape[1] - 1
        index = np.clip(np.floor(place), -1, last + 1).astype(np.int64)
        out = table[rows, np.clip(index, 0, last)]
        out = np.where(index < 0, before, np.where(index > last, after, out))
        if between is not None:
            out = np.where(place == np.floor(place), out, between)
        return np.asarray(out)
