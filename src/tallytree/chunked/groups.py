"""Two levels: a potential on every group and one on the total, over bundles of whole groups.

A bundle answers with the law of its count, computed in memory under a tilt common to all. A balanced tree of these laws
gives log Z and, downwards, what everything else says about the total of a bundle: a table, with which the bundle is
solved once more. Only windows of laws are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..arrays import Float64, Ints
from ..checks.groups import labels
from ..engine.count.chunks import CountWindow
from ..engine.law import REACH, Law, law
from ..engine.log_sums import log_sum
from ..engine.tilt import tilt_towards
from ..errors import InfeasibleError, ParameterError, PrecisionError
from ..memo import cached
from ..models.count import CountModel
from ..models.group import Group
from ..models.ragged import RaggedBatch
from ..potentials import Potential, as_potential, exactly, table, uniform
from .chunk import Loaded, Reading, fingerprint
from .flat import CountPotential, chunk_seeds, levels_of, split_total
from .passes import Job, Passes
from .source import Source

T = TypeVar("T")

# -- the column of ids ---------------------------------------------------------------------------------------------


class GroupIndex(NamedTuple):
    """All groups, sorted by id.

    ``starts`` holds where each stretch of equal ids begins, if every group is one stretch; otherwise it is None.
    ``shares`` has the numbers of the groups of every chunk and how many variables each has there, ``mark`` is a
    fingerprint of the whole column.
    """

    ids: NDArray[Any]
    sizes: Ints
    starts: Ints | None
    shares: list[tuple[Ints, Ints]]
    mark: str


def read_index(ids: Source, passes: Passes) -> GroupIndex:
    """One pass over the ids, by the executor of other passes."""
    with passes.shown("groups") as bar:
        numbers, chunks = range(len(ids.chunks)), partial(map, Reading)
        found = passes.found(bar, "ids", [ids], _look, lambda todo: chunks(ids.walk(todo)), numbers, {})
        every = [part for _, part in found]
    mark = blake2b(repr([part.mark for part in every]).encode(), digest_size=16).hexdigest()
    parts = [part for part in every if len(part.names)]
    if not parts:
        none = np.empty(0, np.int64)
        return GroupIndex(none, none, none, [(none, none)] * len(every), mark)
    kinds = {"i" if part.names.dtype.kind == "u" else part.names.dtype.kind for part in parts}
    if len(kinds) > 1:
        raise ParameterError(
            "`groups` must hold labels of one kind, all numbers or all text; chunks of different kinds arrived. "
            "Convert the ids to integers."
        )
    names, where = np.unique(np.concatenate([part.names for part in parts]), return_inverse=True)
    sizes = np.bincount(where, np.concatenate([part.sizes for part in parts])).astype(np.int64)
    starts, last = [], None
    for part in parts:
        # A stretch may go on in the next chunk.
        starts.append(part.starts[1:] if last is not None and part.ends[0] == last else part.starts)
        last = part.ends[1]
    places = np.concatenate(starts)
    codes = np.split(where, np.cumsum([len(part.names) for part in every])[:-1])
    shares = [(own, part.sizes) for own, part in zip(codes, every)]
    return GroupIndex(names, sizes, places if len(places) == len(names) else None, shares, mark)


class _Look(NamedTuple):
    """Ids and sizes of the groups of a chunk, where stretches of equal ids begin, the ids at the two ends."""

    names: NDArray[Any]
    sizes: Ints
    starts: Ints
    ends: NDArray[Any]
    mark: int


def _look(reading: Reading) -> tuple[tuple[int, int], _Look]:
    """Task: what there is to know about the ids of a chunk, with its number and fingerprint."""
    values = read_ids(reading.chunk)
    changes = values[1:] != values[:-1]
    starts = np.flatnonzero(np.append(len(values) > 0, changes)) + reading.chunk.start
    names, sizes = _tally(values)
    # One stretch more than there are groups tells that a group comes back.
    ends = values[[0, -1]] if len(values) else values
    look = _Look(names, sizes, starts[: len(names) + 1].copy(), ends, _mark(values))
    return (reading.chunk.number, look.mark), look


def _mark(values: NDArray[Any]) -> int:
    return fingerprint(values.view(np.uint8) if values.dtype.kind in "US" else values)


def _tally(values: NDArray[Any]) -> tuple[NDArray[Any], Ints]:
    """The distinct ids, sorted, and how often each occurs; by counting where they are integers close to one another."""
    if values.dtype.kind in "iu" and len(values):
        low, high = int(values.min()), int(values.max())
        if high - low <= 4 * len(values):
            counts = np.bincount(values - low)
            there = np.flatnonzero(counts)
            return (there + low).astype(values.dtype), counts[there]
    names, sizes = np.unique(values, return_counts=True)
    return names, sizes


def read_ids(chunk: Any) -> NDArray[Any]:
    """The ids of a chunk, as something that can be sorted."""
    values = labels("groups", chunk.load(), chunk.start)
    if len(values) and values.dtype.kind not in "iubUS":
        raise ParameterError(
            f"`groups` must hold integers or text, one id per variable; dtype {values.dtype} arrived. "
            "Convert the ids to integers."
        )
    return values


def bundle_bounds(starts: Ints, length: int, step: int) -> list[int]:
    """Where bundles of whole groups begin, and the end: each as long as a chunk, or one group."""
    bounds, edges = [0], np.append(starts, length)
    while bounds[-1] < length:
        at = int(np.searchsorted(edges, bounds[-1] + step, side="right")) - 1
        here = int(edges[at])
        bounds.append(here if here > bounds[-1] else int(edges[at + 1]))
    return bounds


# -- bundles: whole groups that are solved together in memory, with a table on their total -------------------------


@dataclass(frozen=True)
class GroupPotentials:
    """One potential for all groups, or one per id; groups without one are free."""

    common: Potential | None = None
    own: Mapping[Any, Potential | None] = field(default_factory=dict)

    def of(self, name: Any) -> Potential | None:
        return self.own.get(name, self.common)


def group_potentials(given: Any) -> GroupPotentials:
    """Read the argument `group_potential`."""
    if given is None:
        raise ParameterError(
            "`group_potential` must say what holds for the groups: a potential, or {id: potential}; nothing arrived."
        )
    if isinstance(given, GroupPotentials):
        return given
    if isinstance(given, Mapping):
        return GroupPotentials(None, {key: as_potential(value) for key, value in given.items()})
    common = as_potential(given)
    if common.batch_shape:
        raise ParameterError(
            f"`group_potential` must be one potential or {{id: potential}}; {checks.describe(given)} arrived."
        )
    return GroupPotentials(common)


def bundle_model(
    logits: Float64, ids: NDArray[Any], potentials: GroupPotentials, total: Any = None
) -> CountModel:
    """The groups of a bundle as a model in memory."""
    names, sizes = _tally(ids)
    groups = []
    for name, own in zip(names.tolist(), np.split(stable_order(ids), np.cumsum(sizes)[:-1])):
        potential = potentials.of(name)
        if potential is not None:
            groups.append(Group(own, potential))
    if total is not None:
        groups.append(Group(None, total))
    return CountModel(logits, groups or None)


# -- tasks ---------------------------------------------------------------------------------------------------------


def rise(potentials: GroupPotentials, tilt: float, loaded: Loaded) -> Law:
    """Task: the law of the total of a bundle under a tilt."""
    if loaded.constant == -math.inf:
        return law(0, np.full(1, -math.inf), 0.0)
    model = bundle_model(loaded.logits + tilt, _ids(loaded), potentials)
    scale = float(model.log_partition) + loaded.constant
    # A forced variable has lost its tilt: an infinite log-odds takes none.
    scale += tilt * np.count_nonzero(loaded.logits == math.inf)
    return law(0, np.asarray(model.count_log_probs(), np.float64), scale)


def fall(potentials: GroupPotentials, tilt: float, what: str, dtype: np.dtype[Any], loaded: Loaded) -> Any:
    """Task: an answer for a bundle, given what the rest says about its total, which is the note of its reading."""
    said: Law = loaded.reading.note
    total = np.full(len(loaded.logits) + 1, -math.inf)
    total[said.first : said.last + 1] = said.log_weights
    logits, ids = loaded.logits + tilt, _ids(loaded)
    model = bundle_model(logits, ids, potentials, table(total))
    if what == "error_bound":
        return float(model.error_bound)
    odds = np.asarray(model.posterior_logits, np.float64)
    if said.cut and np.any(np.isinf(odds) & np.isfinite(logits)):
        # A state without probability must be one that no possible count allows, inside the window or not.
        counts = np.arange(len(total))
        possible = np.where((counts >= said.least) & (counts <= said.most), 0.0, -math.inf)
        wide = np.asarray(bundle_model(logits, ids, potentials, table(possible)).posterior_logits)
        if np.any(np.isinf(odds) & (odds != wide)):
            raise PrecisionError(
                f"chunk {loaded.reading.chunk.number:,}: a state needs a count whose probability is below "
                f"exp(-{REACH:.0f}), outside the windows that are kept. Solve these groups in memory, with CountModel."
            )
    return (odds if what == "posterior_logits" else np.asarray(model.marginals)).astype(dtype)


def draw_bundle(potentials: GroupPotentials, tilt: float, loaded: Loaded) -> Any:
    """Task: the states of a bundle given their count and the seed of its stream, the note of its reading."""
    count, seed = loaded.reading.note
    model = bundle_model(loaded.logits + tilt, _ids(loaded), potentials, exactly(count))
    return model.sample(rng=np.random.default_rng(seed))


# -- without a potential on the total: groups are models by themselves -----------------------------------------------


def separate(potentials: GroupPotentials, loaded: Loaded) -> tuple[NDArray[Any], Ints, RaggedBatch]:
    """The groups of a bundle as models by themselves: their names, the variables one after the other, the models."""
    ids = _ids(loaded)
    names, sizes = _tally(ids)
    order = stable_order(ids)
    if loaded.constant == -math.inf:
        raise InfeasibleError(
            "the model gives probability zero to every configuration: evidence contradicts log-odds."
        )
    own = [potentials.of(name) or _FREE for name in names.tolist()]
    return names, order, RaggedBatch(loaded.logits[order], own, sizes=sizes)


_FREE = uniform()


def stable_order(ids: NDArray[Any]) -> Ints:
    """Variables in the order of their ids; by counting where these are integers close to one another."""
    if ids.dtype.kind in "iu" and len(ids):
        low = int(ids.min())
        if int(ids.max()) - low < 1 << 16:
            ids = (ids - low).astype(np.uint16)
    return np.argsort(ids, kind="stable")


def _of_groups(names: NDArray[Any], batch: RaggedBatch, ask: Callable[[], T]) -> T:
    """An answer of the models of all groups; where there is none, the error says of which group."""
    try:
        return ask()
    except InfeasibleError:
        for name, model in zip(names.tolist(), batch):
            try:
                _ = model.log_partition
            except InfeasibleError as error:
                raise InfeasibleError(f"group {name!r}: {error}", groups=(name,)) from None
        raise


def sum_apart(potentials: GroupPotentials, loaded: Loaded) -> tuple[float, float]:
    """Task: the logarithm of the partition functions of all groups of a bundle, multiplied, and their largest bound."""
    if not len(loaded.values):
        return 0.0, 0.0
    names, _, batch = separate(potentials, loaded)
    log_z = math.fsum(_of_groups(names, batch, lambda: batch.log_partition).tolist()) + loaded.constant
    return log_z, float(np.max(batch.error_bound))


def fall_apart(potentials: GroupPotentials, what: str, dtype: np.dtype[Any], loaded: Loaded) -> Any:
    """Task: an answer for a bundle."""
    if not len(loaded.values):
        return np.empty(0, dtype)
    names, order, batch = separate(potentials, loaded)
    return _in_place(order, _of_groups(names, batch, lambda: getattr(batch, what)), dtype)


def draw_apart(potentials: GroupPotentials, loaded: Loaded) -> Any:
    """Task: the states of a bundle, from the stream whose seed is the note of its reading."""
    if not len(loaded.values):
        return np.empty(0, np.uint8)
    names, order, batch = separate(potentials, loaded)
    rng = np.random.default_rng(loaded.reading.note)
    return _in_place(order, _of_groups(names, batch, lambda: batch.sample(rng=rng)), np.dtype(np.uint8))


def _in_place(order: Ints, rows: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    out = np.empty(len(order), dtype)
    out[order] = np.concatenate(rows)
    return out


class InPlace:
    """Bundles that are read in place: nothing is kept beside the output."""

    def writing(self) -> AbstractContextManager[None]:
        return nullcontext()


class Separate(InPlace):
    """The solver of groups without a potential on the total; see :class:`~.flat.Flat` for what it answers.

    Nothing is computed before it is asked for: vectors need no sums first.
    """

    def __init__(self, passes: Passes, ids: Source, potentials: GroupPotentials, mark: str) -> None:
        self.passes, self._ids, self._potentials, self._mark = passes, ids, potentials, mark

    @property
    def key(self) -> str:
        """What tells this model from others, beside its numbers, which every chunk is checked for."""
        given = repr((self._potentials.common, list(self._potentials.own.items())))
        return f"{self._mark}{blake2b(given.encode(), digest_size=8).hexdigest()}"

    @cached
    def _sums(self) -> list[tuple[float, float]]:
        job = Job(partial(sum_apart, self._potentials), [self._ids])
        return list(self.passes.each("groups", job, keep=True))

    @property
    def log_partition(self) -> float:
        return math.fsum(log_z for log_z, _ in self._sums)

    @property
    def error_bound(self) -> float:
        return max((bound for _, bound in self._sums), default=0.0)

    def map(self, what: str, dtype: np.dtype[Any]) -> Job:
        return Job(partial(fall_apart, self._potentials, what, dtype), [self._ids])

    def draw(self, key: tuple[int, ...]) -> Job:
        seeds = chunk_seeds(key, len(self.passes.source.chunks))
        return Job(partial(draw_apart, self._potentials), [self._ids], seeds)

    def count_windows(self) -> tuple[CountWindow, ...]:
        total = CountPotential(uniform(), self.passes.source.length)
        return TwoLevel(self.passes, self._ids, self._potentials, total).count_windows()


def _ids(loaded: Loaded) -> NDArray[Any]:
    return read_ids(loaded.reading.beside[0])


class Tree:
    """All laws of a balanced tree over bundles, in order: up by convolution, down by correlation, both on windows.

    Under a common tilt the laws of all bundles have their peaks where the posterior lies, so windows of a few standard
    deviations are enough, and no message is longer than that.
    """

    def __init__(self, leaves: Sequence[Law]) -> None:
        self.levels = levels_of(leaves, Law.plus)

    @property
    def root(self) -> Law:
        return self.levels[-1][0]

    def down(self, message: Law) -> Iterator[Law]:
        """What a message about the total says about every bundle, in order; few of them exist at a time."""
        stack = [(len(self.levels) - 1, 0, message)]
        while stack:
            level, i, said = stack.pop()
            if level == 0:
                yield said
                continue
            below = self.levels[level - 1]
            if 2 * i + 1 == len(below):
                stack.append((level - 1, 2 * i, said))
                continue
            left, right = below[2 * i], below[2 * i + 1]
            stack.append((level - 1, 2 * i + 1, said.minus(left, right)))
            stack.append((level - 1, 2 * i, said.minus(right, left)))

    def split(self, total: int, rng: np.random.Generator) -> list[int]:
        """Draw the counts of all bundles given their sum."""
        return split_total(self.levels, total, lambda left, right, total: left.draw_part(right, total, rng))


# -- the solver ----------------------------------------------------------------------------------------------------


_LOOKED_AT = 8  # bundles from which the tilt is guessed
_STEPS = 60  # of that search
_NEAR = 4.0  # standard deviations between the tilted mean and the posterior that need no better tilt
_NEGLIGIBLE = 30.0  # nats


class TwoLevel(InPlace):
    """The solver of a model with groups; see :class:`~.flat.Flat` for what it answers."""

    def __init__(
        self, passes: Passes, ids: Source, potentials: GroupPotentials, total: CountPotential
    ) -> None:
        self.passes = self._bundles = passes
        self._ids, self._potentials, self._total = ids, potentials, total
        self._tilt = 0.0 if total.is_uniform else self._first_tilt()
        for _ in range(8):
            self._tree = Tree(self._laws(self._tilt))
            root = self._tree.root
            if root.scale == -math.inf:
                self._refuse()
            self._message = self._about_total(root)
            step = self._better_tilt(root)
            if step == 0.0:
                break
            self._tilt += step
        weights = root.log_weights + self._message.log_weights
        self._posterior = law(root.first, weights, 0.0)
        if self._posterior.scale == -math.inf:
            if root.cut and self._message.least <= self._message.most:
                raise _too_far_apart()
            self._refuse()
        self.log_partition = root.scale + self._message.scale + float(log_sum(weights))
        self._certify(root)

    @property
    def key(self) -> str:
        return self.log_partition.hex()

    def _laws(self, tilt: float, numbers: list[int] | None = None) -> list[Law]:
        return list(
            self._bundles.each(
                "groups", Job(partial(rise, self._potentials, tilt), [self._ids]), numbers, keep=True
            )
        )

    def _refuse(self) -> None:
        raise InfeasibleError(
            f"the model gives probability zero to every configuration: no counts of the groups that their potentials "
            f"allow add up to a total that {self._total} allows."
        )

    def _about_total(self, root: Law) -> Law:
        """``log f(c) - s c`` on the window of the total, around its middle."""
        middle = 0.5 * (root.first + root.last)
        c = np.arange(root.first, root.last + 1)
        inside = self._total.window(root.first, root.last) - self._tilt * (c - middle)
        low, high = self._total.support_within(root.least, root.most)
        return Law(root.first, np.asarray(inside), -self._tilt * middle).between(low, high)

    # -- the tilt ----------------------------------------------------------------------------------------------

    def _first_tilt(self) -> float:
        """A tilt under which a few bundles, multiplied up, have the mean that the potential asks for."""
        chunks = self._bundles.source.chunks
        if not chunks:
            return 0.0
        picked = np.unique(np.linspace(0, len(chunks) - 1, _LOOKED_AT).astype(np.int64)).tolist()
        share = self._bundles.source.length / max(1, sum(chunks[i].size for i in picked))

        def moments(tilt: Float64) -> tuple[Float64, Float64]:
            found = [each.moments() for each in self._laws(float(tilt), picked) if each.scale > -math.inf]
            total = share * np.sum(found, axis=0) if found else np.zeros(2)
            return total[0], total[1]

        def target(tilt: Float64, mean: Float64, variance: Float64) -> Float64:
            wanted = self._wanted(float(mean), float(variance), float(tilt))
            return mean if wanted is None or variance < 1e-9 else np.asarray(wanted)

        return float(tilt_towards(moments, target, np.zeros(()), near=_NEAR, slack=1.0, steps=_STEPS))

    def _wanted(self, mean: float, variance: float, tilt: float) -> float | None:
        """About the count that is most probable, by the normal approximation of the tilted total."""
        n = self._bundles.source.length
        reach = 40.0 * math.sqrt(variance + 1.0)
        first, last = max(0, int(mean - reach)), min(n, int(mean + reach) + 1)
        low, high = self._total.support_within(0, n)
        if low > high:
            return None
        if low > last or high < first:
            return float(low if low > last else high)
        c = np.arange(first, last + 1)
        score = (
            self._total.window(first, last) - tilt * (c - mean) - 0.5 * (c - mean) ** 2 / (variance + 1e-9)
        )
        if score.max() == -math.inf:  # a hole: go to its nearer end
            below, above = self._total.support_within(0, first), self._total.support_within(last, n)
            ends = [e for e in (below[1], above[0]) if 0 <= e <= n]
            return float(min(ends, key=lambda end: abs(end - mean)))
        return float(c[int(np.argmax(score))])

    def _better_tilt(self, root: Law) -> float:
        """By how much the tilt has to change; 0 if the posterior lies well inside the window."""
        if self._total.is_uniform:
            return 0.0
        mean, variance = root.moments()
        weights = root.log_weights + self._message.log_weights
        peak = root.first + int(np.argmax(weights))
        inside = abs(peak - mean) <= 2 * _NEAR * math.sqrt(variance) + 1.0
        if not root.cut or (inside and weights.max() > -math.inf):
            return 0.0
        target = self._wanted(mean, variance, self._tilt)
        if target is None or variance < 1e-9:
            return 0.0
        return min(2.0, max(-2.0, (target - mean) / variance))

    def _certify(self, root: Law) -> None:
        """Refuse potentials that may make up for the exp(-REACH) that a count outside the window has at most."""
        if not root.cut:
            return
        outside = self._largest_outside(root) - self._message.scale
        log_mass = float(np.max(root.log_weights + self._message.log_weights))
        if outside + math.log(self._bundles.source.length + 1) - REACH > log_mass - _NEGLIGIBLE:
            raise _too_far_apart()

    def _largest_outside(self, root: Law) -> float:
        """Largest ``log f(c) - s c`` of all counts outside the window."""
        low, high = self._total.support_within(0, self._bundles.source.length)
        best = -math.inf
        for first, last in ((low, min(high, root.first - 1)), (max(low, root.last + 1), high)):
            if first > last:
                continue
            if self._total.is_interval:
                best = max(best, -self._tilt * first, -self._tilt * last)
                continue
            for counts, log_f in self._total.blocks(first, last):
                best = max(best, float((log_f - self._tilt * counts).max()))
        return best

    # -- answers -----------------------------------------------------------------------------------------------

    @property
    def error_bound(self) -> float:
        """The largest of the bundles, and what the tree of laws adds."""
        found = self._bundles.each("certificate", self.map("error_bound", np.dtype(np.float64)), keep=True)
        depth = 2 * len(self._tree.levels)
        return max(found, default=0.0) + 1e-11 * depth * (len(self._tree.levels) > 1)

    def map(self, what: str, dtype: np.dtype[Any]) -> Job:
        messages = list(self._tree.down(self._message))
        return Job(partial(fall, self._potentials, self._tilt, what, dtype), [self._ids], messages)

    def draw(self, key: tuple[int, ...]) -> Job:
        seeds = chunk_seeds(key, len(self._bundles.source.chunks))
        rng = np.random.default_rng(seeds[-1])
        counts = self._tree.split(self._posterior.draw(rng), rng)
        return Job(partial(draw_bundle, self._potentials, self._tilt), [self._ids], list(zip(counts, seeds)))

    def count_windows(self) -> tuple[CountWindow, ...]:
        log_weights = self._posterior.log_weights
        return (CountWindow(self._posterior.first, log_weights - log_sum(log_weights)),)


def _too_far_apart() -> PrecisionError:
    return PrecisionError(
        "the potential on the total has weight at counts that are too far apart for one window of them. "
        "Solve the parts, for instance with `between` for each, and add their partition functions."
    )
