"""Values of many clusters in one buffer: every cluster has its own window of counts and its own place."""

from __future__ import annotations

import numpy as np

from ...arrays import Float64, Ints


class Store:
    """Tables (state, count) of numbered rows; cell 0 of the buffer is the zero that stands outside every window.

    Attributes
    ----------
    low, width : (n_rows,)
        The counts ``low .. low + width - 1`` are kept; all others are zero.
    """

    def __init__(self, n_rows: int, zero: float) -> None:
        self.zero = zero
        self.buffer = np.full(1024, zero)
        self.used = 1
        self.base = np.zeros(n_rows, np.int64)
        self.state_stride = np.zeros(n_rows, np.int64)
        self.count_stride = np.zeros(n_rows, np.int64)
        self.low = np.zeros(n_rows, np.int64)
        self.width = np.zeros(n_rows, np.int64)

    def put(self, rows: Ints, values: Float64, low: Ints, first: Ints, width: Ints) -> None:
        """Keep counts ``first .. first + width - 1`` of `values` (state, count, row), which start at `low`."""
        size = values.size
        if self.used + size > len(self.buffer):
            grown = np.empty(max(2 * len(self.buffer), self.used + size), self.buffer.dtype)
            grown[: self.used] = self.buffer[: self.used]
            self.buffer = grown
        self.buffer[self.used : self.used + size] = values.reshape(-1)
        n = values.shape[2]
        self.base[rows] = self.used + np.arange(n) + first * n
        self.state_stride[rows] = values.shape[1] * n
        self.count_stride[rows] = n
        self.low[rows] = low + first
        self.width[rows] = width
        self.used += size

    def cells(self, rows: Ints, states: int, width: int, shift: Ints | int = 0) -> Ints:
        """Cells (state, count, row) of a window that starts `shift` counts before the row's own."""
        count = np.arange(width)[:, None] - shift
        inside = (count >= 0) & (count < self.width[rows])
        place = self.base[rows] + count * self.count_stride[rows]
        place = place + np.arange(states)[:, None, None] * self.state_stride[rows]
        return np.where(inside, place, 0)

    def get(self, rows: Ints, states: int, width: int, shift: Ints | int = 0) -> Float64:
        """Values (state, count, row)."""
        return self.buffer[self.cells(rows, states, width, shift)]

    def twin(self) -> Float64:
        """A buffer of zeros with the same layout."""
        return np.full(self.used, self.zero)
