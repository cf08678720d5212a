"""Conditional count models: log-odds that are linear in covariates, with potentials on the counts and edges.

``p(y | x) = exp(sum_d theta_d(x) y_d) prod_g f_g(count_g) prod_(i, j) t_ij(y_i, y_j) / Z(x)``, ``theta_d(x) = x_d . w +
b_d``. Rows are a batch of models on one structure; tables are shared, or own to each class of rows, edges are shared.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from .. import _display, checks
from .._progress import Report
from ..arrays import Float64
from ..checks.numbers import check_count, check_real
from ..errors import ParameterError
from ..models.count import CountModel
from ..models.edges import Forest
from ..models.group import Group
from ..structure.nested.count_tree import CountTree
from .adam import adam
from .descent import minimise
from .options import penalty, stopping
from .parametric import ParametricPotential
from .regression_problem import Choices, ConditionalProblem, classes_like, covariates_like

Tables = str | ParametricPotential | list[str | ParametricPotential] | list[list[str | ParametricPotential]]


@dataclass(frozen=True, eq=False)
class ConditionalFit:
    """A fitted conditional model.

    Attributes
    ----------
    coef : (p,) or (p, D)
        Weights of the covariates, shared by all variables or own to each.
    intercept : (D,)
        b.
    tables : (n_classes, T)
        Packed log-tables of every class of rows.
    log_likelihood : float
        Mean log-probability of a training row.
    history : tuple of float
        Objective per row after each step or epoch.
    converged : bool
        Whether the optimiser met its tolerance (always False for minibatches).
    edges : Forest or None
        The edges with their fitted tables.
    parameters : dict
        Values of the parameters of potentials by name.
    tree : CountTree
        The structure.

    See Also
    --------
    tallytree.learn.fit_conditional

    Examples
    --------
    >>> X, Y = np.array([[0.0], [1.0], [2.0]]), np.array([[0, 1], [1, 0], [1, 1]])
    >>> found = tt.learn.fit_conditional(tt.CountTree.flat(2), X, Y, tables="fixed")
    >>> found.coef.shape
    (1, 2)
    """

    tree: CountTree
    coef: Float64
    intercept: Float64
    tables: Float64
    log_likelihood: float
    history: tuple[float, ...]
    converged: bool
    edges: Forest | None = None
    parameters: dict[str, float] = field(default_factory=dict)

    def _repr_html_(self) -> str:
        return _display.fit_page(self, coef=self.coef.shape, variables=len(self.intercept))

    def model(self, X: ArrayLike, classes: ArrayLike | None = None) -> CountModel:
        """The batch of models of new rows.

        Parameters
        ----------
        X : (N, D, p) or (N, p) array_like
            Covariates of new rows, as in the fit.
        classes : (N,) int array_like
            Class of every new row, where the fit had classes.

        Returns
        -------
        CountModel
            One model for every row.

        Raises
        ------
        ParameterError
            If ``X`` does not have the columns of the fit, or ``classes`` are not its classes, one for every row.

        See Also
        --------
        fit_conditional

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.normal(size=(50, 2)), rng.integers(0, 2, size=(50, 3))
        >>> tt.learn.fit_conditional(tt.CountTree.flat(3), x, y).model(x[:4]).marginals.shape
        (4, 3)
        """
        x = covariates_like(X, self.coef, self.tree.n_variables)
        which = classes_like(classes, len(x), len(self.tables))
        tables = self.tables[0] if len(self.tables) == 1 else self.tables[which]
        logits = x @ self.coef + self.intercept
        if self.edges is None:
            return CountModel.from_tree(self.tree, logits, tables)
        empty = CountModel(
            np.zeros(self.tree.n_variables), [Group(g) for g in self.tree.groups], edges=self.edges
        )
        return empty.replace(logits=logits, tables=tables)


def fit_conditional(
    tree: CountTree,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    edges: Forest | None = None,
    interactions: str | ArrayLike = "free",
    classes: ArrayLike | None = None,
    intercept: str = "own",
    tables: Tables = "free",
    start_tables: ArrayLike | None = None,
    l2: float = 1e-3,
    l2_tables: float | None = None,
    l2_edges: float | None = None,
    method: str = "auto",
    tol: float = 1e-6,
    max_iter: int = 300,
    batch_size: int | None = None,
    learning_rate: float = 0.05,
    rng: np.random.Generator | int | None = None,
    warm_start: ConditionalFit | None = None,
    progress: bool | Report = False,
) -> ConditionalFit:
    """Fit a conditional count model by exact maximum likelihood.

    Parameters
    ----------
    tree : CountTree
        Groups whose counts have potentials.
    X : (N, D, p) or (N, p) array
        Covariates of every variable of every row (weights shared between variables), or of every row (own
        weights for every variable).
    Y : (N, D) array of 0 and 1
        Responses.
    edges : Forest, optional
        Pairwise tables between variables, shared by all rows (Eq. 8 of the paper given x); not a batch. Its tables are
        where the search starts, and stay where `interactions` says so.
    interactions : "free", "tied", "fixed" or (E,) int array
        Which entries (1, 1) of the tables of edges are learned, as `edges` in :func:`~tallytree.learn.fit`.
    classes : (N,) int array, optional
        Rows of one class share their tables; default all rows.
    intercept : {"own", "shared", "none"}
        b_d, one b for all variables, or none.
    tables : "free", "fixed", ParametricPotential, list with one of these per group, or list of such lists per class
        Whether and how the tables are learned; potentials from :func:`~tallytree.learn.parametric` have few numbers to
        learn, which are shared where they have the same name, also between classes.
    start_tables : (T,) or (n_classes, T) array, optional
        Where the log-tables start, or stay; -inf entries stay. Default 0.
    l2, l2_tables, l2_edges : float
        Penalties per row ``l2 / 2 |w|^2`` (intercepts and parameters are free), on changes of table entries and of
        interactions; `l2_tables` and `l2_edges` default to `l2`.
    method : {"auto", "newton-cg", "l-bfgs"}
        As in :func:`~tallytree.learn.fit`; "auto" is "newton-cg" unless there are edges.
    tol, max_iter : float, int
        Tolerance on the gradient and limit on steps, or on epochs with minibatches.
    batch_size : int, optional
        Adam on minibatches of this many rows instead.
    learning_rate : float
        Of Adam.
    rng : Generator, int or None
        Order of the minibatches.
    warm_start : ConditionalFit, optional
        Where to start.
    progress : bool or callable
        As in :func:`~tallytree.learn.fit`.

    Returns
    -------
    ConditionalFit
        Coefficients, tables and how the search ended.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.learn.ConditionalFit
    tallytree.learn.fit

    Notes
    -----
    Cost: one batched inference over the rows per evaluation, two to three per Hessian product.

    Examples
    --------
    Rows whose last covariate says how many are on, with a noisy-OR rate to learn:

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 4, 1))
    >>> y = tt.CountModel(x[..., 0] - 1.0, tt.noisy_or(0.4)).sample(rng=1)
    >>> effect = tt.learn.parametric(tt.noisy_or, tt.learn.Parameter("rate", 0.5))
    >>> found = fit_conditional(tt.CountTree.flat(4), x, y, intercept="shared", tables=effect)
    >>> found.converged, sorted(found.parameters)
    (True, ['rate'])
    """
    tol, max_iter, progress = stopping(tol, max_iter, progress)
    size = None if batch_size is None else check_count(batch_size, "batch_size", 1)
    rate, generator = check_real(learning_rate, "learning_rate", 0.0), checks.generator(rng)
    checks.one_of("intercept", intercept, ("own", "shared", "none"))
    checks.one_of("method", method, ("auto", "newton-cg", "l-bfgs"))
    if edges is not None and (not isinstance(edges, Forest) or edges.batch_shape):
        raise ParameterError(
            f"`edges` must be a single Forest, not a batch; {checks.describe(edges)} arrived."
        )
    others = [l2 if given is None else given for given in (l2_tables, l2_edges)]
    weights = [penalty(name, value) for name, value in zip(("l2", "l2_tables", "l2_edges"), (l2, *others))]
    choices = Choices(intercept, tables, interactions, *weights)
    problem = ConditionalProblem(tree, edges, X, Y, classes, start_tables, choices)
    start = problem.start(warm_start)
    if size is not None:
        values, history = adam(
            problem.on_rows,
            problem.n_rows,
            start,
            batch_size=size,
            epochs=max_iter,
            rate=rate,
            rng=generator,
            progress=progress,
        )
        return _result(problem, values, tuple(history), converged=False)
    if method == "newton-cg" and problem.free.moves_edges:
        raise ParameterError(
            "`method` must be 'l-bfgs' where interactions are learned; 'newton-cg' arrived, which needs Hessian "
            "products, and these do not cover edges. Use 'l-bfgs', or interactions='fixed'."
        )
    chosen = ("newton-cg" if edges is None else "l-bfgs") if method == "auto" else method
    values, outcome, history = minimise(problem, start, chosen, tol, max_iter, progress)
    return _result(problem, values, tuple(history), converged=outcome.success)


def _result(
    problem: ConditionalProblem, values: Float64, history: tuple[float, ...], *, converged: bool
) -> ConditionalFit:
    numbers, everything = problem.numbers(values), np.arange(problem.n_rows)
    model = problem.model(numbers, everything)
    score = problem.log_weights(numbers, model, everything) - np.asarray(model.log_partition)
    intercept = np.array(numbers.intercept)
    for array in (numbers.coef, intercept, numbers.tables):
        array.flags.writeable = False
    return ConditionalFit(
        problem.tree,
        numbers.coef,
        intercept,
        numbers.tables,
        float(score.mean()),
        history,
        converged,
        None if problem.forest is None else problem.forest.replace(numbers.edges),
        problem.parameters(values),
    )
