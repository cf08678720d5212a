"""Chunked models from every kind of source, with columns of group ids as people have them, odd ones too.

Missing ids, ids of two types, a column of another length, pieces of unknown or no length: an answer that agrees with
enumeration, or an error of the package; never another answer or another error.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tallytree as tt
from oracle_states import Truth

from .binary import Binary, listed, truth_of
from .compare import Report, close_log_partition, close_log_probs, close_logits, close_marginals
from .numbers import LOGITS, only, size_between

INF = math.inf
SOURCES = ("array", "pieces", "function", "npy", "parquet", "dask", "dask of unknown chunks", "zarr")
# A name of the potential, how it is made, and its log-table for n variables.
POTENTIALS: dict[str, tuple[Callable[[], Any], Callable[[int], np.ndarray]]] = {
    "exactly(1)": (lambda: tt.exactly(1), lambda n: only(n, 1) if n else np.array([-INF])),
    "at_most(1)": (lambda: tt.at_most(1), lambda n: only(n, *range(min(n, 1) + 1))),
    "at_least(1)": (lambda: tt.at_least(1), lambda n: only(n, *range(1, n + 1))),
    "even": (lambda: tt.parity("even"), lambda n: only(n, *range(0, n + 1, 2))),
    "geometric(0.3)": (lambda: tt.geometric(0.3), lambda n: np.arange(n + 1) * math.log(0.3)),
}


def _texts(ids: np.ndarray) -> list[str]:
    return [f"g{i}" for i in ids]


# Columns of ids: what they are made of integers by, and whether they are a column of ids at all.
COLUMNS: dict[str, tuple[Callable[[np.ndarray], Any], bool]] = {
    "integers": (lambda ids: ids, True),
    "bytes of integers": (lambda ids: ids.astype(np.uint8), True),
    "negative": (lambda ids: ids - 5, True),
    "text": (lambda ids: np.array(_texts(ids)), True),
    "objects": (lambda ids: np.array(_texts(ids), object), True),
    "bytes": (lambda ids: np.array([t.encode() for t in _texts(ids)], object), True),
    "numbers as text": (lambda ids: np.array([str(i) for i in ids], object), True),
    "None": (lambda ids: np.array([None, *_texts(ids)[1:]], object), False),
    "NaN among text": (lambda ids: np.array([math.nan, *_texts(ids)[1:]], object), False),
    "NaN": (lambda ids: np.where(np.arange(len(ids)) == 0, math.nan, ids), False),
    "text that says nan": (lambda ids: np.array(["nan", *_texts(ids)[1:]], object), True),
    "1 and '1'": (lambda ids: np.array([1, *("1" for _ in ids[1:])], object), False),
    "b'a' and 'a'": (lambda ids: np.array([b"a", *("a" for _ in ids[1:])], object), False),
    "one too few": (lambda ids: ids[1:], False),
}


@dataclass(frozen=True, eq=False)
class ChunkedCase:
    """Log-odds, ids (or no groups), the names of both potentials, and how they are handed over."""

    theta: np.ndarray
    ids: np.ndarray | None
    column: str
    source: str
    own: str
    total: str | None
    step: int

    @property
    def right(self) -> bool:
        """Whether the ids are ids; one of them alone has nothing to disagree with."""
        return self.ids is None or COLUMNS[self.column][1] or (len(self.ids) == 1 and "'" in self.column)

    def names(self) -> np.ndarray:
        """The group of every variable: numbers that are equal where the ids are."""
        assert self.ids is not None
        given = COLUMNS[self.column][0](self.ids)
        _, found = np.unique([str(name) for name in given], return_inverse=True)
        return np.asarray(found)

    def truth(self) -> Truth:
        n = len(self.theta)
        groups = []
        if self.ids is not None:
            names = self.names()
            for name in np.unique(names):
                members = tuple(np.flatnonzero(names == name).tolist())
                groups.append((members, POTENTIALS[self.own][1](len(members))))
        if self.total is not None:
            groups.append((tuple(range(n)), POTENTIALS[self.total][1](n)))
        return truth_of([Binary(self.theta, tuple(groups))], ())

    def check(self, report: Report, rng: np.random.Generator) -> None:
        with tempfile.TemporaryDirectory() as folder, report.answer("chunked"):
            try:
                answers = self._answers(Path(folder))
            except tt.InfeasibleError:
                assert self.right, "refused as impossible before the ids were looked at"
                assert not self.truth().possible, "a possible model is refused as impossible"
                return
            except tt.TallyTreeError as error:
                if self.right and self.source != "dask of unknown chunks":
                    raise AssertionError(f"refused: {error}") from error
                return
            assert self.right, f"{self.column} was taken for ids"
            truth = self.truth()
            assert truth.possible, "an impossible model has answers"
            log_partition, logits, marginals, counts = answers
            close_log_partition(log_partition, truth.log_partition)
            close_logits(logits, truth.posterior_logits)
            close_marginals(marginals, truth.posterior_logits)
            if counts is not None:
                close_log_probs(counts, truth.score_log_probs(truth.states.sum(1), len(self.theta)))

    def _answers(self, folder: Path) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray | None]:
        options: dict[str, Any] = {"chunk_size": self.step}
        source = self.theta
        column = None if self.ids is None else COLUMNS[self.column][0](self.ids)
        if self.source == "parquet" and column is not None and len(column) == len(self.theta):
            source, options = self._parquet(folder, column)
        else:
            source = _handed_over(self.theta, self.source, self.step, folder / "source")
            if self.source.startswith("dask") or self.source == "parquet":
                del options["chunk_size"]  # these have chunks of their own
            if column is not None:
                options["groups"] = column
        if self.ids is not None:
            options["group_potential"] = POTENTIALS[self.own][0]()
        total = None if self.total is None else POTENTIALS[self.total][0]()
        model = tt.ChunkedCountModel(source, total, **options)
        log_partition = model.log_partition
        counts = None if self.ids is not None and self.total is None else model.count_log_probs(window=False)
        return log_partition, whole(model.posterior_logits()), whole(model.marginals()), counts

    def _parquet(self, folder: Path, column: Any) -> tuple[Any, dict[str, Any]]:
        """Both columns in one file; what Arrow cannot write is no file of ids."""
        import pyarrow
        from pyarrow import parquet

        try:
            table = pyarrow.table({"x": self.theta, "group": pyarrow.array(column, from_pandas=True)})
        except pyarrow.ArrowException:
            return self.theta, {"groups": column}
        parquet.write_table(table, folder / "both.parquet", row_group_size=self.step)
        return folder / "both.parquet", {"column": "x", "groups": "group"}

    def code(self) -> str:
        ids = None if self.ids is None else self.ids.tolist()
        return (
            f"ChunkedCase({listed(self.theta)}, {ids}, {self.column!r}, {self.source!r}, {self.own!r}, "
            f"{self.total!r}, {self.step})"
        )


def whole(answer: Any) -> np.ndarray:
    if isinstance(answer, np.ndarray):
        return answer
    if hasattr(answer, "compute"):
        return np.asarray(answer.compute())
    return np.concatenate([np.zeros(0), *answer])


def _pieces(theta: np.ndarray, step: int) -> list[np.ndarray]:
    """An empty one among them."""
    found = [theta[i : i + step] for i in range(0, len(theta), step)]
    return [*found[:1], theta[:0], *found[1:]]


def _handed_over(theta: np.ndarray, source: str, step: int, path: Path) -> Any:
    if source == "pieces":
        return _pieces(theta, step)
    if source == "function":
        return lambda: iter(_pieces(theta, step))
    if source == "npy":
        np.save(path.with_suffix(".npy"), theta)
        return path.with_suffix(".npy")
    if source == "parquet":
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"x": theta}), path.with_suffix(".parquet"), row_group_size=step)
        return path.with_suffix(".parquet")
    if source.startswith("dask"):
        import dask.array

        lazy = dask.array.from_array(theta, chunks=step)
        return lazy if source == "dask" else lazy[lazy > -1e300] if len(theta) else lazy
    if source == "zarr":
        import zarr

        return zarr.create_array(str(path) + ".zarr", data=theta, chunks=(step,)) if len(theta) else theta
    return theta


def draw_chunked(rng: np.random.Generator) -> ChunkedCase:
    n = size_between(rng, 1, 9) if rng.random() > 0.03 else 0
    theta = LOGITS[rng.choice(len(LOGITS))](n, rng).astype(float)
    source = str(rng.choice(SOURCES, p=[0.3, 0.2, 0.14, 0.1, 0.1, 0.05, 0.05, 0.06]))
    if "unknown" not in source and rng.random() < 0.3:
        theta = np.where(rng.random(n) < 0.2, rng.choice([-INF, INF], n), theta)
    ids = rng.integers(0, rng.integers(1, 5), n) if n and rng.random() < 0.8 else None
    if ids is not None and rng.random() < 0.5:
        ids = np.sort(ids)
    column = str(rng.choice(list(COLUMNS))) if rng.random() < 0.7 else "integers"
    if source.startswith("dask"):
        ids = None  # ids in memory are refused there
    if source == "parquet" and column == "b'a' and 'a'":
        column = "bytes"  # a column of a file has one type
    names = list(POTENTIALS) if n else ["even", "geometric(0.3)"]
    total = str(rng.choice(names)) if ids is None or rng.random() < 0.7 else None
    return ChunkedCase(
        theta, ids, column, source, str(rng.choice(list(POTENTIALS))), total, int(rng.integers(1, 6))
    )
