"""Sets of rows with their cases: matched sets from group numbers, risk sets from survival times.

A row is at risk during an interval, so of risk sets only the first and last one of every row is kept: listing them all
would take the square of the number of times. Sums over sets go by way of nodes, each a set of rows that stay together:
for matched sets these themselves, for risk sets the nodes of a balanced tree over the times, a few of which make up
every interval. All terms of such sums are positive, so nothing cancels.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from .. import checks
from ..arrays import Bools, Float64, Ints
from ..checks import describe
from ..errors import ParameterError
from ..memo import cached


@dataclass(frozen=True, eq=False)
class Strata:
    """Sets of rows (strata), and which rows of each set are its cases. A row may be in several sets.

    Attributes
    ----------
    rows : (total,) int
        Numbers of the rows of all strata, one stratum after the other.
    offsets : (n_strata + 1,) int
        Where each stratum starts in `rows`.
    cases : (total,) bool
        Whether the row is a case of that stratum.

    Raises
    ------
    ParameterError
        If the three arrays do not fit one another.

    See Also
    --------
    tallytree.learn.strata_of_groups
    tallytree.learn.risk_sets

    Examples
    --------
    >>> tt.learn.strata_of_groups(np.array([0, 0, 1, 1]), np.array([True, False, False, True])).n_strata
    2
    """

    rows: Ints
    offsets: Ints
    cases: Bools

    def __post_init__(self) -> None:
        rows = checks.array("rows", self.rows, ("n",), checks.WHOLE)
        cases = checks.flags("cases", self.cases, len(rows))
        offsets = checks.array("offsets", self.offsets, ("n",), checks.WHOLE)
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(rows) or (np.diff(offsets) < 0).any():
            raise ParameterError(
                f"`offsets` must rise from 0 to the number of rows, {len(rows)}; {describe(self.offsets)} arrived."
            )
        for name, value in (("rows", rows), ("offsets", offsets), ("cases", cases)):
            object.__setattr__(self, name, value)

    @property
    def n_strata(self) -> int:
        """Number of strata."""
        return len(self.offsets) - 1

    @property
    def _n_rows(self) -> int:
        """Rows that covariates must have at least."""
        return int(self.rows.max(initial=-1)) + 1

    @cached
    def sizes(self) -> Ints:
        """Rows of every stratum, (n_strata,)."""
        return np.diff(self.offsets)

    @cached
    def n_cases(self) -> Ints:
        """Cases of every stratum, (n_strata,)."""
        position = np.repeat(np.arange(self.n_strata), self.sizes)
        return np.bincount(position, self.cases, self.n_strata).astype(np.int64)

    def _some(self, chosen: Ints) -> Strata:
        """Some strata, in the given order, with their rows listed."""
        sizes = self.sizes[chosen]
        ends = np.cumsum(sizes)
        places = np.arange(sizes.sum()) + np.repeat(self.offsets[chosen] - ends + sizes, sizes)
        return Strata(self.rows[places], np.append(0, ends), self.cases[places])

    def _nodes(self, chosen: Ints, n_rows: int) -> tuple[Any, Any]:
        """Sets of rows that make up some strata: the rows of every node, and the nodes of every stratum."""
        listed, own = self._some(chosen), np.arange(len(chosen) + 1)
        return sparse_ones(listed.offsets, listed.rows, n_rows), sparse_ones(own, own[:-1], len(chosen))

    def _case_rows(self, chosen: Ints) -> Ints:
        """The cases of some strata that have one each."""
        listed = self._some(chosen)
        return listed.rows[listed.cases]

    def _fingerprint(self) -> str:
        """A name for these rows, sets and cases."""
        return fingerprint(self.rows, self.offsets, self.cases)


class RiskSets(Strata):
    """Risk sets by their intervals: row i is in the sets from ``first[i]`` to before ``last[i]``.

    A row with ``case[i]`` is a case of the last of its sets. Attributes are those of :class:`Strata`; the rows of all
    sets are listed only for who asks for them.
    """

    _first: Ints
    _last: Ints
    _case: Bools

    def __init__(self, first: Ints, last: Ints, case: Bools, n_strata: int) -> None:
        inside = np.bincount(first, minlength=n_strata + 1) - np.bincount(last, minlength=n_strata + 1)
        sizes = np.cumsum(inside)[:n_strata]
        known = {"_first": first, "_last": last, "_case": case, "sizes": sizes}
        known["n_cases"] = np.bincount(last[case] - 1, minlength=n_strata)
        known["offsets"] = np.append(0, np.cumsum(sizes))
        self.__dict__.update(known)

    @property
    def _n_rows(self) -> int:
        return len(self._first)

    @cached
    def _listed(self) -> Strata:
        return self._some(np.arange(self.n_strata))

    @property
    def rows(self) -> Ints:
        return self._listed.rows

    @property
    def cases(self) -> Bools:
        return self._listed.cases

    def _some(self, chosen: Ints) -> Strata:
        rows = [np.flatnonzero((self._first <= s) & (s < self._last)) for s in chosen.tolist()]
        cases = [self._case[r] & (self._last[r] == s + 1) for r, s in zip(rows, chosen.tolist())]
        offsets = np.append(0, np.cumsum([len(r) for r in rows])).astype(np.int64)
        empty = np.empty(0, np.int64)
        return Strata(np.concatenate([empty, *rows]), offsets, np.concatenate([empty.astype(bool), *cases]))

    def _nodes(self, chosen: Ints, n_rows: int) -> tuple[Any, Any]:
        # Intervals among the chosen sets, the leaves of a complete binary tree; node v has 2 v and 2 v + 1.
        depth = max(0, len(chosen) - 1).bit_length()
        low, high = (np.searchsorted(chosen, bounds) + (1 << depth) for bounds in (self._first, self._last))
        row = np.arange(len(low))
        pairs = []
        while len(row):
            for odd, node in ((low % 2 == 1, low), (high % 2 == 1, high - 1)):
                own = odd & (low < high)
                pairs.append((node[own], row[own]))
            low, high = (low + 1) // 2, high // 2
            left = low < high
            low, high, row = low[left], high[left], row[left]
        none = np.empty(0, np.int64)
        node, row = (np.concatenate([none, *parts]) for parts in zip((none, none), *pairs))
        names, place = np.unique(node, return_inverse=True)
        ends = np.append(0, np.cumsum(np.bincount(place, minlength=len(names))))
        rows_of_nodes = sparse_ones(ends, row[np.argsort(place, kind="stable")], n_rows)
        above = (np.arange(len(chosen)) + (1 << depth))[:, None] >> np.arange(depth + 1)
        at = np.minimum(np.searchsorted(names, above), len(names) - 1)
        there = names[at] == above if len(names) else np.zeros(above.shape, bool)
        return rows_of_nodes, sparse_ones(np.append(0, np.cumsum(there.sum(1))), at[there], len(names))

    def _case_rows(self, chosen: Ints) -> Ints:
        rows = np.flatnonzero(self._case)
        rows = rows[np.argsort(self._last[rows], kind="stable")]
        return rows[np.searchsorted(self._last[rows], chosen + 1)]

    def _fingerprint(self) -> str:
        return fingerprint(self._first, self._last, self._case)


def sparse_ones(offsets: Ints, columns: Ints, width: int) -> Any:
    """Ones in some columns of every row."""
    return csr_array((np.ones(len(columns)), columns, offsets), shape=(len(offsets) - 1, width))


def fingerprint(*arrays: Any) -> str:
    """A name for the contents of arrays."""
    digest = blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes() + b"|")
    return digest.hexdigest()


def strata_of_groups(codes: Ints, cases: Bools) -> Strata:
    """Matched sets, from the number of the set of every row.

    Parameters
    ----------
    codes : (N,) int array
        Number of the set of every row.
    cases : (N,) bool array
        Which rows are cases.

    Returns
    -------
    Strata
        Rows and cases of every set.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.learn.risk_sets
    tallytree.learn.ConditionalLikelihood

    Examples
    --------
    >>> tt.learn.strata_of_groups(np.array([1, 0, 1]), np.array([True, False, False])).rows
    array([1, 0, 2])
    """
    codes = checks.array("codes", codes, ("n",), checks.WHOLE)
    cases = checks.flags("cases", cases, len(codes))
    if codes.max(initial=0) > 2 * len(codes):  # numbers with large gaps
        codes = np.unique(codes, return_inverse=True)[1]
    rows = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes)
    offsets = np.concatenate([[0], np.cumsum(sizes[sizes > 0])]).astype(np.int64)
    return Strata(rows, offsets, cases[rows])


def risk_sets(time: Float64, event: Bools, entry: Float64 | None = None, codes: Ints | None = None) -> Strata:
    """Risk sets of survival data: for every time with an event, the rows that were under observation.

    Parameters
    ----------
    time : (n,) array
        Time of the event or of censoring.
    event : (n,) bool array
        Whether the event was seen.
    entry : (n,) array, optional
        Time from which a row is under observation; it is at risk at t if ``entry < t <= time``.
    codes : (n,) int array, optional
        Stratum of every row; strata have separate baseline hazards. Default one stratum.

    Returns
    -------
    Strata
        One set for every time with an event.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.learn.strata_of_groups
    tallytree.estimators.ConditionalLogit

    Examples
    --------
    >>> sets = tt.learn.risk_sets(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]))
    >>> sets.n_strata
    2
    """
    time = checks.array("time", time, ("n",))
    n = len(time)
    event = checks.flags("event", event, n)
    entry = None if entry is None else checks.array("entry", entry, (n,))
    codes = np.zeros(n, np.int64) if codes is None else checks.array("codes", codes, (n,), checks.WHOLE)
    # Cells of a table of strata and times: the sets are those cells where something happened.
    stratum = np.unique(codes, return_inverse=True)[1]
    at, within = np.unique(time, return_inverse=True)
    cell = stratum * len(at) + within
    happened = np.unique(cell[event])
    last = np.searchsorted(happened, cell, side="right")
    before = stratum * len(at)
    if entry is not None:
        before = before + np.searchsorted(at, entry, side="right")  # the first time after the entry
    first = np.minimum(np.searchsorted(happened, before), last)  # never at risk: entry is not before the time
    return RiskSets(first, last, event & (first < last), len(happened))
