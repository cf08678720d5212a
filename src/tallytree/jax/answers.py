"""The public questions: log Z, marginals, posterior log-odds, counts, entropy, and what is certified about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from .. import checks
from ..structure.nested.count_tree import CountTree
from .arguments import Problem, read, refuse_impossible
from .arrays import in_floats, is_concrete
from .ladder import log_leaves, log_weight_of_leaves
from .solver import Posterior, compiled
from .solver import posterior_logits as posterior_log_odds


@in_floats
def log_partition(logits: Any, groups: Any = None, tables: Any = None, *, mask: Any = None) -> Any:
    """Logarithm of Z, the sum of ``exp(sum_d logits_d y_d) prod_k f_k(count of k)`` over all y, (...,).

    Parameters
    ----------
    logits : array, (..., D)
        Log-odds; ``-inf`` excludes a variable, ``inf`` forces it on.
    groups : potential, log-table, list of Group, CountTree or None
        What :class:`~tallytree.CountModel` takes. Log-tables may be JAX arrays, and the potentials of
        :mod:`tallytree.jax` have JAX arrays for numbers. Numbers may be traced by ``jit`` and ``grad``; which variables
        are in which group may not.
    tables : list or array, optional
        With a CountTree: one potential, log-table or None per group, or all log-tables packed in one array.
    mask : array of bool, (..., D), optional
        True for variables that take part; the others have log-odds of -inf.

    Returns
    -------
    jax.Array, (...)
        One number per model.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.jax.marginals
    tallytree.CountModel

    Notes
    -----
    Differentiable in the log-odds, the log-tables and the real numbers of potentials, to any order. An impossible model
    gives -inf with derivative 0.

    Accuracy: that of :class:`~tallytree.CountModel`, rounded to the dtype of ``logits``.

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> round(float(ttj.log_partition(jnp.zeros(4), tt.exactly(2))), 4)  # log 6
    1.7918
    """
    problem = read(logits, groups, tables, mask)
    return problem.shaped(log_partition_rows(problem))


@in_floats
def marginals(logits: Any, groups: Any = None, tables: Any = None, *, mask: Any = None) -> Any:
    """P(y_d = 1), (..., D).

    An impossible model raises :class:`~tallytree.InfeasibleError`. Under ``jit`` and other transformations, where no
    error can be raised, its marginals are NaN.

    Parameters
    ----------
    logits : array, (..., D)
        Log-odds; leading axes are a batch.
    groups : optional
        Potentials on counts, as in :func:`log_partition`; default none.
    tables : optional
        Log-tables of the groups of a :class:`~tallytree.CountTree`, as in :func:`log_partition`.
    mask : array of bool, (..., D), optional
        True for variables that take part, as in :func:`log_partition`.

    Returns
    -------
    jax.Array, (..., D)
        Probabilities.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.jax.log_partition
    tallytree.jax.posterior_logits
    tallytree.CountModel

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> ttj.marginals(jnp.zeros(4), tt.exactly(1))
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """
    problem = read(logits, groups, tables, mask)
    return problem.shaped(lax.slice_in_dim(ask(_marginals, problem), 0, problem.n_variables, axis=1))


@in_floats
def posterior_logits(logits: Any, groups: Any = None, tables: Any = None, *, mask: Any = None) -> Any:
    """Log-odds of the marginals, (..., D), accurate where the marginals themselves round to 0 or 1.

    Parameters
    ----------
    logits : array, (..., D)
        Log-odds; leading axes are a batch.
    groups : optional
        Potentials on counts, as in :func:`log_partition`; default none.
    tables : optional
        Log-tables of the groups of a :class:`~tallytree.CountTree`, as in :func:`log_partition`.
    mask : array of bool, (..., D), optional
        True for variables that take part, as in :func:`log_partition`.

    Returns
    -------
    jax.Array, (..., D)
        Log-odds.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.jax.marginals
    tallytree.CountModel

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> ttj.posterior_logits(jnp.zeros(2), tt.geometric(0.5)).round(4)
    Array([-0.6931, -0.6931], dtype=float32)
    """
    problem = read(logits, groups, tables, mask)
    return problem.shaped(lax.slice_in_dim(ask(_posterior_logits, problem), 0, problem.n_variables, axis=1))


@in_floats
def count_log_probs(
    logits: Any, groups: Any = None, group: int | None = None, tables: Any = None, *, mask: Any = None
) -> Any:
    """Log-probabilities of the count of a group, (..., n + 1); ``group=None`` is the count of all variables.

    Parameters
    ----------
    logits : array, (..., D)
        Log-odds; leading axes are a batch.
    groups : optional
        Potentials on counts, as in :func:`log_partition`; default none.
    group : int, optional
        Number of the group; default all variables.
    tables : optional
        Log-tables of the groups of a :class:`~tallytree.CountTree`, as in :func:`log_partition`.
    mask : array of bool, (..., D), optional
        True for variables that take part, as in :func:`log_partition`.

    Returns
    -------
    jax.Array, (..., n + 1)
        Logarithms; ``-inf`` for impossible counts.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.jax.marginals
    tallytree.CountModel

    Notes
    -----
    Accuracy: 1e-8 wherever the probability is above 1e-200; finite for every count that can occur.

    Cost: O(n^2) per model.

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> jnp.exp(ttj.count_log_probs(jnp.zeros(2)))
    Array([0.25, 0.5 , 0.25], dtype=float32)
    """
    problem = read(logits, groups, tables, mask)
    if group is None:
        if problem.n_variables == 0:
            return problem.shaped(ask(_posterior_logits, problem)[:, :0].sum(-1, keepdims=True))
        whole = _whole_group(problem.tree)
        if whole is None:
            tree = problem.tree.with_groups([None])
            problem = read(logits, tree, [*problem.group_tables, None], mask)
            whole = tree.family.n_groups - 1
    else:
        whole = checks.group_number(group, problem.tree.family.n_groups)
    return problem.shaped(_count_log_probs(problem, whole))


@in_floats
def entropy(logits: Any, groups: Any = None, tables: Any = None, *, mask: Any = None) -> Any:
    """Shannon entropy of the model in nats, (...,); differentiable.

    ``H = log Z - sum_d logits_d P(y_d = 1) - sum_k sum_c P(z_k = c) log f_k(c)``

    Parameters
    ----------
    logits : array, (..., D)
        Log-odds; leading axes are a batch.
    groups : optional
        Potentials on counts, as in :func:`log_partition`; default none.
    tables : optional
        Log-tables of the groups of a :class:`~tallytree.CountTree`, as in :func:`log_partition`.
    mask : array of bool, (..., D), optional
        True for variables that take part, as in :func:`log_partition`.

    Returns
    -------
    jax.Array, (...)
        One number per model.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.jax.log_partition
    tallytree.CountModel

    Notes
    -----
    Accuracy: 1e-10 (1 + H), plus 5e-12 times the largest finite log-weight, which matters for tables with entries such
    as 1e5.

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> round(float(ttj.entropy(jnp.zeros(2))), 4)  # log 4
    1.3863
    """
    problem = read(logits, groups, tables, mask)
    value = problem.core.log_partition(problem.odds, problem.tables)
    found = problem.core.posterior(problem.odds, problem.tables)
    reference, away = ask(_energy, problem, found, problem.places)
    return problem.shaped((value - reference) - away)


def divergence(p: Problem, q: Problem) -> Any:
    """KL(p || q) of problems on one structure, (...,): ``E_p[log weight_p - log weight_q] - log Z_p + log Z_q``."""
    found = p.core.tails(p.odds, p.tables)
    log_z = [x.core.log_partition(x.odds, x.tables) for x in (p, q)]
    for x, value in zip((p, q), log_z):
        refuse_impossible((value + x.own).reshape(x.batch_shape))
    own, other = (_expected_log_weight(p.nu, x.nu, x.tables, found, p.places) for x in (p, q))
    return p.shaped((own[1] - other[1]) + ((log_z[1] - other[0]) - (log_z[0] - own[0])))


@in_floats
def error_bound(logits: Any, groups: Any = None, tables: Any = None, *, mask: Any = None) -> Any:
    """Certified bound on the absolute error of ``posterior_logits``, (...,), before rounding to their dtype.

    It also bounds the error of ``log_partition``, up to the rounding of a number of its size. It is ``inf``, which
    certifies nothing, only if the input holds NaN.

    Parameters
    ----------
    logits : array, (..., D)
        Log-odds; leading axes are a batch.
    groups : optional
        Potentials on counts, as in :func:`log_partition`; default none.
    tables : optional
        Log-tables of the groups of a :class:`~tallytree.CountTree`, as in :func:`log_partition`.
    mask : array of bool, (..., D), optional
        True for variables that take part, as in :func:`log_partition`.

    Returns
    -------
    jax.Array, (...)
        One number per model.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.jax.posterior_logits
    tallytree.CountModel

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> bool(ttj.error_bound(jnp.zeros(8), tt.exactly(4)) < 1e-12)
    True
    """
    problem = read(logits, groups, tables, mask)
    return problem.shaped(problem.core.bound(problem.odds, problem.tables))


Question = Callable[..., Any]


def ask(question: Question, problem: Problem, found: Posterior | None = None, *more: Any) -> Any:
    """The rows that answer a question, NaN for impossible models; one that is seen to be impossible raises."""
    if found is None:
        found = problem.core.messages(problem.odds, problem.tables)
    value = found.log_partition + jax.lax.stop_gradient(problem.own)  # -inf or not is all that matters
    refuse_impossible(value.reshape(problem.batch_shape))
    return compiled(question)(problem.nu, problem.tables, value, found, *more)


def log_partition_rows(problem: Problem) -> Any:
    """The logarithm of Z of every model, (B,)."""
    return problem.core.log_partition(problem.odds, problem.tables) + problem.constant


def require_possible(problem: Problem) -> None:
    """Raise for an impossible model, if the numbers can be looked at; under a transformation nothing is computed."""
    if is_concrete(problem.nu, problem.tables, problem.constant):
        refuse_impossible(log_partition_rows(problem).reshape(problem.batch_shape))


def _if_possible(value: Any, rows: Any) -> Any:
    """Rows with NaN for models that give every configuration probability zero."""
    return jnp.where((value == -jnp.inf).reshape(-1, *[1] * (rows.ndim - 1)), jnp.nan, rows)


def _posterior_logits(nu: Any, tables: Any, value: Any, found: Posterior) -> Any:
    return _if_possible(value, posterior_log_odds(nu, found.messages))


def _marginals(nu: Any, tables: Any, value: Any, found: Posterior) -> Any:
    return jax.nn.sigmoid(_posterior_logits(nu, tables, value, found))


def _log_beliefs(nu: Any, tables: Any, value: Any, found: Posterior) -> Any:
    return _if_possible(value, found.log_beliefs)


def _energy(nu: Any, tables: Any, value: Any, found: Posterior, places: Any) -> Any:
    """Expected log-weight of a configuration, in two parts."""
    reference, away = _expected_log_weight(nu, nu, tables, found, places)
    return reference, _if_possible(value, away)


def _expected_log_weight(
    nu: Any, log_odds: Any, tables: Any, found: Posterior, places: Any
) -> tuple[Any, Any]:
    """Expectation of the log-weight by other log-odds and tables, under the law found for log-odds nu, (B,).

    The sum of two parts, chosen so that the rounding of probabilities is not multiplied by large numbers: the log-odds
    of an outermost set are taken relative to those of its uncertain members, which its table makes up for, and the
    tables relative to their expectations. What they are taken relative to is constant to derivatives.
    """
    owner, counts, outermost = places
    posterior = posterior_log_odds(nu, found.messages)
    # What cannot happen adds nothing, whatever its weight.
    can_on, can_off = posterior > -jnp.inf, posterior < jnp.inf
    lost = ((log_odds == jnp.inf) & can_off) | ((log_odds == -jnp.inf) & can_on)
    happens, allowed = found.log_beliefs > -jnp.inf, tables > -jnp.inf
    on = jax.nn.sigmoid(posterior)
    probs = jnp.where(happens & allowed, jnp.exp(found.log_beliefs), 0.0)
    weight = jnp.where(jnp.isfinite(log_odds), log_odds, 0.0)
    log_f = jnp.where(allowed, tables, 0.0)
    # One slot per set, and the last for variables without a set.
    slots = jnp.zeros((on.shape[0], tables.shape[-1] + 1), on.dtype)
    spread = jnp.where(outermost >= 0, on * (1.0 - on), 0.0)
    total, size = (slots.at[:, outermost].add(jax.lax.stop_gradient(x)) for x in (spread * weight, spread))
    shift = jnp.where(size > 0.0, total / jnp.where(size > 0.0, size, 1.0), 0.0)
    log_f = log_f + shift[:, owner] * counts
    means = slots.at[:, owner].add(jax.lax.stop_gradient(probs * log_f))
    away = jnp.sum(on * (weight - shift[:, outermost]), -1) + jnp.sum(probs * (log_f - means[:, owner]), -1)
    away = jnp.where(jnp.any(lost, -1) | jnp.any(happens & ~allowed, -1), -jnp.inf, away)
    return jnp.sum(means, -1), away


def _count_log_probs(problem: Problem, group: int) -> Any:
    family = problem.tree.family
    s = int(family.set_of_group[group])
    if s < 0:
        odds = ask(_posterior_logits, problem)
        variable = int(family.variable_of_group[group])
        return log_leaves(lax.index_in_dim(odds, variable, axis=1, keepdims=False))
    first = int(family.set_offset[s])
    tails = problem.core.tails(problem.odds, problem.tables)
    log_beliefs = ask(_log_beliefs, problem, tails)
    return lax.slice_in_dim(log_beliefs, first, first + family.group_size(group) + 1, axis=1)


def event_log_prob(logits: Any, table: Any) -> Any:
    """Log-probability of what a table of zeros and -inf allows; -inf with derivative 0 for what cannot happen."""
    joint = log_partition(logits, table)
    possible = joint != -jnp.inf
    return jnp.where(possible, jnp.where(possible, joint, 0.0) - log_weight_of_leaves(logits), -jnp.inf)


def one_count(count: Any, n: int) -> Any:
    """The log-table of exactly so many, (..., n + 1); a count that is not from 0 to n is impossible."""
    return jnp.where(jnp.arange(n + 1) == count[..., None], 0.0, -jnp.inf)


def _whole_group(tree: CountTree) -> int | None:
    """A group of all variables, or None."""
    n = tree.n_variables
    return next((g for g in range(tree.family.n_groups) if tree.group_size(g) == n), None)
