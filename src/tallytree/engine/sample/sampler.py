"""Exact joint samples of a batch of models: small components together, large ones each by itself.

Exact samples by the compiled extension: thin calls with the contract of `ArrayForest`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import config
from ...arrays import Float64, Ints
from ...memo import cached, once
from ...structure.nested.blocks import BlockForest, cut, one_block
from ...structure.nested.count_tree import CountTree
from .. import native, thresholds
from ..answer import posterior
from ..count.flat import Core, core_of
from ..count.infer import infer
from ..ladder import DRAWN, announce, is_long
from ..problem import Problem
from .array import ArrayForest, OpenCounts, Window
from .large import LargeBlock


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


Key = tuple[int, ...]  # 128 random bits as four words, then the place where they are used

CHUNK = 1 << 27  # bytes of dense samples drawn at a time
LANES = 64  # samples that the compiled engine draws side by side


class Sampler:
    """Draws from every model of a batch; safe to share between threads.

    A few samples of small models are drawn side by side. Otherwise, and where plain numbers have too small a range, the
    upward messages of a model are made when first needed, and kept.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._shape = problem.nu.shape
        self._plan = _plan(problem.tree)

    @cached
    def impossible(self) -> NDArray[np.bool_]:
        """Which models give no configuration a positive weight, (B,)."""
        found = np.zeros(self._shape[0], bool)
        for b in self._side_by_side(np.zeros(4, np.uint32), None) if self._small else range(self._shape[0]):
            found[b] = self._model(b).impossible
        return found

    def _model(self, b: int) -> _Model:
        tables = self._problem.tables
        return once(self, b, lambda: _Model(self._plan, self._open_logits(b), tables[b % len(tables)]))

    def _open_logits(self, b: int) -> Float64:
        """Log-odds of a model, infinite where groups inside groups and far log-odds decide: as samples are seen.

        That any of these variables is as it hardly ever is has a share of :data:`~.thresholds.NEVER_DRAWN` at most.
        """
        nu: Float64 = self._problem.nu[b]
        nested = self._problem.tree.components.nested is not None
        if not (
            nested and native.present() and len(nu) > thresholds.DRAWN_IN_LANES and thresholds.extreme(nu)
        ):
            return nu
        found = infer(self._problem.take(np.array([b])), cavities=False)
        if not (found.bound[0] < 1.0 and found.log_mean[0] > -math.inf):
            return nu
        odds = posterior(nu[None], found.messages)[0]
        sure = np.abs(odds) > 1.0 + math.log(len(nu) / thresholds.NEVER_DRAWN)
        return np.asarray(np.where(sure, np.copysign(math.inf, odds), nu))

    @property
    def _small(self) -> bool:
        batch, n = self._shape
        return native.present() and batch >= thresholds.SIDE_BY_SIDE and n <= thresholds.DRAWN_IN_LANES

    def _side_by_side(self, key: NDArray[np.uint32], out: NDArray[np.uint8] | None) -> list[int]:
        """Fill `out` (count, B, D) and return the models for which this cannot be done."""
        problem = self._problem
        lost = native.draw_small(problem.tree.program, problem.nu, problem.tables, key, out)
        rest: list[int] = np.flatnonzero(~(lost <= thresholds.NEVER_DRAWN)).tolist()
        return rest

    def draw(self, count: int, rng: np.random.Generator) -> NDArray[np.uint8]:
        """Samples (count, B, D)."""
        out = np.empty((count, *self._shape), np.uint8)
        key = _key(rng)
        for chunk, first, last in self._chunks(count):
            self._fill(out[first:last], key, chunk)
        return out

    def draw_active(self, count: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Draw samples as the variables that are on: indices, and where each of the count * B samples starts."""
        batch, n = self._shape
        key = _key(rng)
        found, sums = [np.empty(0, np.int64)], [np.zeros(1, np.int64)]
        for chunk, first, last in self._chunks(count):
            dense = np.empty((last - first, batch, n), np.uint8)
            self._fill(dense, key, chunk)
            rows, active = np.nonzero(dense.reshape(-1, n).view(bool)) if n else (sums[0][:0], found[0])
            found.append(active.astype(np.int64, copy=False))
            sums.append(np.bincount(rows, minlength=(last - first) * batch))
        return np.concatenate(found), np.cumsum(np.concatenate(sums))

    def _chunks(self, count: int) -> list[tuple[int, int, int]]:
        """Chunks of samples with streams of their own: number, first and last sample. They depend on D and B only."""
        room = max(1, CHUNK // max(1, self._shape[0] * self._shape[1]))
        step = min(room - room % LANES, 4096) if room >= LANES else 1 << (room.bit_length() - 1)
        return [(i, s, min(s + step, count)) for i, s in enumerate(range(0, count, step))]

    def _fill(self, out: NDArray[np.uint8], key: Key, chunk: int) -> None:
        count, batch, n = out.shape
        models: Iterable[int] = range(batch)
        if self._small and count <= thresholds.FEW_DRAWS:
            models = self._side_by_side(_words(stream((*key, chunk))), out)
        for b in models:
            self._model(b).draw(out.reshape(count * batch, n), b + batch * np.arange(count), (*key, chunk, b))


def _plan(tree: CountTree) -> _Plan:
    return once(tree, "sampling plan", lambda: _Plan(tree))


class _Plan:
    """How a structure is drawn: one forest for all small components, one tree for each large one."""

    def __init__(self, tree: CountTree) -> None:
        large = [b for b in tree.components.flat if b.size > thresholds.DRAWN_IN_LANES]
        if large and large[0].whole:
            self.small = one_block(0)
        else:
            program, sets = tree.program, [cells[0] for bucket in large for cells in bucket.cells]
            away = program.set_node[np.searchsorted(program.set_offset, np.array(sets, np.int64))]
            self.small = cut(program, np.setdiff1d(program.roots, away), free=True)
        size = self.small.size + 1.0
        self.pairs = float((size[self.small.left] * size[self.small.right]).sum())
        self.large = [pair for bucket in large for pair in zip(bucket.variables, bucket.cells)]


def _blocks_of(variables: Ints) -> BlockForest:
    """The tree of one large component; most draws do without."""

    def make() -> BlockForest:
        return cut(tree.program, tree.program.roots, free=False)

    tree = CountTree.flat(len(variables))
    shape = once(tree, "blocks", make)
    return replace(shape, variables=variables[shape.variables])


class _Model:
    def __init__(self, plan: _Plan, nu: Float64, tables: Float64) -> None:
        if is_long(plan.pairs, DRAWN):
            pairs = OpenCounts(plan.small, nu, tables).pairs_far_from_peaks(tables)
            announce(
                pairs, DRAWN, "A sample", "the table of a group inside a group has holes or a wide range"
            )
        # A forest of nothing would only cost time.
        small = plan.small.n_blocks or len(plan.small.free) or not plan.large
        self._small: Any = make_forest(plan.small, nu, tables) if small else None
        self._large = [_large(nu, tables[cells], variables) for variables, cells in plan.large]
        parts: list[Any] = [*self._large, self._small] if small else self._large
        self.impossible = any(part.impossible for part in parts)

    def draw(self, out: NDArray[np.uint8], rows: Ints, key: Key) -> None:
        if self._small is not None:
            self._small.draw(out, rows, stream(key, 0))
        for i, block in enumerate(self._large, 1):
            block.draw(out, rows, partial(stream, key, i))


def _large(nu: Float64, table: Float64, variables: Ints) -> _Core | LargeBlock:
    core = core_of(nu[variables], table)
    if core is not None:
        return _Core(core, variables)

    def prepare(window: Window | None) -> Any:
        return make_forest(_blocks_of(variables), nu, table, window)

    return LargeBlock(nu[variables], table, variables, prepare)


class _Core:
    """A large block most of whose variables are decided: the others are drawn."""

    def __init__(self, core: Core, variables: Ints) -> None:
        self._core, self._variables = core, variables
        self._open = _Model(_plan(CountTree.flat(len(core.kept))), core.rows.nu[0], core.rows.tables[0])
        self.impossible = self._open.impossible

    def draw(self, out: NDArray[np.uint8], rows: Ints, own: Callable[..., np.random.SeedSequence]) -> None:
        drawn = np.empty((len(rows), len(self._core.kept)), np.uint8)
        self._open.draw(drawn, np.arange(len(rows)), tuple(_words(own(0)).tolist()))
        out[rows[:, None], self._variables] = self._core.on
        out[rows[:, None], self._variables[self._core.kept]] = drawn


def make_forest(shape: BlockForest, nu: Float64, tables: Float64, window: Window | None = None) -> Any:
    """Upward messages by the engine in use."""
    engine = config.native()
    if engine is None:
        return ArrayForest(shape, nu, tables, window)
    return NativeForest(engine, shape, nu, tables, window)


def stream(key: Key, *place: int) -> np.random.SeedSequence:
    """Seed of an independent stream: a hash of the key and of where it is used."""
    return np.random.SeedSequence(key[:4], spawn_key=(*key[4:], *place))


def _words(seed: np.random.SeedSequence) -> NDArray[np.uint32]:
    return seed.generate_state(4, np.uint32).astype(np.uint32, copy=False)


def _key(rng: np.random.Generator) -> Key:
    return tuple(rng.integers(0, 2**32, 4, dtype=np.uint32).tolist())
