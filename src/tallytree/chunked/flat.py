"""One potential over all variables: the verbs of the engine, run over chunks.

The solver asks for sums over all variables until its certificate holds; every question is one pass, and what was asked
once is not asked again. Then each chunk is mapped by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64, Ints
from ..engine import masks
from ..engine.count import chunks as verbs
from ..engine.log_sums import log_sum
from ..engine.pmf.log_pmf import log_pmf
from ..errors import InfeasibleError, ParameterError
from ..memo import cached
from ..potentials import Potential
from ..potentials.base import Product
from ..potentials.constraints import AtLeast, AtMost, Interval, Modulo, Parity
from ..potentials.envelope import Envelope
from ..potentials.exponentials import ExponentialMixture, Geometric, NoisyAnd, NoisyOr, SpikeAndSlab, Uniform
from .chunk import Loaded
from .passes import Job, Passes

T = TypeVar("T")


# -- the potential: evaluated on windows, and never as a table of all counts ---------------------------------------


_BLOCK = 1 << 20  # counts looked at at a time
_SHORT = (NoisyOr, NoisyAnd, Geometric, SpikeAndSlab, ExponentialMixture, Parity, Modulo, AtLeast, AtMost)


class CountPotential:
    """A potential on the count of ``n`` variables.

    Numbers below ``-MASK`` are -inf, as in every model; see :mod:`~tallytree.engine.masks`.
    """

    def __init__(self, potential: Potential, n: int) -> None:
        if potential.batch_shape:
            raise ParameterError(
                f"`potential` must be a single potential; a batch of shape {potential.batch_shape} arrived. "
                "Make one model for each."
            )
        potential._require(n)
        self.potential = potential
        self.n = n

    def __str__(self) -> str:
        return repr(self.potential)

    @property
    def is_interval(self) -> bool:
        """Whether log f is zero on an interval and -inf elsewhere."""
        return isinstance(self.potential, (Interval, Uniform))

    @property
    def is_uniform(self) -> bool:
        return isinstance(self.potential, Uniform)

    def window(self, first: int, last: int) -> Float64:
        """Log f(first), ..., log f(last)."""
        log_f = np.asarray(self.potential._log_window(self.n, first, last), np.float64)
        return log_f if self.is_interval else np.where(log_f < -masks.MASK, -math.inf, log_f)

    def at(self, k: int) -> float:
        """Log f(k)."""
        return float(self.window(k, k)[0])

    def blocks(self, first: int, last: int) -> Iterator[tuple[Ints, Float64]]:
        """Counts from `first` to `last` and their log f, a stretch of them at a time."""
        for start in range(first, last + 1, _BLOCK):
            stop = min(last, start + _BLOCK - 1)
            yield np.arange(start, stop + 1), self.window(start, stop)

    def mixture(self) -> Any:
        """The potential as a short sum of powers, if it is one; see :meth:`~tallytree.Potential.mixture`."""
        return self.potential.mixture(self.n) if isinstance(self.potential, _SHORT) else None

    def largest(self, first: int, last: int, slope: float) -> float:
        """The largest ``log f(k) - slope (k - first)`` for ``first <= k <= last``, -inf if none is possible."""
        return self._envelope.largest(first, last, slope)

    @cached
    def _envelope(self) -> Envelope:
        return Envelope(self.potential, self.n, self.window)

    def support_within(self, least: int, most: int) -> tuple[int, int]:
        """First and last possible count between `least` and `most`; the first exceeds the last if there is none."""
        try:
            low, high = self._support()
        except InfeasibleError:
            return 1, 0
        low, high = max(low, least), min(high, most)
        return self._first(low, high, 1), self._first(low, high, -1)

    def allows_none(self, least: int, most: int) -> InfeasibleError:
        """What to say where no count from `least` to `most` is possible."""
        return InfeasibleError(
            f"the model gives probability zero to every configuration: between {least:,} and {most:,} variables can be "
            f"on, and {self} allows none of these counts, or evidence contradicts log-odds of -inf or inf."
        )

    def _support(self) -> tuple[int, int]:
        """An interval that holds every possible count."""
        if isinstance(self.potential, Product):
            parts = [CountPotential(factor, self.n)._support() for factor in self.potential.factors]
            return max(low for low, _ in parts), min(high for _, high in parts)
        if type(self.potential)._support is Potential._support:
            return 0, self.n  # a table or a function: it has to be looked at
        low, high = self.potential.support(self.n)
        return int(low), int(high)

    def _first(self, low: int, high: int, step: int) -> int:
        """The first possible count from `low` up, or from `high` down; `low - 1` or `high + 1` on the other side."""
        blocks = range(low, high + 1, _BLOCK)
        for first in blocks if step > 0 else reversed(blocks):
            possible = np.flatnonzero(self.window(first, min(high, first + _BLOCK - 1)) > -math.inf)
            if len(possible):
                return first + int(possible[0 if step > 0 else -1])
        return max(low, high + 1) if step > 0 else min(high, low - 1)


# -- balanced trees ------------------------------------------------------------------------------------------------


def levels_of(leaves: Sequence[T], join: Callable[[T, T], T]) -> list[list[T]]:
    """All levels, the leaves first; the last of an odd number moves up as it is."""
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        pairs = [below[i : i + 2] for i in range(0, len(below), 2)]
        levels.append([join(*pair) if len(pair) == 2 else pair[0] for pair in pairs])
    return levels


def split_total(levels: list[list[T]], total: int, left_of: Callable[[T, T, int], int]) -> list[int]:
    """Counts of all leaves given their sum; ``left_of(left, right, sum)`` draws the count of the left one of two."""
    counts = [total]
    for below in reversed(levels[:-1]):
        split: list[int] = []
        for i, count in enumerate(counts):
            if 2 * i + 1 == len(below):
                split.append(count)
                continue
            left = left_of(below[2 * i], below[2 * i + 1], count)
            split += [left, count - left]
        counts = split
    return counts


# -- streams of random numbers -------------------------------------------------------------------------------------


def chunk_seeds(key: tuple[int, ...], chunks: int) -> list[np.random.SeedSequence]:
    """Seeds of independent streams, a hash of the key and the number of the chunk; the last one is for the splits."""
    return [np.random.SeedSequence(key, spawn_key=(i,)) for i in range(chunks + 1)]


class Reductions:
    """Sums over all variables, kept by what was asked for."""

    def __init__(self, passes: Passes) -> None:
        self.passes = passes
        self.constant = 0.0
        self._known: verbs.Sums | None = None

    def __call__(self, asked: Sequence[verbs.Request]) -> verbs.Sums:
        """All sums that are known, these among them."""
        known = self._known
        fresh = tuple(r for r in asked if known is None or r not in known.parts)
        if known is None or fresh:
            found = self.passes.fold("reduce", partial(_reduced, fresh), merge)
            sums, self.constant = (verbs.reduce(np.empty(0), fresh), 0.0) if found is None else found
            known = self._known = sums if known is None else known.joined(sums)
        return known


def _reduced(asked: tuple[verbs.Request, ...], loaded: Loaded) -> tuple[verbs.Sums, float]:
    """Task: the sums of a chunk, and what it adds to log Z apart from them."""
    return verbs.reduce(loaded.values, asked), loaded.constant


def merge(parts: Sequence[tuple[verbs.Sums, float]]) -> tuple[verbs.Sums, float]:
    """Sums of several chunks, added in order."""
    return verbs.merge(sums for sums, _ in parts), sum(constant for _, constant in parts)


class Flat:
    """The solver of a model with one potential.

    It answers with ``log_partition``, ``error_bound``, ``count_windows``, and with jobs for `passes` that make vectors:
    ``map`` (marginals or posterior log-odds) and ``draw`` (one joint sample).
    """

    def __init__(
        self, passes: Passes, potential: CountPotential, reductions: Reductions | None = None
    ) -> None:
        self.passes, self._potential = passes, potential
        self.reductions = reductions or Reductions(passes)
        conversation = verbs.solve(potential, potential.mixture())
        self.solution = verbs.solve_chunks(self.reductions, conversation)
        self.log_partition = self.solution.log_partition + self.reductions.constant
        self.error_bound = self.solution.error_bound
        if self.log_partition == -math.inf:
            sums = self.solution.sums
            raise potential.allows_none(sums.forced, sums.size - sums.excluded)

    @property
    def key(self) -> str:
        """What tells this model from others."""
        return float(self.log_partition).hex()

    @property
    def _in_parts(self) -> verbs.Solution:
        """The solution as a mixture of tilts, from which counts are drawn; a closed form has none."""
        if self.solution.parts or self.solution.gathered is not None or self.solution.sums.n == 0:
            return self.solution
        if max(self.solution.log_all_off, self.solution.log_all_on) > -math.inf:
            return self.solution
        return verbs.solve_chunks(self.reductions, verbs.solve(self._potential))

    def map(self, what: str, dtype: np.dtype[Any]) -> Job:
        return Job(partial(_mapped, self.solution.mapping, what, dtype))

    def count_windows(self) -> tuple[verbs.CountWindow, ...]:
        return verbs.solve_chunks(self.reductions, verbs.count_windows(self.solution))

    # -- draws -------------------------------------------------------------------------------------------------

    def draw(self, key: tuple[int, ...]) -> Job:
        chunks = self.passes.source.chunks
        seeds = chunk_seeds(key, len(chunks))
        rng = np.random.default_rng(seeds[-1])
        solution = self._in_parts
        if solution.gathered is not None:
            states = verbs.draw_gathered(solution, rng)
            return Job(_told, notes=[states[chunk.start : chunk.stop] for chunk in chunks])
        total = verbs.draw_total(solution, rng)
        sums = list(self.passes.each("laws", Job(partial(_law_sums, total.tilt)), keep=True))
        counts = split_counts(sums, total, rng)
        return Job(_drawn, notes=list(zip(counts, seeds)))


def split_counts(leaves: list[verbs.Sums], total: verbs.Total, rng: np.random.Generator) -> list[int]:
    """Counts of all chunks given their total, by a balanced tree of their laws."""
    least, most = [sums.forced for sums in leaves], [sums.forced + sums.n for sums in leaves]
    for only in (least, most):  # no window holds the two ends
        if total.on == sum(only):
            return only

    def left_of(left: verbs.Sums, right: verbs.Sums, count: int) -> int:
        return verbs.law_of(left, total.tilt).draw_part(verbs.law_of(right, total.tilt), count, rng)

    levels = levels_of(leaves, lambda left, right: verbs.merge([left, right]))
    return split_total(levels, total.on, left_of)


def _mapped(mapping: verbs.Mapping, what: Any, dtype: np.dtype[Any], loaded: Loaded) -> NDArray[Any]:
    """Task: posterior log-odds or marginals of a chunk."""
    return verbs.map_logits(loaded.values, mapping, what).astype(dtype, copy=False)


def _law_sums(tilt: float, loaded: Loaded) -> verbs.Sums:
    """Task: the sums behind the law of a chunk's count under a tilt."""
    return verbs.law_sums(loaded.values, tilt)


def _drawn(loaded: Loaded) -> Any:
    """Task: the states of a chunk given their count and the seed of its stream, the note of its reading."""
    count, seed = loaded.reading.note
    return verbs.draw_given_count(loaded.values, count, np.random.default_rng(seed))


def _told(loaded: Loaded) -> Any:
    """Task: states that were drawn before, the note of the reading."""
    return loaded.reading.note


# -- several potentials on the count of the same chunks ------------------------------------------------------------


def solved_together(reductions: Reductions, potentials: Sequence[Potential], n: int) -> list[verbs.Solution]:
    """Solutions of several potentials on n variables; all ask at the same time, so that a pass serves them all."""
    talks = {i: verbs.solve(CountPotential(one, n)) for i, one in enumerate(potentials)}
    asked = {i: next(talk) for i, talk in talks.items()}
    found: dict[int, verbs.Solution] = {}
    while talks:
        union = tuple(dict.fromkeys(request for requests in asked.values() for request in requests))
        sums = reductions(union)
        for i in list(talks):
            try:
                asked[i] = talks[i].send(sums)
            except StopIteration as end:
                found[i] = end.value
                del talks[i], asked[i]
    return [found[i] for i in range(len(potentials))]


def log_mean(solution: verbs.Solution) -> float:
    """Log E f(X): the probability of an event, without the norm of the log-odds, beside which it would vanish."""
    if solution.impossible:
        return -math.inf
    if solution.gathered is not None:
        weights = log_pmf(solution.gathered[None])[0] + solution.table.window(0, len(solution.gathered))
        return float(log_sum(weights))
    if solution.sums.n == 0:
        return solution.log_partition
    return solution.log_mean
