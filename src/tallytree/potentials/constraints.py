"""Hard constraints: potentials that are one on a set of counts and zero elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tallytree.checks.numbers import FloatArray, check_count
from tallytree.errors import ParameterError
from tallytree.potentials import rows
from tallytree.potentials.base import Potential
from tallytree.potentials.expansions import Expansion, expand_interval
from tallytree.potentials.per_model import one_per_model

Counts = int | npt.ArrayLike


@one_per_model(
    int,
    rows=lambda c, n, k: rows.allowed(c == k),
    legal=lambda k: k >= 0,
    fits=lambda n, k: k <= n,
)
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
    return Exactly(check_count(k, "k"))


@one_per_model(
    int,
    rows=lambda c, n, k: rows.allowed(c >= k),
    legal=lambda k: k >= 0,
    fits=lambda n, k: k <= n,
)
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
    return AtLeast(check_count(k, "k"))


@one_per_model(
    int,
    rows=lambda c, n, k: rows.allowed(c <= k),
    legal=lambda k: k >= 0,
)
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
    return AtMost(check_count(k, "k"))


@one_per_model(
    int,
    int,
    rows=lambda c, n, lo, hi: rows.allowed((c >= lo) & (c <= hi)),
    legal=lambda lo, hi: (lo >= 0) & (lo <= hi),
    fits=lambda n, lo, hi: lo <= n,
)
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
    least, most = check_count(lo, "lo"), check_count(hi, "hi")
    if least > most:
        raise ParameterError(
            f"`between` needs lo <= hi; lo = {least} and hi = {most} arrived. Swap the two arguments."
        )
    return Between(least, most)


@one_per_model(
    int,
    core=1,
    rows=rows.listed,
    legal=lambda counts: (counts >= 0).all(-1, keepdims=True) & (counts.shape[-1] > 0),
    fits=lambda n, counts: counts.min(-1, keepdims=True) <= n,
)
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


class Constraint(Potential):
    """One on some counts, of which ``_least`` is the smallest, and zero on the others."""

    __slots__ = ()
    _least: Any = 0

    def _require(self, n: int) -> None:
        if self._least > n:
            raise ParameterError(
                f"`{self!r}` needs a group of at least {self._least} variables; this group has n = {n}, so every count "
                "is impossible. Lower the count, or put the potential on a larger group."
            )


class Interval(Constraint):
    """One on an interval of counts, whose ends within ``0..n`` are given by ``_support``."""

    __slots__ = ()
    hard: ClassVar[bool] = True

    def _window(self, n: int, first: int, last: int) -> FloatArray:
        lo, hi = self._support(n)
        if first:
            lo, hi = max(lo - first, 0), max(hi - first, -1)
        log_f = np.empty(last - first + 1)
        log_f.fill(-math.inf)  # `numpy.full` takes longer than all the rest
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

    _least = property(attrgetter("k"))

    def _support(self, n: int) -> tuple[int, int]:
        return self.k, self.k


@dataclass(frozen=True, slots=True)
class AtLeast(Interval):
    """See :func:`at_least`."""

    k: int

    def __repr__(self) -> str:
        return f"at_least({self.k})"

    _least = property(attrgetter("k"))

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

    _least = property(attrgetter("lo"))

    def _support(self, n: int) -> tuple[int, int]:
        return self.lo, min(self.hi, n)


@dataclass(frozen=True, slots=True)
class OneOf(Constraint):
    """See :func:`one_of`; ``counts`` is sorted and free of repetitions."""

    counts: tuple[int, ...]

    def __repr__(self) -> str:
        return f"one_of({list(self.counts)})"

    _least = property(lambda self: self.counts[0])

    def _within(self, n: int) -> list[int]:
        return [c for c in self.counts if c <= n]

    def _window(self, n: int, first: int, last: int) -> FloatArray:
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
