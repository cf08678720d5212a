"""Hard constraints: potentials that are one on a set of counts and zero elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tallytree.checks.numbers import FloatArray, check_choice, check_count
from tallytree.errors import ParameterError
from tallytree.potentials.base import Potential
from tallytree.potentials.expansions import Expansion, expand_interval, expansion

# Beyond this many roots of unity the general algorithms are faster.
_MOST_ROOTS = 32


def exactly(k: int) -> Potential:
    """Potential that allows exactly ``k`` active variables.

    ``f(c) = 1`` if ``c == k`` else ``0``.

    Parameters
    ----------
    k : int
        Required count, ``0 <= k <= n`` for a group of ``n`` variables.

    Notes
    -----
    Cost: O(n) for the table. For ``k = 0`` there is a one-term mixture, ``0**c``.
    Accuracy: exact.

    Examples
    --------
    >>> tt.exactly(2).log_table(3)
    array([-inf, -inf,   0., -inf])
    """
    return Exactly(check_count(k, "k"))


def at_least(k: int) -> Potential:
    """Potential that allows ``k`` or more active variables.

    ``f(c) = 1`` if ``c >= k`` else ``0``.

    Parameters
    ----------
    k : int
        Smallest count, ``0 <= k <= n`` for a group of ``n`` variables.

    Notes
    -----
    Cost: O(n) for the table. For ``k = 1`` there is a two-term mixture, ``1 - 0**c``.
    Accuracy: exact.

    Examples
    --------
    >>> tt.at_least(2).log_table(3)
    array([-inf, -inf,   0.,   0.])
    """
    return AtLeast(check_count(k, "k"))


def at_most(k: int) -> Potential:
    """Potential that allows at most ``k`` active variables.

    ``f(c) = 1`` if ``c <= k`` else ``0``.

    Parameters
    ----------
    k : int
        Largest count. In a group of ``k`` or fewer variables it has no effect.

    Notes
    -----
    Cost: O(n) for the table. For ``k = 0`` there is a one-term mixture, ``0**c``.
    Accuracy: exact.

    Examples
    --------
    >>> tt.at_most(1).log_table(3)
    array([  0.,   0., -inf, -inf])
    """
    return AtMost(check_count(k, "k"))


def between(lo: int, hi: int) -> Potential:
    """Potential that allows ``lo`` to ``hi`` active variables, both included.

    ``f(c) = 1`` if ``lo <= c <= hi`` else ``0``.

    Parameters
    ----------
    lo, hi : int
        Smallest and largest count, ``0 <= lo <= hi``; ``lo <= n`` for a group of ``n`` variables.

    Notes
    -----
    Cost: O(n) for the table.
    Accuracy: exact.

    Examples
    --------
    >>> tt.between(1, 2).log_table(3)
    array([-inf,   0.,   0., -inf])
    """
    lo, hi = check_count(lo, "lo"), check_count(hi, "hi")
    if lo > hi:
        raise ParameterError(
            f"`between` needs lo <= hi; lo = {lo} and hi = {hi} arrived. Swap the two arguments."
        )
    return Between(lo, hi)


def one_of(counts: Iterable[int]) -> Potential:
    """Potential that allows the listed counts only.

    ``f(c) = 1`` if ``c`` is in ``counts`` else ``0``.

    Parameters
    ----------
    counts : iterable of int
        Allowed counts, at least one; order and repetition do not matter. Those above the size of the group
        are ignored as long as one remains.

    Notes
    -----
    Cost: O(n + len(counts)) for the table.
    Accuracy: exact.

    Examples
    --------
    >>> tt.one_of([3, 0]).log_table(3)
    array([  0., -inf, -inf,   0.])
    >>> tt.one_of([3, 0])
    one_of([0, 3])
    """
    try:
        items = list(counts)
    except TypeError:
        raise ParameterError(
            f"`counts` must be a sequence of integers; {counts!r} of type {type(counts).__name__} arrived. "
            "For a single count use `exactly`."
        ) from None
    if not items:
        raise ParameterError(
            "`counts` must list at least one count; none arrived. Use `uniform()` to allow all."
        )
    return OneOf(tuple(sorted({check_count(item, "counts") for item in items})))


def parity(which: Literal["even", "odd"] = "even") -> Potential:
    """Potential that allows even counts only, or odd counts only.

    ``f(c) = (1 + (-1)**c) / 2`` for even, ``f(c) = (1 - (-1)**c) / 2`` for odd: a parity check.

    Parameters
    ----------
    which : {"even", "odd"}
        The counts to allow; 0 is even.

    Notes
    -----
    Cost: O(n) for the table; the mixture has two real terms.
    Accuracy: exact.

    Examples
    --------
    >>> tt.parity("odd").log_table(3)
    array([-inf,   0., -inf,   0.])
    """
    return Parity(check_choice(which, "which", ("even", "odd")))


def modulo(m: int, r: int = 0) -> Potential:
    """Potential that allows the counts that leave remainder ``r`` on division by ``m``.

    ``f(c) = 1`` if ``c % m == r`` else ``0``; equally ``f(c) = (1/m) sum_j w**(j (c - r))``, with the root of
    unity ``w = exp(2 pi i / m)``.

    Parameters
    ----------
    m : int
        Divisor, at least 1.
    r : int
        Remainder, ``0 <= r < m``; ``r <= n`` for a group of ``n`` variables.

    Notes
    -----
    Cost: O(n) for the table; the mixture has ``m`` complex terms and is offered up to ``m = 32``.
    Accuracy: exact.

    Examples
    --------
    >>> tt.modulo(3, 1).log_table(4)
    array([-inf,   0., -inf, -inf,   0.])
    """
    m, r = check_count(m, "m", least=1), check_count(r, "r")
    if r >= m:
        raise ParameterError(
            f"`modulo` needs a remainder r < m; m = {m} and r = {r} arrived. Use r = {r % m}."
        )
    return Modulo(m, r)


def _require_size(potential: Potential, least: int, n: int) -> None:
    if least > n:
        raise ParameterError(
            f"`{potential!r}` needs a group of at least {least} variables; this group has n = {n}, so every "
            "count is impossible. Lower the count, or put the potential on a larger group."
        )


class Interval(Potential):
    """One on an interval of counts, whose ends within ``0..n`` are given by ``_support``."""

    __slots__ = ()

    def _require(self, n: int) -> None:
        _require_size(self, self._support(n)[0], n)

    def _log_f(self, n: int) -> FloatArray:
        lo, hi = self._support(n)
        log_f = np.full(n + 1, -np.inf)
        log_f[lo : hi + 1] = 0.0
        return log_f

    def _expansion(self, n: int) -> Expansion | None:
        return expand_interval(*self._support(n), n)


@dataclass(frozen=True, slots=True)
class Exactly(Interval):
    """See :func:`exactly`."""

    k: int

    def __repr__(self) -> str:
        return f"exactly({self.k})"

    def _support(self, n: int) -> tuple[int, int]:
        return self.k, self.k


@dataclass(frozen=True, slots=True)
class AtLeast(Interval):
    """See :func:`at_least`."""

    k: int

    def __repr__(self) -> str:
        return f"at_least({self.k})"

    def _support(self, n: int) -> tuple[int, int]:
        return self.k, n


@dataclass(frozen=True, slots=True)
class AtMost(Interval):
    """See :func:`at_most`."""

    k: int

    def __repr__(self) -> str:
        return f"at_most({self.k})"

    def _support(self, n: int) -> tuple[int, int]:
        return 0, min(self.k, n)


@dataclass(frozen=True, slots=True)
class Between(Interval):
    """See :func:`between`."""

    lo: int
    hi: int

    def __repr__(self) -> str:
        return f"between({self.lo}, {self.hi})"

    def _support(self, n: int) -> tuple[int, int]:
        return self.lo, min(self.hi, n)


@dataclass(frozen=True, slots=True)
class OneOf(Potential):
    """See :func:`one_of`; ``counts`` is sorted and free of repetitions."""

    counts: tuple[int, ...]

    def __repr__(self) -> str:
        return f"one_of({list(self.counts)})"

    def _require(self, n: int) -> None:
        _require_size(self, self.counts[0], n)

    def _within(self, n: int) -> list[int]:
        return [c for c in self.counts if c <= n]

    def _log_f(self, n: int) -> FloatArray:
        log_f = np.full(n + 1, -np.inf)
        log_f[self._within(n)] = 0.0
        return log_f

    def _support(self, n: int) -> tuple[int, int]:
        within = self._within(n)
        return within[0], within[-1]

    def _expansion(self, n: int) -> Expansion | None:
        within = self._within(n)
        contiguous = within[-1] - within[0] + 1 == len(within)
        return expand_interval(within[0], within[-1], n) if contiguous else None


@dataclass(frozen=True, slots=True)
class Modulo(Potential):
    """See :func:`modulo`."""

    m: int
    r: int

    def __repr__(self) -> str:
        return f"modulo({self.m}, {self.r})"

    def _require(self, n: int) -> None:
        _require_size(self, self.r, n)

    def _log_f(self, n: int) -> FloatArray:
        log_f = np.full(n + 1, -np.inf)
        log_f[self.r :: self.m] = 0.0
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
class Parity(Potential):
    """See :func:`parity`."""

    which: Literal["even", "odd"]

    def __repr__(self) -> str:
        return f"parity({self.which!r})"

    def _modulo(self) -> Modulo:
        return Modulo(2, int(self.which == "odd"))

    def _require(self, n: int) -> None:
        _require_size(self, self._modulo().r, n)

    def _log_f(self, n: int) -> FloatArray:
        return self._modulo()._log_f(n)

    def _support(self, n: int) -> tuple[int, int]:
        return self._modulo()._support(n)

    def _expansion(self, n: int) -> Expansion | None:
        return self._modulo()._expansion(n)


def _roots_of_unity(j: npt.NDArray[np.int_], m: int) -> npt.NDArray[np.complex128]:
    """``exp(2 pi i j / m)``, exact at quarter turns."""
    quarters = 4 * j // m
    exact = np.array([1, 1j, -1, -1j])[quarters % 4]
    return np.where(quarters * m == 4 * j, exact, np.exp(2j * np.pi * (j % m) / m))
