"""The kinds of models there are: from a generator to a case that checks itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from . import batches, chains, chunks, counts, exact, frameworks, large, long, tangents
from .assignments import draw_assignment
from .cliffs import draw_cliff
from .compare import Report
from .graphs import draw_graph
from .sums import draw_sum
from .weighted import draw_weighted


class Case(Protocol):
    """One model, or a lot of them over one structure, as plain data."""

    def check(self, report: Report, rng: np.random.Generator) -> None:
        """Ask everything, and report what is wrong."""

    def code(self) -> str:
        """Python that makes it."""


class Kind(NamedTuple):
    draw: Callable[[np.random.Generator], Any]
    lot: int = 1  # models in a case
    needs: str = ""  # a package that not everybody has
    array_every: int = 1  # of so many cases the array engine is asked one, unless it alone was chosen


KINDS: dict[str, Kind] = {
    "counts": Kind(counts.draw_counts, counts.LOT),
    "forests": Kind(counts.draw_forest, counts.LOT),
    "large": Kind(large.draw_large, large.LOT),
    "chains": Kind(chains.draw_chain, chains.LOT),
    "long": Kind(long.draw_long, long.LOT),
    "batches": Kind(batches.draw_batch, batches.LOT),
    "ragged": Kind(batches.draw_ragged, batches.RAGGED_LOT),
    "tangents": Kind(tangents.draw_tangents, tangents.LOT),
    "cliffs": Kind(draw_cliff, array_every=4),
    "sums": Kind(draw_sum),
    "quantiles": Kind(exact.draw_quantiles),
    "cancelling": Kind(exact.draw_cancelling),
    "near": Kind(exact.draw_near),
    "weighted": Kind(draw_weighted),
    "chunked": Kind(chunks.draw_chunked),
    "torch": Kind(frameworks.draw_torch, frameworks.TORCH_LOT, "torch"),
    "jax": Kind(frameworks.draw_jax, frameworks.JAX_LOT, "jax"),
    "graphs": Kind(draw_graph),
    "assignments": Kind(draw_assignment),
}
