"""Sources: what users pass in, cut into chunks. Nothing is read here but shapes."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..errors import ParameterError, SourceError
from .chunk import Chunk, Held, InDask, InFile, InParquet, InZarr, Parts
from .extras import comes_from, require

CHUNK = 1 << 20  # entries: 8 MB, long beside the cost of a call and short beside the memory of a laptop
KINDS = (
    "a NumPy array or memmap, a path to .npy, .parquet or .zarr, a zarr or dask array, or a list of chunks or a "
    "function that returns an iterator of chunks"
)


class Source:
    """A long vector in chunks.

    Attributes
    ----------
    kind : str
        ``"array"``, ``"npy"``, ``"parquet"``, ``"zarr"``, ``"dask"`` or ``"iterable"``.
    chunks : sequence of Chunk
        All of them in order; those of an iterable know their place but hold no numbers.
    dtype : dtype
        Of the entries.
    original
        What the user passed.
    """

    def __init__(
        self, kind: str, chunks: Sequence[Chunk], dtype: np.dtype[Any], original: Any, label: str = "source"
    ) -> None:
        self.kind, self.chunks, self.dtype, self.original, self.label = kind, chunks, dtype, original, label
        self.length = chunks[-1].stop if len(chunks) else 0
        self._ends = [chunk.stop for chunk in chunks]

    def walk(self, numbers: Sequence[int] | None = None) -> Iterator[Chunk]:
        """Chunks that can be loaded, in order; `numbers` (increasing) picks some of them."""
        return iter(self.chunks if numbers is None else [self.chunks[i] for i in numbers])

    def part(self, number: int, start: int, stop: int) -> Chunk:
        """Some entries as a chunk of their own."""
        first = int(np.searchsorted(self._ends, start, side="right"))
        last = int(np.searchsorted(self._ends, stop, side="left"))
        return Parts(number, start, stop, self.chunks[first : last + 1])

    @property
    def sizes(self) -> list[int]:
        return [chunk.size for chunk in self.chunks]

    @property
    def travels(self) -> bool:
        """Whether chunks can be sent to other processes without their numbers."""
        return self.kind in ("npy", "parquet", "zarr", "dask")

    def cut_like(self, other: Source) -> Source:
        """The same entries in the chunks of another source of the same length."""
        if self.length != other.length:
            raise ParameterError(
                f"`{self.label}` must have as many entries as `{other.label}`, {other.length:,}; "
                f"{self.length:,} arrived."
            )
        return (
            self if self.sizes == other.sizes else recut(self, [0, *(chunk.stop for chunk in other.chunks)])
        )


class Iterated(Source):
    """Chunks that come one after the other, from an iterable that can be started again."""

    def __init__(self, start: Callable[[], Iterator[Any]], original: Any, label: str) -> None:
        self._start = start
        places, position, dtype = [], 0, None
        for number, values in enumerate(start()):
            array = _vector(values, number, label)
            dtype = array.dtype if dtype is None else dtype
            if array.dtype != dtype:
                raise SourceError(
                    f"`{label}` must have one dtype; chunk {number:,} has {array.dtype} and those before "
                    f"{dtype}. Convert them to one."
                )
            places.append(Held(number, position, position + len(array), array[:0]))
            position += len(array)
        super().__init__("iterable", places, dtype or np.dtype(np.float64), original, label)

    def walk(self, numbers: Sequence[int] | None = None) -> Iterator[Chunk]:
        wanted = range(len(self.chunks)) if numbers is None else numbers
        chosen, seen = set(wanted), -1
        for seen, values in enumerate(self._start()):
            if seen >= len(self.chunks):
                raise self._changed(f"more than the {len(self.chunks):,} chunks of the first time arrived")
            place = self.chunks[seen]
            array = _vector(values, seen, self.label)
            if len(array) != place.size:
                raise self._changed(
                    f"chunk {seen:,} has {len(array):,} entries and had {place.size:,} the first time"
                )
            if seen in chosen:
                yield Held(seen, place.start, place.stop, array)
        if seen + 1 < len(self.chunks):
            raise self._changed(f"{seen + 1:,} chunks arrived, and {len(self.chunks):,} the first time")

    def part(self, number: int, start: int, stop: int) -> Chunk:
        raise ParameterError(
            f"`{self.label}` comes as an iterable, whose chunks cannot be cut anew, but its chunks must match "
            "those of the other columns. Pass chunks of the same sizes."
        )

    def _changed(self, what: str) -> SourceError:
        return SourceError(
            f"`{self.label}` must give the same chunks every time it is read, but {what}. "
            "Pass a list, or a function that returns a fresh iterator."
        )


def as_source(
    value: Any, *, label: str = "source", column: str | None = None, chunk_size: int | None = None
) -> Source:
    """Read the argument of a model: see :data:`KINDS`."""
    if isinstance(value, Source):
        return value
    step = _step(chunk_size)
    if column is not None and not isinstance(column, str):
        raise ParameterError(
            f"`column` must be the name of a column of a Parquet file, or None; {checks.describe(column)} arrived."
        )
    if isinstance(value, (str, os.PathLike)):
        return _from_path(Path(value), label, column, step)
    if isinstance(value, np.ndarray):
        checks.unmasked(f"`{label}`", value)
        return _from_array(value, label, step)
    if comes_from(value, "dask") and hasattr(value, "to_delayed"):
        return _from_dask(value, label)
    if comes_from(value, "zarr") and hasattr(value, "chunks"):
        return _from_zarr(value, label, step)
    if callable(value):
        return Iterated(lambda: _fresh(value, label), value, label)
    if isinstance(value, (list, tuple)) and not any(np.ndim(part) for part in value[:1]):
        given = np.asarray(value)
        return _from_array(given.astype(np.float64) if given.dtype.kind in "iub" else given, label, step)
    if hasattr(value, "__array__") and np.asarray(value).ndim == 1:  # a column of pandas or Arrow
        return _from_array(checks.unmasked(f"`{label}`", value), label, step)
    try:
        first = iter(value)
    except TypeError:
        raise ParameterError(f"`{label}` must be {KINDS}; {checks.describe(value)} arrived.") from None
    if first is value:
        raise ParameterError(
            f"`{label}` must be something that can be read more than once, but an iterator arrived, which ends "
            "after one pass. Pass a list of chunks, or a function that returns a fresh iterator."
        )
    return Iterated(lambda: iter(value), value, label)


def _fresh(function: Any, label: str) -> Iterator[Any]:
    found = function()
    try:
        return iter(found)
    except TypeError:
        raise SourceError(
            f"`{label}` must be {KINDS}; the function returned {checks.describe(found)}, which has no chunks."
        ) from None


def _step(chunk_size: int | None) -> int:
    if chunk_size is None:
        return CHUNK
    step = checks.integer("chunk_size", chunk_size)
    if step < 1:
        raise ParameterError(
            f"`chunk_size` must be a number of entries, at least 1; {step} arrived. The default is {CHUNK:,}."
        )
    return step


def _vector(values: Any, number: int, label: str) -> NDArray[Any]:
    array = checks.unmasked(f"Chunk {number:,} of `{label}`", values)
    if array.ndim != 1:
        raise SourceError(
            f"`{label}` must consist of one-dimensional chunks; chunk {number:,} has shape {array.shape}."
        )
    return array


def _one_axis(shape: tuple[int, ...], label: str) -> int:
    if len(shape) != 1:
        raise ParameterError(
            f"`{label}` must have one axis, the variables; an array of shape {tuple(shape)} arrived. "
            "Reshape it, or make one model per row."
        )
    return int(shape[0])


def _places(length: int, step: int) -> Iterator[tuple[int, int, int]]:
    for number, start in enumerate(range(0, length, step)):
        yield number, start, min(start + step, length)


# -- kinds ---------------------------------------------------------------------------------------------------------


def _from_array(array: NDArray[Any], label: str, step: int) -> Source:
    length = _one_axis(array.shape, label)
    place = _file_of(array)
    if place is not None:
        path, offset = place
        files = [InFile(*at, path, offset, array.dtype.str) for at in _places(length, step)]
        return Source("npy", files, array.dtype, array, label)
    held = [Held(i, a, b, array[a:b]) for i, a, b in _places(length, step)]
    return Source("array", held, array.dtype, array, label)


def _file_of(array: NDArray[Any]) -> tuple[str, int] | None:
    """The file behind a memory-mapped array and the offset of its first entry, if its bytes are all there."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and not (
        isinstance(owner, np.memmap) and isinstance(owner.base, mmap.mmap)
    ):
        owner = owner.base
    if not isinstance(owner, np.memmap) or owner.filename is None or owner.mode == "c":
        return None
    if not array.flags.c_contiguous or not os.path.exists(owner.filename):
        return None
    start = owner.offset + array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    return str(os.path.abspath(owner.filename)), int(start)


def _from_path(path: Path, label: str, column: str | None, step: int) -> Source:
    ending = path.suffix.lower()
    if ending not in (".npy", ".parquet", ".pq", ".zarr"):
        raise ParameterError(
            f"`{label}` must name a file that ends in .npy, .parquet or .zarr, which says its format; "
            f"{str(path)!r} arrived."
        )
    if not path.exists():
        raise ParameterError(f"`{label}`: cannot read {path}: there is no such file.")
    if ending == ".zarr":
        return _from_zarr(require("zarr", "Reading Zarr arrays").open(str(path), mode="r"), label, step)
    if ending != ".npy":
        return _from_parquet(path, label, column)
    try:
        mapped = np.lib.format.open_memmap(path, mode="r")
    except ValueError as error:
        if path.stat().st_size and _is_empty_npy(path):
            return Source("npy", [], np.load(path).dtype, path, label)
        raise ParameterError(f"`{label}`: {path} is not a readable .npy file: {error}.") from None
    found = _from_array(mapped, label, step)
    return Source("npy", found.chunks, found.dtype, path, label)


def _is_empty_npy(path: Path) -> bool:
    """A vector without entries cannot be mapped."""
    try:
        return bool(np.load(path, allow_pickle=False).shape == (0,))
    except ValueError:
        return False


def _from_parquet(path: Path, label: str, column: str | None) -> Source:
    pyarrow = require("pyarrow", "Reading Parquet files")
    parquet = require("pyarrow.parquet", "Reading Parquet files")
    try:
        with parquet.ParquetFile(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
    except pyarrow.ArrowException as error:
        raise ParameterError(f"`{label}`: {path} is not a readable Parquet file: {error}.") from None
    name = _column(schema.names, path, label, column)
    try:
        dtype = np.dtype(schema.field(name).type.to_pandas_dtype())
    except (TypeError, NotImplementedError):
        dtype = np.dtype(object)
    chunks: list[InParquet] = []
    start = 0
    for group in range(metadata.num_row_groups):
        stop = start + metadata.row_group(group).num_rows
        chunks.append(InParquet(len(chunks), start, stop, str(path.absolute()), name, group))
        start = stop
    return Source("parquet", chunks, dtype, path, label)


def _column(names: list[str], path: Path, label: str, column: str | None) -> str:
    listed = ", ".join(f"`{name}`" for name in names[:12])
    if column is None:
        if len(names) == 1:
            return names[0]
        if "logit" in names and label == "source":
            return "logit"
        raise ParameterError(
            f"`{label}`: {path} has the columns {listed}; say which one to use: column='...'."
        )
    if column not in names:
        raise ParameterError(f"`{label}`: {path} has no column `{column}`; its columns are {listed}.")
    return column


def _from_zarr(array: Any, label: str, step: int) -> Source:
    if not hasattr(array, "chunks"):
        raise ParameterError(
            f"`{label}` must be a Zarr array; {checks.describe(array)} arrived. Name one of its arrays."
        )
    length = _one_axis(array.shape, label)
    stored = int(array.chunks[0])
    step = max(1, step // stored) * stored  # whole chunks of the store, each read once
    chunks = [InZarr(*at, array) for at in _places(length, step)]
    return Source("zarr", chunks, np.dtype(array.dtype), array, label)


def _from_dask(array: Any, label: str) -> Source:
    _one_axis(array.shape, label)
    sizes = array.chunks[0]
    if any(size != size for size in sizes):
        raise ParameterError(
            f"`{label}` is a dask array whose chunks have unknown sizes. Call its `compute_chunk_sizes()` first."
        )
    ends = np.cumsum([0, *sizes]).tolist()
    blocks = array.to_delayed().reshape(-1)
    chunks = [InDask(i, ends[i], ends[i + 1], block) for i, block in enumerate(blocks)]
    return Source("dask", chunks, np.dtype(array.dtype), array, label)


# -- other boundaries ----------------------------------------------------------------------------------------------


def recut(source: Source, bounds: Sequence[int]) -> Source:
    """The same entries in other chunks: ``bounds`` are where chunks begin, and the end."""
    chunks = [source.part(number, int(a), int(b)) for number, (a, b) in enumerate(pairwise(bounds))]
    kind = source.kind if source.kind != "dask" else "zarr"
    return Source(kind, chunks, source.dtype, source.original, source.label)
