"""Sums of a few powers ``rate**c``: uniform, geometric, spike-and-slab, noisy-OR and noisy-AND, and mixtures."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tallytree import checks
from tallytree.arrays import Float64
from tallytree.checks import NON_NEGATIVE, PROBABILITIES, REALS, integers
from tallytree.errors import ParameterError
from tallytree.potentials import formulas
from tallytree.potentials.base import Mirrored, Potential, check_range
from tallytree.potentials.envelope import Convexity, Stretch
from tallytree.potentials.expansions import Expansion, expansion
from tallytree.potentials.named import Named, Validated, factory

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


@factory(ratio=NON_NEGATIVE)
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
    return Geometric(ratio)


@factory(spike=NON_NEGATIVE, slab=NON_NEGATIVE)
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
    return SpikeAndSlab(spike, slab)


@factory(coefficients=REALS, rates=REALS, core=1)
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
    Cost: O(n r) for the table of ``r`` terms.
    Accuracy: ``f`` within ``1e-13`` times the sum of the absolute terms. Where positive and negative terms
    cancel to less than their rounding error, ``f(c)`` is zero. The mixture is offered if no more than five
    digits cancel.

    Examples
    --------
    >>> np.exp(tt.exponential_mixture([1.0, -1.0], [1.0, 0.5]).log_table(3))
    array([0.   , 0.5  , 0.75 , 0.875])
    """
    hint, given = " Wrap one number in a list.", {"coefficients": coefficients, "rates": rates}
    terms, bases = (
        tuple((checks.array(name, value, ("r",), REALS, hint=hint) + 0.0).tolist())
        for name, value in given.items()
    )
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


class Uniform(Named):
    """See :func:`uniform`."""

    convexity: ClassVar[Convexity] = "straight"

    def _expansion(self, n: int) -> Expansion | None:
        return expansion([1.0], [1.0])


class Geometric(Named):
    """See :func:`geometric`."""

    ratio: Any
    convexity: ClassVar[Convexity] = "straight"

    def _support(self, n: int) -> tuple[int, int]:
        return 0, n if self.ratio > 0.0 else 0

    def _expansion(self, n: int) -> Expansion | None:
        return expansion([1.0], [self.ratio])


class SpikeAndSlab(Validated):
    """See :func:`spike_and_slab`."""

    spike: Any
    slab: Any = 1.0

    holds = staticmethod(lambda spike, slab: (spike + slab > 0.0) & (spike + slab < np.inf))
    reason = (
        "`spike_and_slab` needs weights with a positive, finite sum; spike = {0.spike} and slab = {0.slab} arrived. "
        "Only their ratio matters: rescale them."
    )

    def _support(self, n: int) -> tuple[int, int]:
        return 0, n if self.slab > 0.0 else 0

    def _expansion(self, n: int) -> Expansion | None:
        return expansion([self.slab, self.spike], [1.0, 0.0])

    def _stretches(self, n: int) -> list[Stretch]:
        rest = [Stretch(1, n, "straight")] if self.slab > 0.0 else []
        return [Stretch(0, 0, "straight"), *rest]


class ExponentialMixture(Named):
    """See :func:`exponential_mixture`."""

    coefficients: Any
    rates: Any

    @staticmethod
    def holds(coefficients: Float64, rates: Float64) -> Any:
        """Whether every model of a batch has a term, and a rate for each."""
        _refuse_lengths(coefficients.shape[-1], rates.shape[-1])
        return (coefficients != 0.0).any(-1, keepdims=True)

    _window, _support = Potential._window, Potential._support

    def _log_f(self, n: int) -> Float64:
        return self._evaluate(n)[0]

    def _evaluate(self, n: int) -> tuple[Float64, Float64]:
        """``log f`` and ``sum_j |term_j| / f`` (zero where ``f`` is) on the counts ``0..n``."""
        sums = formulas.mixture_sums(formulas.counts(n), np.array(self.coefficients), np.array(self.rates))
        total, size, rounding, _ = sums
        negative = total < -rounding
        if negative.any():
            first = int(np.argmax(negative))
            raise ParameterError(
                f"`exponential_mixture` must satisfy f(c) >= 0 for every count up to n = {n}; f({first}) is "
                f"negative for {self!r}. Change the signs, or build a `table`."
            )
        log_f = formulas.log_of_mixture(*sums)
        with np.errstate(divide="ignore", invalid="ignore"):
            condition = np.where(log_f > -np.inf, size / total, 0.0)
        return check_range(log_f, log_f, self), condition

    def _expansion(self, n: int) -> Expansion | None:
        if min(self.coefficients) >= 0.0 and min(self.rates) >= 0.0:
            return expansion(self.coefficients, self.rates)
        worst = float(self._evaluate(n)[1].max())
        return expansion(self.coefficients, self.rates, worst)

    def _stretches(self, n: int) -> list[Stretch]:
        positive = min(self.coefficients) >= 0.0 and min(self.rates) > 0.0
        return [Stretch(0, n, "convex" if positive else "unknown")]  # the log of a sum of exponentials


@factory(rate=PROBABILITIES, leak=PROBABILITIES, t=integers(0, 1))
def noisy_or(rate: Numbers, leak: Numbers = 0.0, t: int | npt.ArrayLike = 1) -> Potential:
    """Probability of an effect that any active variable may cause.

    ``f(c) = 1 - (1 - leak) (1 - rate)**c`` for ``t = 1``, the effect is seen;
    ``f(c) = (1 - leak) (1 - rate)**c`` for ``t = 0``, the effect is absent.

    Parameters
    ----------
    rate : float or array of floats
        Probability, in [0, 1], that one active variable causes the effect.
    leak : float or array of floats
        Probability, in [0, 1], that the effect occurs without any cause.
    t : {1, 0} or array of these
        Observed effect.

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
    tallytree.noisy_and
    tallytree.exponential_mixture
    tallytree.CountModel

    Notes
    -----
    Cost: O(n) for the table; the mixture has two terms (``t = 1``) or one (``t = 0``). For ``t = 1`` it is
    offered down to a leak (or, without leak, a rate) of about 1e-4; below that its terms cancel.
    Accuracy: ``log f`` within ``1e-13 |log f| + 1e-30`` for any rate and leak.

    References
    ----------
    Tarlow, Swersky, Zemel, Adams and Frey, "Fast exact inference for recursive cardinality models", UAI 2012.

    Examples
    --------
    >>> np.exp(tt.noisy_or(rate=0.5).log_table(3))
    array([0.   , 0.5  , 0.75 , 0.875])
    >>> np.exp(tt.noisy_or(rate=0.5, leak=0.5, t=0).log_table(3))
    array([0.5   , 0.25  , 0.125 , 0.0625])
    """
    return NoisyOr(rate, leak, t)


@factory(rate=PROBABILITIES, leak=PROBABILITIES, t=integers(0, 1))
def noisy_and(rate: Numbers, leak: Numbers = 0.0, t: int | npt.ArrayLike = 1) -> Potential:
    """Probability of an effect that needs all its variables, with some forgiveness.

    ``f(c) = (1 - leak) (1 - rate)**(n - c)`` for ``t = 1``, the effect is seen;
    ``f(c) = 1 - (1 - leak) (1 - rate)**(n - c)`` for ``t = 0``, the effect is absent.

    It is the noisy-OR of the complemented variables: each of the ``n - c`` variables that are off prevents
    the effect with probability ``rate`` and is forgiven otherwise.

    Parameters
    ----------
    rate : float or array of floats
        Probability, in [0, 1], that one inactive variable prevents the effect.
    leak : float or array of floats
        Probability, in [0, 1], that the effect fails although all variables are on.
    t : {1, 0} or array of these
        Observed effect.

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
    tallytree.CountModel

    Notes
    -----
    Cost: O(n) for the table. The mixture is offered while ``(1 - rate)**n`` is above 1e-290 and, for
    ``t = 0``, while ``n / leak`` (or ``n / rate`` without leak) is below about 1e4.
    Accuracy: ``log f`` within ``1e-13 |log f| + 1e-30``, as for :func:`noisy_or`.

    Examples
    --------
    >>> np.exp(tt.noisy_and(rate=0.5).log_table(3))
    array([0.125, 0.25 , 0.5  , 1.   ])
    >>> np.exp(tt.noisy_and(rate=0.5, t=0).log_table(3))
    array([0.875, 0.75 , 0.5  , 0.   ])
    """
    return NoisyAnd(rate, leak, t)


def _possible(rate: Any, leak: Any, caused: Any) -> Any:
    """Whether an outcome can happen that the leak or a variable causes, or that nothing may cause."""
    return ((caused == 1) & ((rate > 0.0) | (leak > 0.0))) | ((caused != 1) & (leak < 1.0))


_IMPOSSIBLE = (
    "`{0.name}` needs parameters under which t = {0.t} can happen; with rate = {0.rate} and leak = {0.leak} its "
    "probability is 0 for every count. Change `rate`, `leak` or `t`."
)


class NoisyOr(Validated):
    """See :func:`noisy_or`."""

    rate: Any
    leak: Any = 0.0
    t: Any = 1

    convexity: ClassVar[Convexity] = "concave"  # as 1 - a b^c is; log(a b^c) is straight
    holds = staticmethod(lambda rate, leak, t: _possible(rate, leak, t))
    reason = _IMPOSSIBLE

    def _require(self, n: int) -> None:
        _require_causes(self, self.t == 1, n)

    def _support(self, n: int) -> tuple[int, int]:
        if self.t == 1:
            return int(self.leak == 0.0), n if self.rate > 0.0 or self.leak > 0.0 else 0
        return 0, 0 if self.rate == 1.0 else n

    def _expansion(self, n: int) -> Expansion | None:
        if self.t == 0:
            return expansion([1.0 - self.leak], [1.0 - self.rate])
        if self.rate == 0.0 or self.leak == 1.0:
            return expansion([self.leak], [1.0])
        # The first term bounds the cancellation at the smallest positive f, the second the rounding of
        # 1 - rate, which is raised to the power c while f grows with c.
        smallest = self.leak or self.rate
        rounding = min(1.0 / self.rate, n / self.leak if self.leak else np.inf)
        return expansion([1.0, self.leak - 1.0], [1.0, 1.0 - self.rate], 2.0 / smallest + rounding)


class NoisyAnd(Mirrored, Validated):
    """See :func:`noisy_and`."""

    rate: Any
    leak: Any = 0.0
    t: Any = 1

    holds = staticmethod(lambda rate, leak, t: _possible(rate, leak, 1 - t))
    reason = _IMPOSSIBLE

    def _mirror(self) -> NoisyOr:
        return NoisyOr(self.rate, self.leak, 1 - self.t)

    def _require(self, n: int) -> None:
        _require_causes(self, self.t == 0, n)


def _require_causes(potential: NoisyOr | NoisyAnd, caused: bool, n: int) -> None:
    if caused and potential.leak == 0.0 and n == 0:
        raise ParameterError(
            f"`{potential!r}` needs a group of at least 1 variable or a positive `leak`; this group has "
            "n = 0, so nothing can cause the outcome. Set `leak`, or drop the empty group."
        )
