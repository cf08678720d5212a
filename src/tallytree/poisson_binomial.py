"""The Poisson-binomial distribution: how many of n independent events happen, plain or weighted."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from tallytree._count_arguments import (
    broadcast_shape,
    from_probs,
    integer_weights,
    probability,
    read_only,
    real_array,
    sample_shape,
)
from tallytree.engine.log_pmf import dft_cf_pmf, log_pmf, tilted_rows_log_pmf
from tallytree.engine.recursion import recursion_log_pmf
from tallytree.engine.tails import log_tails
from tallytree.engine.weighted import Lattice, to_lattice, weighted_log_pmf
from tallytree.errors import ParameterError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

METHODS = ("auto", "recursion", "tilted", "dft")
BERNOULLI_DRAWS = 1 << 22  # up to this many uniform numbers, samples are sums of single draws


class PoissonBinomial:
    """Distribution of ``X = sum_i w_i y_i`` for independent ``y_i`` that are 1 with probability ``p_i``.

    Parameters
    ----------
    probs : array_like (..., n), optional
        Probabilities in [0, 1]. Give either ``probs`` or ``logits``.
    logits : array_like (..., n), optional
        Log-odds in [-inf, inf]; they keep the digits of probabilities near 1.
    weights : array_like of int (n,), optional
        Weights of any sign, shared by the batch; all 1 if omitted.
    method : {"auto", "recursion", "tilted", "dft"}
        ``"auto"`` meets the accuracy below. The others are for study and comparison. ``"recursion"`` adds one
        variable at a time (Gail, Lubin and Rubinstein; Barlow and Heidtmann). ``"tilted"`` reads windows of
        counts off characteristic functions (no weights). ``"dft"`` is one Fourier transform of the
        characteristic function (Fernandez and Williams; Hong), with absolute accuracy only.

    Notes
    -----
    Functions have the names and meaning of `scipy.stats`. Their argument ``k`` (or ``q``) broadcasts against
    the batch axes: for a batch of shape (5,), ``k`` of shape (3, 1) gives (3, 5). Whole tables are in
    ``count_log_probs`` (..., m), the log-probabilities of ``values`` (m,).

    Cost: the table of all sums is computed once, at the first call that needs it. Unweighted: O(n^2) simple
    steps up to n of about 10^4, O(n^1.5) beyond. Weighted: O(n W), W the range of X over the greatest common
    divisor of the weights. Moments need no table: O(n).

    Accuracy: ``logpmf``, ``logcdf`` and ``logsf`` within 1e-10, absolute or relative, at every k.
    Probabilities are right down to the smallest float64; smaller ones have their logarithm. float32
    parameters are computed in float64 and answered in float32.

    Examples
    --------
    >>> x = tt.PoissonBinomial([0.1, 0.5, 0.9])
    >>> x
    PoissonBinomial(n=3)
    >>> x.pmf([0, 1, 2, 3]).round(3)
    array([0.045, 0.455, 0.455, 0.045])
    >>> x.sf(1).round(3), x.ppf(0.9), x.mean
    (np.float64(0.5), np.int64(2), np.float64(1.5))

    The far tail keeps its digits:

    >>> tt.PoissonBinomial(np.full(10_000, 0.999)).logpmf(0).round(3)
    np.float64(-69077.553)

    >>> tt.PoissonBinomial([0.9, 0.5, 0.2], weights=[3, 20, 16]).sf(19).round(3)
    np.float64(0.5)
    """

    _nu: Array
    _p: Array
    _q: Array  # kept beside p: the digits of probabilities near 1
    _weights: Ints | None
    _method: str
    _dtype: np.dtype[Any]
    _given: tuple[str, NDArray[Any]]

    def __init__(
        self,
        probs: ArrayLike | None = None,
        *,
        logits: ArrayLike | None = None,
        weights: ArrayLike | None = None,
        method: str = "auto",
    ) -> None:
        if (probs is None) == (logits is None):
            what = "neither" if probs is None else "both"
            raise ParameterError(f"Give exactly one of `probs` and `logits`; {what} arrived.")
        if method not in METHODS:
            raise ParameterError(f"`method` must be one of {', '.join(METHODS)}; got {method!r}.")
        if probs is not None:
            kind, given = "probs", real_array("probs", probs)
            p, q, nu = from_probs(given)
        else:
            assert logits is not None
            kind, given = "logits", real_array("logits", logits)
            nu = given.astype(np.float64) + 0.0  # -0.0 and 0.0 are one parameter
            p, q = expit(nu), expit(-nu)
        checked = None if weights is None else integer_weights(weights, nu.shape[-1])
        if method == "tilted" and checked is not None:
            raise ParameterError('`method="tilted"` takes no `weights`; use "auto".')
        dtype = np.dtype(np.float32 if given.dtype == np.float32 else np.float64)
        read_only(given, p, q, nu, *([] if checked is None else [checked]))
        self.__dict__.update(
            _nu=nu, _p=p, _q=q, _weights=checked, _method=method, _dtype=dtype, _given=(kind, given)
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"PoissonBinomial is frozen: make a new one instead of setting {name!r}.")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (*self._given, self._weights, self._method)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PoissonBinomial):
            return NotImplemented
        return self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @cached_property
    def _key(self) -> tuple[object, ...]:
        weights = None if self._weights is None else self._weights.tobytes()
        return self._nu.shape, self._nu.tobytes(), weights, self._method, self._dtype.str

    def __repr__(self) -> str:
        parts = [f"n={self.n}"]
        if self._weights is not None:
            parts.append("weighted")
        if self.batch_shape:
            parts.append(f"batch={self.batch_shape}")
        if self._method != "auto":
            parts.append(f"method={self._method!r}")
        return f"PoissonBinomial({', '.join(parts)})"

    @property
    def n(self) -> int:
        """Number of variables."""
        return int(self._nu.shape[-1])

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of the parameters."""
        return tuple(int(size) for size in self._nu.shape[:-1])

    @property
    def probs(self) -> NDArray[Any]:
        """Probabilities (..., n)."""
        return self._p.astype(self._dtype)

    @property
    def logits(self) -> NDArray[Any]:
        """Log-odds (..., n)."""
        return self._nu.astype(self._dtype)

    @property
    def weights(self) -> Ints:
        """Weights (n,)."""
        return np.ones(self.n, dtype=np.int64) if self._weights is None else self._weights

    def _weighted_sum(self, terms: Array, power: int) -> Array:
        return np.asarray((terms * self.weights.astype(np.float64) ** power).sum(axis=-1))

    @cached_property
    def mean(self) -> Any:
        """Mean, ``sum w p``."""
        return self._answer(self._weighted_sum(self._p, 1))

    @cached_property
    def _variance(self) -> Array:
        return self._weighted_sum(self._p * self._q, 2)

    @cached_property
    def var(self) -> Any:
        """Variance, ``sum w^2 p q``."""
        return self._answer(self._variance)

    @cached_property
    def std(self) -> Any:
        """Standard deviation."""
        return self._answer(np.sqrt(self._variance))

    @cached_property
    def skew(self) -> Any:
        """Skewness; NaN where the variance is 0, as in `scipy.stats`."""
        third = self._weighted_sum(self._p * self._q * (self._q - self._p), 3)
        with np.errstate(invalid="ignore", divide="ignore"):
            return self._answer(third / self._variance**1.5)

    @cached_property
    def kurtosis(self) -> Any:
        """Excess kurtosis; NaN where the variance is 0, as in `scipy.stats`."""
        pq = self._p * self._q
        fourth = self._weighted_sum(pq * (1.0 - 6.0 * pq), 4)
        with np.errstate(invalid="ignore", divide="ignore"):
            return self._answer(fourth / self._variance**2)

    @cached_property
    def _lattice(self) -> Lattice:
        nu = self._nu.reshape(int(np.prod(self.batch_shape, dtype=np.int64)), self.n)
        if self._weights is None:
            return Lattice(0, 1, nu, np.ones(self.n, dtype=np.int64))
        return to_lattice(nu, self._weights)

    @cached_property
    def _log_table(self) -> Array:
        """Log pmf on the lattice, one row per member of the batch."""
        _, _, nu, weights = self._lattice
        plain = bool(np.all(weights == 1))
        if self._method == "dft":
            with np.errstate(divide="ignore"):
                table = np.log(dft_cf_pmf(nu, None if plain else weights))
        elif not plain:
            table = weighted_log_pmf(nu, weights)
        elif self._method == "recursion":
            table = recursion_log_pmf(nu)
        else:
            table = tilted_rows_log_pmf(nu) if self._method == "tilted" else log_pmf(nu)
        read_only(table)
        return table

    @cached_property
    def _log_tails(self) -> tuple[Array, Array]:
        """``log P(X <= v)`` and ``log P(X > v)`` on the lattice."""
        tails = log_tails(self._log_table)
        read_only(*tails)
        return tails

    @cached_property
    def _tails(self) -> tuple[Array, Array]:
        """The tails themselves: quantiles invert exactly these numbers."""
        return np.exp(self._log_tails[0]), np.exp(self._log_tails[1])

    @property
    def values(self) -> Ints:
        """The sums (m,) that ``count_log_probs`` refers to: 0 .. n without weights."""
        offset, step, _, weights = self._lattice
        return offset + step * np.arange(int(weights.sum()) + 1, dtype=np.int64)

    @property
    def count_log_probs(self) -> NDArray[Any]:
        """``log P(X = values)`` (..., m)."""
        return self._log_table.reshape(*self.batch_shape, self._log_table.shape[1]).astype(
            self._dtype, copy=False
        )

    @cached_property
    def support(self) -> tuple[Any, Any]:
        """Smallest and largest possible sum, each of the shape of the batch."""
        w = self.weights
        # p rounds to 1 for a finite logit above 36: possible is what the log-odds say
        low = np.where(w > 0, self._nu == np.inf, self._nu > -np.inf) * w
        high = np.where(w > 0, self._nu > -np.inf, self._nu == np.inf) * w
        return low.sum(axis=-1)[()], high.sum(axis=-1)[()]

    @cached_property
    def entropy(self) -> Any:
        """Entropy in nats."""
        table = self._log_table
        terms = np.exp(table) * np.where(np.isfinite(table), table, 0.0)
        return self._answer((0.0 - terms.sum(axis=1)).reshape(self.batch_shape))

    def _answer(self, x: NDArray[Any]) -> Any:
        return x.astype(self._dtype, copy=False)[()]

    def _look_up(
        self, table: Array, k: ArrayLike, before: float, after: float, between: float | None
    ) -> Array:
        """Read ``table`` at ``k``; ``between`` is the answer off the lattice, None to round down."""
        x = real_array("k", k, least_axes=0).astype(np.float64)
        shape = broadcast_shape("k", x.shape, self.batch_shape)
        x = np.broadcast_to(x, shape)
        rows = np.broadcast_to(np.arange(table.shape[0]).reshape(self.batch_shape), shape)
        place = (x - self._lattice.offset) / self._lattice.step
        last = table.shape[1] - 1
        index = np.clip(np.floor(place), -1, last + 1).astype(np.int64)
        out = table[rows, np.clip(index, 0, last)]
        out = np.where(index < 0, before, np.where(index > last, after, out))
        if between is not None:
            out = np.where(place == np.floor(place), out, between)
        return np.asarray(out)

    def logpmf(self, k: ArrayLike) -> Any:
        """``log P(X = k)``; -inf where k is not a possible sum."""
        return self._answer(self._look_up(self._log_table, k, -np.inf, -np.inf, -np.inf))

    def pmf(self, k: ArrayLike) -> Any:
        """``P(X = k)``; 0 where k is not a possible sum."""
        return self._answer(np.exp(self._look_up(self._log_table, k, -np.inf, -np.inf, -np.inf)))

    def logcdf(self, k: ArrayLike) -> Any:
        """``log P(X <= k)``."""
        return self._answer(self._look_up(self._log_tails[0], k, -np.inf, 0.0, None))

    def cdf(self, k: ArrayLike) -> Any:
        """``P(X <= k)``."""
        return self._answer(self._look_up(self._tails[0], k, 0.0, 1.0, None))

    def logsf(self, k: ArrayLike) -> Any:
        """``log P(X > k)``."""
        return self._answer(self._look_up(self._log_tails[1], k, 0.0, -np.inf, None))

    def sf(self, k: ArrayLike) -> Any:
        """``P(X > k)``, with relative accuracy however small."""
        return self._answer(self._look_up(self._tails[1], k, 1.0, 0.0, None))

    def _quantile(self, q: ArrayLike, rising: Array, sign: float) -> Ints:
        """Return the first value where ``rising >= sign q``, with the ends of the support at q = 0 and 1."""
        x = probability("q", q)
        shape = broadcast_shape("q", x.shape, self.batch_shape)
        x = np.broadcast_to(x, shape)
        rows = np.broadcast_to(np.arange(rising.shape[0]).reshape(self.batch_shape), shape)
        index = np.zeros(shape, dtype=np.int64)
        order = np.argsort(rows, axis=None, kind="stable")
        ends = np.searchsorted(rows.ravel()[order], np.arange(rising.shape[0] + 1))
        for row in range(rising.shape[0]):
            here = order[ends[row] : ends[row + 1]]
            index.flat[here] = np.searchsorted(rising[row], sign * x.ravel()[here], side="left")
        low, high = (np.broadcast_to(end, shape) for end in self.support)
        found = self._lattice.offset + self._lattice.step * index
        bottom, top = (0.0, 1.0) if sign > 0 else (1.0, 0.0)
        return np.asarray(np.where(x == bottom, low - 1, np.where(x == top, high, np.clip(found, low, high))))

    def ppf(self, q: ArrayLike) -> Any:
        """Smallest k with ``cdf(k) >= q``; as in `scipy.stats`, ppf(0) is one below the support."""
        return self._quantile(q, self._tails[0], 1.0)[()]

    def isf(self, q: ArrayLike) -> Any:
        """Smallest k with ``sf(k) <= q``; as in `scipy.stats`, isf(1) is one below the support."""
        return self._quantile(q, -self._tails[1], -1.0)[()]

    @cached_property
    def median(self) -> Any:
        """Smallest k with ``cdf(k) >= 1/2``."""
        return self.ppf(0.5)

    def interval(self, confidence: ArrayLike) -> tuple[Any, Any]:
        """Return an interval that leaves at most ``(1 - confidence) / 2`` on either side."""
        tail = (1.0 - probability("confidence", confidence)) / 2.0
        return self.ppf(tail), self.isf(tail)

    def sample(
        self, size: int | tuple[int, ...] | None = None, *, rng: np.random.Generator | int | None = None
    ) -> Any:
        """Draw sums independently.

        Parameters
        ----------
        size : int or tuple of int, optional
            Leading shape of the draws; one draw if omitted.
        rng : numpy.random.Generator, int or None
            Source of randomness, or its seed.

        Returns
        -------
        int64 array (size..., batch...)

        Notes
        -----
        Cost: O(n) per draw for few draws; for many, the table once and O(log n) per draw.
        Accuracy: exact up to the 53 bits of a uniform number.

        Examples
        --------
        >>> tt.PoissonBinomial([0.0, 1.0, 1.0]).sample(4, rng=0)
        array([2, 2, 2, 2])
        """
        lead = sample_shape(size)
        generator = np.random.default_rng(rng)
        count = int(np.prod(lead, dtype=np.int64))
        if count * self._nu.size <= BERNOULLI_DRAWS:
            drawn = generator.random((*lead, *self._nu.shape)) < self._p
            return (drawn @ self.weights)[()]
        u = generator.random((*lead, *self.batch_shape))
        # each half of u uses the accurate side of the distribution; u = 0 stands for its cell of width 2^-53
        upper = u >= 0.5
        low = self.ppf(np.where(upper, 0.5, u + 2.0**-54))
        return np.where(upper, self.isf(np.where(upper, 1.0 - u, 0.5)), low)[()]


def _rebuild(kind: str, given: NDArray[Any], weights: Ints | None, method: str) -> PoissonBinomial:
    probs, logits = (given, None) if kind == "probs" else (None, given)
    return PoissonBinomial(probs, logits=logits, weights=weights, method=method)
