"""Noisy-OR and noisy-AND: how a binary effect ``t`` depends on how many of its causes are on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tallytree.checks.numbers import FloatArray, check_choice, check_real, show
from tallytree.errors import ParameterError
from tallytree.potentials import rows
from tallytree.potentials.base import Formula, Mirrored, Potential
from tallytree.potentials.expansions import Expansion, expansion
from tallytree.potentials.per_model import one_per_model

Numbers = float | npt.ArrayLike


@one_per_model(
    float,
    float,
    int,
    rows=rows.noisy_or,
    legal=lambda rate, leak, t: _possible(rate, leak, t, t),
    fits=lambda n, rate, leak, t: (t == 0) | (leak > 0.0) | (n > 0),
)
def noisy_or(rate: Numbers, leak: Numbers = 0.0, t: int | npt.ArrayLike = 1) -> Potential:
    """Probability of an effect that any active variable may cause (equation 5 of the paper).

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
    return NoisyOr(*_checked("noisy_or", rate, leak, t, caused=1))


@one_per_model(
    float,
    float,
    int,
    rows=rows.noisy_and,
    legal=lambda rate, leak, t: _possible(rate, leak, t, 1 - t),
    fits=lambda n, rate, leak, t: (1 - t == 0) | (leak > 0.0) | (n > 0),
)
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
    return NoisyAnd(*_checked("noisy_and", rate, leak, t, caused=0))


def _checked(name: str, rate: Any, leak: Any, t: Any, caused: int) -> tuple[float, float, int]:
    """The three numbers, under which t can happen; ``caused`` is the outcome that the leak or a variable causes."""
    p = check_real(rate, f"rate` of `{name}", 0.0, 1.0)
    q = check_real(leak, f"leak` of `{name}", 0.0, 1.0)
    t = check_choice(t, f"t` of `{name}", (0, 1))
    if (t == caused and p == 0.0 and q == 0.0) or (t != caused and q == 1.0):
        raise ParameterError(
            f"`{name}` needs parameters under which t = {t} can happen; with rate = {show(p)} and leak = "
            f"{show(q)} its probability is 0 for every count. Change `rate`, `leak` or `t`."
        )
    return p, q, t


def _possible(rate: Any, leak: Any, t: Any, caused: Any) -> Any:
    """Models whose parameters are in range and whose outcome, caused by the leak or a variable or not, can happen."""
    in_range = (rate >= 0.0) & (rate <= 1.0) & (leak >= 0.0) & (leak <= 1.0) & ((t == 0) | (t == 1))
    return in_range & np.where(caused == 1, (rate > 0.0) | (leak > 0.0), leak < 1.0)


def _shown(name: str, rate: float, leak: float, t: int) -> str:
    leak_text = f", leak={show(leak)}" if leak else ""
    return f"{name}(rate={show(rate)}{leak_text}{'' if t == 1 else ', t=0'})"


@dataclass(frozen=True, slots=True)
class NoisyOr(Formula):
    """See :func:`noisy_or`."""

    rate: float
    leak: float
    t: int

    def __repr__(self) -> str:
        return _shown("noisy_or", self.rate, self.leak, self.t)

    def _require(self, n: int) -> None:
        _require_causes(self, self.t == 1, n)

    def _at(self, c: FloatArray, n: int) -> FloatArray:
        absent = rows.log_absent(c, self.rate, self.leak)
        return rows.log1mexp(absent) if self.t == 1 else absent

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


@dataclass(frozen=True, slots=True)
class NoisyAnd(Mirrored):
    """See :func:`noisy_and`."""

    rate: float
    leak: float
    t: int

    def __repr__(self) -> str:
        return _shown("noisy_and", self.rate, self.leak, self.t)

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
