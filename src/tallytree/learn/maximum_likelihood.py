"""Exact maximum likelihood for count models by moment matching."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks, display
from .._progress import Report
from ..errors import ParameterError
from ..models.count import CountModel
from .descent import minimise, stopping
from .free import FreeParameters, free_parameters, pairs_of
from .objective import Objective, read_penalties
from .statistics import CountFeatures, Statistics, binary_rows, mean_of_batches, row_weights

_DEEPEST = 5  # nested groups; beyond, tables determine one another so nearly that Newton's method needs many products

METHODS = ("auto", "l-bfgs", "cg", "newton-cg")


@dataclass(frozen=True, eq=False)
class Fit:
    """Result of :func:`fit`.

    Attributes
    ----------
    model : CountModel
        The fitted model.
    log_likelihood : float
        Mean log-probability of a row, without penalties.
    gradient_norm : float
        Largest absolute entry of the gradient of the penalised objective: without penalties, the largest difference
        between a statistic of the model and of the data.
    n_iterations, n_evaluations, n_products : int
        Number of steps of the optimiser, of inferences and of Hessian products.
    converged : bool
        Whether the optimiser met its tolerance.
    history : tuple of float
        Penalised mean log-loss of a row after every step; it falls.
    message : str
        Why the optimiser stopped.
    parameters : dict
        Fitted values of the parameters of potentials, by name.

    See Also
    --------
    tallytree.learn.fit

    Examples
    --------
    >>> rows = np.array([[1, 0], [0, 1], [1, 1], [0, 0]])
    >>> tt.learn.fit(tt.CountModel(np.zeros(2)), rows).converged
    True
    """

    model: CountModel
    log_likelihood: float
    gradient_norm: float
    n_iterations: int
    n_evaluations: int
    converged: bool
    history: tuple[float, ...]
    message: str
    n_products: int = 0
    parameters: dict[str, float] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        return display.fit_page(self, gradient=f"{self.gradient_norm:.1e}", steps=self.n_iterations) + (
            self.model._repr_html_()
        )


def fit(
    model: CountModel,
    data: Any,
    *,
    weights: ArrayLike | None = None,
    start: CountModel | None = None,
    logits: Any = "free",
    tables: Any = "free",
    edges: Any = "free",
    l2: float = 0.0,
    l2_tables: float | None = None,
    l2_edges: float | None = None,
    smoothness: float = 0.0,
    method: str = "auto",
    tol: float = 1e-6,
    max_iter: int = 500,
    gauge: str | None = "endpoints",
    progress: bool | Report = False,
) -> Fit:
    """Fit the parameters of a model to binary rows by exact maximum likelihood.

    Maximises the mean log-probability of the rows minus penalties. Without penalties, at the optimum the marginals, the
    distributions of the counts and, for a model with edges, the means of ``y_i y_j`` equal the frequencies in the data.

    Parameters
    ----------
    model : CountModel
        The structure to fit; not a batch. What is fixed keeps its value in this model, and penalties pull towards it.
    data : (N, D) array of 0 and 1, iterable of such arrays or of pairs (rows, weights), or Statistics
        The rows. Only their means are needed, so an iterable of arrays is read once and never kept in memory.
    weights : (N,) array, optional
        Weights of the rows of one array.
    start : CountModel, optional
        Where the search begins (warm start), on the same structure; default `model`. A :class:`Parameter` begins at its
        own ``start``.
    logits : "free", "tied", "fixed" or (D,) int array
        Which logits are learned: each by itself, one number for all, or none. In an array, variables with equal labels
        move by the same amount, and -1 marks a fixed one.
    tables : "free", "fixed", "by-size", ParametricPotential, or list with one entry per group
        Which log-tables are learned. "by-size" gives groups of equal size the same changes. A potential from
        :func:`parametric` has few numbers to learn and takes the place of the table in `model`; given alone, it holds
        for all groups, which share its parameters. Entries of -inf stay.
    edges : "free", "tied", "fixed" or (E,) int array
        Which edges are learned, in the same way as `logits`, if the model has edges. Of every edge only the interaction
        ``log t(1,1) - log t(1,0) - log t(0,1) + log t(0,0)`` is learned, by changing the entry (1, 1) unless that is
        -inf. The other three entries keep their values in `model`; with free logits nothing is lost by this. If a group
        of just the two ends of an edge has a free table as well, the two can express the same; how they share it is
        arbitrary.
    l2, l2_tables, l2_edges : float
        Penalties ``l2 / 2 * sum of squares``, beside the mean log-loss of a row, on the changes of free logits, table
        entries and interactions from `model`; `l2_tables` and `l2_edges` default to `l2`. A :class:`Parameter` is not
        penalised.
    smoothness : float
        Penalty on the squared second differences of the log-tables, beside the mean log-loss of a row.
    method : {"auto", "newton-cg", "l-bfgs", "cg"}
        "newton-cg" is a trust-region Newton method with exact Hessian products (not for edges that are learned);
        "l-bfgs" keeps the last twenty gradients; "cg" is nonlinear conjugate gradients. "auto" takes what was faster
        when measured side by side: Newton's method, unless there are edges or some variable is in more than five nested
        groups. For a single group L-BFGS mostly took 2 to 30 times the processor time of Newton's method, for six to
        eight levels of nested groups 0.3 to 0.7 times.
    tol : float
        Stop when no learned statistic of the model differs from that of the data by more than this.
    max_iter : int
        Largest number of steps.
    gauge : {"endpoints", None}
        A table can be multiplied by a constant and by ``exp(a c)`` without changing the distribution, if the logits
        of its variables fall by a. "endpoints" chooses the version with ``log f(0) = log f(n) = 0`` wherever the
        logits are free; None leaves the tables as the search ended.
    progress : bool or callable
        True shows the steps. A function is called after each of them with ``log_likelihood`` and the norm ``gradient``.

    Returns
    -------
    Fit
        The fitted model and how the search ended.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.learn.Fit
    tallytree.learn.fit_conditional
    tallytree.estimators.CountDensity

    Notes
    -----
    Cost: one inference per evaluation, whatever the number of rows, after one pass over the data.

    Accuracy: gradients are exact to the engine's accuracy (tests: finite differences to 1e-6, recovery of
    parameters within sampling error).

    Examples
    --------
    >>> rows = np.array([[1, 0, 0], [0, 1, 1], [1, 1, 0], [0, 0, 0], [1, 0, 1], [0, 0, 1]])
    >>> start = tt.CountModel(np.zeros(3), np.zeros(4))
    >>> found = tt.learn.fit(start, rows, tables="fixed")
    >>> found.model.marginals.round(4)
    array([0.5   , 0.3333, 0.5   ])

    With edges the pairs are matched too:

    >>> chain = tt.CountModel(np.zeros(3), edges=tt.Forest([(0, 1), (1, 2)], 0.0))
    >>> tt.learn.fit(chain, rows).model.edge_marginals[:, 1, 1].round(4)
    array([0.1667, 0.1667])
    """
    tol, max_iter, progress = stopping(tol, max_iter, progress)
    checks.one_of("method", method, METHODS)
    features = CountFeatures(_single(model).tree, pairs_of(model))
    statistics = _statistics(features, data, weights)
    free = free_parameters(model, features, logits, tables, edges)
    method = _method(method, model, features, free)
    penalties = (0.0, *read_penalties(l2, l2_tables, l2_edges))
    smoothness = checks.real("smoothness", smoothness, 0.0, infinite=True)
    objective = Objective(model, features, free, statistics, penalties, smoothness)
    if gauge is not None:
        checks.one_of("gauge", gauge, ("endpoints",))
    beginning = free.start if start is None else free.values(_single(start))
    evaluate = objective.value_and_gradient
    outcome, history = minimise(
        evaluate, beginning, tol, max_iter, progress, method=method, curvature=objective
    )
    values = outcome.x
    final, gradient = evaluate(values)
    fitted, mean = objective.model_at(values), objective.log_likelihood(values)
    if gauge == "endpoints":
        fitted = fix_gauge(fitted, features, free)
    norm, history = float(np.abs(gradient).max(initial=0.0)), [*history, final]
    converged, products = bool(norm <= tol or outcome.success), int(outcome.get("n_products", 0))
    counts, said, found = (int(outcome.nit), int(outcome.nfev)), str(outcome.message), free.parameters(values)
    return Fit(fitted, mean, norm, *counts, converged, tuple(history), said, products, found)


def _method(method: str, model: CountModel, features: CountFeatures, free: FreeParameters) -> str:
    """The optimiser, chosen where that is left open."""
    if method == "newton-cg" and free.moves_edges:
        raise ParameterError(
            "`method` must be 'l-bfgs' or 'cg' where edges are learned; 'newton-cg' arrived, which needs "
            "Hessian products, and these do not cover edges. Use one of the two, or edges='fixed'."
        )
    if method != "auto":
        return method
    if model.edges is not None:
        return "l-bfgs"
    depth = np.zeros(model.n_variables, np.int64)
    for members in features.tree.groups:
        depth[members] += 1
    return "l-bfgs" if depth.max(initial=0) > _DEEPEST else "newton-cg"


def fix_gauge(model: CountModel, features: CountFeatures, free: FreeParameters) -> CountModel:
    """The same distribution with ``log f(0) = log f(n) = 0`` where factor and tilt are free."""
    logits, tables = np.array(model.logits, np.float64), [np.array(t) for t in model.tables]
    d = free.n_variables
    uses = np.bincount(free.labels[free.labels >= 0], minlength=free.n_linear)
    for g, members in enumerate(features.tree.groups):
        table = tables[g]
        own = free.labels[d + features.offset[g] : d + features.offset[g + 1]]
        possible = table > -math.inf
        if (own[possible] < 0).any() or (uses[own[possible]] > 1).any() or not (possible[0] and possible[-1]):
            continue
        labels = free.labels[members]
        slope = 0.0
        if (labels >= 0).all() and (uses[labels] == 1).all():
            slope = float(table[-1] - table[0]) / len(members)
        table -= table[0] + slope * np.arange(len(table))
        logits[members] += slope
    return model.replace(logits=logits, tables=tables) if tables else model


def _single(model: Any) -> CountModel:
    hint = ", as CountModel(np.zeros(D), groups); `fit_sums` is for weighted sums"
    found: CountModel = checks.instance("model", model, CountModel, hint)
    return found


def _statistics(features: CountFeatures, data: Any, weights: ArrayLike | None) -> Statistics:
    if isinstance(data, Statistics):
        if len(data.edges) != 4 * len(features.pairs):
            raise ParameterError(
                f"`data` must be statistics for the {len(features.pairs)} edges of the model, from "
                f"CountFeatures(tree, pairs); {len(data.edges) // 4} arrived."
            )
        return data
    if hasattr(data, "__array__") or isinstance(data, (list, tuple)):
        rows = binary_rows(data, features.tree.n_variables)
        if len(rows) == 0:
            raise ParameterError("`data` must hold at least one row; none arrived.")
        return features.mean(rows, row_weights(weights, len(rows)))
    if weights is not None or not isinstance(data, Iterable):
        raise ParameterError(
            "`data` must be rows, which may have `weights`, or an iterable of batches: rows, or pairs (rows, weights); "
            f"{checks.describe(data)} arrived."
        )
    return mean_of_batches(features, data)
