"""Conditional count models: log-odds that are linear in covariates, with potentials on the counts.

``p(y | x) = exp(sum_d theta_d(x) y_d) prod_g f_g(count_g) / Z(x)``, ``theta_d(x) = x_d . w + b_d``. Rows
are a batch of models on one structure; tables are shared, or own to each class of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize

from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..models.count import CountModel
from ..structure.nested.count_tree import CountTree
from .blas import one_blas_thread
from .maximum_likelihood import Progress, report
from .statistics import CountFeatures, binary_rows


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

    def model(self, X: ArrayLike, classes: ArrayLike | None = None) -> CountModel:
        """The batch of models of new rows."""
        x = np.asarray(X, np.float64)
        which = np.zeros(len(x), np.int64) if classes is None else np.asarray(classes)
        tables = self.tables[0] if len(self.tables) == 1 else self.tables[which]
        return CountModel.from_tree(self.tree, x @ self.coef + self.intercept, tables)


def fit_conditional(
    tree: CountTree,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    classes: ArrayLike | None = None,
    intercept: str = "own",
    tables: str = "free",
    start_tables: ArrayLike | None = None,
    l2: float = 1e-3,
    l2_tables: float | None = None,
    tol: float = 1e-6,
    max_iter: int = 300,
    batch_size: int | None = None,
    learning_rate: float = 0.05,
    rng: np.random.Generator | int | None = None,
    warm_start: ConditionalFit | None = None,
    progress: Progress | bool = False,
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
    classes : (N,) int array, optional
        Rows of one class share their tables; default all rows.
    intercept : {"own", "shared", "none"}
        b_d, one b for all variables, or none.
    tables : {"free", "fixed"}
        Whether the tables are learned.
    start_tables : (T,) array, optional
        Where the log-tables start, or stay; -inf entries stay. Default 0.
    l2, l2_tables : float
        Penalties per row ``l2 / 2 |w|^2`` (intercepts are free) and on table entries; `l2_tables` defaults
        to `l2`.
    tol, max_iter : float, int
        Tolerance on the gradient and limit on L-BFGS steps, or on epochs with minibatches.
    batch_size : int, optional
        Adam on minibatches of this many rows instead of L-BFGS on all.
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
    Cost: one batched inference over the rows per evaluation.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [0.5], [2.5]])
    >>> Y = np.array([[0, 0], [1, 0], [1, 1], [0, 1], [0, 1], [1, 0]])
    >>> found = tt.learn.fit_conditional(tt.CountTree.flat(2), X, Y, tables="fixed")
    >>> found.model(X).marginals.shape
    (6, 2)
    """
    problem = _Problem(
        tree, X, Y, classes, intercept, tables, start_tables, l2, l2 if l2_tables is None else l2_tables
    )
    start = problem.start(warm_start)
    history: list[float] = []
    everything = np.arange(problem.n_rows)
    if batch_size is None:
        last: dict[str, float] = {}

        def evaluate(values: Float64) -> tuple[float, Float64]:
            value, gradient = problem.value_and_gradient(values, everything)
            last.update(value=value, norm=float(np.abs(gradient).max(initial=0.0)))
            return value, gradient

        def after_step(_: Any) -> None:
            history.append(last["value"])
            report(progress, len(history), -last["value"], last["norm"])

        options = {"maxiter": max_iter, "gtol": tol, "ftol": 0.0, "maxcor": 20, "maxfun": 4 * max_iter}
        run: Any = optimize.minimize  # its overloads do not know `jac=True` with a callback
        with one_blas_thread():
            found = run(evaluate, start, jac=True, method="L-BFGS-B", options=options, callback=after_step)
        values, converged = np.asarray(found.x), bool(last["norm"] <= 10 * tol or found.success)
    else:
        values = _adam(problem, start, batch_size, max_iter, learning_rate, rng, history, progress)
        converged = False
    return problem.result(values, tuple(history), converged)


class _Problem:
    def __init__(
        self,
        tree: CountTree,
        X: ArrayLike,
        Y: ArrayLike,
        classes: ArrayLike | None,
        intercept: str,
        tables: str,
        start_tables: ArrayLike | None,
        l2: float,
        l2_tables: float,
    ) -> None:
        self.tree, self.features = tree, CountFeatures(tree)
        self.y = binary_rows(Y, tree.n_variables).astype(np.float64)
        self.x = np.asarray(X, np.float64)
        n, d = self.y.shape
        if self.x.ndim not in (2, 3) or len(self.x) != n or (self.x.ndim == 3 and self.x.shape[1] != d):
            raise ParameterError(
                f"`X` must have shape ({n}, p) or ({n}, {d}, p) to go with `Y`; shape {self.x.shape} arrived."
            )
        if not np.isfinite(self.x).all():
            raise ParameterError("`X` must hold finite numbers; NaN or infinity arrived. Drop those rows.")
        if intercept not in ("own", "shared", "none"):
            raise ParameterError(f"`intercept` must be 'own', 'shared' or 'none'; {intercept!r} arrived.")
        if tables not in ("free", "fixed"):
            raise ParameterError(f"`tables` must be 'free' or 'fixed'; {tables!r} arrived.")
        self.classes = np.zeros(n, np.int64) if classes is None else np.asarray(classes).astype(np.int64)
        if self.classes.shape != (n,) or (self.classes < 0).any():
            raise ParameterError(
                f"`classes` must be {n} integers of at least 0; shape {self.classes.shape} arrived."
            )
        self.n_rows, self.n_classes = n, int(self.classes.max(initial=0)) + 1
        self.l2, self.l2_tables = l2, l2_tables
        self.coef_shape = (self.x.shape[-1],) if self.x.ndim == 3 else (self.x.shape[-1], d)
        self.n_coef = int(np.prod(self.coef_shape))
        self.n_bias = {"own": d, "shared": 1, "none": 0}[intercept]
        base = (
            np.zeros(self.features.n_cells) if start_tables is None else np.asarray(start_tables, np.float64)
        )
        if base.shape != (self.features.n_cells,):
            raise ParameterError(
                f"`start_tables` must be packed, {self.features.n_cells} entries; shape {base.shape} arrived."
            )
        self.base = np.broadcast_to(base, (self.n_classes, len(base)))
        self.movable = np.isfinite(self.base) & (tables == "free")
        self.cells = self.features.cells(self.y)
        excluded = np.flatnonzero((self.base[self.classes[:, None], self.cells] == -np.inf).any(1))
        if len(excluded):
            raise ParameterError(
                f"`Y` must hold rows that `start_tables` allows; row {excluded[0]} has a count whose entry is "
                "-inf. Drop such rows, or make the entries finite."
            )

    def start(self, warm: ConditionalFit | None) -> Float64:
        values = np.zeros(self.n_coef + self.n_bias + int(self.movable.sum()))
        if warm is not None:
            values[: self.n_coef] = warm.coef.reshape(-1)
            if self.n_bias:
                values[self.n_coef : self.n_coef + self.n_bias] = warm.intercept[: self.n_bias]
            values[self.n_coef + self.n_bias :] = (warm.tables - self.base)[self.movable]
        return values

    def split(self, values: Float64) -> tuple[Float64, Float64, Float64]:
        coef = values[: self.n_coef].reshape(self.coef_shape)
        bias = values[self.n_coef : self.n_coef + self.n_bias]
        intercept = np.broadcast_to(bias, (self.y.shape[1],)) if self.n_bias else np.zeros(self.y.shape[1])
        tables = self.base.copy()
        tables[self.movable] += values[self.n_coef + self.n_bias :]
        return coef, intercept, tables

    def value_and_gradient(self, values: Float64, rows: Ints) -> tuple[float, Float64]:
        """Penalised negative log-likelihood per row, and gradient, on some rows."""
        coef, intercept, tables = self.split(values)
        x, y, which, cells = self.x[rows], self.y[rows], self.classes[rows], self.cells[rows]
        logits = x @ coef + intercept
        model = CountModel.from_tree(self.tree, logits, tables[0] if self.n_classes == 1 else tables[which])
        score = (logits * y).sum(1) + tables[which[:, None], cells].sum(1)
        n = len(rows)
        value = float(np.asarray(model.log_partition).sum() - score.sum()) / n
        value += 0.5 * self.l2 * float((coef**2).sum())
        expected = model.expected_statistics
        gap = (np.asarray(expected.logits) - y) / n
        by_coef = np.tensordot(gap, x, axes=([0, 1], [0, 1])) if x.ndim == 3 else x.T @ gap
        parts = [(by_coef + self.l2 * coef).reshape(-1)]
        if self.n_bias:
            parts.append(gap.sum(0) if self.n_bias > 1 or len(gap[0]) == 1 else np.array([gap.sum()]))
        if self.movable.any():
            moved = np.zeros((self.n_classes, self.features.n_cells))
            np.add.at(moved, which, np.concatenate(expected.tables, axis=-1))
            np.subtract.at(moved, (np.repeat(which, cells.shape[1]), cells.reshape(-1)), 1.0)
            change = np.where(self.movable, tables - np.where(self.movable, self.base, 0.0), 0.0)
            value += 0.5 * self.l2_tables * float((change[self.movable] ** 2).sum())
            parts.append((moved / n + self.l2_tables * change)[self.movable])
        return value, np.concatenate(parts)

    def result(self, values: Float64, history: tuple[float, ...], converged: bool) -> ConditionalFit:
        coef, intercept, tables = self.split(values)
        found = ConditionalFit(self.tree, coef, np.array(intercept), tables, 0.0, history, converged)
        model = found.model(self.x, self.classes)
        score = (model.logits * self.y).sum(1) + tables[self.classes[:, None], self.cells].sum(1)
        mean = float((score - np.asarray(model.log_partition)).mean())
        return ConditionalFit(self.tree, coef, np.array(intercept), tables, mean, history, converged)


def _adam(
    problem: _Problem,
    values: Float64,
    batch_size: int,
    epochs: int,
    rate: float,
    rng: np.random.Generator | int | None,
    history: list[float],
    progress: Progress | bool,
) -> Float64:
    """Adam with the steps decaying to a tenth over the epochs."""
    generator = np.random.default_rng(rng)
    first, second = np.zeros_like(values), np.zeros_like(values)
    step = 0
    for epoch in range(epochs):
        order = generator.permutation(problem.n_rows)
        total = 0.0
        norm = 0.0
        for start in range(0, len(order), batch_size):
            rows = order[start : start + batch_size]
            value, gradient = problem.value_and_gradient(values, rows)
            step += 1
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            size = rate * (1.0 - 0.9 * epoch / max(1, epochs))
            move = (first / (1.0 - 0.9**step)) / (np.sqrt(second / (1.0 - 0.999**step)) + 1e-8)
            values = values - size * move
            total += value * len(rows)
            norm = float(np.abs(gradient).max(initial=0.0))
        history.append(total / problem.n_rows)
        report(progress, epoch + 1, -history[-1], norm)
    return values
