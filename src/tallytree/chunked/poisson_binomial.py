"""The Poisson-binomial distribution of more events than fit into memory."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from .. import checks, display
from .._progress import Report
from ..arrays import Float64, Ints
from ..engine.count import chunks as verbs
from ..engine.law import Law, least_reached, most_left, smaller_side
from ..engine.pmf.events import Lattice
from ..memo import Caching, answer
from ..models.lattice_distribution import LatticeDistribution
from ..potentials import Potential, at_least, at_most, exactly, uniform
from .chunk import Loaded
from .flat import Reductions, log_mean, solved_together
from .passes import Passes, added
from .source import as_source

_SURE = 1e-9  # levels nearer to 0 or 1 than this are looked for outside the window of likely counts


class ChunkedPoissonBinomial(Caching, LatticeDistribution):
    """Distribution of the number of independent events that happen, read chunk by chunk.

    Parameters
    ----------
    probs, logits : array, path, dask.array, zarr array, list or function
        Probabilities or log-odds of the events; give one of the two. The kinds of source are those of
        :class:`ChunkedCountModel`.
    column : str, optional
        Column with the numbers in a Parquet file or data frame.
    chunk_size : int, optional
        Events per chunk, as in :class:`ChunkedCountModel`.
    scheduler : {"threads", "dask"} or distributed.Client, optional
        What runs the tasks, as in :class:`ChunkedCountModel`.
    workers : int, optional
        Number of threads, as in :class:`ChunkedCountModel`.
    progress : bool or callable
        True shows a bar for every pass. A function is called after every chunk.
    scratch : path, optional
        Folder that keeps the results of an interrupted pass over files, so that the next run goes on from there.

    Raises
    ------
    ParameterError
        If an argument has the wrong type or value; the message says what was required.
    SourceError
        If a chunk holds NaN, no probabilities, or changed between two passes.

    See Also
    --------
    tallytree.PoissonBinomial
    tallytree.ChunkedCountModel

    Notes
    -----
    Methods have the names and the meaning of :class:`~tallytree.PoissonBinomial`.

    Cost: one or two passes per call, whatever the number of counts asked for; intermediate sums are kept for later
    calls. Accuracy: ``logpmf``, ``logcdf`` and ``logsf`` within 1e-9, absolute or relative, at every count.

    Examples
    --------
    >>> x = tt.ChunkedPoissonBinomial([np.array([0.1, 0.5]), np.array([0.9])])
    >>> x.pmf([0, 1, 2, 3]).round(3), x.mean()
    (array([0.045, 0.455, 0.455, 0.045]), np.float64(1.5))
    """

    def __init__(
        self,
        probs: Any = None,
        *,
        logits: Any = None,
        column: str | None = None,
        chunk_size: int | None = None,
        scheduler: Any = None,
        workers: int | None = None,
        progress: bool | Report = False,
        scratch: Any = None,
    ) -> None:
        label, given = checks.one_given(probs=probs, logits=logits)
        source = as_source(given, label=label, column=column, chunk_size=chunk_size)
        self._passes = Passes(source, {}, progress, label.removesuffix("s"), scheduler, workers, scratch)

    @answer
    def _reductions(self) -> Reductions:
        return Reductions(self._passes)

    @property
    def n(self) -> int:
        """Number of events."""
        return self._passes.source.length

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """A single distribution: ()."""
        return ()

    @property
    def _lattice(self) -> Lattice:
        return Lattice(0, 1, self.n + 1)

    def __repr__(self) -> str:
        return f"ChunkedPoissonBinomial(n={self.n if self._passes.source.counted else 'not counted'})"

    def _repr_html_(self) -> str:
        """Nothing is read for it; what a pass has found already is said."""
        known = f": mean={self.mean():.6g}, std={self.std():.6g}" if "_cumulants" in self.__dict__ else ""
        source = self._passes.source
        return display.chunks_page(f"{self!r}{known}", source.sizes if source.counted else ())

    # -- how it is done ----------------------------------------------------------------------------------------

    @answer
    def _cumulants(self) -> tuple[Any, ...]:
        found = self._passes.fold("moments", _of_chunk, added)
        return tuple(np.float64(c) for c in found or (0.0,) * 4)

    @property
    def _bounds(self) -> tuple[Any, Any]:
        sums = self._reductions([])
        return np.int64(sums.forced), np.int64(sums.size - sums.excluded)

    def _log_probability(self, which: str, name: str, x: ArrayLike) -> Float64:
        """Of the two sides of a count the smaller is computed, and the larger one from it."""
        counts, _, on_count = self._points(name, x)
        if which == "at":
            return self._log_probs(
                np.where(on_count, counts, -1), lambda c: exactly(c) if 0 <= c <= self.n else -math.inf
            )
        below = self._log_probs(counts, lambda c: at_most(c) if 0 <= c < self.n else _sure(c >= 0))
        above = self._log_probs(counts, lambda c: at_least(c + 1) if 0 <= c < self.n else _sure(c < 0))
        return smaller_side(below, above) if which == "below" else smaller_side(above, below)

    def _log_probs(self, counts: Ints, event: Callable[[int], Potential | float]) -> Float64:
        """Log-probability of the event that every count stands for, or that log-probability itself."""
        found = {c: event(c) for c in sorted(set(counts.ravel().tolist()))}
        asked = {c: one for c, one in found.items() if isinstance(one, Potential)}
        solutions = solved_together(self._reductions, list(asked.values()), self.n)
        known = found | dict(zip(asked, map(log_mean, solutions)))
        return np.array([known[c] for c in counts.ravel().tolist()], np.float64).reshape(counts.shape)

    def _cell_of_tail(self, row: int, level: float, upper: bool) -> int:
        if level > _SURE:
            return self._likely.quantile(1.0 - level if upper else level, self.n)

        def reached(k: int) -> bool:
            if upper:
                return bool(self.sf(k) <= most_left(level, self.n))
            return bool(self.cdf(k) >= least_reached(level, self.n))

        low, high = map(int, self._bounds)
        return low + bisect_left(range(low, high), True, key=reached)

    @answer
    def _likely(self) -> Law:
        """The law of X on the counts that are likely."""
        (solution,) = solved_together(self._reductions, [uniform()], self.n)
        (window,) = verbs.solve_chunks(self._reductions, verbs.count_windows(solution))
        return Law(*window)


def _sure(happens: bool) -> float:
    return 0.0 if happens else -math.inf


def _of_chunk(loaded: Loaded) -> tuple[float, ...]:
    """Task: the cumulants of a chunk."""
    p, q = expit(loaded.logits), expit(-loaded.logits)
    spread = p * q
    third, fourth = spread * (q - p), spread * (1.0 - 6.0 * spread)
    return float(p.sum()), float(spread.sum()), float(third.sum()), float(fourth.sum())
