"""Exact conditional logistic regression with strata, and data, that do not fit into memory.

Strata that lie within a bundle of rows are solved there, exactly as in memory. A stratum that is longer is a model in
chunks with exactly as many variables on as it has cases: its log-likelihood and score are exact. In Newton's method the
curvature of such a stratum is that of independent variables under the posterior tilt, which differs from the exact one
by a share of about 1 / variance of the count; the standard errors in the end use differences of exact scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from ..arrays import Float64, Ints
from ..checks.columns import steps, tolerance
from ..engine.count import chunks as verbs
from ..errors import ParameterError
from ..learn.conditional import ConditionalLikelihood
from ..learn.newton import newton
from ..learn.strata import strata_of_groups
from ..potentials import exactly
from .count_potential import CountPotential
from .design import Design, as_design
from .executors import Executor, as_executor
from .flat import Flat
from .fold import added
from .group_index import bundle_bounds, read_ids, read_index
from .passes import Job, Passes
from .reading import Loaded, Reading
from .source import Source, as_source
from .states import states_of

STEP = 1 << 18  # rows of a bundle, and of a piece of a long stratum
_DIFFERENCE = 1e-4  # in standard errors, roughly: errors of the scores and of the third derivative balance


class Moments(NamedTuple):
    """Log-likelihood, its gradient (p,) and minus its Hessian (p, p)."""

    value: float
    gradient: Float64
    information: Float64


class _Long(NamedTuple):
    """A stratum that is longer than a bundle: its pieces, the cases, and the sum of their covariates."""

    pieces: list[tuple[int, int]]
    cases: int
    of_cases: Float64


class ChunkedConditionalLikelihood:
    """Log-likelihood of ``X @ beta`` given the number of cases in each stratum, over chunks of rows."""

    def __init__(self, design: Design, y: Source, ids: Source | None, executor: Executor, step: int) -> None:
        self._design, self._executor = design, executor
        starts = np.zeros(1, np.int64)
        if ids is not None:
            found = read_index(ids, executor).starts
            if found is None:
                raise ParameterError(
                    "`groups` must be sorted, or at least have the rows of every stratum one after the other. "
                    "Sort the rows by stratum first."
                )
            starts = found
        self._y, self._ids, self._step = y, ids, step
        places = list(pairwise(bundle_bounds(starts, design.n_rows, step)))
        self._long = [self._read_long(start, stop) for start, stop in places if stop - start > step]
        self._bundles = [(start, stop) for start, stop in places if stop - start <= step]
        self._known: tuple[bytes, Moments] | None = None

    def _read_long(self, start: int, stop: int) -> _Long:
        pieces = list(pairwise([*range(start, stop, self._step), stop]))
        found = self._executor.map(_of_cases, self._readings(pieces, [self._y]))
        return _Long(pieces, *added(list(found)))

    def _readings(
        self, places: Sequence[tuple[int, int]], beside: Sequence[Source], beta: Float64 | None = None
    ) -> Iterator[Reading]:
        for i, place in enumerate(places):
            others = tuple(column.part(i, *place) for column in beside)
            yield Reading(self._design.rows(i, *place, beta), "X", beside=others)

    def first_order(self, beta: Float64) -> tuple[float, Float64]:
        """Log-likelihood and its gradient (p,)."""
        found = self._moments(beta)
        return found.value, found.gradient

    def information(self, beta: Float64) -> Float64:
        """Minus the Hessian of the log-likelihood, (p, p), as said above."""
        return self._moments(beta).information

    def exact_information(self, beta: Float64) -> Float64:
        """The same from differences of exact scores, where a stratum is long."""
        if not self._long:
            return self.information(beta)
        scale = 1.0 / np.sqrt(np.maximum(np.diag(self.information(beta)), 1e-300))
        columns = []
        for j, width in enumerate(scale):
            shift = np.zeros(len(beta))
            shift[j] = _DIFFERENCE * width
            difference = self.first_order(beta - shift)[1] - self.first_order(beta + shift)[1]
            columns.append(difference / (2.0 * shift[j]))
        found = np.stack(columns)
        return np.asarray(0.5 * (found + found.T))

    def _moments(self, beta: Float64) -> Moments:
        key = beta.tobytes()
        if self._known is None or self._known[0] != key:
            beside = [self._y] if self._ids is None else [self._y, self._ids]
            readings = self._readings(self._bundles, beside, beta)
            parts = list(self._executor.map(_bundle, readings))
            parts += [self._of_long(stratum, beta) for stratum in self._long]
            self._known = (key, Moments(*added([_nothing(len(beta)), *parts])))
        return self._known[1]

    def _of_long(self, stratum: _Long, beta: Float64) -> Moments:
        first, n = stratum.pieces[0][0], stratum.pieces[-1][1] - stratum.pieces[0][0]
        if not 0 < stratum.cases < n:
            return _nothing(len(beta))
        rows = [self._design.rows(i, *place, beta, first) for i, place in enumerate(stratum.pieces)]
        passes = Passes(Source("npy", rows, np.dtype(np.float64), None, "X"), self._executor, {}, False)
        solver = Flat(passes, CountPotential(exactly(stratum.cases), n))
        parts = passes.each("score", Job(partial(_scored, solver.solution.mapping)))
        mean, spread, along, total = added(list(parts))
        value = float(stratum.of_cases @ beta) - solver.log_partition
        information = spread - np.outer(along, along) / total if total > 0.0 else spread
        return Moments(value, stratum.of_cases - mean, information)


def _nothing(p: int) -> Moments:
    return Moments(0.0, np.zeros(p), np.zeros((p, p)))


def _of_cases(reading: Reading) -> tuple[int, Float64]:
    rows: Any = reading.chunk
    on = states_of(reading.beside[0])
    return int(np.count_nonzero(on)), rows.matrix()[on].sum(0)


def _bundle(reading: Reading) -> Moments:
    """Task: whole strata in memory."""
    rows: Any = reading.chunk
    x, cases = rows.matrix(), states_of(reading.beside[0])
    codes: Ints = np.zeros(len(x), np.int64)
    if len(reading.beside) > 1:
        codes = np.unique(read_ids(reading.beside[1]), return_inverse=True)[1].astype(np.int64)
    likelihood = ConditionalLikelihood(x, strata_of_groups(codes, cases))
    return Moments(*likelihood.derivatives(rows.beta))


def _scored(mapping: verbs.Mapping, loaded: Loaded) -> Any:
    """Task: sums over a piece of a long stratum of the covariates, weighted by marginals and by their variances."""
    rows: Any = loaded.reading.chunk
    x = rows.matrix()
    odds = verbs.map_logits(loaded.values, mapping, "posterior_logits")
    mean, variance = expit(odds), expit(odds) * expit(-odds)
    return mean @ x, (x * variance[:, None]).T @ x, variance @ x, float(variance.sum())


class ConditionalLogitFit(NamedTuple):
    """What :func:`fit_conditional_logit` finds.

    ``covariance`` (p, p) is the inverse of the information at ``coef`` (p,); ``converged`` says whether the maximum was
    found within the allowed iterations.
    """

    coef: Float64
    covariance: Float64
    log_likelihood: float
    n_iterations: int
    converged: bool

    @property
    def standard_errors(self) -> Float64:
        return np.asarray(np.sqrt(np.diag(self.covariance)))


def fit_conditional_logit(
    X: Any,
    y: Any,
    groups: Any = None,
    *,
    columns: Sequence[str] | None = None,
    y_column: str | None = None,
    groups_column: str | None = None,
    l2: float = 0.0,
    max_iterations: int = 50,
    step: int = STEP,
    scheduler: Any = None,
    workers: int | None = None,
) -> ConditionalLogitFit:
    """Exact conditional logistic regression over chunks of rows.

    Parameters
    ----------
    X : array, memmap or path
        Covariates (n, p): a matrix, a path to ``.npy``, or a Parquet file with `columns`.
    y : as the source of :class:`ChunkedCountModel`
        1 for cases, 0 for controls.
    groups : same, optional
        Strata, the rows of each one after the other; without it there is a single one.
    columns, y_column, groups_column
        Names of columns of Parquet files.
    l2 : float
        Ridge penalty ``l2 / 2 |beta|^2``.
    max_iterations : int
        Of Newton's method.
    step : int
        Rows in memory at a time, per worker; strata beyond it are solved in chunks.
    scheduler, workers
        As in :class:`ChunkedCountModel`.

    Notes
    -----
    Cost: one pass over the rows per iteration, three where a stratum is long, and 2 p such passes for standard errors.

    Examples
    --------
    >>> x, y = np.array([[0.0], [1.0], [2.0], [0.5]]), np.array([0, 1, 0, 1])
    >>> tt.chunked.fit_conditional_logit(x, y, np.array([0, 0, 1, 1])).converged
    True
    """
    l2, max_iterations = tolerance("l2", l2), steps("max_iterations", max_iterations)
    step = steps("step", step, 1)
    design = as_design(X, columns)
    cases = as_source(y, label="y", column=y_column)
    ids = None if groups is None else as_source(groups, label="groups", column=groups_column)
    for column in (cases, ids):
        if column is not None and column.length != design.n_rows:
            raise ParameterError(
                f"`{column.label}` must have one entry per row of `X`, {design.n_rows:,}; {column.length:,} arrived."
            )
    executor = as_executor(scheduler, workers, False)
    likelihood: Any = ChunkedConditionalLikelihood(design, cases, ids, executor, step)
    found = newton(likelihood, np.zeros(design.width), l2=l2, max_iterations=max_iterations)
    information = likelihood.exact_information(found.beta) + l2 * np.eye(design.width)
    covariance = np.linalg.pinv(information)
    return ConditionalLogitFit(found.beta, covariance, found.value, found.n_iterations, found.converged)
