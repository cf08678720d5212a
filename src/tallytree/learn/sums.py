"""Log-odds learned from sums: of each row only a weighted sum is known, exactly, within a range, or by a potential.

``log E[f(w . y)]`` has the gradient ``P(y_i = 1 | f) - P(y_i = 1)`` in the log-odds: one pass up and one down the tree
of sums for each row. Rows that share log-odds and range are one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import eye_array

from .. import checks
from .._progress import Report
from ..arrays import Float64
from ..checks.sums import rectangular_weights
from ..engine.pmf.events import Weight, weight_of_table
from ..errors import InfeasibleError, ParameterError
from ..models.conditional_sum import ConditionalPoissonBinomial, event_bounds
from ..models.poisson_binomial import PoissonBinomial, WeightedEvents
from .descent import minimise, stopping


@dataclass(frozen=True, eq=False)
class SumFit:
    """Result of :func:`fit_sums`: the log-odds, and how the search ended.

    Attributes
    ----------
    coef : (p,) array
        Coefficients of the covariates; without covariates the log-odds of the n events.
    intercept : float
        Constant that is added to all log-odds; 0 without covariates.
    weights : (n,) array
        Weights of the events.
    step : float or None
        Spacing of the grid of real weights; None for integers.
    log_likelihood : float
        Mean log-probability of the observation of a row.
    converged : bool
        Whether the gradient fell below the tolerance.
    history : tuple of float
        Penalised mean log-loss of a row after every step.

    See Also
    --------
    tallytree.learn.fit_sums

    Examples
    --------
    >>> found = tt.learn.fit_sums([1, 2], [0, 1, 2, 3, 0, 0, 0, 1])
    >>> found.model().probs.round(3)
    array([0.375, 0.25 ])
    """

    coef: Float64
    intercept: float
    weights: NDArray[Any]
    step: float | None
    log_likelihood: float
    converged: bool
    history: tuple[float, ...]

    def model(self, X: ArrayLike | None = None) -> PoissonBinomial:
        """The distribution of the sum, with a batch axis where the covariates have one.

        Parameters
        ----------
        X : (N, n, p) or (n, p) array_like, optional
            Covariates of the events; None if the fit had none.

        Returns
        -------
        PoissonBinomial
            With the log-odds of the fit.

        Raises
        ------
        ParameterError
            If ``X`` does not have the events and columns of the fit.

        See Also
        --------
        fit_sums

        Examples
        --------
        >>> ages = np.array([[1.0], [2.0]])
        >>> found = tt.learn.fit_sums([1, 1], [0, 1, 1, 2], X=ages, l2=0.1)
        >>> found.model(ages).n
        2
        """
        x = _covariates(X, len(self.weights), None)
        if x.shape[-1] != len(self.coef):
            raise ParameterError(
                f"`X` must have the {len(self.coef)} columns of the fit, or be None if it had no covariates; "
                f"{x.shape[-1]} arrived."
            )
        return PoissonBinomial(logits=x @ self.coef + self.intercept, weights=self.weights, step=self.step)


def fit_sums(
    weights: ArrayLike,
    value: ArrayLike | None = None,
    *,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    log_f: Callable[[Float64], ArrayLike] | ArrayLike | None = None,
    X: ArrayLike | None = None,
    intercept: bool = True,
    step: float | None = None,
    l2: float = 0.0,
    tol: float = 1e-6,
    max_iter: int = 500,
    progress: bool | Report = False,
) -> SumFit:
    """Learn log-odds of events from their weighted sums alone, by maximum likelihood.

    Maximises ``mean_r log E[f_r(w . y)]`` for independent events y with log-odds ``X_r coef + intercept``. ``f_r`` is 1
    for the sums that the observation of row r allows and 0 for others, or any potential on the sum.

    Parameters
    ----------
    weights : (n,) array_like
        Weights of the events, as of :class:`~tallytree.PoissonBinomial`; the same in every row.
    value : (N,) array_like, optional
        The observed sums, if they are known exactly. Give one of `value`, a range, and `log_f`.
    low, high : (N,) array_like or number, optional
        The sum of every row lies in ``low <= sum <= high``; infinite, or left out, if there is no bound.
    log_f : callable or (N, M) array_like, optional
        Logarithm of a potential on the sum, for noisy observations: its values at the M possible sums,
        ``PoissonBinomial(...).values``, for every row, or a function that is called with an array of these sums.
    X : (N, n, p) or (n, p) array_like, optional
        Covariates of every event. Without them each event has a log-odds of its own, the same in all rows.
    intercept : bool
        Whether to learn a constant beside the coefficients.
    step : float, optional
        Spacing of the grid; required if weights are real numbers.
    l2 : float
        Penalty ``l2 / 2 * sum of squares`` on the coefficients, beside the mean log-loss of a row.
    tol : float
        Stop when no entry of the gradient is larger.
    max_iter : int
        Limit on steps.
    progress : bool or callable
        True shows the steps. A function is called after each of them with ``log_likelihood`` and the norm ``gradient``.

    Returns
    -------
    SumFit
        Coefficients, and the distribution of the sum with them.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape or value; the message says what was required.
    InfeasibleError
        If the observation of a row is impossible.

    See Also
    --------
    tallytree.PoissonBinomial
    tallytree.LinearModel
    tallytree.estimators.LabelProportions

    Notes
    -----
    Cost: two passes through the tree of sums for every row and step; rows with equal log-odds and range are computed
    once. With covariates there are two searches.
    Sums of real weights rarely lie on the grid: give a range of a step or two around them, or ``log_f``.

    Accuracy: gradients to 1e-9. The events are hidden, so the likelihood may have several maxima, often one for each
    sign of a coefficient. With covariates one search begins at probabilities of a half, a second one at the result of
    the first with all signs changed, and the better result is kept: in 75 random problems with one to three covariates
    the first search ended at a lower maximum twice, the better of both never. Without covariates there is one search,
    which begins at a fixed random draw of log-odds. Events with the same weight and covariates cannot be told apart.
    Log-odds that the data push to infinity need `l2`.

    Examples
    --------
    Twelve loans, of which every year only the total loss is published:

    >>> rng = np.random.default_rng(0)
    >>> size, rating = rng.integers(1, 20, 12), rng.normal(size=(12, 1))
    >>> years = tt.PoissonBinomial(logits=rating[:, 0] - 1.0, weights=size).sample(4000, rng=1)
    >>> found = tt.learn.fit_sums(size, years, X=rating)
    >>> found.coef.round(1), round(found.intercept, 1)
    (array([1.]), -1.0)
    """
    n = len(np.atleast_1d(rectangular_weights(weights)))
    events = WeightedEvents(weights, step, n)
    known = (value is not None, low is not None or high is not None, log_f is not None)
    if sum(known) != 1:
        raise ParameterError(
            "`fit_sums` needs one of `value`, a range with `low` and `high`, and `log_f`, to say what is known of the "
            f"sum of every row; {'none' if not any(known) else 'several'} arrived."
        )
    given = {"value": value, "low": low, "high": high}
    arrays = [checks.rectangular(name, a, "numbers") for name, a in given.items() if a is not None]
    sizes = [len(a) for a in arrays if a.ndim]
    x = _covariates(X, n, sizes[0] if sizes else None)
    rows = x.shape[0] if x.ndim == 3 else sizes[0] if sizes else 1
    constant = checks.flag("intercept", intercept) and X is not None
    l2 = checks.real("l2", l2, 0.0)
    tol, max_iter, told = stopping(tol, max_iter, progress)
    if log_f is not None:
        table = _tables(log_f, events.law(np.zeros((1, n))).values, rows if x.ndim == 3 else None)
        evidence, share = weight_of_table(table), np.ones(len(table), np.int64)
    else:
        ends = event_bounds(value, low, high, (rows,), events.step is None)
        known_rows = ConditionalPoissonBinomial._unchecked(events.law(np.zeros((rows, n))), *ends)
        cells, share = np.stack(known_rows._ends, axis=1), np.ones(rows, np.int64)
        if x.ndim == 2:
            cells, share = np.unique(cells, axis=0, return_counts=True)
        evidence = Weight(cells[:, 0], cells[:, 1])
    if not len(share):
        raise ParameterError("`fit_sums` needs at least one row; none arrived.")
    mean = share / share.sum()

    def evaluate(values: Float64) -> tuple[float, Float64]:
        coef, base = (values[:-1], values[-1]) if constant else (values, 0.0)
        log_p, slope = events.given(np.broadcast_to(x @ coef + base, (len(mean), n)), evidence)
        if (log_p == -math.inf).any():
            raise InfeasibleError(
                "`value`, `low`, `high` and `log_f` must leave every row a sum that the weights can have; "
                f"{int((log_p == -math.inf).sum())} kinds of rows have none. Real sums lie between cells of the grid: "
                "give ranges around them that are wider than `step`."
            )
        slope = mean[:, None] * slope
        by_coef = np.tensordot(slope, x, 2) if x.ndim == 3 else x.T @ slope.sum(0)
        gradient = np.append(l2 * coef - by_coef, [-slope.sum()] if constant else [])
        return 0.5 * l2 * float(coef @ coef) - float(mean @ log_p), gradient

    start = np.zeros(x.shape[-1] + constant)
    if X is None:  # events of equal weight that begin with equal log-odds would never part
        start = np.random.default_rng(0).normal(size=n)
    found, history = minimise(evaluate, start, tol, max_iter, told)
    if X is not None and x.shape[-1]:
        mirrored = np.append(-found.x[: x.shape[-1]], found.x[x.shape[-1] :])
        other = minimise(evaluate, mirrored, tol, max_iter, told)
        found, history = other if other[0].fun < found.fun else (found, history)
    coef = found.x[: x.shape[-1]]
    likelihood = 0.5 * l2 * float(coef @ coef) - evaluate(found.x)[0]
    learned = float(found.x[-1]) if constant else 0.0
    return SumFit(coef, learned, events.weights, events.step, likelihood, bool(found.success), tuple(history))


def _tables(log_f: Any, values: NDArray[Any], rows: int | None) -> Float64:
    """Potentials (N, M) of the sum, one for each row of covariates if they have rows."""
    given = np.asarray(log_f(values) if callable(log_f) else log_f)
    leading = ("N" if rows is None else rows,) if given.ndim > 1 else ()
    hint = " A function gets the values of the sum."
    table = checks.array("log_f", given, (*leading, len(values)), checks.LOGS, hint=hint)
    return np.array(np.broadcast_to(table, (table.shape[0] if leading else rows or 1, len(values))))


def _covariates(X: ArrayLike | None, n: int, rows: int | None) -> Any:
    """Covariates (n, p), or (N, n, p); without them a column for every event."""
    if X is None:
        return eye_array(n, format="csr")
    given = checks.rectangular("X", X, "covariates (n, p) or (N, n, p)")
    leading = ("N" if rows is None else rows,) if given.ndim == 3 else ()
    return checks.array("X", given, (*leading, n, "p"), hint=" Give p covariates for every event.")
