"""Maximum-entropy (conditional Poisson) sampling from inclusion probabilities."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, check_random_state

from ..errors import ParameterError
from ..learn.exactly import pair_sums, tilt
from ..learn.inclusion import logits_from_inclusion
from ..model import CountModel
from ..potentials import exactly

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class HorvitzThompson:
    """Estimate of a population total with its estimated variance."""

    total: float
    variance: float

    @property
    def standard_error(self) -> float:
        """Square root of the variance, NaN where the estimate is negative."""
        return float(np.sqrt(self.variance)) if self.variance >= 0 else float("nan")


class MaxEntropySampler(BaseEstimator):  # type: ignore[misc]
    """Samples of fixed size with given inclusion probabilities and otherwise maximal entropy.

    ``p(s) = exp(sum_{i in s} theta_i) / e_n(exp theta)`` over samples s of size n, with ``P(i in s) =
    pik_i``.

    Parameters
    ----------
    method : {"newton", "fixed-point"}
        How the log-odds are found.
    tol : float
        Largest error of an inclusion probability.
    max_iter : int
        Limit on iterations.
    random_state : int, RandomState or None
        Seed of :meth:`sample`.

    Attributes
    ----------
    logits_ : (N,) array
        Log-odds theta; ``inf`` for units that are always in the sample, ``-inf`` for those that never are.
        Scaled so that ``sum pikt_ = n``.
    pikt_ : (N,) array
        Poisson probabilities, sigmoid of `logits_`: a Poisson sample conditioned on its size is such a
        sample.
    inclusion_probabilities_ : (N,) array
        What the design attains.
    sample_size_ : int
        n.

    Notes
    -----
    Cost: O(N M) per Newton step, M a few dozen; O(N) per sample.

    Accuracy: inclusion probabilities to `tol`, joint ones to 1e-14 absolute.

    References
    ----------
    Chen, Dempster and Liu, Biometrika 1994. Deville 2000. Matei and Tille, Journal of Official Statistics
    2005.

    Examples
    --------
    >>> sampler = MaxEntropySampler(random_state=0).fit([0.07, 0.17, 0.41, 0.61, 0.83, 0.91])
    >>> sampler.pikt_.round(4)
    array([0.1021, 0.2238, 0.4417, 0.5796, 0.7794, 0.8734])
    >>> sampler.joint_inclusion_probabilities()[0, 1].round(6)
    np.float64(0.004917)
    >>> sampler.sample(2).sum(axis=1)
    array([3, 3])
    """

    def __init__(
        self, method: str = "newton", tol: float = 1e-13, max_iter: int = 100, random_state: Any = None
    ) -> None:
        self.method = method
        self.tol = tol
        self.max_iter = max_iter
        self.random_state = random_state

    @staticmethod
    def inclusion_probabilities(sizes: ArrayLike, n: int) -> Float64:
        """Probabilities proportional to size with sum n, capped at 1.

        Examples
        --------
        >>> MaxEntropySampler.inclusion_probabilities([1, 1, 2, 8], 2)
        array([0.25, 0.25, 0.5 , 1.  ])
        """
        x = np.asarray(sizes, np.float64)
        if x.ndim != 1 or not np.isfinite(x).all() or (x < 0).any() or not 0 < n <= (x > 0).sum():
            raise ParameterError(
                "`sizes` must be a vector of finite non-negative numbers, at least `n` of them positive; "
                f"shape {x.shape} with n = {n!r} arrived."
            )
        full = np.zeros(len(x), bool)
        while True:
            pik = np.where(full, 1.0, x * (n - full.sum()) / x[~full].sum() if (~full).any() else 1.0)
            over = (pik >= 1.0) & ~full
            if not over.any():
                return pik
            full |= over

    def fit(self, pik: ArrayLike, y: None = None) -> MaxEntropySampler:
        """Find the log-odds.

        Parameters
        ----------
        pik : (N,) array
            Inclusion probabilities in [0, 1] whose sum is the sample size, an integer.
        y : None
            Ignored.
        """
        pi = np.asarray(pik, np.float64)
        if pi.ndim != 1 or not np.isfinite(pi).all() or (pi < 0).any() or (pi > 1).any():
            raise ParameterError(
                f"`pik` must be a vector of probabilities; an array of shape {pi.shape} arrived. "
                "Sizes are turned into probabilities by `MaxEntropySampler.inclusion_probabilities`."
            )
        if self.method not in ("newton", "fixed-point"):
            raise ParameterError(f"`method` must be 'newton' or 'fixed-point'; {self.method!r} arrived.")
        total = float(pi.sum())
        n = round(total)
        if abs(total - n) > 1e-6 * max(1.0, total):
            raise ParameterError(
                f"`pik` must sum to an integer, the size of the sample; the sum is {total:.10g}. "
                "Rescale it, for instance with `MaxEntropySampler.inclusion_probabilities`."
            )
        inner = np.flatnonzero((pi > 0) & (pi < 1))
        logits = np.where(pi >= 1, np.inf, -np.inf)
        attained = pi.copy()
        self.n_iter_, self.sample_size_ = 0, n
        k = n - int((pi >= 1).sum())
        if len(inner):
            wanted = pi[inner] + (k - pi[inner].sum()) / len(inner)  # rounding of the sum alone
            found = logits_from_inclusion(
                wanted, k, method=self.method, tolerance=self.tol, max_iterations=self.max_iter
            )
            if not found.converged:
                warnings.warn(
                    f"The inclusion probabilities are off by up to {found.error:.3g} after "
                    f"{found.n_iterations} "
                    "iterations. Use `method='newton'` or raise `max_iter`.",
                    ConvergenceWarning,
                    stacklevel=2,
                )
            theta = found.theta + tilt(found.theta[None], np.array([k]))[0]
            theta += tilt(theta[None], np.array([k]))[0]  # polish: sum of pikt equal to n to rounding
            logits[inner] = theta
            attained[inner] = pair_sums(theta, k).marginals
            self.n_iter_ = found.n_iterations
        self.logits_ = logits
        self.pikt_ = np.asarray(expit(logits))
        self.inclusion_probabilities_ = attained
        return self

    def sample(self, size: int = 1) -> NDArray[np.bool_]:
        """Independent samples, (size, N) of truth values.

        Notes
        -----
        Cost: O(N) per sample. Exact (see :meth:`CountModel.sample`).
        """
        check_is_fitted(self)
        seed = check_random_state(self.random_state).randint(2**31)
        model = CountModel(self.logits_, exactly(self.sample_size_))
        return model.sample(size, rng=int(seed)).astype(bool)

    def joint_inclusion_probabilities(self) -> Float64:
        """P(i and j in the sample), (N, N), inclusion probabilities on the diagonal; O(N^2 M)."""
        check_is_fitted(self)
        inner = np.flatnonzero(np.isfinite(self.logits_))
        pi = self.inclusion_probabilities_
        joint = np.outer(pi, pi)
        np.fill_diagonal(joint, pi)
        if len(inner):
            k = self.sample_size_ - int((self.logits_ == np.inf).sum())
            joint[np.ix_(inner, inner)] = pair_sums(self.logits_[inner], k).joint()
        return joint

    def horvitz_thompson(self, sample: ArrayLike, values: ArrayLike) -> HorvitzThompson:
        """Unbiased estimate of the population total of a quantity from one sample.

        ``sum_{i in s} v_i / pi_i``, with the variance estimate of Sen, Yates and Grundy.

        Parameters
        ----------
        sample : (N,) array of truth values, or indices of the units in the sample
            Which units were drawn.
        values : (N,) or (n,) array
            The quantity for all units, or for the sampled ones in increasing order of index.
        """
        check_is_fitted(self)
        chosen = np.asarray(sample)
        size = len(self.pikt_)
        index = np.flatnonzero(chosen) if chosen.dtype == bool else np.sort(chosen.astype(np.int64))
        v = np.asarray(values, np.float64)
        if len(index) != self.sample_size_ or v.shape not in ((size,), (len(index),)):
            raise ParameterError(
                f"`sample` must hold {self.sample_size_} units and `values` one number for each of "
                "them or for all "
                f"{size} units; {len(index)} units and values of shape {v.shape} arrived."
            )
        v = v[index] if v.shape == (size,) else v
        pi = self.inclusion_probabilities_[index]
        joint = self.joint_inclusion_probabilities()[np.ix_(index, index)]
        scaled = v / pi
        gap = (scaled[:, None] - scaled[None, :]) ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = np.where(joint > 0, (np.outer(pi, pi) - joint) / joint, 0.0)
        np.fill_diagonal(weight, 0.0)
        return HorvitzThompson(float(scaled.sum()), float(0.5 * (weight * gap).sum()))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags
