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
from ..engine.count import chunks as verbs
from ..engine.law import Law, least_reached, most_left, smaller_side
from ..memo import Caching, answer
from ..potentials import Potential, at_least, at_most, exactly, uniform
from .chunk import Loaded
from .flat import Reductions, log_mean, solved_together
from .passes import Passes, added
from .source import as_source

_SURE = 1e-9  # levels nearer to 0 or 1 than this are looked for outside the window of likely counts


class ChunkedPoissonBinomial(Caching):
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
    (array([0.045, 0.455, 0.455, 0.045]), 1.5)
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

    def __repr__(self) -> str:
        return f"ChunkedPoissonBinomial(n={self.n if self._passes.source.counted else 'not counted'})"

    def _repr_html_(self) -> str:
        """Nothing is read for it; what a pass has found already is said."""
        known = f": mean={self.mean():.6g}, std={self.std():.6g}" if "_moments" in self.__dict__ else ""
        source = self._passes.source
        return display.chunks_page(f"{self!r}{known}", source.sizes if source.counted else ())

    # -- moments -----------------------------------------------------------------------------------------------

    @answer
    def _moments(self) -> tuple[float, float, float]:
        found = self._passes.fold("moments", _cumulants, added)
        return (0.0, 0.0, 0.0) if found is None else found

    def mean(self) -> float:
        """Expected number of events that happen.

        Returns
        -------
        float
            One number.

        See Also
        --------
        var, std

        Examples
        --------
        >>> tt.ChunkedPoissonBinomial([0.5, 0.5]).mean()
        1.0
        """
        return self._moments[0]

    def var(self) -> float:
        """Variance of the count.

        Returns
        -------
        float
            One number.

        See Also
        --------
        mean, std

        Examples
        --------
        >>> tt.ChunkedPoissonBinomial([0.5, 0.5]).var()
        0.5
        """
        return self._moments[1]

    def std(self) -> float:
        """Standard deviation of the count.

        Returns
        -------
        float
            One number.

        See Also
        --------
        var, mean

        Examples
        --------
        >>> tt.ChunkedPoissonBinomial([0.5] * 4).std()
        1.0
        """
        return math.sqrt(self._moments[1])

    def skew(self) -> float:
        """Skewness of the count; NaN if it is certain, as in `scipy.stats`.

        Returns
        -------
        float
            One number.

        See Also
        --------
        var, mean

        Examples
        --------
        >>> tt.ChunkedPoissonBinomial([0.5, 0.5]).skew()
        0.0
        """
        _, variance, third = self._moments
        return third / variance / math.sqrt(variance) if variance > 0.0 else math.nan

    # -- probabilities -----------------------------------------------------------------------------------------

    def logpmf(self, k: ArrayLike) -> Any:
        """Log P(X = k); -inf where k is not a possible count.

        Parameters
        ----------
        k : array_like
            Counts at which to evaluate.

        Returns
        -------
        float or ndarray
            Logarithms, of the shape of ``k``.

        Raises
        ------
        ParameterError
            If ``k`` does not hold numbers.

        See Also
        --------
        pmf, logcdf

        Examples
        --------
        >>> tt.ChunkedPoissonBinomial([0.5, 0.5]).logpmf([1, 3]).round(4)
        array([-0.6931,    -inf])
        """
        return self._log_probs(
            k, lambda c: exactly(int(c)) if 0 <= c <= self.n and c == int(c) else -math.inf
        )

    def pmf(self, k: ArrayLike) -> Any:
        """P(X = k).

        Parameters
        ----------
        k : array_like
            Counts at which to evaluate.

        Returns
        -------
        float or ndarray
            Probabilities, of the shape of ``k``.

        Raises
        ------
        ParameterError
            If ``k`` does not hold numbers.

        See Also
        --------
        logpmf, cdf

        Examples
        --------
        >>> tt.ChunkedPoissonBinomial([0.5, 0.5]).pmf([0, 1, 2])
        array([0.25, 0.5 , 0.25])
        """
        return np.exp(self.logpmf(k))

    def logcdf(self, k: ArrayLike) -> Any:
        """Log P(X <= k).

        Parameters
        ----------
        k : array_like
            Counts at which to evaluate.

        Returns
        -------
        float or ndarray
            Logarithms, of the shape of ``k``.

        Raises
        ------
        ParameterError
            If ``k`` does not hold numbers.

        See Also
        --------
        cdf, logsf

        Examples
        --------
        >>> tt.ChunkedPoissonBinomial([0.5, 0.5]).logcdf([0, 1]).round(4)
        array([-1.3863, -0.2877])
        """
        return self._tail(k, lower=True)

    def cdf(self, k: ArrayLike) -> Any:
        """P(X <= k).

        Parameters
        ----------
        k : array_like
            Counts at which to evaluate.

        Returns
        -------
        float or ndarray
            Probabilities, of the shape of ``k``.

        Raises
        ------
        ParameterError
            If ``k`` does not hold numbers.

        See Also
        --------
        logcdf, sf

        Examples
        --------
        >>> tt.ChunkedPoissonBinomial([0.5, 0.5]).cdf([0, 1, 2])
        array([0.25, 0.75, 1.  ])
        """
        return np.exp(self.logcdf(k))

    def logsf(self, k: ArrayLike) -> Any:
        """Log P(X > k).

        Parameters
        ----------
        k : array_like
            Counts at which to evaluate.

        Returns
        -------
        float or ndarray
            Logarithms, of the shape of ``k``.

        Raises
        ------
        ParameterError
            If ``k`` does not hold numbers.

        See Also
        --------
        sf, logcdf

        Examples
        --------
        >>> tt.ChunkedPoissonBinomial([0.5, 0.5]).logsf([0, 2]).round(4)
        array([-0.2877,    -inf])
        """
        return self._tail(k, lower=False)

    def sf(self, k: ArrayLike) -> Any:
        """P(X > k).

        Parameters
        ----------
        k : array_like
            Counts at which to evaluate.

        Returns
        -------
        float or ndarray
            Probabilities, of the shape of ``k``.

        Raises
        ------
        ParameterError
            If ``k`` does not hold numbers.

        See Also
        --------
        logsf, cdf

        Examples
        --------
        >>> tt.ChunkedPoissonBinomial([0.5, 0.5]).sf([0, 1, 2])
        array([0.75, 0.25, 0.  ])
        """
        return np.exp(self.logsf(k))

    def _tail(self, k: ArrayLike, lower: bool) -> Any:
        """The smaller of the two sides is computed, and the larger one from it."""
        below = self._log_probs(k, lambda c: at_most(int(c)) if 0 <= c < self.n else _sure(c >= 0))
        above = self._log_probs(k, lambda c: at_least(int(c) + 1) if 0 <= c < self.n else _sure(c < 0))
        own, other = (below, above) if lower else (above, below)
        return smaller_side(own, other)[()]

    def ppf(self, q: ArrayLike) -> Any:
        """The smallest count whose cumulative probability is at least q.

        Parameters
        ----------
        q : array_like
            Probabilities.

        Returns
        -------
        int or ndarray of int
            Counts, of the shape of ``q``.

        Raises
        ------
        ParameterError
            If ``q`` is not between 0 and 1.

        See Also
        --------
        cdf

        Examples
        --------
        >>> tt.ChunkedPoissonBinomial([0.5, 0.5]).ppf([0.5, 0.9])
        array([1, 2])
        """
        levels = checks.array("q", q, (...,), checks.PROBABILITIES)
        out = np.array([self._quantile(float(level)) for level in levels.reshape(-1)], np.int64)
        return out.reshape(levels.shape)[()]

    def _quantile(self, level: float) -> int:
        if _SURE < level < 1.0 - _SURE:
            return self._likely.quantile(level, self.n)
        low, high = self._range
        if level in (0.0, 1.0):
            return low - 1 if level == 0.0 else high

        def reached(k: int) -> bool:
            if level < 0.5:
                return bool(self.cdf(k) >= least_reached(level, self.n))
            return bool(self.sf(k) <= most_left(1.0 - level, self.n))

        return low + bisect_left(range(low, high), True, key=reached)

    @answer
    def _likely(self) -> Law:
        """The law of X on the counts that are likely."""
        (solution,) = solved_together(self._reductions, [uniform()], self.n)
        (window,) = verbs.solve_chunks(self._reductions, verbs.count_windows(solution))
        return Law(*window)

    @property
    def _range(self) -> tuple[int, int]:
        sums = self._reductions([])
        return sums.forced, sums.size - sums.excluded

    # -- how it is done ----------------------------------------------------------------------------------------

    def _log_probs(self, k: ArrayLike, event: Callable[[float], Potential | float]) -> Any:
        """Log-probability of the event that every entry of k stands for, or that log-probability itself."""
        values = checks.array("k", k, (...,), checks.NUMBERS)
        found = {c: event(c) for c in sorted(set(values.reshape(-1).tolist()))}
        asked = {c: one for c, one in found.items() if isinstance(one, Potential)}
        solutions = solved_together(self._reductions, list(asked.values()), self.n)
        known = found | dict(zip(asked, map(log_mean, solutions)))
        return np.array([known[c] for c in values.reshape(-1).tolist()], np.float64).reshape(values.shape)[()]


def _sure(happens: bool) -> float:
    return 0.0 if happens else -math.inf


def _cumulants(loaded: Loaded) -> tuple[float, float, float]:
    p, q = expit(loaded.logits), expit(-loaded.logits)
    spread = p * q
    return float(p.sum()), float(spread.sum()), float((spread * (q - p)).sum())
