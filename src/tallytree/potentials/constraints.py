"""Hard constraints: potentials that are one on a set of counts and zero elsewhere."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from tallytree import checks
from tallytree.arrays import Float64
from tallytree.checks import WHOLE, integers
from tallytree.errors import ParameterError
from tallytree.potentials.base import Potential
from tallytree.potentials.envelope import Convexity, Stretch
from tallytree.potentials.expansions import Expansion, expand_interval, expansion
from tallytree.potentials.named import Named, Validated, factory

Counts = int | npt.ArrayLike


@factory(k=WHOLE)
def exactly(k: Counts) -> Potential:
    """Potential that allows exactly ``k`` active variables.

    ``f(c) = 1`` if ``c == k`` else ``0``.

    Parameters
    ----------
    k : int or array of integers
        Required count, ``0 <= k <= n`` for a group of ``n`` variables.

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
    tallytree.between
    tallytree.one_of
    tallytree.at_least
    tallytree.CountModel

    Notes
    -----
    Cost: O(n) for the table. For ``k = 0`` there is a one-term mixture, ``0**c``.
    Accuracy: exact.

    Examples
    --------
    >>> tt.exactly(2).log_table(3)
    array([-inf, -inf,   0., -inf])
    """
    return Exactly(k)


@factory(k=WHOLE)
def at_least(k: Counts) -> Potential:
    """Potential that allows ``k`` or more active variables.

    ``f(c) = 1`` if ``c >= k`` else ``0``.

    Parameters
    ----------
    k : int or array of integers
        Smallest count, ``0 <= k <= n`` for a group of ``n`` variables.

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
    tallytree.at_most
    tallytree.between
    tallytree.CountModel

    Notes
    -----
    Cost: O(n) for the table. For ``k = 1`` there is a two-term mixture, ``1 - 0**c``.
    Accuracy: exact.

    Examples
    --------
    >>> tt.at_least(2).log_table(3)
    array([-inf, -inf,   0.,   0.])
    """
    return AtLeast(k)


@factory(k=WHOLE)
def at_most(k: Counts) -> Potential:
    """Potential that allows at most ``k`` active variables.

    ``f(c) = 1`` if ``c <= k`` else ``0``.

    Parameters
    ----------
    k : int or array of integers
        Largest count. In a group of ``k`` or fewer variables it has no effect.

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
    tallytree.at_least
    tallytree.between
    tallytree.CountModel

    Notes
    -----
    Cost: O(n) for the table. For ``k = 0`` there is a one-term mixture, ``0**c``.
    Accuracy: exact.

    Examples
    --------
    >>> tt.at_most(1).log_table(3)
    array([  0.,   0., -inf, -inf])
    """
    return AtMost(k)


@factory(lo=WHOLE, hi=WHOLE)
def between(lo: Counts, hi: Counts) -> Potential:
    """Potential that allows ``lo`` to ``hi`` active variables, both included.

    ``f(c) = 1`` if ``lo <= c <= hi`` else ``0``.

    Parameters
    ----------
    lo, hi : int or array of integers
        Smallest and largest count, ``0 <= lo <= hi``; ``lo <= n`` for a group of ``n`` variables.

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
    tallytree.exactly
    tallytree.at_least
    tallytree.at_most
    tallytree.CountModel

    Notes
    -----
    Cost: O(n) for the table.
    Accuracy: exact.

    Examples
    --------
    >>> tt.between(1, 2).log_table(3)
    array([-inf,   0.,   0., -inf])
    """
    return Between(lo, hi)


@factory(counts=WHOLE, core=1)
def one_of(counts: Any) -> Potential:
    """Potential that allows the listed counts only.

    ``f(c) = 1`` if ``c`` is in ``counts`` else ``0``.

    Parameters
    ----------
    counts : iterable of int, or array of shape (..., m)
        Allowed counts, at least one, or one list of them per model; order and repetition do not matter. Those
        above the size of the group are ignored as long as one remains.

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
    tallytree.exactly
    tallytree.modulo
    tallytree.CountModel

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
    wanted, hint = "`counts` must be a sequence of integers", " For a single count use `exactly`."
    items = checks.listed(counts, None, wanted, hint)
    if not items:
        raise ParameterError(
            "`counts` must list at least one count; none arrived. Use `uniform()` to allow all."
        )
    return OneOf(tuple(sorted({checks.integer("counts", item, 0) for item in items})))


class Constraint(Named):
    """One on some counts, of which ``_least`` is the smallest, and zero on the others."""

    _least: ClassVar[Any] = 0

    def _require(self, n: int) -> None:
        if self._least > n:
            raise ParameterError(
                f"`{self!r}` needs a group of at least {self._least} variables; this group has n = {n}, so every count "
                "is impossible. Lower the count, or put the potential on a larger group."
            )


class Interval(Constraint):
    """One on an interval of counts, whose ends within ``0..n`` are given by ``_support``."""

    hard: ClassVar[bool] = True
    convexity: ClassVar[Convexity] = "straight"

    def _window(self, n: int, first: int, last: int) -> Float64:
        lo, hi = self._support(n)
        if first:
            lo, hi = max(lo - first, 0), max(hi - first, -1)
        log_f = np.empty(last - first + 1)
        log_f.fill(-math.inf)  # `numpy.full` takes longer than all the rest
        log_f[lo : hi + 1] = 0.0
        return log_f

    def _table(self, n: int) -> Float64:
        self._require(n)
        return self._window(n, 0, n)  # without -0.0

    def _expansion(self, n: int) -> Expansion | None:
        return expand_interval(*self._support(n), n)


class Exactly(Interval):
    """See :func:`exactly`."""

    k: Any

    _least = property(attrgetter("k"))

    def _support(self, n: int) -> tuple[int, int]:
        return self.k, self.k


class AtLeast(Interval):
    """See :func:`at_least`."""

    k: Any

    _least = property(attrgetter("k"))

    def _support(self, n: int) -> tuple[int, int]:
        return self.k, n


class AtMost(Interval):
    """See :func:`at_most`."""

    k: Any

    def _support(self, n: int) -> tuple[int, int]:
        return 0, min(self.k, n)


class Between(Validated, Interval):
    """See :func:`between`."""

    lo: Any
    hi: Any

    holds = staticmethod(lambda lo, hi: lo <= hi)
    reason = "`between` needs lo <= hi; lo = {0.lo} and hi = {0.hi} arrived. Swap the two arguments."

    _least = property(attrgetter("lo"))

    def _support(self, n: int) -> tuple[int, int]:
        return self.lo, min(self.hi, n)


class OneOf(Constraint):
    """See :func:`one_of`; ``counts`` is sorted and free of repetitions."""

    counts: Any
    holds = staticmethod(lambda counts: counts.shape[-1] > 0)

    _least = property(lambda self: self.counts[0])

    def _within(self, n: int) -> list[int]:
        return [c for c in self.counts if c <= n]

    def _window(self, n: int, first: int, last: int) -> Float64:
        log_f = np.full(last - first + 1, -np.inf)
        log_f[[c - first for c in self.counts if first <= c <= last]] = 0.0
        return log_f

    def _support(self, n: int) -> tuple[int, int]:
        within = self._within(n)
        return within[0], within[-1]

    def _expansion(self, n: int) -> Expansion | None:
        within = self._within(n)
        contiguous = within[-1] - within[0] + 1 == len(within)
        return expand_interval(within[0], within[-1], n) if contiguous else None

    def _stretches(self, n: int) -> list[Stretch]:
        counts = np.array(self._within(n), np.int64)
        starts = np.flatnonzero(np.diff(counts, prepend=-2) > 1)
        ends = np.append(starts[1:], len(counts)) - 1
        return [Stretch(int(counts[a]), int(counts[b]), "straight") for a, b in zip(starts, ends)]


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
    return Parity(2, int(checks.one_of("which", which, ("even", "odd")) == "odd"))


@factory(m=integers(1, 2**62), r=WHOLE)
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
    return Modulo(m, r)


class Modulo(Validated, Constraint):
    """See :func:`modulo`."""

    m: Any
    r: Any

    holds = staticmethod(lambda m, r: r < m)
    reason = "`modulo` needs a remainder r < m; m = {0.m} and r = {0.r} arrived. Use r % m."

    _least = property(attrgetter("r"))

    def _window(self, n: int, first: int, last: int) -> Float64:
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

    def _stretches(self, n: int) -> list[Stretch]:
        return [Stretch(*self._support(n), "straight", self.m)]


class Parity(Modulo):
    """See :func:`parity`."""

    def __repr__(self) -> str:
        return f"parity({'odd' if self.r else 'even'!r})"


def _roots_of_unity(j: npt.NDArray[np.int_], m: int) -> npt.NDArray[np.complex128]:
    """``exp(2 pi i j / m)``, exact at quarter turns."""
    quarters = 4 * j // m
    exact = np.array([1, 1j, -1, -1j])[quarters % 4]
    return np.where(quarters * m == 4 * j, exact, np.exp(2j * np.pi * (j % m) / m))
