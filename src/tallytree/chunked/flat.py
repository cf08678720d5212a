"""One potential over all variables: the verbs of the engine, run over chunks.

The solver asks for sums over all variables until its certificate holds; every question is one pass, and what was asked
once is not asked again. Then each chunk is mapped by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.count import chunks as verbs
from ..errors import InfeasibleError
from .count_potential import CountPotential
from .passes import Job, Passes
from .reading import Loaded, Reading
from .seeds import chunk_seeds


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
            found = self.passes.fold("reduce", Reduce(fresh), merge)
            sums, self.constant = (verbs.reduce(np.empty(0), fresh), 0.0) if found is None else found
            known = self._known = sums if known is None else known.joined(sums)
        return known


@dataclass(frozen=True)
class Reduce:
    """Task: the sums of a chunk, and what it adds to log Z apart from them."""

    asked: tuple[verbs.Request, ...]

    def __call__(self, loaded: Loaded) -> tuple[verbs.Sums, float]:
        return verbs.reduce(loaded.values, self.asked), loaded.constant


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
            raise InfeasibleError(
                "the model gives probability zero to every configuration: "
                f"between {sums.forced:,} and {sums.size - sums.excluded:,} variables can be on, and {potential} "
                "allows none of these counts, or evidence contradicts log-odds of -inf or inf."
            )

    @property
    def _in_parts(self) -> verbs.Solution:
        """The solution as a mixture of tilts, from which counts are drawn; a closed form has none."""
        if self.solution.parts or self.solution.gathered is not None or self.solution.sums.n == 0:
            return self.solution
        if max(self.solution.log_all_off, self.solution.log_all_on) > -math.inf:
            return self.solution
        return verbs.solve_chunks(self.reductions, verbs.solve(self._potential))

    def map(self, what: str, dtype: np.dtype[Any]) -> Job:
        return Job(Map(self.solution.mapping, what, dtype.str))

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
        sums = list(self.passes.each("laws", Job(Laws(total.tilt))))
        counts = split_counts(sums, total, rng)
        return Job(_draw_chunk, notes=list(zip(counts, seeds)))


def split_counts(leaves: list[verbs.Sums], total: verbs.Total, rng: np.random.Generator) -> list[int]:
    """Counts of all chunks given their total, by a balanced tree of their laws."""
    least, most = [sums.forced for sums in leaves], [sums.forced + sums.n for sums in leaves]
    for only in (least, most):  # no window holds the two ends
        if total.on == sum(only):
            return only
    levels = [leaves]
    while len(levels[-1]) > 1:
        below = levels[-1]
        pairs = [below[i : i + 2] for i in range(0, len(below), 2)]
        levels.append([verbs.merge(pair) for pair in pairs])
    counts = [total.on]
    for below in reversed(levels[:-1]):
        split: list[int] = []
        for i, count in enumerate(counts):
            pair = below[2 * i : 2 * i + 2]
            if len(pair) == 1:
                split.append(count)
                continue
            left, right = (verbs.law_of(sums, total.tilt) for sums in pair)
            first = verbs.split(left, right, count, rng)
            split += [first, count - first]
        counts = split
    return counts


@dataclass(frozen=True)
class Map:
    """Task: posterior log-odds or marginals of a chunk."""

    mapping: verbs.Mapping
    what: Any
    dtype: str

    def __call__(self, reading: Reading, loaded: Loaded) -> NDArray[Any]:
        found = verbs.map_logits(loaded.values, self.mapping, self.what)
        return found.astype(self.dtype, copy=False)


@dataclass(frozen=True)
class Laws:
    """Task: the sums behind the law of a chunk's count under a tilt."""

    tilt: float

    def __call__(self, reading: Reading, loaded: Loaded) -> verbs.Sums:
        return verbs.law_sums(loaded.values, self.tilt)


def _draw_chunk(reading: Reading, loaded: Loaded) -> Any:
    """Task: the states of a chunk given their count and the seed of its stream, the note of its reading."""
    count, seed = reading.note
    return verbs.draw_given_count(loaded.values, count, np.random.default_rng(seed))


def _told(reading: Reading, loaded: Loaded) -> Any:
    """Task: states that were drawn before, the note of the reading."""
    return reading.note
