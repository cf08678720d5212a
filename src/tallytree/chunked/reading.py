"""What a task does first: get the numbers of a chunk, see that they are numbers and the same as last time.

Every pass takes the fingerprint of every chunk. The first one is remembered, and a later pass that meets another names
the chunk: sums of different data must not be put together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..arrays import Float64, Ints
from ..engine import masks
from ..errors import ParameterError, SourceError
from .chunk import Chunk, Held, fingerprint

_PLAIN = (np.dtype(np.float32), np.dtype(np.float64))


class Evidence(NamedTuple):
    """Variables of a chunk whose values are known: their positions in it, and 0 or 1."""

    positions: Ints
    values: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Reading:
    """A chunk to be read, with what is known about it."""

    chunk: Chunk
    label: str = "source"
    evidence: Evidence | None = None
    seen: int | None = None  # fingerprint of an earlier pass
    beside: tuple[Chunk, ...] = ()  # the same stretch of other columns
    note: Any = None  # what a task has to know about this chunk alone
    scale: str = "logit"  # or "prob": what the numbers are

    def given(self, values: list[NDArray[Any] | None]) -> Reading:
        """The same with numbers at hand, of the chunk and of those beside it; None where a chunk loads its own."""
        columns = [
            column if found is None else Held(column.number, column.start, column.stop, found)
            for column, found in zip((self.chunk, *self.beside), values)
        ]
        return replace(self, chunk=columns[0], beside=tuple(columns[1:]))


class Loaded(NamedTuple):
    """The log-odds of a chunk, ready for the engine, in the precision of the source: what tasks work on.

    ``constant`` is what forced variables and far numbers add to log Z: -inf where evidence contradicts a log-odds.
    """

    reading: Reading
    values: NDArray[Any]
    fingerprint: int
    constant: float

    @property
    def logits(self) -> Float64:
        """In double precision."""
        return np.asarray(self.values, np.float64)


def check_dtype(dtype: np.dtype[Any], label: str = "source") -> np.dtype[Any]:
    """float32 or float64, in any byte order; everything else is refused before anything is read."""
    native = dtype.newbyteorder("=")
    if native not in _PLAIN:
        half = " Half precision has three digits, too few for log-odds." if dtype == np.float16 else ""
        raise ParameterError(
            f"`{label}` must hold float32 or float64 log-odds; dtype {dtype} arrived.{half} "
            "Convert it first, for example by array.astype('float32')."
        )
    return native


def numbers(reading: Reading) -> tuple[NDArray[Any], int]:
    """The entries of a chunk as they are stored, and their fingerprint, which must be the one seen before."""
    chunk = reading.chunk
    values = chunk.load()
    if values.shape != (chunk.size,):
        raise SourceError(
            f"`{reading.label}`: chunk {chunk.number:,} must have {chunk.size:,} entries; "
            f"an array of shape {values.shape} arrived. The source has changed since the model was made."
        )
    mark = fingerprint(values)
    if reading.seen is not None and mark != reading.seen:
        raise SourceError(
            f"`{reading.label}` must not change while a model uses it, but chunk {chunk.number:,} (entries "
            f"{chunk.start:,} to {chunk.stop - 1:,}) is not what it was in an earlier pass. "
            "Make a new model when nothing writes to the source any more."
        )
    return values, mark


def load(reading: Reading) -> Loaded:
    """Log-odds of a chunk, with evidence as infinite log-odds."""
    stored, mark = numbers(reading)
    values = np.ascontiguousarray(stored, check_dtype(stored.dtype, reading.label))
    if not len(values):
        return Loaded(reading, values, mark, 0.0)
    smallest, largest = float(values.min()), float(values.max())
    if math.isnan(smallest):
        where = reading.chunk.place(int(np.argmax(np.isnan(values))))
        raise SourceError(
            f"`{reading.label}` must not hold NaN, but there is one in {where}. Use 0 where nothing is known, -inf to "
            "exclude a variable, inf to force it on."
        )
    if reading.scale == "prob":
        values = _log_odds(reading, values, smallest, largest)
        smallest, largest = float(values.min()), float(values.max())
    constant = 0.0
    if not masks.absent_between(smallest, largest) and not masks.absent(values):
        near, added = masks.resolve_logits(values.astype(np.float64))
        values = near.astype(values.dtype)
        constant += float(added)
    if reading.evidence is not None:
        values, added_here = _with_evidence(values, reading.evidence)
        constant += added_here
    return Loaded(reading, values, mark, constant)


def _with_evidence(values: NDArray[Any], evidence: Evidence) -> tuple[NDArray[Any], float]:
    """Known variables become excluded or forced ones; a forced one leaves its log-odds in log Z."""
    at, on = evidence
    own = values[at].astype(np.float64)
    if np.any(np.isinf(own) & ((own > 0) != on)):
        return values, -math.inf
    out = values.copy()
    out[at] = np.where(on, math.inf, -math.inf)
    return out, math.fsum(own[on & np.isfinite(own)].tolist())


def _log_odds(reading: Reading, probs: NDArray[Any], smallest: float, largest: float) -> Float64:
    if smallest < 0.0 or largest > 1.0:
        at = int(np.argmax((probs < 0.0) | (probs > 1.0)))
        hint = (
            "Log-odds go in `logits`." if reading.label == "probs" else "For log-odds leave out scale='prob'."
        )
        raise SourceError(
            f"`{reading.label}` must hold probabilities between 0 and 1; {probs[at]} arrived in "
            f"{reading.chunk.place(at)}. {hint}"
        )
    p = probs.astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p) - np.log1p(-p))


# -- evidence ------------------------------------------------------------------------------------------------------


def more_evidence(known: Mapping[int, int], evidence: Mapping[int, int], n: int) -> dict[int, int]:
    """What is known of n variables together with what a user adds to it, ``{index: 0 or 1}``."""
    if not isinstance(evidence, Mapping):
        raise ParameterError(
            "`evidence` must be a mapping {variable: 0 or 1}, such as {3: 1}; "
            f"{checks.describe(evidence)} arrived."
        )
    found = dict(known)
    for key, value in evidence.items():
        index = checks.integer("evidence", key)
        if not -n <= index < n:
            raise ParameterError(f"`evidence` must name variables 0 to {n - 1}; {index} arrived.")
        if not isinstance(value, (int, np.integer, np.bool_)) or value not in (0, 1):
            raise ParameterError(
                f"`evidence` must give 0 or 1 to every variable; {checks.describe(value)} arrived for {index}."
            )
        index %= n
        if found.setdefault(index, int(value)) != value:
            raise ParameterError(
                f"`evidence` contradicts what is known: variable {index} is {found[index]} already, and {int(value)} "
                "arrived."
            )
    return found


# -- configurations in the layout of the source --------------------------------------------------------------------


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
        raise SourceError(f"`y` must hold 0 and 1; {values[at]!r} arrived in {chunk.place(at)}.")
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


def total_weight(parts: Iterable[Weight]) -> Weight:
    """The weight of a configuration from those of its chunks."""
    found = list(parts)
    return Weight(sum(part.on for part in found), math.fsum(part.log_weight for part in found))
