"""The kinds of models there are: from a generator to a case that checks itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from .assignments import draw_assignment
from .batches import draw_batch, draw_ragged
from .chains import draw_chain
from .compare import Report
from .counts import draw_counts, draw_forest
from .graphs import draw_graph
from .large import draw_large
from .long import draw_long
from .sums import draw_sum


class Case(Protocol):
    """One model, or a batch, as plain data."""

    def check(self, report: Report, rng: np.random.Generator) -> None:
        """Ask everything, and report what is wrong."""

    def code(self) -> str:
        """Python that makes it."""


Draw = Callable[[np.random.Generator], Any]
KINDS: dict[str, Draw] = {
    "counts": draw_counts,
    "forests": draw_forest,
    "large": draw_large,
    "chains": draw_chain,
    "long": draw_long,
    "batches": draw_batch,
    "ragged": draw_ragged,
    "sums": draw_sum,
    "graphs": draw_graph,
    "assignments": draw_assignment,
}
