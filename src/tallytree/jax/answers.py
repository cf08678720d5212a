"""The public questions: log Z, marginals, posterior log-odds, counts, entropy, and what is certified about them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from .. import checks
from ..errors import StructureError
from ..structure.nested.count_tree import CountTree
from .arguments import Problem, read, refuse_impossible
from .core import Core, on_probability
from .core import posterior_logits as posterior_log_odds
from .precision import in_wide


@in_wide
def log_partition(logits: Any, groups: Any = None, tables: Any = None) -> Any:
    """Logarithm of Z, the sum of ``exp(sum_d logits_d y_d) prod_k f_k(count of k)`` over all y, (...,).

    Parameters
    ----------
    logits : array, (..., D)
        Log-odds; ``-inf`` excludes a variable, ``inf`` forces it on.
    groups : potential, log-table, list of Group, CountTree or None
        What :class:`~tallytree.CountModel` takes, with arrays of JAX for log-tables where wanted, and the potentials
        of :mod:`tallytree.jax`, whose numbers are arrays. Structure is static, numbers may be traced.
    tables : list or array, optional
        With a CountTree: one potential, log-table or None per group, or all log-tables packed in one array.

    Notes
    -----
    Differentiable in the log-odds, the log-tables and the real numbers of potentials, to any order; -inf where
    nothing is possible, with derivative 0.

    Accuracy: that of :class:`~tallytree.CountModel`, rounded to the dtype of ``logits``.

    Examples
    --------
    >>> float(ttj.log_partition(jnp.zeros(4), tt.exactly(2)).round(4))  # log 6
    1.7918
    """
    problem = read(logits, groups, tables)
    return problem.shaped(log_partition_rows(problem))


@in_wide
def marginals(logits: Any, groups: Any = None, tables: Any = None) -> Any:
    """P(y_d = 1), (..., D); arguments as in :func:`log_partition`.

    An impossible model raises :class:`~tallytree.InfeasibleError`; under a transformation, where nothing can be
    raised, its marginals are NaN.

    Examples
    --------
    >>> ttj.marginals(jnp.zeros(4), tt.exactly(1))
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """
    problem = read(logits, groups, tables)
    return problem.shaped(ask(_marginals, problem)[:, : problem.n_variables])


@in_wide
def posterior_logits(logits: Any, groups: Any = None, tables: Any = None) -> Any:
    """Log-odds of the marginals, (..., D), accurate where those round to 0 or 1; arguments as in :func:`log_partition`.

    Examples
    --------
    >>> ttj.posterior_logits(jnp.zeros(2), tt.geometric(0.5)).round(4)
    Array([-0.6931, -0.6931], dtype=float32)
    """
    problem = read(logits, groups, tables)
    return problem.shaped(ask(_posterior_logits, problem)[:, : problem.n_variables])


@in_wide
def count_log_probs(logits: Any, groups: Any = None, group: int | None = None, tables: Any = None) -> Any:
    """Log-probabilities of the count of a group, (..., n + 1); ``group=None`` is the count of all variables.

    Notes
    -----
    Right in the far tails: 1e-8 wherever the probability is above 1e-200, and finite wherever a count can occur.

    Examples
    --------
    >>> jnp.exp(ttj.count_log_probs(jnp.zeros(2)))
    Array([0.25, 0.5 , 0.25], dtype=float32)
    """
    problem = read(logits, groups, tables)
    if group is None:
        if problem.n_variables == 0:
            return problem.shaped(ask(_posterior_logits, problem)[:, :0].sum(-1, keepdims=True))
        whole = _whole_group(problem.tree)
        if whole is None:
            tree = problem.tree.with_groups([None])
            problem = read(logits, tree, [*problem.group_tables, None])
            whole = tree.family.n_groups - 1
    else:
        whole = _group_index(problem.tree, group)
    return problem.shaped(_count_log_probs(problem, whole))


@in_wide
def entropy(logits: Any, groups: Any = None, tables: Any = None) -> Any:
    """Shannon entropy of the model in nats, (...,); differentiable.

    ``H = log Z - sum_d logits_d P(y_d = 1) - sum_k sum_c P(z_k = c) log f_k(c)``

    Examples
    --------
    >>> float(ttj.entropy(jnp.zeros(2)).round(4))  # log 4
    1.3863
    """
    problem = read(logits, groups, tables)
    return problem.shaped(ask(_entropy, problem))


@in_wide
def error_bound(logits: Any, groups: Any = None, tables: Any = None) -> Any:
    """Bound on the error of ``posterior_logits`` before it is rounded to the dtype of the answers, (...,).

    It also bounds the error of ``log_partition`` up to the rounding of a number of its size; ``inf`` says that
    nothing is certified, which happens for NaN in the input only.

    Examples
    --------
    >>> bool(ttj.error_bound(jnp.zeros(8), tt.exactly(4)) < 1e-12)
    True
    """
    problem = read(logits, groups, tables)
    return problem.shaped(problem.core.bound(problem.nu, problem.tables))


Rows = Callable[..., Any]


@lru_cache(maxsize=1024)
def _compiled(question: Rows, core: Core) -> Rows:
    """A question to a core, compiled once per padded shape."""
    return jax.jit(partial(question, core))


def ask(question: Rows, problem: Problem) -> Any:
    """The rows that answer a question, NaN for impossible models; one that is seen to be impossible raises."""
    value, rows = _compiled(question, problem.core)(problem.nu, problem.tables, problem.constant)
    refuse_impossible(value.reshape(problem.batch_shape))
    return rows


def log_partition_rows(problem: Problem) -> Any:
    """The logarithm of Z of every model, (B,)."""
    return _compiled(_log_partition, problem.core)(problem.nu, problem.tables, problem.constant)


def _defined(core: Core, nu: Any, tables: Any, constant: Any, rows: Any) -> tuple[Any, Any]:
    """Log Z, and rows with NaN for models that give every configuration probability zero."""
    value = jax.lax.stop_gradient(_log_partition(core, nu, tables, constant))
    impossible = (value == -jnp.inf).reshape(-1, *[1] * (rows.ndim - 1))
    return value, jnp.where(impossible, jnp.nan, rows)


def _log_partition(core: Core, nu: Any, tables: Any, constant: Any) -> Any:
    return core.log_partition(nu, tables) + constant


def _posterior_logits(core: Core, nu: Any, tables: Any, constant: Any) -> tuple[Any, Any]:
    messages, _ = core.posterior(nu, tables)
    return _defined(core, nu, tables, constant, posterior_log_odds(nu, messages))


def _marginals(core: Core, nu: Any, tables: Any, constant: Any) -> tuple[Any, Any]:
    value, odds = _posterior_logits(core, nu, tables, constant)
    return value, jax.nn.sigmoid(odds)


def _log_beliefs(core: Core, nu: Any, tables: Any, constant: Any) -> tuple[Any, Any]:
    return _defined(core, nu, tables, constant, core.tails(nu, tables)[1])


def _entropy(core: Core, nu: Any, tables: Any, constant: Any) -> tuple[Any, Any]:
    messages, log_beliefs = core.posterior(nu, tables)
    finite, allowed = jnp.isfinite(nu), tables > -jnp.inf
    on = jnp.where(finite, on_probability(nu, messages), 0.0)
    weight = jnp.where(allowed, jnp.exp(log_beliefs), 0.0)
    energy = jnp.sum(on * jnp.where(finite, nu, 0.0), -1) + jnp.sum(
        weight * jnp.where(allowed, tables, 0.0), -1
    )
    return _defined(core, nu, tables, constant, core.log_partition(nu, tables) - energy)


def _count_log_probs(problem: Problem, group: int) -> Any:
    family = problem.tree.family
    s = int(family.set_of_group[group])
    if s < 0:
        odds = ask(_posterior_logits, problem)[:, int(family.variable_of_group[group])]
        return jnp.stack([log_probability(-odds), log_probability(odds)], -1)
    first = int(family.set_offset[s])
    return ask(_log_beliefs, problem)[:, first : first + family.group_size(group) + 1]


def log_probability(odds: Any) -> Any:
    """``log sigmoid``, with derivative 0 at infinite log-odds."""
    finite = jnp.isfinite(odds)
    value = -jax.nn.softplus(-jnp.where(finite, odds, 0.0))
    return jnp.where(finite, value, jnp.where(odds > 0, 0.0, odds))


def _group_index(tree: CountTree, group: Any) -> int:
    index = checks.integer("group", group)
    n_groups = tree.family.n_groups
    if not -n_groups <= index < n_groups:
        raise StructureError(
            f"`group` must be the number of a group, 0 to {n_groups - 1}; {index} arrived. "
            "Groups are numbered in the order in which they were given."
        )
    return index % n_groups


def _whole_group(tree: CountTree) -> int | None:
    """A group of all variables, or None."""
    n = tree.n_variables
    return next((g for g in range(tree.family.n_groups) if tree.group_size(g) == n), None)
