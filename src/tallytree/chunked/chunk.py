"""Chunks: where a stretch of a source lies, how a task gets hold of its numbers and sees that they are the same again.

A chunk that comes from a file is a path and two numbers; it travels to other processes and is opened there. Files
are read, not mapped: mapped pages would count as memory of the process. Every pass takes the fingerprint of every
chunk. The first one is remembered, and a later pass that meets another names the chunk: sums of different data must not
be put together.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from importlib import import_module
from threading import current_thread, main_thread
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..arrays import Float64, Ints
from ..checks.sums import log_odds
from ..engine import masks
from ..errors import ParameterError, SourceError
from ..memo import lru

# -- optional packages ---------------------------------------------------------------------------------------------


_EXTRA = {"dask": "dask", "distributed": "dask", "pandas": "dask", "zarr": "zarr", "pyarrow": "parquet"}


def require(module: str, purpose: str) -> Any:
    """A module, or the command that installs it."""
    package = module.partition(".")[0]
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] != package:
            raise
        raise ParameterError(
            f'{purpose} needs {package}, which is not installed. Run: pip install "tallytree[{_EXTRA[package]}]"'
        ) from None
    if package == "pyarrow":
        _load_pandas()
    return found


@lru(1)
def _load_pandas() -> None:
    """Let pyarrow import pandas, as it does with its first array: an interrupt meanwhile would be lost, so it waits."""
    ours = current_thread() is main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    interrupts: list[Any] = []
    if ours:
        signal.signal(signal.SIGINT, lambda *arrived: interrupts.append(arrived))
    try:
        import_module("pyarrow").array([])
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    if interrupts:
        raise KeyboardInterrupt


def comes_from(value: Any, package: str) -> bool:
    """Whether an object is of a class of this package, without importing it."""
    return any(kind.__module__.partition(".")[0] == package for kind in type(value).__mro__)


# -- fingerprints --------------------------------------------------------------------------------------------------


_ROW = 1024  # words
_BLOCK = 64  # rows: half a megabyte, so that the second sum finds the words in the cache


def fingerprint(values: NDArray[Any]) -> int:
    """64 bits that differ, for all practical purposes, between arrays whose bytes differ; at about the speed of memory.

    The bytes are laid out as rows of words. The sums of all rows and of all columns, modulo 2^64, are hashed: a change
    confined to one row or one column, and any exchange of two words, changes at least one of the sums.
    """
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    whole = len(data) - len(data) % (8 * _ROW)
    words = data[:whole].view(np.uint64).reshape(-1, _ROW)
    across, down = np.empty(len(words), np.uint64), np.zeros(_ROW, np.uint64)
    for first in range(0, len(words), _BLOCK):
        block = words[first : first + _BLOCK]
        np.add.reduce(block, axis=1, out=across[first : first + len(block)])
        down += np.add.reduce(block, axis=0)
    digest = blake2b(digest_size=8)
    for part in (np.int64(len(data)), across, down, data[whole:]):
        digest.update(np.ascontiguousarray(part).data)
    return int.from_bytes(digest.digest(), "little")


Values = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Entries ``start`` to ``stop`` of a source, its chunk number ``number``."""

    number: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.stop - self.start

    def place(self, at: int) -> str:
        """Where an entry of the chunk lies, for messages."""
        return f"chunk {self.number:,} at position {at:,} (entry {self.start + at:,})"

    def load(self) -> Values:
        """The entries, in the dtype of the source."""
        raise NotImplementedError

    def stretch(self, low: int, high: int) -> Values:
        """The entries from `low` to `high`, both counted in the source."""
        return self.load()[low - self.start : high - self.start]


@dataclass(frozen=True, eq=False)
class Held(Chunk):
    """A chunk whose numbers are in memory."""

    values: Values

    def load(self) -> Values:
        return self.values


@dataclass(frozen=True, eq=False)
class InFile(Chunk):
    """A stretch of a flat binary file, such as ``.npy``."""

    path: str
    offset: int  # of entry 0, in bytes
    dtype: str

    def load(self) -> Values:
        dtype = np.dtype(self.dtype)
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset + self.start * dtype.itemsize)
            values = np.fromfile(file, dtype, self.size)
        if len(values) < self.size:
            raise SourceError(
                f"{self.path} ends within chunk {self.number:,}: entries {self.start:,} to {self.stop - 1:,} were "
                f"required and {len(values):,} arrived. The file has become shorter since it was opened."
            )
        return values

    def stretch(self, low: int, high: int) -> Values:
        return replace(self, start=low, stop=high).load()


@dataclass(frozen=True, eq=False)
class InParquet(Chunk):
    """A row group of a column of a Parquet file."""

    path: str
    column: str
    row_group: int

    def load(self) -> Values:
        parquet = require("pyarrow.parquet", "Reading Parquet files")
        with parquet.ParquetFile(self.path) as file:
            found = file.read_row_group(self.row_group, columns=[self.column]).column(0)
        if found.null_count:
            row = int(np.argmax(found.is_null().to_numpy()))
            raise SourceError(
                f"{self.path}: column `{self.column}` must not have empty cells; one arrived in chunk "
                f"{self.number:,} at position {row:,} (row {self.start + row:,} of the file, counted from 0). "
                "Use log-odds 0 where nothing is known."
            )
        return np.asarray(found.to_numpy())


@dataclass(frozen=True, eq=False)
class InZarr(Chunk):
    """A stretch of a Zarr array; the array knows its store and travels without data."""

    array: Any

    def load(self) -> Values:
        return np.asarray(self.array[self.start : self.stop])

    def stretch(self, low: int, high: int) -> Values:
        return np.asarray(self.array[low:high])


@dataclass(frozen=True, eq=False)
class InDask(Chunk):
    """A block of a Dask array. In a graph the block is a dependency of the task."""

    block: Any  # delayed

    def load(self) -> Values:
        return np.asarray(self.block.compute(scheduler="synchronous"))


@dataclass(frozen=True, eq=False)
class Parts(Chunk):
    """A chunk put together from pieces of others."""

    others: Sequence[Chunk]

    def load(self) -> Values:
        pieces = [
            other.stretch(max(self.start, other.start), min(self.stop, other.stop)) for other in self.others
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


# -- readings: what a task does first ------------------------------------------------------------------------------


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
    ``stored`` are the entries as they came from the source.
    """

    reading: Reading
    values: NDArray[Any]
    fingerprint: int
    constant: float
    stored: NDArray[Any]

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
        return Loaded(reading, values, mark, 0.0, stored)
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
    return Loaded(reading, values, mark, constant, stored)


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
    return log_odds(probs.astype(np.float64))


# -- evidence ------------------------------------------------------------------------------------------------------


def more_evidence(known: Mapping[int, int], evidence: Mapping[int, int], n: int) -> dict[int, int]:
    """What is known of n variables together with what a user adds to it, ``{index: 0 or 1}``."""
    checks.instance("evidence", evidence, Mapping, " {variable: 0 or 1}, such as {3: 1}")
    found = dict(known)
    for key, value in evidence.items():
        index = checks.integer("evidence", key, -n, n - 1, "the number of a variable")
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


def states_of(chunk: Chunk) -> NDArray[np.bool_]:
    """The states of a chunk of `y`: 0 and 1 in any dtype."""
    values = chunk.load()
    on = np.asarray(values == 1)
    wrong = ~on & np.asarray(values != 0)
    if wrong.any():
        at = int(np.argmax(wrong))
        raise SourceError(f"`y` must hold 0 and 1; {values[at]!r} arrived in {chunk.place(at)}.")
    return on


def weigh(loaded: Loaded) -> tuple[int, float]:
    """Task: how many variables are on in the configuration beside a chunk, and its log-weight."""
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
    return int(np.count_nonzero(on)), weight
