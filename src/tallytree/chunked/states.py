"""A configuration in the same layout as the source: its log-weight, chunk by chunk."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import SourceError
from .chunk import Chunk
from .reading import Loaded


class Weight(NamedTuple):
    """Of a configuration: how many variables are on, and the sum of their log-odds; -inf if it is impossible."""

    on: int
    log_weight: float


def states_of(chunk: Chunk) -> NDArray[np.bool_]:
    """The states of a chunk of `y`: 0 and 1 in any dtype."""
    values = chunk.load()
    on = np.asarray(values == 1)
    wrong = ~on & np.asarray(values != 0)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise SourceError(
            f"`y` must hold 0 and 1; chunk {chunk.number:,} has {values[at]!r} at position {at:,} (entry "
            f"{chunk.start + at:,})."
        )
    return on


def weigh(loaded: Loaded) -> Weight:
    """Task: the log-weight of the configuration that lies beside a chunk."""
    reading, nu = loaded.reading, loaded.logits
    on = states_of(reading.beside[0])
    weight = loaded.constant
    if reading.evidence is not None:
        # What evidence forces on is in the constant, and its log-odds have become infinite.
        at, known = reading.evidence
        if np.any(on[at] != known):
            weight = -math.inf
    chosen = nu[on]
    if np.any(chosen == -math.inf) or np.any(nu[~on] == math.inf):
        weight = -math.inf
    else:
        weight += float(np.where(chosen == math.inf, 0.0, chosen).sum())
    return Weight(int(np.count_nonzero(on)), weight)


def total(parts: Iterable[Weight]) -> Weight:
    """Of all chunks."""
    found = list(parts)
    return Weight(sum(part.on for part in found), math.fsum(part.log_weight for part in found))
