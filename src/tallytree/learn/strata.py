"""Sets of rows with their cases: matched sets from group numbers, and risk sets from survival times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Bools, Float64, Ints
from ..checks import columns, describe
from ..errors import ParameterError


@dataclass(frozen=True, eq=False)
class Strata:
    """Sets of rows with their cases, one after the other; a row may be in several sets (risk sets).

    Attributes
    ----------
    rows : (total,) int
        Row numbers, stratum after stratum.
    offsets : (n_strata + 1,) int
        Where each stratum starts in `rows`.
    cases : (total,) bool
        Whether the row is a case of that stratum.

    Raises
    ------
    ParameterError
        If they do not fit one another.

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
        rows, offsets = columns.whole("rows", self.rows), columns.whole("offsets", self.offsets)
        cases = columns.flags("cases", self.cases, len(rows))
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


def strata_of_groups(codes: Ints, cases: Bools) -> Strata:
    """Matched sets from a group number per row.

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
    codes = columns.whole("codes", codes)
    cases = columns.flags("cases", cases, len(codes))
    if codes.max(initial=0) > 2 * len(codes):  # numbers with large gaps
        codes = np.unique(codes, return_inverse=True)[1]
    rows = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes)
    offsets = np.concatenate([[0], np.cumsum(sizes[sizes > 0])]).astype(np.int64)
    return Strata(rows, offsets, cases[rows])


def risk_sets(time: Float64, event: Bools, entry: Float64 | None = None, codes: Ints | None = None) -> Strata:
    """Risk sets of the exact partial likelihood: at each time with events, who is under observation.

    Parameters
    ----------
    time : (n,) array
        Time of the event or of censoring.
    event : (n,) bool array
        Whether the event was seen.
    entry : (n,) array, optional
        Time from which a row is under observation; it is at risk at t if ``entry < t <= time``.
    codes : (n,) int array, optional
        Strata with separate baselines.

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
    time = columns.reals("time", time)
    n = len(time)
    event = columns.flags("event", event, n)
    entry = None if entry is None else columns.reals("entry", entry, n)
    codes = np.zeros(n, np.int64) if codes is None else columns.whole("codes", codes, n)
    rows: list[Ints] = []
    cases: list[Bools] = []
    for code in np.unique(codes):
        inside = np.flatnonzero(codes == code)
        inside = inside[np.argsort(time[inside], kind="stable")]
        times, seen = time[inside], event[inside]
        for t in np.unique(times[seen]):
            at_risk = inside[np.searchsorted(times, t) :]
            if entry is not None:
                at_risk = at_risk[entry[at_risk] < t]
            rows.append(at_risk)
            cases.append(event[at_risk] & (time[at_risk] == t))
    offsets = np.concatenate([[0], np.cumsum([len(r) for r in rows])]).astype(np.int64)
    empty = np.empty(0, np.int64)
    return Strata(np.concatenate([empty, *rows]), offsets, np.concatenate([empty.astype(bool), *cases]))
