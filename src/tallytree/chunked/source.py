"""Sources: what users pass in, cut into chunks. Nothing is read here but shapes."""

from __future__ import annotations

import difflib
import math
import mmap
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..checks.groups import label_column
from ..errors import ParameterError, SourceError
from ..memo import cached
from .chunk import Chunk, Held, InDask, InFile, InParquet, InZarr, Parts, comes_from, require

_HEADER = 4096  # bytes: the header of a .npy file is shorter
CHUNK = 1 << 20  # entries: 8 MB, long beside the cost of a call and short beside the memory of a laptop
KINDS = (
    "a NumPy array or memmap, a path to .npy, .parquet, .zarr or a folder of Parquet files, a zarr or dask array, a "
    "dask series or data frame, or a list of chunks or a function that returns an iterator of chunks"
)


class Source:
    """A long vector in chunks.

    Attributes
    ----------
    kind : str
        ``"array"``, ``"npy"``, ``"parquet"``, ``"zarr"``, ``"dask"`` or ``"iterable"``.
    chunks : sequence of Chunk
        All of them in order; those of an iterable know their place but hold no numbers. Blocks of Dask whose lengths
        nobody knows are counted when this is asked for.
    dtype : dtype
        Of the entries.
    original
        What the user passed.
    index
        Of the Dask data frame that the numbers are a column of, or None.
    blocks
        Of Dask, as delayed objects, or None.
    count
        Computes delayed objects, for blocks that have to be counted.
    """

    index: Any = None
    blocks: Sequence[Any] | None = None
    count: Callable[[list[Any]], Sequence[Any]] | None = None

    def __init__(
        self, kind: str, chunks: Any, dtype: np.dtype[Any], original: Any, label: str = "source"
    ) -> None:
        self.kind, self.dtype, self.original, self.label = kind, dtype, original, label
        self._given = chunks  # or how to find them

    @cached
    def chunks(self) -> Sequence[Chunk]:
        found: Sequence[Chunk] = self._given(self) if callable(self._given) else self._given
        return found

    @cached
    def _ends(self) -> list[int]:
        return [chunk.stop for chunk in self.chunks]

    @property
    def length(self) -> int:
        return self._ends[-1] if self._ends else 0

    @property
    def counted(self) -> bool:
        """Whether it is known where chunks begin and end."""
        return "chunks" in self.__dict__ or not callable(self._given)

    def measured_by(self, other: Source) -> None:
        """Blocks of Dask are as long as those of another source, which count for both."""
        self._given = partial(_as_long_as, other)

    def walk(self, numbers: Sequence[int] | None = None) -> Iterator[Chunk]:
        """Chunks that can be loaded, in order; `numbers` (increasing) picks some of them."""
        return iter(self.chunks if numbers is None else [self.chunks[i] for i in numbers])

    def part(self, number: int, start: int, stop: int) -> Chunk:
        """Some entries as a chunk of their own."""
        first = int(np.searchsorted(self._ends, start, side="right"))
        last = int(np.searchsorted(self._ends, stop, side="left"))
        return Parts(number, start, stop, self.chunks[min(first, last) : last + 1])

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
        ends = [chunk.stop for chunk in other.chunks]
        return self if self._ends == ends else recut(self, [0, *ends])


class Iterated(Source):
    """Chunks that come one after the other, from an iterable or a function that returns one, started anew each time."""

    def __init__(self, original: Any, label: str) -> None:
        self.original, self.label = original, label
        places, position = [], 0
        dtype: np.dtype[Any] | None = None
        for number, array in enumerate(self._arrays()):
            dtype = dtype or array.dtype
            if array.dtype != dtype and label != "groups":  # kinds of ids are compared when they are read
                raise SourceError(
                    f"`{label}` must have one dtype; chunk {number:,} has {array.dtype} and those before "
                    f"{dtype}. Convert them to one."
                )
            places.append(Held(number, position, position + len(array), array[:0]))
            position += len(array)
        super().__init__("iterable", places, dtype or np.dtype(np.float64), original, label)

    def _arrays(self) -> Iterator[NDArray[Any]]:
        given = self.original() if callable(self.original) else self.original
        try:
            chunks = enumerate(given)
        except TypeError:
            raise SourceError(
                f"`{self.label}` must be {KINDS}; the function returned {checks.describe(given)}, which has no chunks."
            ) from None
        for number, values in chunks:
            array = _column_of(self.label, values, f"Chunk {number:,} of `{self.label}`")
            if array.ndim != 1:
                raise SourceError(
                    f"`{self.label}` must consist of one-dimensional chunks; chunk {number:,} has shape {array.shape}."
                )
            yield array

    def walk(self, numbers: Sequence[int] | None = None) -> Iterator[Chunk]:
        chosen = set(range(len(self.chunks)) if numbers is None else numbers)
        seen = -1
        for seen, array in enumerate(self._arrays()):
            if seen >= len(self.chunks):
                raise self._changed(f"more than the {len(self.chunks):,} chunks of the first time arrived")
            place = self.chunks[seen]
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
    step = CHUNK if chunk_size is None else checks.integer("chunk_size", chunk_size, 1)
    if column is not None:
        checks.instance("column", column, str, ", the name of a column of a Parquet file")
    if isinstance(value, (str, os.PathLike)):
        return _from_path(Path(value), label, column, step)
    if isinstance(value, np.ndarray):
        checks.unmasked(f"`{label}`", value)
        return _from_array(value, label, step)
    if comes_from(value, "dask"):
        return (_from_frame if hasattr(value, "to_dask_array") else _from_dask)(value, label, column)
    if comes_from(value, "zarr") and hasattr(value, "chunks"):
        return _from_zarr(value, label, step)
    if callable(value):
        return Iterated(value, label)
    if isinstance(value, (list, tuple)) and not any(np.ndim(part) for part in value[:1]):
        given = _column_of(label, value)
        return _from_array(given.astype(np.float64) if given.dtype.kind in "iub" else given, label, step)
    if hasattr(value, "__array__") and np.asarray(value).ndim == 1:  # a column of pandas or Arrow
        return _from_array(_column_of(label, value), label, step)
    if not isinstance(value, Iterable) and not hasattr(value, "__getitem__"):
        raise ParameterError(f"`{label}` must be {KINDS}; {checks.describe(value)} arrived.")
    if isinstance(value, Iterator):
        raise ParameterError(
            f"`{label}` must be something that can be read more than once, but an iterator arrived, which ends "
            "after one pass. Pass a list of chunks, or a function that returns a fresh iterator."
        )
    return Iterated(value, label)


def _column_of(label: str, values: Any, called: str | None = None) -> NDArray[Any]:
    """What the user passed as an array; ids keep their types, other lists become numbers."""
    return (label_column if label == "groups" else checks.unmasked)(called or f"`{label}`", values)


def _require_one_axis(shape: tuple[int, ...], label: str) -> None:
    if len(shape) != 1:
        raise ParameterError(
            f"`{label}` must have one axis, the variables; an array of shape {tuple(shape)} arrived. "
            "Reshape it, or make one model per row."
        )


def _places(length: int, step: int) -> Iterator[tuple[int, int, int]]:
    for number, start in enumerate(range(0, length, step)):
        yield number, start, min(start + step, length)


# -- kinds ---------------------------------------------------------------------------------------------------------


def _from_array(array: NDArray[Any], label: str, step: int) -> Source:
    _require_one_axis(array.shape, label)
    length, place = len(array), _file_of(array)
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
    folder = path.is_dir() and ending != ".zarr"
    if not folder and ending not in (".npy", ".parquet", ".pq", ".zarr"):
        raise ParameterError(
            f"`{label}` must name a file that ends in .npy, .parquet or .zarr, which says its format, or a folder of "
            f"Parquet files; {str(path)!r} arrived."
        )
    if not path.exists():
        raise ParameterError(f"`{label}`: cannot read {path}: there is no such file.")
    if ending == ".zarr":
        zarr = require("zarr", "Reading Zarr arrays")
        with _readable(label, path, "Zarr array", OSError, ValueError, KeyError):
            opened = zarr.open(str(path), mode="r")
        return _from_zarr(opened, label, step)
    if folder or ending != ".npy":
        return _from_parquet(path, label, column)
    with _readable(label, path, ".npy file", OSError, ValueError):
        try:
            mapped: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
        except ValueError:
            if path.stat().st_size > _HEADER:
                raise
            with open(path, "rb") as file:  # a vector without entries, which cannot be mapped
                mapped = np.lib.format.read_array(file, allow_pickle=False)
    found = _from_array(mapped, label, step)
    return Source("npy", found.chunks, found.dtype, path, label)


@contextmanager
def _readable(label: str, path: Path, what: str, *errors: type[Exception]) -> Iterator[None]:
    """Say of a file that cannot be read what it should have been."""
    try:
        yield
    except errors as error:
        raise ParameterError(f"`{label}`: {path} is not a readable {what}: {error}.") from None


def _from_parquet(path: Path, label: str, column: str | None) -> Source:
    """A file, or the files of a folder in the order of their names, with numbers in these in their own order."""
    pyarrow = require("pyarrow", "Reading Parquet files")
    parquet = require("pyarrow.parquet", "Reading Parquet files")
    chunks: list[InParquet] = []
    kinds: dict[Any, Path] = {}
    start = 0
    for part in _parts_of(path, label) if path.is_dir() else [path]:
        failures = (OSError, pyarrow.ArrowException)
        with _readable(label, part, "Parquet file", *failures), parquet.ParquetFile(part) as file:
            schema, metadata = file.schema_arrow, file.metadata
        name = _column(schema.names, part, label, column)
        kinds.setdefault(schema.field(name).type, part)
        for group in range(metadata.num_row_groups):
            stop = start + metadata.row_group(group).num_rows
            chunks.append(InParquet(len(chunks), start, stop, str(part.absolute()), name, group))
            start = stop
    if len(kinds) > 1:
        (one, here), (other, there) = list(kinds.items())[:2]
        raise ParameterError(
            f"`{label}`: the files of {path} must have columns `{name}` of one type; {here.name} has {one} and "
            f"{there.name} has {other}. Write them with one schema."
        )
    dtype: np.dtype[Any]
    try:
        dtype = np.dtype(next(iter(kinds)).to_pandas_dtype())
    except (TypeError, NotImplementedError):
        dtype = np.dtype(object)
    return Source("parquet", chunks, dtype, path.absolute(), label)


def _parts_of(folder: Path, label: str) -> list[Path]:
    """The Parquet files of a folder, part 2 before part 10; names that begin with ``_`` or ``.`` are no parts."""
    found = [
        path for path in folder.iterdir() if path.suffix in (".parquet", ".pq") and path.name[0] not in "._"
    ]
    if not found:
        raise ParameterError(f"`{label}`: the folder {folder} has no files that end in .parquet.")
    return sorted(
        found, key=lambda path: [int(s) if s.isdigit() else s for s in re.split(r"(\d+)", path.name)]
    )


def _column(names: list[str], path: Path | str, label: str, column: str | None) -> str:
    if column is not None:
        require_column(f"`{label}`: {path}", column, names)
        return column
    if len(names) == 1:
        return names[0]
    if "logit" in names and label == "source":
        return "logit"
    raise ParameterError(
        f"`{label}`: {path} has the columns {quoted(names)}; say which one to use: column='...'."
    )


def require_column(where: str, name: str, names: Sequence[str]) -> None:
    """Refuse a column that a file does not have, with the nearest one that it has."""
    if name in names:
        return
    folded = {known.strip().casefold(): known for known in names}
    near = difflib.get_close_matches(name.strip().casefold(), folded, n=1)
    hint = f" Did you mean `{folded[near[0]]}`?" if near else ""
    raise ParameterError(f"{where} has no column `{name}`; its columns are {quoted(names)}.{hint}")


def quoted(names: Sequence[str], most: int = 12) -> str:
    """Column names as a list for a message."""
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _from_zarr(array: Any, label: str, step: int) -> Source:
    if not hasattr(array, "chunks"):
        raise ParameterError(
            f"`{label}` must be a Zarr array; {checks.describe(array)} arrived. Name one of its arrays."
        )
    _require_one_axis(array.shape, label)
    length, stored = int(array.shape[0]), int(array.chunks[0])
    step = max(1, step // stored) * stored  # whole chunks of the store, each read once
    chunks = [InZarr(*at, array) for at in _places(length, step)]
    return Source("zarr", chunks, np.dtype(array.dtype), array, label)


def _from_frame(frame: Any, label: str, column: str | None) -> Source:
    """A series of Dask, or a column of its data frames."""
    series = frame
    if frame.ndim > 1:
        series = frame[_column([str(name) for name in frame.columns], "the data frame", label, column)]
    # Partitions as they are: Dask joins small ones where it is left to improve the graph, and the index would not fit.
    parts = [part.to_numpy() for part in series.to_delayed(optimize_graph=False)]
    dtype = require("pandas", "Data frames of Dask").Series([], dtype=series.dtype).to_numpy().dtype
    source = _of_blocks(parts, [math.nan] * len(parts), dtype, frame, label)
    source.index = series.index
    return source


def _from_dask(array: Any, label: str, column: str | None = None) -> Source:
    if not hasattr(array, "chunks"):
        raise ParameterError(
            f"`{label}` must be a dask array, series or data frame; {checks.describe(array)} arrived."
        )
    _require_one_axis(array.shape, label)
    return _of_blocks(
        array.to_delayed().reshape(-1).tolist(), array.chunks[0], np.dtype(array.dtype), array, label
    )


def _of_blocks(
    blocks: Sequence[Any], sizes: Sequence[float], dtype: np.dtype[Any], original: Any, label: str
) -> Source:
    """Blocks of Dask; a size of NaN is not known."""
    known = not any(map(math.isnan, sizes))
    source = Source("dask", _in_dask(blocks, sizes) if known else _counted, dtype, original, label)
    source.blocks = blocks
    return source


def _in_dask(blocks: Sequence[Any], sizes: Sequence[Any]) -> list[Chunk]:
    ends = np.cumsum([0, *sizes]).astype(np.int64).tolist()
    return [InDask(i, *at, block) for i, (at, block) in enumerate(zip(pairwise(ends), blocks))]


def _as_long_as(other: Source, source: Source) -> Sequence[Chunk]:
    return _in_dask(source.blocks or (), other.sizes)


def _counted(source: Source) -> Sequence[Chunk]:
    """The blocks of a source whose sizes are not known, counted: each is made for that, and again when it is read."""
    dask, blocks = require("dask", "Dask arrays"), source.blocks or ()
    lengths = [dask.delayed(len)(block) for block in blocks]
    return _in_dask(blocks, source.count(lengths) if source.count else dask.compute(*lengths))


# -- other boundaries ----------------------------------------------------------------------------------------------


def recut(source: Source, bounds: Sequence[int]) -> Source:
    """The same entries in other chunks: ``bounds`` are where chunks begin, and the end."""
    chunks = [source.part(number, int(a), int(b)) for number, (a, b) in enumerate(pairwise(bounds))]
    kind = source.kind if source.kind != "dask" else "zarr"
    return Source(kind, chunks, source.dtype, source.original, source.label)
