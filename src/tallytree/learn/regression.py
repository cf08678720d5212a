"""Conditional count models: log-odds that are linear in covariates, with potentials on the counts and edges.

``p(y | x) = exp(sum_d theta_d(x) y_d) prod_g f_g(count_g) prod_(i, j) t_ij(y_i, y_j) / Z(x)``, ``theta_d(x) = x_d . w +
b_d``. Rows are a batch of models on one structure; tables are shared, or own to each class of rows, edges are shared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks, display
from .._progress import Report
from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..models.count import CountModel
from ..models.edges import Forest
from ..models.group import Group
from ..structure.nested.count_tree import CountTree
from .descent import adam, minimise, stopping
from .free import shared_parameters
from .objective import Objective, Seen, read_penalties
from .parametric import ParametricPotential
from .statistics import CountFeatures, binary_rows

Tables = str | ParametricPotential | list[str | ParametricPotential] | list[list[str | ParametricPotential]]


@dataclass(frozen=True, eq=False)
class ConditionalFit:
    """Result of :func:`fit_conditional`.

    Attributes
    ----------
    coef : (p,) or (p, D) array
        Coefficients of the covariates, shared by all variables or separate for each.
    intercept : (D,) array
        Intercept of every variable.
    tables : (n_classes, T) array
        Log-tables of every class of rows: those of all groups, one after the other.
    log_likelihood : float
        Mean log-probability of a training row.
    history : tuple of float
        Penalised mean log-loss of a row after each step or epoch.
    converged : bool
        Whether the optimiser met its tolerance (always False for minibatches).
    edges : Forest or None
        The edges with their fitted tables.
    parameters : dict
        Fitted values of the parameters of potentials, by name.
    tree : CountTree
        The groups.

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
        return display.fit_page(self, coef=self.coef.shape, variables=len(self.intercept))

    def model(self, X: ArrayLike, classes: ArrayLike | None = None) -> CountModel:
        """The models of new rows, as a batch.

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
        columns = (len(self.coef),) if self.coef.ndim == 2 else (self.tree.n_variables, len(self.coef))
        x = checks.array("X", X, ("N", *columns), hint=" The columns must be those of the fit.")
        if classes is None and len(self.tables) > 1:
            raise ParameterError("`classes` must say the class of every row, as in the fit; None arrived.")
        which = _classes(classes, len(x), len(self.tables) - 1)
        tables = self.tables[0] if len(self.tables) == 1 else self.tables[which]
        logits = x @ self.coef + self.intercept
        return _template(self.tree, self.edges).replace(logits=logits, tables=tables)


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
    """Fit a regression of binary vectors on covariates, with potentials on counts, by exact maximum likelihood.

    ``log p(y | x) = sum_d (x_d . w + b_d) y_d + sum_i log f_i(count of group i) - log Z(x)``, with pairwise tables if
    there are edges: logistic regression of D responses that the potentials make dependent.

    Parameters
    ----------
    tree : CountTree
        Groups whose counts have potentials.
    X : (N, D, p) or (N, p) array
        Covariates: (N, D, p) if every variable of every row has its own (all variables then share the coefficients
        w), or (N, p) if those of a row hold for all of its variables (every variable then has coefficients of its
        own).
    Y : (N, D) array of 0 and 1
        Responses.
    edges : Forest, optional
        Pairwise tables between variables, shared by all rows; not a batch. The search starts from its tables.
    interactions : "free", "tied", "fixed" or (E,) int array
        Which of the edges are learned, as `edges` in :func:`~tallytree.learn.fit`.
    classes : (N,) int array, optional
        Class of every row. Rows of one class share their log-tables; default one class.
    intercept : {"own", "shared", "none"}
        One intercept for every variable, one for all of them, or none.
    tables : "free", "fixed", ParametricPotential, list with one of these per group, or list of such lists per class
        Whether and how the log-tables are learned, as in :func:`~tallytree.learn.fit`. A potential from
        :func:`~tallytree.learn.parametric` has few numbers to learn; parameters of the same name are the same number,
        also in different classes.
    start_tables : (T,) or (n_classes, T) array, optional
        Log-tables of all groups, one after the other, from which the search starts (or which are kept, if "fixed").
        Entries of -inf stay. Default 0.
    l2, l2_tables, l2_edges : float
        Penalties ``l2 / 2 * sum of squares`` beside the mean log-loss of a row: on the coefficients, on changes of
        table entries and on changes of interactions. `l2_tables` and `l2_edges` default to `l2`. Intercepts and
        parameters of potentials are not penalised.
    method : {"auto", "newton-cg", "l-bfgs"}
        As in :func:`~tallytree.learn.fit`. "auto" is "newton-cg" unless there are edges or potentials with parameters.
    tol, max_iter : float, int
        Tolerance on the gradient, and limit on the number of steps (of epochs, with minibatches).
    batch_size : int, optional
        Number of rows of a minibatch. If given, Adam on minibatches takes the place of `method`.
    learning_rate : float
        Step size of Adam.
    rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
        Source of randomness for the order of the minibatches.
    warm_start : ConditionalFit, optional
        An earlier result from which to start.
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
    Four responses per row and a noisy-OR on their count, whose rate is learned together with the coefficient:

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(200, 4, 1))
    >>> y = tt.CountModel(x[..., 0] - 1.0, tt.noisy_or(0.4)).sample(rng=1)
    >>> effect = tt.learn.parametric(tt.noisy_or, tt.learn.Parameter("rate", 0.5))
    >>> found = tt.learn.fit_conditional(tt.CountTree.flat(4), x, y, intercept="shared", tables=effect)
    >>> found.converged, sorted(found.parameters)
    (True, ['rate'])
    """
    tol, max_iter, progress = stopping(tol, max_iter, progress)
    size = None if batch_size is None else checks.integer("batch_size", batch_size, 1)
    rate, generator = checks.real("learning_rate", learning_rate, 0.0), checks.generator(rng)
    checks.one_of("intercept", intercept, ("own", "shared", "none"))
    checks.one_of("method", method, ("auto", "newton-cg", "l-bfgs"))
    if edges is not None and (not isinstance(edges, Forest) or edges.batch_shape):
        raise ParameterError(
            f"`edges` must be a single Forest, not a batch; {checks.describe(edges)} arrived."
        )
    learned, penalties = (intercept, tables, interactions), read_penalties(l2, l2_tables, l2_edges)
    problem = ConditionalProblem(tree, edges, X, Y, classes, start_tables, learned, penalties)
    start = problem.start(warm_start)
    if size is not None:
        n = problem.n_rows
        values, history = adam(problem.on_rows, n, start, size, max_iter, rate, generator, progress)
        return _result(problem, values, tuple(history), converged=False)
    if method == "newton-cg" and problem.free.moves_edges:
        raise ParameterError(
            "`method` must be 'l-bfgs' where interactions are learned; 'newton-cg' arrived, which needs Hessian "
            "products, and these do not cover edges. Use 'l-bfgs', or interactions='fixed'."
        )
    if method == "auto":
        method = "newton-cg" if edges is None and not problem.free.parametric.names else "l-bfgs"
    evaluate = problem.value_and_gradient
    outcome, history = minimise(evaluate, start, tol, max_iter, progress, method=method, curvature=problem)
    return _result(problem, outcome.x, tuple(history), converged=bool(outcome.success))


def _result(
    problem: ConditionalProblem, values: Float64, history: tuple[float, ...], *, converged: bool
) -> ConditionalFit:
    numbers = problem.numbers(values)
    intercept = np.array(numbers.intercept)
    for array in (numbers.coef, intercept, numbers.tables):
        array.flags.writeable = False
    edges = None if problem.forest is None else problem.forest.replace(numbers.edges)
    mean, parameters = problem.log_likelihood(values), problem.parameters(values)
    return ConditionalFit(
        problem.tree, numbers.coef, intercept, numbers.tables, mean, history, converged, edges, parameters
    )


class ConditionalProblem(Objective):
    """The objective of rows with covariates; arguments as in :func:`fit_conditional`.

    `learned` is what it says of intercept, tables and interactions, `penalties` those of weights, tables and edges.
    """

    def __init__(
        self,
        tree: CountTree,
        forest: Forest | None,
        X: ArrayLike,
        Y: ArrayLike,
        classes: ArrayLike | None,
        start_tables: ArrayLike | None,
        learned: tuple[str, Any, Any],
        penalties: tuple[float, float, float],
    ) -> None:
        features = CountFeatures(tree, None if forest is None else forest.pairs)
        self.tree, self.forest = tree, forest
        self._y = binary_rows(Y, tree.n_variables).astype(np.float64)
        n, d = self._y.shape
        self.n_rows = n
        if not n:
            raise ParameterError("`Y` must hold at least one row; none arrived.")
        given = checks.rectangular("X", X, "covariates (N, p) or (N, D, p)")
        self._x = checks.array("X", given, (n, d, "p") if given.ndim == 3 else (n, "p"))
        self._classes = _classes(classes, n)
        self._shape = (int(self._classes.max()) + 1, features.n_cells)
        base = _start_tables(start_tables, self._shape)
        free = shared_parameters(*learned, features, base, forest)
        self._cells, self._pair_cells = features.cells(self._y), features.pair_cells(self._y)
        l2, l2_tables, l2_edges = penalties
        seen, template = self._seen_of(np.arange(n)), _template(tree, forest)
        super().__init__(template, features, free, seen, (l2, 0.0, l2_tables, l2_edges))
        start = self.numbers(self.start(None))
        own = start.tables[self._classes[:, None], self._cells]
        _refuse_excluded(own, "a count whose table entry")
        _refuse_excluded(start.edges.reshape(-1)[self._pair_cells], "a pair of states whose entry in `edges`")

    def _seen_of(self, rows: Ints) -> Seen:
        classes, n = self._classes[rows], len(rows)
        cells = classes[:, None] * self._shape[1] + self._cells[rows]
        tables = np.bincount(cells.reshape(-1), minlength=math.prod(self._shape)).reshape(self._shape) / n
        n_edges = 0 if self.forest is None else 4 * len(self.forest.pairs)
        edges = np.bincount(self._pair_cells[rows].reshape(-1), minlength=n_edges) / n
        return Seen(self._x[rows], self._y[rows], classes, tables, edges)

    def on_rows(self, values: Float64, rows: Ints) -> tuple[float, Float64]:
        """The objective and its gradient on some rows."""
        return self._evaluated(values, self._seen_of(rows))

    def parameters(self, values: Float64) -> dict[str, float]:
        """Values of the parameters of potentials by name."""
        return self.free.parameters(self._parts(values)[1])

    def start(self, warm: Any) -> Float64:
        """Where nothing has moved yet, or at the numbers of an earlier fit."""
        if warm is None:
            return np.concatenate([np.zeros(self._n_coef), self.free.start])
        if (
            not isinstance(warm, ConditionalFit)
            or warm.coef.shape != self.coef_shape
            or warm.tables.shape != self._shape
        ):
            raise ParameterError(
                "`warm_start` must be a ConditionalFit with the same tree, covariates and classes; "
                f"{checks.describe(warm)} arrived."
            )
        free, edges = self.free, self.free.base[self.free.parts[2]]
        if self.forest is not None and warm.edges is not None:
            edges = warm.edges.log_tables.reshape(-1)
        coordinates = free.parametric.start
        if set(free.parametric.names) <= set(warm.parameters):
            coordinates = free.parametric.coordinates(warm.parameters)
        natural = np.concatenate([warm.intercept, warm.tables.reshape(-1), edges])
        return np.concatenate([warm.coef.reshape(-1), free.nearest(natural), coordinates])


def _template(tree: CountTree, forest: Forest | None) -> CountModel:
    """The structure, with log-odds and tables of zeros."""
    return CountModel(np.zeros(tree.n_variables), [Group(g) for g in tree.groups], edges=forest)


def _classes(classes: ArrayLike | None, n: int, most: int = 2**62) -> Ints:
    if classes is None:
        return np.zeros(n, np.int64)
    until = "on" if most == 2**62 else f"to {most}"
    allowed = checks.Entries(f"classes of the fit from 0 {until}", 0, most, "iub", np.int64)
    return checks.array("classes", classes, (n,), allowed)


def _start_tables(start: ArrayLike | None, shape: tuple[int, int]) -> Float64:
    base = np.zeros(shape) if start is None else checks.real_array("start_tables", start, "entries")[0]
    if not (base < math.inf).all() or base.shape not in (shape, shape[1:]):
        raise ParameterError(
            f"`start_tables` must be packed, {shape[1]} entries, or {shape[0]} such rows, one per class, of numbers or "
            f"-inf; {checks.describe(start)} arrived."
        )
    return np.array(np.broadcast_to(base, shape), np.float64)


def _refuse_excluded(entries: Float64, what: str) -> None:
    excluded = np.flatnonzero((entries == -math.inf).any(1))
    if len(excluded):
        raise ParameterError(
            f"`Y` must hold rows that `start_tables` and `edges` allow; row {excluded[0]} has {what} is "
            "-inf. Drop such rows, or make the entries finite."
        )
