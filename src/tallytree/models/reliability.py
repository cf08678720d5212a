"""Reliability of systems that need some number of their components: k-out-of-n, k-to-l-out-of-n, importances.

Components work independently, component i with probability p_i. A k-out-of-n:G system works while at least k
components are good; a k-out-of-n:F system fails as soon as at least k components have failed. Every function
returns the probability that the *system works*, or its logarithm.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tallytree import checks
from tallytree.checks.sums import from_probs
from tallytree.engine.pmf.log_pmf import leave_one_out_log_pmf
from tallytree.errors import ParameterError
from tallytree.models.poisson_binomial import PoissonBinomial

__all__ = [
    "birnbaum_importance",
    "k_out_of_n",
    "k_to_l_out_of_n",
    "log_birnbaum_importance",
    "log_k_out_of_n",
    "log_k_to_l_out_of_n",
]


def log_k_out_of_n(probs: ArrayLike, k: int, *, system: str = "G") -> Any:
    """Logarithm of :func:`k_out_of_n`, for probabilities below the range of float64 or next to 1."""
    count = _good_components(probs)
    return count.logsf(_good_needed(k, count.n, system) - 1)


def k_out_of_n(probs: ArrayLike, k: int, *, system: str = "G") -> Any:
    """Probability that a k-out-of-n system works.

    A G system ("good") works if at least k of its n components work: ``P(X >= k)``, where X is the number of working
    components. An F system ("failed") fails as soon as k components have failed: it works with ``P(X >= n - k + 1)``.

    Parameters
    ----------
    probs : array_like (..., n)
        Probabilities that the components work.
    k : int
        Number of good (G) or failed (F) components, ``0 <= k <= n + 1``.
    system : {"G", "F"}
        What k counts.

    Returns
    -------
    float or ndarray, (...)
        Probabilities, with relative accuracy however small.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.k_to_l_out_of_n
    tallytree.birnbaum_importance
    tallytree.PoissonBinomial

    Notes
    -----
    Cost: one Poisson-binomial table, O(n^2) simple steps up to n of about 10^4 and O(n^1.5) beyond.
    Accuracy: 1e-10 relative, however small the answer. A small probability of *failure* is accurate if failures are
    counted: with the probabilities ``q`` that components fail, ``k_out_of_n(q, n - k + 1)`` is the probability of at
    least ``n - k + 1`` failures.

    References
    ----------
    Barlow and Heidtmann, IEEE Transactions on Reliability 33 (1984). Belfore, the same 44 (1995).

    Examples
    --------
    >>> tt.k_out_of_n([0.9, 0.8, 0.7], 2).round(6)
    np.float64(0.902)
    >>> tt.k_out_of_n([0.9, 0.8, 0.7], 1, system="F").round(6)  # no component may fail
    np.float64(0.504)

    Two of three have to work, and each fails with probability 1e-100; 1 - 1e-100 would round to 1:

    >>> float(np.log10(tt.k_out_of_n([1e-100, 1e-100, 1e-100], 3 - 2 + 1)).round(6))
    -199.522879
    """
    return np.exp(log_k_out_of_n(probs, k, system=system))


def log_k_to_l_out_of_n(probs: ArrayLike, k: int, l: int, *, system: str = "G") -> Any:  # noqa: E741
    """Logarithm of :func:`k_to_l_out_of_n`."""
    count = _good_components(probs)
    low, high = checks.integer("k", k, 0, count.n), checks.integer("l", l, 0, count.n)
    if low > high:
        raise ParameterError(f"`k` must not exceed `l`; k={low}, l={high} arrived.")
    table = count.count_log_probs
    if checks.one_of("system", system, ("G", "F")) == "G":
        parts = table[..., low : high + 1]
    else:  # works with fewer than k failures or more than l
        parts = np.concatenate([table[..., : count.n - high], table[..., count.n - low + 1 :]], axis=-1)
    total = np.logaddexp.reduce(np.sort(parts, axis=-1), axis=-1, initial=-np.inf)
    return np.minimum(total, 0.0)  # rounding may lift a sum of almost everything above 1


def k_to_l_out_of_n(probs: ArrayLike, k: int, l: int, *, system: str = "G") -> Any:  # noqa: E741
    """Probability that a k-to-l-out-of-n system works (Belfore).

    A G system works if the number X of working components is from k to l: ``P(k <= X <= l)``. An F system fails if the
    number of failed components is from k to l.

    Parameters
    ----------
    probs : array_like (..., n)
        Probabilities that the components work.
    k, l : int
        Smallest and largest count, ``0 <= k <= l <= n``.
    system : {"G", "F"}
        What k and l count.

    Returns
    -------
    float or ndarray, (...)
        Probabilities, with relative accuracy however small.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.k_out_of_n
    tallytree.PoissonBinomial

    Notes
    -----
    Cost: as :func:`k_out_of_n`.
    Accuracy: 1e-10 relative: only positive terms are added.

    Examples
    --------
    >>> tt.k_to_l_out_of_n([0.9, 0.8, 0.7], 1, 2).round(6)
    np.float64(0.49)
    """
    return np.exp(log_k_to_l_out_of_n(probs, k, l, system=system))


def log_birnbaum_importance(probs: ArrayLike, k: int, *, system: str = "G") -> Any:
    """Logarithm of :func:`birnbaum_importance`."""
    count = _good_components(probs)
    needed = _good_needed(k, count.n, system)
    nu, table = count.logits, count.count_log_probs
    out = np.full(nu.shape, -np.inf)
    if 1 <= needed <= count.n:
        for row in np.ndindex(count.batch_shape):
            out[row] = leave_one_out_log_pmf(nu[row], table[row], needed - 1)
    return out


def birnbaum_importance(probs: ArrayLike, k: int, *, system: str = "G") -> Any:
    """Birnbaum importance of every component of a k-out-of-n system.

    ``d P(system works) / d p_i``: the probability that component i decides, because exactly ``k - 1`` of the other
    components work (G system) or have failed (F system).

    Parameters
    ----------
    probs : array_like (..., n)
        Probabilities that the components work.
    k : int
        Number of good (G) or failed (F) components, ``0 <= k <= n + 1``.
    system : {"G", "F"}
        What k counts.

    Returns
    -------
    ndarray, (..., n)
        How much the reliability of the system changes with that of each component.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.k_out_of_n
    tallytree.PoissonBinomial

    Notes
    -----
    Cost: one Poisson-binomial table and O(n s) more for the s counts around k that matter.
    Accuracy: 1e-10 relative, however small.

    Examples
    --------
    >>> tt.birnbaum_importance([0.9, 0.8, 0.7], 2).round(6)
    array([0.38, 0.34, 0.26])
    """
    return np.exp(log_birnbaum_importance(probs, k, system=system))


def _good_components(probs: ArrayLike) -> PoissonBinomial:
    """The number of good components."""
    from_probs(
        probs, " They are the probabilities that components work; turn log-odds into them with `expit`."
    )
    return PoissonBinomial(probs)


def _good_needed(k: int, n: int, system: str) -> int:
    """Return the number of good components that the system needs."""
    whole = checks.integer("k", k, 0, n + 1)
    return whole if checks.one_of("system", system, ("G", "F")) == "G" else n - whole + 1
