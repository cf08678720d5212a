"""One potential over all variables: the verbs of the engine, run over chunks.

The solver asks for sums over all variables until its certificate holds; every question is one pass, and what was asked
once is not asked again. Then each chunk is mapped by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.count import chunks as verbs
from ..errors import InfeasibleError
from .balanced import levels_of, split_total
from .count_potential import CountPotential
from .passes import Job, Passes
from .reading import Loaded
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
        sums = list(self.passes.each("laws", Job(partial(_law_sums, total.tilt))))
        counts = split_counts(sums, total, rng)
        return Job(_drawn, notes=list(zip(counts, seeds)))


def split_counts(leaves: list[verbs.Sums], total: verbs.Total, rng: np.random.Generator) -> list[int]:
    """Counts of all chunks given their total, by a balanced tree of their laws."""
    least, most = [sums.forced for sums in leaves], [sums.forced + sums.n for sums in leaves]
    for only in (least, most):  # no window holds the two ends
        if total.on == sum(only):
            return only

    def left_of(left: verbs.Sums, right: verbs.Sums, count: int) -> int:
        return verbs.split(verbs.law_of(left, total.tilt), verbs.law_of(right, total.tilt), count, rng)

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
