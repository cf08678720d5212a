"""Constraints on the remainder of a count: parity and its generalisation."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

import numpy as np
import numpy.typing as npt

from tallytree.checks.numbers import FloatArray, check_choice, check_count
from tallytree.errors import ParameterError
from tallytree.potentials import rows
from tallytree.potentials.base import Potential
from tallytree.potentials.constraints import Constraint, Counts
from tallytree.potentials.expansions import Expansion, expand_interval, expansion
from tallytree.potentials.per_model import one_per_model

# Beyond this many roots of unity the general algorithms are faster.
_MOST_ROOTS = 32


def parity(which: Literal["even", "odd"] = "even") -> Potential:
    """Potential that allows even counts only, or odd counts only.

    ``f(c) = (1 + (-1)**c) / 2`` for even, ``f(c) = (1 - (-1)**c) / 2`` for odd: a parity check.

    Parameters
    ----------
    which : {"even", "odd"}
        The counts to allow; 0 is even.

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
    tallytree.modulo
    tallytree.one_of
    tallytree.CountModel

    Notes
    -----
    Cost: O(n) for the table; the mixture has two real terms.
    Accuracy: exact.

    Examples
    --------
    >>> tt.parity("odd").log_table(3)
    array([-inf,   0., -inf,   0.])
    """
    return Parity(2, int(check_choice(which, "which", ("even", "odd")) == "odd"))


@one_per_model(
    int,
    int,
    rows=lambda c, n, m, r: rows.allowed(c % m == r),
    legal=lambda m, r: (r >= 0) & (r < m),
    fits=lambda n, m, r: r <= n,
)
def modulo(m: Counts, r: Counts = 0) -> Potential:
    """Potential that allows the counts that leave remainder ``r`` on division by ``m``.

    ``f(c) = 1`` if ``c % m == r`` else ``0``; equally ``f(c) = (1/m) sum_j w**(j (c - r))``, with the root of
    unity ``w = exp(2 pi i / m)``.

    Parameters
    ----------
    m : int or array of integers
        Divisor, at least 1.
    r : int or array of integers
        Remainder, ``0 <= r < m``; ``r <= n`` for a group of ``n`` variables.

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
    tallytree.parity
    tallytree.CountModel

    Notes
    -----
    Cost: O(n) for the table; the mixture has ``m`` complex terms and is offered up to ``m = 32``.
    Accuracy: exact.

    Examples
    --------
    >>> tt.modulo(3, 1).log_table(4)
    array([-inf,   0., -inf, -inf,   0.])
    """
    step, rest = check_count(m, "m", least=1), check_count(r, "r")
    if rest >= step:
        raise ParameterError(
            f"`modulo` needs a remainder r < m; m = {step} and r = {rest} arrived. Use r = {rest % step}."
        )
    return Modulo(step, rest)


@dataclass(frozen=True, slots=True)
class Modulo(Constraint):
    """See :func:`modulo`."""

    m: int
    r: int

    def __repr__(self) -> str:
        return f"modulo({self.m}, {self.r})"

    _least = property(attrgetter("r"))

    def _window(self, n: int, first: int, last: int) -> FloatArray:
        log_f = np.full(last - first + 1, -np.inf)
        log_f[max(self.r - first, (self.r - first) % self.m) :: self.m] = 0.0
        return log_f

    def _support(self, n: int) -> tuple[int, int]:
        return self.r, n - (n - self.r) % self.m

    def _expansion(self, n: int) -> Expansion | None:
        lo, hi = self._support(n)
        if lo == hi or self.m == 1:
            return expand_interval(lo, hi, n)
        if self.m == 2:
            return expansion([0.5, 0.5 - self.r], [1.0, -1.0])
        if self.m > _MOST_ROOTS:
            return None
        j = np.arange(self.m)
        return expansion(_roots_of_unity(-j * self.r, self.m) / self.m, _roots_of_unity(j, self.m))


@dataclass(frozen=True, slots=True)
class Parity(Modulo):
    """See :func:`parity`."""

    def __repr__(self) -> str:
        return f"parity({'odd' if self.r else 'even'!r})"


def _roots_of_unity(j: npt.NDArray[np.int_], m: int) -> npt.NDArray[np.complex128]:
    """``exp(2 pi i j / m)``, exact at quarter turns."""
    quarters = 4 * j // m
    exact = np.array([1, 1j, -1, -1j])[quarters % 4]
    return np.where(quarters * m == 4 * j, exact, np.exp(2j * np.pi * (j % m) / m))
