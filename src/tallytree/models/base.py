"""What every part of a model builds on: its parameters, one lazy inference, and the shapes of answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Self, TypeVar

import numpy as np

from .. import checks
from ..arrays import Float64, FloatArray
from ..engine import auto
from ..engine.count import conflict, moments
from ..engine.count.counts import group_log_probs
from ..engine.solution import Solution, posterior
from ..errors import InfeasibleError, ParameterError
from ..structure.nested.count_tree import CountTree
from . import parameters
from .parameters import Parameters

_T = TypeVar("_T")


class ModelCore:
    """Parameters and first-order answers; the base of :class:`~tallytree.CountModel`, not used on its own."""

    def _setup(self, tree: CountTree, params: Parameters, method: str) -> None:
        if type(method) is not str or method != "auto":
            checks.one_of("method", method, auto.METHODS)
        self._tree = tree
        self._params = params
        self._method = method
        self._cache: dict[Any, Any] = {}
        self._lock = threading.RLock()

    @classmethod
    def _make(cls, tree: CountTree, params: Parameters, method: str) -> Self:
        model = cls.__new__(cls)
        model._setup(tree, params, method)
        return model

    # -- parameters --------------------------------------------------------------------------------------------

    @property
    def n_variables(self) -> int:
        """Number of variables D."""
        return self._tree.n_variables

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of every answer."""
        return self._params.batch_shape

    @property
    def tree(self) -> CountTree:
        """The structure."""
        return self._tree

    @property
    def method(self) -> str:
        """The method asked for."""
        return self._method

    @property
    def logits(self) -> FloatArray:
        """Log-odds as given, (..., D), read-only."""
        return self._params.logits

    @property
    def tables(self) -> tuple[Float64, ...]:
        """Log-table of every group, (..., n + 1), read-only."""
        return self._params.tables

    # -- answers -----------------------------------------------------------------------------------------------

    @property
    def log_partition(self) -> Any:
        """Log Z, (...,): log of the sum of ``exp(logits . y) prod f`` over all y.

        A variable forced on by an infinite logit enters with weight one, so log Z stays finite.
        """
        return self._cached("log_partition", self._log_partition)

    @property
    def marginals(self) -> FloatArray:
        """P(y_d = 1), (..., D)."""
        return self._cached("marginals", lambda: self._vector(self._marginals()))

    @property
    def posterior_logits(self) -> FloatArray:
        """Log-odds of the marginals, (..., D), accurate where the marginals themselves round to 0 or 1."""
        return self._cached("posterior_logits", lambda: self._vector(self._odds))

    @property
    def cavity_logits(self) -> FloatArray:
        """What the potentials alone say about each variable, (..., D): posterior log-odds without the own logit.

        This is the message from the model to the variable in belief propagation; it is right also where logits are
        infinite, where ``posterior_logits - logits`` is not.
        """
        return self._cached(
            "cavity_logits", lambda: self._vector(self._params.singleton_logits + self._cavities())
        )

    @property
    def error_bound(self) -> Any:
        """Certified bound on the absolute error of every posterior log-odds and of log Z up to its rounding, (...,)."""
        return self._cached("error_bound", lambda: self._scalar(self._solution.bound))

    def count_log_probs(self, group: int | None = None) -> FloatArray:
        """Log-probabilities of the counts 0..n of a group, (..., n + 1).

        Parameters
        ----------
        group : int, optional
            Number of the group in the order given; default the count of all variables.

        Notes
        -----
        Accuracy: 1e-8 wherever the probability exceeds 1e-200.

        Examples
        --------
        >>> model = tt.CountModel(np.zeros(3), tt.at_least(1))
        >>> np.exp(model.count_log_probs()) * 7
        array([0., 3., 3., 1.])
        """
        index = None if group is None else self._group(group)
        return self._cached(("counts", index), lambda: self._vector(self._counts(index)))

    def _extended(self, tree: CountTree, extra: Sequence[Any]) -> Self:
        """The same model on a tree with more groups at the end of its list."""
        return self._moved(tree, [*self._params.potentials, *extra])

    def _moved(self, tree: CountTree, potentials: Sequence[Any]) -> Self:
        """The same log-odds with the potentials of another tree."""
        params = self._params
        values = np.asarray(params.logits, np.float64)
        return self._make(
            tree, parameters.collect(tree, values, params.dtype, potentials, params.constant), self._method
        )

    # -- how it is done ----------------------------------------------------------------------------------------

    @property
    def _solution(self) -> Solution:
        return self._cached("solution", self._solve)

    def _count_problem(self) -> auto.Problem:
        params = self._params
        mixtures = params.mixtures if auto.uses_mixtures(self._method, self._tree.n_variables) else {}
        return auto.Problem(self._tree, params.nu, params.packed, mixtures)

    def _cavities(self) -> Float64:
        """Messages (B, D), also to variables with infinite log-odds, which nothing else needs."""
        if np.isinf(self._params.nu).any():
            self._solution  # noqa: B018 - raises for an impossible model
            return auto.infer(self._count_problem(), self._method).messages()
        return self._solution.messages()

    def _solve(self) -> Solution:
        params = self._params
        found = auto.infer(self._count_problem(), self._method, cavities=False)
        if _any_impossible(found.log_mean) or _any_impossible(params.constant):
            self._refuse_impossible(found.log_mean)
        return found

    def _refuse_impossible(self, log_mean: Float64) -> NoReturn:
        dead = np.isneginf(log_mean) | np.isneginf(np.broadcast_to(self._params.constant, log_mean.shape))
        where = ""
        if self.batch_shape:
            place = tuple(int(i) for i in np.unravel_index(int(np.argmax(dead)), self.batch_shape))
            where = f" at batch index {place}"
        index = int(np.argmax(dead))
        reason = conflict.explain(self._tree, self._params, index)
        raise InfeasibleError(
            f"The model{where} gives probability zero to every configuration: {reason}. Relax a potential or an "
            "infinite logit."
        )

    def _marginals(self) -> Float64:
        return self._solution.marginals(self._params.nu)

    def _log_partition(self) -> Any:
        return self._scalar(self._log_norm + self._params.far_constant)

    @property
    def _log_norm(self) -> Float64:
        """Log Z, (B,), without what far numbers add to the log-weights of all configurations alike."""
        return self._cached("log_norm", self._find_log_norm)

    def _find_log_norm(self) -> Float64:
        found, params = self._solution, self._params
        if params.leaves.log_norm is not None:
            leaves = params.leaves.log_norm
        else:
            softplus = moments.softplus_sum(params.nu) if found.softplus is None else found.softplus
            leaves = softplus + params.near_constant
        return auto.without_cancellation(self._count_problem(), found.log_mean, leaves, params.near_constant)

    def _counts(self, group: int | None) -> Float64:
        if group is None:
            group = self._whole()
        self._solution  # noqa: B018 - raises for an impossible model
        if group is None and self.n_variables == 0:
            return np.zeros((len(self._params.nu), 1))
        if group is None:
            return self._extended(self._with_total, [None])._counts(-1)
        found = group_log_probs(
            self._tree, self._params, range(self._tree.family.n_groups)[group], self._cached
        )
        return found

    @property
    def _with_total(self) -> CountTree:
        return self._cached("tree with total", lambda: self._tree.with_groups([None]))

    @property
    def _odds(self) -> Float64:
        """Posterior log-odds (B, D) in double precision."""
        return self._cached("odds", lambda: posterior(self._params.nu, self._solution.messages()))

    @property
    def _n_groups(self) -> int:
        return self._tree.family.n_groups

    def _block(self, values: Float64) -> FloatArray:
        """(B, R, m) to (..., R, m), in the dtype of the logits."""
        return values.reshape(*self.batch_shape, *values.shape[1:]).astype(self._params.dtype, copy=False)

    def _whole(self) -> int | None:
        """A group that holds all variables."""
        family = self._tree.family
        if family.n_variables == 1:
            groups = np.flatnonzero(family.variable_of_group == 0)
        else:
            full = np.flatnonzero(family.set_size == family.n_variables)
            groups = np.flatnonzero(family.set_of_group == full[0]) if len(full) else full
        return int(groups[0]) if len(groups) else None

    def _group(self, group: Any) -> int:
        number = checks.integer("group", group)
        total = self._tree.family.n_groups
        if not -total <= number < total:
            raise ParameterError(
                f"`group` must be the number of a group, 0 to {total - 1}, or None for all variables; {number} arrived."
                if total
                else f"`group` must be None, because the model has no groups; {number} arrived."
            )
        return number % total

    def _cached(self, key: Any, compute: Callable[[], _T]) -> _T:
        found: _T | None = self._cache.get(key)
        if found is None:
            with self._lock:
                found = self._cache.get(key)
                if found is None:
                    found = self._cache[key] = compute()
        return found

    def _vector(self, values: Float64) -> FloatArray:
        """(B, m) to (..., m), in the dtype of the logits, read-only."""
        params = self._params
        out = values[0] if not params.batch_shape else values.reshape(*params.batch_shape, values.shape[-1])
        if out.dtype is not params.dtype:
            out = out.astype(params.dtype, copy=False)
        out.setflags(write=False)
        return out

    def _scalar(self, values: Float64) -> Any:
        """One number per model, (B,) to (...,), in double precision whatever the dtype of the logits."""
        return values[0] if not self._params.batch_shape else values.reshape(self.batch_shape)

    def _result(self, values: Any) -> Any:
        """Numbers such as log-probabilities, in double precision; NumPy scalars where there is one."""
        out = np.asarray(values, np.float64)
        return out[()] if out.ndim == 0 else out

    def _entries(self, values: Any) -> Any:
        """Entries of a vector or matrix, in the dtype of the logits; NumPy scalars where there is one."""
        out = np.asarray(values).astype(self._params.dtype, copy=False)
        return out[()] if out.ndim == 0 else out
