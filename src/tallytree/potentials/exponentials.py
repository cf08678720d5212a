"""Potentials that are sums of a few powers ``rate**c``: uniform, geometric, spike-and-slab, and mixtures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tallytree.checks.numbers import FloatArray, check_range, check_real, show
from tallytree.errors import ParameterError
from tallytree.potentials import rows
from tallytree.potentials.base import Formula, Potential
from tallytree.potentials.expansions import Expansion, expansion
from tallytree.potentials.per_model import one_per_model

Numbers = float | npt.ArrayLike


def uniform() -> Potential:
    """Potential that treats all counts alike.

    ``f(c) = 1``.

    Returns
    -------
    Potential
        To be passed to :class:`~tallytree.CountModel` or in a :class:`~tallytree.Group`.

    See Also
    --------
    tallytree.table
    tallytree.CountModel

    Notes
    -----
    Cost: O(n) for the table; the mixture has one term.
    Accuracy: exact.

    Examples
    --------
    >>> tt.uniform().log_table(2)
    array([0., 0., 0.])
    """
    return Uniform()


@one_per_model(
    float,
    rows=lambda c, n, ratio: rows.multiples(c, np.log(ratio)),
    legal=lambda ratio: (ratio >= 0.0) & (ratio < np.inf),
)
def geometric(ratio: Numbers) -> Potential:
    """Potential that multiplies by ``ratio`` for each active variable.

    ``f(c) = ratio**c``, ``log f(c) = c log(ratio)``. The same as adding ``log(ratio)`` to every logit.

    Parameters
    ----------
    ratio : float or array of floats
        At least 0 and finite; above one it rewards activity. ``0**0 = 1``, so 0 allows count 0 only.

    Returns
    -------
    Potential
        To be passed to :class:`~tallytree.CountModel` or in a :class:`~tallytree.Group`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.exponential_mixture
    tallytree.poisson
    tallytree.CountModel

    Notes
    -----
    Cost: O(n) for the table; the mixture has one term.
    Accuracy: relative 1e-13 in ``log f``.

    Examples
    --------
    >>> np.exp(tt.geometric(0.5).log_table(3))
    array([1.   , 0.5  , 0.25 , 0.125])
    """
    return Geometric(check_real(ratio, "ratio", 0.0))


@one_per_model(
    float,
    float,
    rows=rows.spike_and_slab,
    legal=lambda spike, slab: (spike >= 0.0) & (slab >= 0.0) & (spike + slab > 0.0) & (spike + slab < np.inf),
)
def spike_and_slab(spike: Numbers, slab: Numbers = 1.0) -> Potential:
    """Flat potential with extra weight on "all off", for group sparsity.

    ``f(0) = slab + spike``, ``f(c) = slab`` for ``c > 0``; that is ``f(c) = slab + spike * 0**c``.

    Parameters
    ----------
    spike : float or array of floats
        Extra weight at count 0, at least 0 and finite.
    slab : float or array of floats
        Weight of every count, at least 0 and finite; not both weights may be 0.

    Returns
    -------
    Potential
        To be passed to :class:`~tallytree.CountModel` or in a :class:`~tallytree.Group`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.all_or_none
    tallytree.exponential_mixture
    tallytree.CountModel

    Notes
    -----
    Cost: O(n) for the table; the mixture has two terms.
    Accuracy: relative 1e-13 in ``f``.

    Examples
    --------
    >>> np.exp(tt.spike_and_slab(3.0).log_table(2))
    array([4., 1., 1.])
    """
    extra, flat = check_real(spike, "spike", 0.0), check_real(slab, "slab", 0.0)
    if not 0.0 < extra + flat < np.inf:
        raise ParameterError(
            "`spike_and_slab` needs weights with a positive, finite sum; "
            f"spike = {show(extra)} and slab = {show(flat)} arrived. Only their ratio matters: rescale them."
        )
    return SpikeAndSlab(extra, flat)


@one_per_model(
    float,
    float,
    core=1,
    rows=rows.mixture,
    legal=lambda coefficients, rates: _is_mixture(coefficients, rates),
)
def exponential_mixture(coefficients: npt.ArrayLike, rates: npt.ArrayLike) -> Potential:
    """Sum of exponentials in the count.

    ``f(c) = sum_j coefficients[j] * rates[j]**c``, with ``0**0 = 1``.

    Parameters
    ----------
    coefficients, rates : sequence of float
        Two sequences of the same length, at least one term, all finite and real; or arrays of shape (..., terms),
        one list of terms per model. Signs are free as long as
        ``f(c) >= 0`` for every count of the group.

    Returns
    -------
    Potential
        To be passed to :class:`~tallytree.CountModel` or in a :class:`~tallytree.Group`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.noisy_or
    tallytree.geometric
    tallytree.CountModel

    Notes
    -----
    Cost: O(n r) for the table of ``r`` terms; the mixture is given as it is.
    Accuracy: ``f`` within ``1e-13`` times the sum of the absolute terms. Where positive and negative terms
    cancel to less than their rounding error, ``f(c)`` is zero. The mixture is offered if no more than five
    digits cancel.

    Examples
    --------
    >>> np.exp(tt.exponential_mixture([1.0, -1.0], [1.0, 0.5]).log_table(3))
    array([0.   , 0.5  , 0.75 , 0.875])
    """
    terms, bases = _reals(coefficients, "coefficients"), _reals(rates, "rates")
    _refuse_lengths(len(terms), len(bases))
    if not any(terms):
        raise ParameterError(
            "`coefficients` must have a value other than 0, or every count is impossible; "
            f"{list(terms)} arrived. Drop the potential, or give a weight."
        )
    return ExponentialMixture(terms, bases)


def _refuse_lengths(terms: int, bases: int) -> None:
    if terms != bases:
        raise ParameterError(
            "`coefficients` and `rates` must have the same length, one rate per term; "
            f"{terms} coefficients and {bases} rates arrived. Give both for every term."
        )


def _is_mixture(coefficients: FloatArray, rates: FloatArray) -> Any:
    _refuse_lengths(coefficients.shape[-1], rates.shape[-1])
    if rates.shape[-1] == 0:
        return False
    known = np.isfinite(coefficients).all(-1, keepdims=True) & np.isfinite(rates).all(-1, keepdims=True)
    return known & (coefficients != 0.0).any(-1, keepdims=True)


def _reals(values: Any, name: str) -> tuple[float, ...]:
    try:
        items = list(values)
    except TypeError:
        items = []
    if not items or isinstance(values, str):
        raise ParameterError(
            f"`{name}` must be a sequence of at least one real number; {values!r} arrived. "
            "Wrap one number in a list."
        )
    return tuple(check_real(item, name) for item in items)


@dataclass(frozen=True, slots=True)
class Uniform(Formula):
    """See :func:`uniform`."""

    def __repr__(self) -> str:
        return "uniform()"

    def _at(self, c: FloatArray, n: int) -> FloatArray:
        return np.zeros_like(c)

    def _support(self, n: int) -> tuple[int, int]:
        return 0, n

    def _expansion(self, n: int) -> Expansion | None:
        return expansion([1.0], [1.0])


@dataclass(frozen=True, slots=True)
class Geometric(Formula):
    """See :func:`geometric`."""

    ratio: float

    def __repr__(self) -> str:
        return f"geometric({show(self.ratio)})"

    def _at(self, c: FloatArray, n: int) -> FloatArray:
        return rows.multiples(c, np.log(self.ratio))

    def _support(self, n: int) -> tuple[int, int]:
        return 0, n if self.ratio > 0.0 else 0

    def _expansion(self, n: int) -> Expansion | None:
        return expansion([1.0], [self.ratio])


@dataclass(frozen=True, slots=True)
class SpikeAndSlab(Formula):
    """See :func:`spike_and_slab`."""

    spike: float
    slab: float

    def __repr__(self) -> str:
        slab = "" if self.slab == 1.0 else f", slab={show(self.slab)}"
        return f"spike_and_slab({show(self.spike)}{slab})"

    def _at(self, c: FloatArray, n: int) -> FloatArray:
        return rows.spike_and_slab(c, n, self.spike, self.slab)

    def _support(self, n: int) -> tuple[int, int]:
        return 0, n if self.slab > 0.0 else 0

    def _expansion(self, n: int) -> Expansion | None:
        return expansion([self.slab, self.spike], [1.0, 0.0])


@dataclass(frozen=True, slots=True)
class ExponentialMixture(Potential):
    """See :func:`exponential_mixture`."""

    coefficients: tuple[float, ...]
    rates: tuple[float, ...]

    def __repr__(self) -> str:
        return f"exponential_mixture({list(self.coefficients)}, {list(self.rates)})"

    def _log_f(self, n: int) -> FloatArray:
        return self._evaluate(n)[0]

    def _evaluate(self, n: int) -> tuple[FloatArray, FloatArray]:
        """``log f`` and ``sum_j |term_j| / f`` (zero where ``f`` is) on the counts ``0..n``."""
        sums = rows.mixture_sums(rows.counts(n), np.array(self.coefficients), np.array(self.rates))
        total, size, rounding, _ = sums
        negative = total < -rounding
        if negative.any():
            first = int(np.argmax(negative))
            raise ParameterError(
                f"`exponential_mixture` must satisfy f(c) >= 0 for every count up to n = {n}; f({first}) is "
                f"negative for {self!r}. Change the signs, or build a `table`."
            )
        log_f = rows.log_of_mixture(*sums)
        with np.errstate(divide="ignore", invalid="ignore"):
            condition = np.where(log_f > -np.inf, size / total, 0.0)
        return check_range(log_f, log_f, self), condition

    def _expansion(self, n: int) -> Expansion | None:
        if min(self.coefficients) >= 0.0 and min(self.rates) >= 0.0:
            return expansion(self.coefficients, self.rates)
        worst = float(self._evaluate(n)[1].max())
        return expansion(self.coefficients, self.rates, worst)
