"""Exact samples by the compiled extension: thin calls with the contract of `ArrayForest`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import config
from ...arrays import Float64, Ints
from ...structure.nested.blocks import BlockForest
from .array import Window


class NativeForest:
    """Upward messages of one model, ready to draw from."""

    def __init__(
        self, engine: Any, forest: BlockForest, nu: Float64, tables: Float64, window: Window | None = None
    ) -> None:
        w = Window(0.0, 0, 0, 0.0) if window is None else window
        self._forest = engine.SampleTree(
            forest.variables, forest.start, forest.left, forest.right, forest.table, forest.roots, forest.free,
            np.ascontiguousarray(nu), np.ascontiguousarray(tables),
            window is not None, w.tilt, w.budget, w.low, w.high, config.threads(), config.level(),
        )  # fmt: skip
        self.impossible = bool(self._forest.impossible)

    def root_log_weights(self) -> tuple[int, Float64]:
        """As in `ArrayForest`."""
        low, log_weights = self._forest.root()
        return int(low), log_weights

    def draw(
        self, out: NDArray[np.uint8], rows: Ints, seed: np.random.SeedSequence, totals: Ints | None = None
    ) -> None:
        """As in `ArrayForest`."""
        key = seed.generate_state(4, np.uint32)
        self._forest.draw(out, rows, key, totals, config.threads())
