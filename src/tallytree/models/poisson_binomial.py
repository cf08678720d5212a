"""The Poisson-binomial distribution: how many of n independent events happen, plain or weighted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from tallytree import checks
from tallytree.checks import configurations
from tallytree.checks.sums import from_probs, integer_weights, read_only, real_array
from tallytree.engine.pmf.log_pmf import MOST, SHORTEST, direct_log_pmf, log_pmf, log_probabilities
from tallytree.engine.pmf.weighted import Lattice, to_lattice, weighted_log_pmf
from tallytree.errors import ParameterError
from tallytree.memo import cached
from tallytree.models.conditional_sum import ConditionalPoissonBinomial, event_bounds
from tallytree.models.frozen_distribution import FrozenDistribution

from ..arrays import Float64, Ints

METHODS = ("auto", "recursion", "tilted")
BERNOULLI_DRAWS = 1 << 22  # up to this many uniform numbers, samples are sums of single draws


class PoissonBinomial(FrozenDistribution):
    """Distribution of ``X = sum_i w_i y_i`` for independent ``y_i`` that are 1 with probability ``p_i``.

    Parameters
    ----------
    probs : array_like (..., n), optional
        Probabilities in [0, 1]. Give either ``probs`` or ``logits``.
    logits : array_like (..., n), optional
        Log-odds in [-inf, inf]; they keep the digits of probabilities near 1.
    weights : array_like of int (n,), optional
        Weights of any sign, shared by the batch; all 1 if omitted.
    method : {"auto", "recursion", "tilted"}
        ``"auto"`` meets the accuracy below. The others are for study and comparison. ``"recursion"`` adds one
        variable at a time (Gail, Lubin and Rubinstein; Barlow and Heidtmann), in blocks that direct sums join.
        ``"tilted"`` reads windows of counts off characteristic functions (compiled engine, no weights).

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.ConditionalPoissonBinomial
    tallytree.CountModel
    tallytree.k_out_of_n

    Notes
    -----
    It takes the place of a frozen `scipy.stats` distribution such as ``poisson_binom(p)``: the methods have its
    names, arguments and meaning. Where `scipy.stats` answers NaN to a NaN or to a level outside [0, 1], an error
    says so; ``support()`` leaves out what probabilities of 0 and 1 exclude; quantiles are integers.

    Arguments ``k``, ``x`` and ``q`` broadcast against the batch axes: for a batch of shape (5,), ``k`` of shape
    (3, 1) gives (3, 5). Whole tables are in ``count_log_probs`` (..., m), the log-probabilities of ``values`` (m,).

    Cost: one probability of a long unweighted sum takes one pass, O(n). The table of all sums is computed once, at the
    first call that needs it. Unweighted: O(n^2) simple
    steps up to n of about 10^4, O(n^1.5) beyond. Weighted: O(n W), W the range of X over the greatest common
    divisor of the weights. Moments up to the fourth need no table: O(n).

    Accuracy: ``logpmf``, ``logcdf`` and ``logsf`` within 1e-10, absolute or relative, at every k.
    Probabilities are right down to the smallest float64; smaller ones have their logarithm. All answers are
    float64, also for float32 parameters.

    Examples
    --------
    >>> x = tt.PoissonBinomial([0.1, 0.5, 0.9])
    >>> x
    PoissonBinomial(n=3)
    >>> x.pmf([0, 1, 2, 3]).round(3)
    array([0.045, 0.455, 0.455, 0.045])
    >>> x.sf(1).round(3), x.ppf(0.9), x.mean()
    (np.float64(0.5), np.int64(2), np.float64(1.5))

    The far tail keeps its digits:

    >>> tt.PoissonBinomial(np.full(10_000, 0.999)).logpmf(0).round(3)
    np.float64(-69077.553)

    Weighted, and the probabilities of the single events given a majority:

    >>> votes = tt.PoissonBinomial([0.9, 0.5, 0.2], weights=[3, 20, 16])
    >>> votes.sf(19).round(3), votes.given(low=20).marginals.round(3)
    (np.float64(0.5), array([0.9, 1. , 0.2]))
    """

    _nu: Float64
    _p: Float64
    _q: Float64  # kept beside p: the digits of probabilities near 1
    _weights: Ints | None
    _method: str
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
        checks.one_of("method", method, METHODS)
        if probs is not None:
            kind, given = "probs", real_array("probs", probs)
            p, q, nu = from_probs(given)
        else:
            assert logits is not None
            kind, given = "logits", real_array("logits", logits)
            nu = given + 0.0  # -0.0 and 0.0 are one parameter
            p, q = expit(nu), expit(-nu)
        checked = None if weights is None else integer_weights(weights, nu.shape[-1])
        if method == "tilted" and checked is not None:
            raise ParameterError('`method="tilted"` takes no `weights`; use "auto".')
        read_only(*(x for x in (given, p, q, nu, checked) if x is not None))
        self.__dict__.update(_nu=nu, _p=p, _q=q, _weights=checked, _method=method, _given=(kind, given))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (*self._given, self._weights, self._method)

    def _parts(self) -> tuple[Any, ...]:
        return self._nu, self._weights, self._method

    def __repr__(self) -> str:
        parts = [f"n={self.n}"]
        if self._weights is not None:
            parts.append("weighted")
        if self.batch_shape:
            parts.append(f"batch={self.batch_shape}")
        if self._method != "auto":
            parts.append(f"method={self._method!r}")
        return f"PoissonBinomial({', '.join(parts)})"

    # -- parameters --------------------------------------------------------------------------------------------

    @property
    def n(self) -> int:
        """Number of variables."""
        return int(self._nu.shape[-1])

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of the parameters."""
        return tuple(int(size) for size in self._nu.shape[:-1])

    @property
    def probs(self) -> Float64:
        """Probabilities (..., n), read-only."""
        return self._p

    @property
    def logits(self) -> Float64:
        """Log-odds (..., n), read-only."""
        return self._nu

    @property
    def weights(self) -> Ints:
        """Weights (n,)."""
        return np.ones(self.n, dtype=np.int64) if self._weights is None else self._weights

    # -- the table ---------------------------------------------------------------------------------------------

    @cached
    def _lattice(self) -> Lattice:
        nu = self._nu.reshape(int(np.prod(self.batch_shape, dtype=np.int64)), self.n)
        if self._weights is None:
            return Lattice(0, 1, nu, np.ones(self.n, dtype=np.int64))
        return to_lattice(nu, self._weights)

    @cached
    def _log_table(self) -> Float64:
        _, _, nu, weights = self._lattice
        if not np.all(weights == 1):
            table = weighted_log_pmf(nu, weights)
        else:
            table = direct_log_pmf(nu) if self._method == "recursion" else log_pmf(nu)
        read_only(table)
        return table

    def _few_logs(self, which: str, name: str, x: ArrayLike) -> Float64 | None:
        """One inference per point, as long as no table of all counts is at hand and points are few."""
        known = "_log_table" in self.__dict__ or self._method != "auto"
        if known or self._weights is not None or self.batch_shape or self.n <= SHORTEST:
            return None
        points = real_array(name, x, least_axes=0)
        if points.size > MOST:
            return None
        return log_probabilities(self._nu, float(self._p.sum()), which, points)

    @cached
    def _bounds(self) -> tuple[Any, Any]:
        w = self.weights
        # p rounds to 1 for a finite logit above 36: possible is what the log-odds say
        low = np.where(w > 0, self._nu == np.inf, self._nu > -np.inf) * w
        high = np.where(w > 0, self._nu > -np.inf, self._nu == np.inf) * w
        return low.sum(axis=-1)[()], high.sum(axis=-1)[()]

    # -- moments and draws without the table -------------------------------------------------------------------

    @cached
    def _cumulants(self) -> tuple[Float64, Float64, Float64, Float64]:
        """Cumulants of independent variables add: ``w p``, ``w^2 pq``, ``w^3 pq(q - p)``, ``w^4 pq(1 - 6pq)``."""
        pq = self._p * self._q
        terms = (self._p, pq, pq * (self._q - self._p), pq * (1.0 - 6.0 * pq))
        w = self.weights.astype(np.float64)
        found = (np.asarray((term * w ** (i + 1)).sum(axis=-1)) for i, term in enumerate(terms))
        return tuple(found)  # type: ignore[return-value]

    def _raw_moment(self, power: int) -> Any:
        mean, second, third, fourth = self._cumulants
        short = (
            np.ones(self.batch_shape),
            mean,
            second + mean**2,
            third + 3.0 * second * mean + mean**3,
            fourth + 4.0 * third * mean + 3.0 * second**2 + 6.0 * second * mean**2 + mean**4,
        )
        return short[power][()] if power < len(short) else super()._raw_moment(power)

    def _draw(self, shape: tuple[int, ...], uniform: Callable[..., Float64]) -> Ints:
        """Sums of single draws where they are few, quantiles of the table where they are many."""
        if int(np.prod((*shape, self.n), dtype=np.int64)) <= BERNOULLI_DRAWS:
            return np.asarray((uniform((*shape, self.n)) < self._p) @ self.weights)
        return super()._draw(shape, uniform)

    # -- evidence ----------------------------------------------------------------------------------------------

    def given(
        self, value: ArrayLike | None = None, *, low: ArrayLike | None = None, high: ArrayLike | None = None
    ) -> ConditionalPoissonBinomial:
        """The sum and the single variables, given the sum or a range of it.

        Parameters
        ----------
        value : int or array of int, optional
            Condition on ``X = value``.
        low, high : int or array of int, optional
            Condition on ``low <= X <= high``, both included; one of them may be left out. Arrays broadcast to the
            batch.

        Returns
        -------
        ConditionalPoissonBinomial
            A distribution with the same methods, and ``marginals``, the probabilities of the variables given this.

        Raises
        ------
        ParameterError
            If neither a value nor a bound is given, or both are, or they are no whole numbers.
        InfeasibleError
            If the sum cannot lie there.

        See Also
        --------
        condition, ConditionalPoissonBinomial

        Notes
        -----
        Cost: nothing until asked. Then ``marginals`` take one inference of a count model, near-linear in n, or
        O(n W) with weights, W the range of X.

        Examples
        --------
        >>> x = tt.PoissonBinomial([0.1, 0.5, 0.9], weights=[1, 2, 3])
        >>> x.given(3).marginals.round(3)
        array([0.012, 0.012, 0.988])
        >>> x.given(low=3).pmf([2, 3, 4]).round(3)
        array([0.   , 0.453, 0.05 ])
        """
        return ConditionalPoissonBinomial(self, *event_bounds(value, low, high, self.batch_shape))

    def condition(self, evidence: Mapping[int, int]) -> PoissonBinomial:
        """The distribution given the values of some variables.

        Parameters
        ----------
        evidence : mapping of int to int
            Variables and their values, 0 or 1.

        Returns
        -------
        PoissonBinomial
            The distribution of the same sum.

        Raises
        ------
        ParameterError
            If ``evidence`` is no mapping, or names a variable or value that does not exist.

        See Also
        --------
        given

        Examples
        --------
        >>> tt.PoissonBinomial([0.1, 0.5, 0.9]).condition({0: 1}).pmf([0, 1, 2, 3]).round(3)
        array([0.  , 0.05, 0.5 , 0.45])
        """
        variables, tables = configurations.evidence(evidence, self.n)
        logits = np.array(self._nu)
        for variable, table in zip(variables.tolist(), tables):
            logits[..., variable] = np.inf if table[1] == 0.0 else -np.inf
        return PoissonBinomial(logits=logits, weights=self._weights, method=self._method)


def _rebuild(kind: str, given: NDArray[Any], weights: Ints | None, method: str) -> PoissonBinomial:
    probs, logits = (given, None) if kind == "probs" else (None, given)
    return PoissonBinomial(probs, logits=logits, weights=weights, method=method)
