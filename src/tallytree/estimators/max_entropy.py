"""Maximum-entropy (conditional Poisson) sampling from inclusion probabilities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtri
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, check_random_state

from .. import checks, display
from ..arrays import Float64, Ints, Size
from ..errors import ParameterError
from ..learn.fixed_counts import balancing_shift, logits_from_inclusion
from ..models.count import CountModel
from ..potentials import exactly
from ._bags import ShowsAnswers, confidence_level, warn

_PAIRS = 1 << 22  # joint probabilities held at a time


@dataclass(frozen=True)
class HorvitzThompson:
    """Estimate of a population total with its estimated variance.

    Attributes
    ----------
    total : float
        Estimate of the total.
    variance : float
        Estimate of its variance, by Sen, Yates and Grundy; it can be negative.

    See Also
    --------
    tallytree.estimators.MaxEntropySampler

    Examples
    --------
    >>> design = tt.estimators.MaxEntropySampler().fit([0.5, 0.5, 0.5, 0.5])
    >>> design.horvitz_thompson([0, 2], [1.0, 1.0, 1.0, 1.0]).total
    4.0
    """

    total: float
    variance: float

    @property
    def standard_error(self) -> float:
        """Square root of the variance, NaN where the estimate is negative.

        See Also
        --------
        MaxEntropySampler.horvitz_thompson

        Examples
        --------
        >>> round(HorvitzThompson(total=4.0, variance=2.25).standard_error, 6)
        1.5
        """
        return float(np.sqrt(self.variance)) if self.variance >= 0 else float("nan")

    def conf_int(self, level: float | None = None, *, alpha: float | None = None) -> tuple[float, float]:
        """Confidence interval of the total, by the normal approximation.

        Parameters
        ----------
        level : float, optional
            Coverage, default 0.95.
        alpha : float, optional
            ``1 - level``, as in statsmodels; in place of `level`.

        Returns
        -------
        tuple of two floats
            Lower and upper end: ``total`` minus and plus a normal quantile times the standard error.

        Raises
        ------
        ParameterError
            If the estimate of the variance is negative, as that of Sen, Yates and Grundy can be.

        See Also
        --------
        MaxEntropySampler.horvitz_thompson

        Examples
        --------
        >>> low, high = HorvitzThompson(total=4.0, variance=0.25).conf_int()
        >>> round(low, 4), round(high, 4)
        (3.02, 4.98)
        """
        coverage = confidence_level(level, alpha)
        if self.variance < 0:
            raise ParameterError(
                f"An interval needs a variance of at least 0; {self.variance:.6g} was estimated. Draw a larger sample."
            )
        half = float(ndtri(0.5 + 0.5 * coverage)) * self.standard_error
        return self.total - half, self.total + half


@dataclass(eq=False, repr=False)
class MaxEntropySampler(ShowsAnswers, BaseEstimator):  # type: ignore[misc]
    """Samples of fixed size with given inclusion probabilities and otherwise maximal entropy.

    ``p(s) = exp(sum_{i in s} theta_i) / e_n(exp theta)`` over samples s of size n, with ``P(i in s) =
    pik_i``.

    Parameters
    ----------
    method : {"newton", "fixed-point"}
        How the log-odds are found, see :func:`tallytree.learn.logits_from_inclusion`.
    tol : float
        Largest error of an inclusion probability.
    max_iter : int
        Largest number of iterations.
    random_state : int, RandomState or None
        Seed of the stream from which :meth:`sample` draws if it gets no `rng`.

    Attributes
    ----------
    logits_ : (N,) array
        Log-odds theta; ``inf`` for units that are always in the sample, ``-inf`` for those that never are. A constant
        is added so that `pikt_` sums to n.
    pikt_ : (N,) array
        Probabilities of the Poisson sampling design which, conditioned on its size n, is this design: the sigmoid of
        `logits_`.
    inclusion_probabilities_ : (N,) array
        Inclusion probabilities that the design really has, within `tol` of those asked for.
    sample_size_ : int
        Sample size n.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.estimators.HorvitzThompson
    tallytree.learn.logits_from_inclusion

    Notes
    -----
    Cost: three or four inferences of :class:`~tallytree.CountModel` for large populations; where the sample is
    small, a few dozen. O(N) per sample.

    Accuracy: inclusion probabilities to `tol`, joint ones to 1e-10 relative.

    References
    ----------
    Chen, Dempster and Liu, Biometrika 1994. Deville 2000. Matei and Tille, Journal of Official Statistics
    2005.

    Examples
    --------
    >>> from tallytree.estimators import MaxEntropySampler
    >>> sampler = MaxEntropySampler(random_state=0).fit([0.07, 0.17, 0.41, 0.61, 0.83, 0.91])
    >>> sampler.pikt_.round(4)
    array([0.1021, 0.2238, 0.4417, 0.5796, 0.7794, 0.8734])
    >>> sampler.joint_inclusion_probabilities()[0, 1].round(6)
    np.float64(0.004917)
    >>> sampler.sample(2).sum(axis=1)
    array([3, 3])
    """

    method: str = "newton"
    tol: float = 1e-13
    max_iter: int = 100
    random_state: Any = None

    @staticmethod
    def inclusion_probabilities(sizes: ArrayLike, n: int) -> Float64:
        """Inclusion probabilities proportional to size, at most 1, that sum to n.

        Parameters
        ----------
        sizes : (N,) array_like
            Sizes of the units, not negative.
        n : int
            Size of the sample.

        Returns
        -------
        ndarray, (N,)
            To be passed to :meth:`fit`.

        Raises
        ------
        ParameterError
            If ``sizes`` are negative, or fewer than ``n`` are positive.

        See Also
        --------
        fit

        Examples
        --------
        >>> MaxEntropySampler.inclusion_probabilities([1, 1, 2, 8], 2)
        array([0.25, 0.25, 0.5 , 1.  ])
        """
        x, n = checks.array("sizes", sizes, ("n",)), checks.integer("n", n)
        if (x < 0).any() or not 0 < n <= (x > 0).sum():
            raise ParameterError(
                f"`sizes` must not be negative, and at least `n` of them positive; n = {n} and "
                f"{int((x > 0).sum())} positive ones of {len(x)} arrived."
            )
        full = np.zeros(len(x), bool)
        while True:
            pik = np.where(full, 1.0, x * (n - full.sum()) / x[~full].sum() if (~full).any() else 1.0)
            over = (pik >= 1.0) & ~full
            if not over.any():
                return pik
            full |= over

    def _answers_html(self) -> str:
        facts = f"<p>samples of {self.sample_size_} out of {len(self.inclusion_probabilities_)} units</p>"
        return facts + display.bars_of_variables(self.inclusion_probabilities_, "P(unit is in the sample)")

    def fit(self, pik: ArrayLike, y: None = None) -> MaxEntropySampler:
        """Find the design that has these inclusion probabilities.

        Parameters
        ----------
        pik : (N,) array
            Inclusion probabilities in [0, 1] whose sum is the sample size, an integer.
        y : None
            Ignored.

        Returns
        -------
        MaxEntropySampler
            The estimator itself.

        Raises
        ------
        ParameterError
            If ``pik`` are not probabilities, or their sum is not an integer.

        See Also
        --------
        sample, inclusion_probabilities

        Examples
        --------
        >>> design = MaxEntropySampler(random_state=0).fit([0.25, 0.5, 0.5, 0.75])
        >>> design.sample_size_, design.inclusion_probabilities_.round(6)
        (2, array([0.25, 0.5 , 0.5 , 0.75]))
        """
        hint = " `MaxEntropySampler.inclusion_probabilities` turns sizes into probabilities."
        pi = checks.array("pik", pik, ("N",), checks.PROBABILITIES, hint=hint)
        if not len(pi):
            raise ParameterError("`pik` must hold the probabilities of at least one unit; none arrived.")
        checks.one_of("method", self.method, ("newton", "fixed-point"))
        checks.real("tol", self.tol, 0.0, infinite=True)
        checks.integer("max_iter", self.max_iter, 1)
        total = float(pi.sum())
        n = round(total)
        if abs(total - n) > 1e-6 * max(1.0, total):
            raise ParameterError(
                f"`pik` must sum to an integer, the size of the sample; the sum is {total:.10g}. "
                "Rescale it, for instance with `MaxEntropySampler.inclusion_probabilities`."
            )
        attained = _rounded(pi, n)
        inner = np.flatnonzero((attained > 0) & (attained < 1))
        logits = np.where(attained >= 1, np.inf, -np.inf)
        self.n_iter_, self.sample_size_ = 0, n
        k = n - int((attained >= 1).sum())
        if len(inner):
            found = logits_from_inclusion(
                attained[inner], k, method=self.method, tolerance=self.tol, max_iterations=self.max_iter
            )
            if not found.converged:
                warn(
                    f"The inclusion probabilities are off by up to {found.error:.3g} after {found.n_iterations} "
                    "iterations. Use `method='newton'` or raise `max_iter`.",
                    ConvergenceWarning,
                )
            logits[inner] = found.theta + balancing_shift(found.theta, k)
            attained[inner] = found.marginals
            self.n_iter_ = found.n_iterations
        self.logits_ = logits
        self.pikt_ = np.asarray(expit(logits))
        self.inclusion_probabilities_ = attained
        self._generator = np.random.default_rng(check_random_state(self.random_state).randint(2**31))
        return self

    def sample(self, size: Size = 1, rng: np.random.Generator | int | None = None) -> NDArray[np.bool_]:
        """Independent samples, (size, N) of truth values.

        Parameters
        ----------
        size : int, tuple of int or None
            How many; None draws one, without an axis for it.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Source of randomness. Default: the stream that `random_state` started in :meth:`fit` continues, so that
            every call gives other samples.

        Returns
        -------
        ndarray of bool, (size..., N)
            Every row has ``sample_size_`` units.

        Raises
        ------
        ParameterError
            If ``size`` is negative, or ``rng`` cannot be used.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        horvitz_thompson, fit

        Notes
        -----
        Cost: O(N) per sample. Exact (see :meth:`CountModel.sample`).

        Examples
        --------
        >>> design = MaxEntropySampler(random_state=0).fit([0.25, 0.5, 0.5, 0.75])
        >>> design.sample(3, rng=0).sum(axis=1)
        array([2, 2, 2])
        """
        check_is_fitted(self)
        generator = self._generator if rng is None else checks.generator(rng)
        model = CountModel(self.logits_, exactly(self.sample_size_))
        return model.sample(size, rng=generator).astype(bool)

    def joint_inclusion_probabilities(self, units: ArrayLike | None = None) -> Float64:
        """Probabilities that two units are both in the sample; on the diagonal the inclusion probabilities.

        Parameters
        ----------
        units : (m,) array of int, optional
            The units wanted; default all N.

        Returns
        -------
        ndarray, (m, m)
            Symmetric.

        Raises
        ------
        ParameterError
            If ``units`` are not units of the population.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        sample, horvitz_thompson

        Notes
        -----
        Cost: m inferences of m variables, after one distribution of the count of the other units.

        Examples
        --------
        >>> design = MaxEntropySampler(random_state=0).fit([0.25, 0.5, 0.5, 0.75])
        >>> design.joint_inclusion_probabilities([0, 3]).round(4)
        array([[0.25  , 0.1338],
               [0.1338, 0.75  ]])
        """
        check_is_fitted(self)
        size = len(self.logits_)
        chosen = np.arange(size) if units is None else _distinct_units(units, size, "units")
        return np.concatenate([np.zeros((0, len(chosen))), *(block for _, block in self._joint(chosen))])

    def _joint(self, units: Ints) -> Iterator[tuple[Ints, Float64]]:
        return _joint_rows(self.logits_, self.inclusion_probabilities_, self.sample_size_, units)

    def horvitz_thompson(self, sample: ArrayLike, values: ArrayLike) -> HorvitzThompson:
        """Unbiased estimate of the population total of a quantity from one sample.

        ``sum_{i in s} v_i / pi_i``, with the variance estimate of Sen, Yates and Grundy.

        Parameters
        ----------
        sample : (N,) or (1, N) array of truth values, or indices of the units in the sample
            Which units were drawn.
        values : (N,) or (n,) array
            The quantity for all units, or for the sampled ones only: in the order of the indices, or of the units if
            `sample` holds truth values.

        Returns
        -------
        HorvitzThompson
            ``total`` and its ``variance``.

        Raises
        ------
        ParameterError
            If the sample has another size, or ``values`` do not fit it.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        sample, joint_inclusion_probabilities

        Notes
        -----
        Cost: n inferences of n variables and one distribution of the count of the other units; no matrix over the
        population is formed.

        Examples
        --------
        >>> design = MaxEntropySampler(random_state=0).fit([0.25, 0.5, 0.5, 0.75])
        >>> round(design.horvitz_thompson([1, 3], [10.0, 20.0, 20.0, 30.0]).total, 6)
        80.0
        >>> round(design.horvitz_thompson(design.sample(rng=0), [10.0, 20.0, 20.0, 30.0]).total, 6)
        80.0
        """
        check_is_fitted(self)
        size = len(self.pikt_)
        given = _distinct_units(sample, size, "sample")
        order = np.argsort(given)
        index = given[order]
        v = checks.real_array("values", values, "units")[0]
        if len(index) != self.sample_size_ or v.shape not in ((size,), (len(index),)):
            raise ParameterError(
                f"`sample` must hold {self.sample_size_} units and `values` one number for each of them or for all "
                f"{size} units; {len(index)} units and values of shape {v.shape} arrived."
            )
        v = v[index] if v.shape == (size,) else v[order]
        if not np.isfinite(v).all():
            raise ParameterError("`values` must be finite for every sampled unit; NaN or infinity arrived.")
        pi = self.inclusion_probabilities_[index]
        never = np.flatnonzero(pi == 0)
        if len(never):
            raise ParameterError(
                f"`sample` must hold units that can be drawn; unit {index[never[0]]} has inclusion probability 0."
            )
        scaled = v / pi
        variance = 0.0
        for rows, joint in self._joint(index):
            gap = (scaled[rows, None] - scaled) ** 2
            weight = np.outer(pi[rows], pi) / joint - 1.0
            variance += float((weight * gap).sum())
        return HorvitzThompson(float(scaled.sum()), 0.5 * variance)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags


def _rounded(pi: Float64, n: int) -> Float64:
    """Probabilities with sum n: what rounding of their sum leaves goes where it changes the log-odds least.

    Units that reach 0 or 1 by it stay there, and the others share what is left.
    """
    pi = pi.copy()
    while True:
        inner = np.flatnonzero((pi > 0) & (pi < 1))
        k = n - int((pi >= 1).sum())
        if k in (0, len(inner)):
            pi[inner] = min(k, 1)
            return pi
        room = pi[inner] * (1.0 - pi[inner])
        pi[inner] += (k - pi[inner].sum()) * (room / room.sum())
        pi = np.clip(pi, 0.0, 1.0)
        if ((pi[inner] > 0) & (pi[inner] < 1)).all():
            return pi


def _distinct_units(chosen: ArrayLike, size: int, name: str) -> Ints:
    """Indices of distinct units, from indices or from one truth value per unit."""
    array = checks.rectangular(name, chosen, "the indices of units, or one truth value for each")
    if array.ndim == 2 and array.shape[1] == size and len(array) != 1:
        raise ParameterError(
            f"`{name}` must be one sample; an array of {len(array)} arrived. Call it for every row."
        )
    if array.dtype == bool and array.size == size:
        return np.flatnonzero(array)
    index = checks.array(name, array, ("n",), checks.integers(0, size - 1, "units"))
    if len(np.unique(index)) < len(index):
        raise ParameterError(
            f"`{name}` must hold distinct units, because the design draws without replacement; "
            f"{checks.describe(chosen)} arrived. Zeros and ones that mark units must be truth values: astype(bool)."
        )
    return index


def _joint_rows(
    logits: Float64, inclusion: Float64, drawn: int, units: Ints
) -> Iterator[tuple[Ints, Float64]]:
    """Joint probabilities of `units` with one another, a few rows at a time, when `drawn` of all units are."""
    pi = inclusion[units]
    inner = np.flatnonzero(np.isfinite(logits[units]))
    model = _restricted(logits, drawn, units[inner]) if len(inner) else None
    place = np.full(len(units), -1)
    place[inner] = np.arange(len(inner))
    step = max(1, _PAIRS // max(1, len(units)))
    for start in range(0, len(units), step):
        rows = np.arange(start, min(start + step, len(units)))
        joint = np.outer(pi[rows], pi)  # certain and excluded units are independent of all others
        random = rows[place[rows] >= 0]
        if model is not None and len(random):
            found = model.pairwise(place[random][:, None], np.arange(len(inner)))
            joint[np.ix_(random - start, inner)] = found
        joint[rows - start, rows] = pi[rows]
        yield rows, joint


def _restricted(logits: Float64, drawn: int, units: Ints) -> CountModel:
    """The design restricted to some random units, its other units summed over."""
    theta = logits[units]
    k = drawn - int((logits == np.inf).sum())
    others = np.isfinite(logits)
    others[units] = False
    if not others.any():
        return CountModel(theta, exactly(k))
    law = np.asarray(CountModel(logits[others], np.zeros(int(others.sum()) + 1)).count_log_probs())
    left = k - np.arange(len(units) + 1)  # drawn among the others
    possible = (left >= 0) & (left < len(law))
    return CountModel(theta, np.where(possible, law[np.where(possible, left, 0)], -np.inf))
