"""Samples and the mode: from the counts of groups down to configurations.

Given the count c of a node, its left child has count j with weight ``up_left(j) up_right(c - j)``. A draw takes j with
that probability (largest of the log-weights with Gumbel noise), the mode takes the largest itself on max-plus messages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..errors import ParameterError
from ..structure.nested.schedule import full_schedule
from ..structure.nested.tree import TreeProgram
from . import flat, tree
from .answers import require_possible
from .arguments import Problem, read
from .arithmetic import LOGARITHMS, MAXIMUM, log_convolve, max_convolve
from .arrays import in_floats
from .ladder import log_leaves
from .solver import Structure, compiled
from .tree import Messages


@in_floats
def sample(
    key: Any,
    logits: Any,
    groups: Any = None,
    tables: Any = None,
    *,
    sample_shape: tuple[int, ...] = (),
    mask: Any = None,
) -> Any:
    """Exact joint draws, ``(*sample_shape, ..., D)``, zeros and ones in the dtype of ``logits``.

    Parameters
    ----------
    key : jax.Array
        Key of :mod:`jax.random`.
    logits : array_like, (..., D)
        Log-odds; leading axes are a batch.
    groups, tables : optional
        As in :func:`~tallytree.jax.log_partition`.
    sample_shape : tuple of int
        Leading axes of independent draws from every model.
    mask : array of bool, (..., D), optional
        True for variables that take part, as in :func:`~tallytree.jax.log_partition`.

    Returns
    -------
    jax.Array, (sample_shape..., ..., D)
        Zeros and ones.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.jax.mode
    tallytree.CountModel

    Notes
    -----
    No impossible state is drawn. To ``grad`` draws are constants. An impossible model raises
    :class:`~tallytree.InfeasibleError`; under ``jit`` and other transformations, where no error can be raised, its
    draws are NaN.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, tallytree.jax as ttj
    >>> float(ttj.sample(jax.random.key(0), jnp.zeros(5), tt.exactly(2)).sum())
    2.0
    """
    shape = sample_shape_of(sample_shape)
    problem = read(logits, groups, tables, mask)
    require_key(key)
    require_possible(problem)
    states = _states(problem, partial(compiled(many, problem.structure, math.prod(shape)), key))
    return states.reshape(*shape, *problem.batch_shape, problem.n_variables).astype(problem.dtype)


@in_floats
def mode(logits: Any, groups: Any = None, tables: Any = None, *, mask: Any = None) -> Any:
    """A most probable configuration of every model, (..., D), zeros and ones in the dtype of ``logits``.

    Parameters
    ----------
    logits : array, (..., D)
        Log-odds; leading axes are a batch.
    groups : optional
        Potentials on counts, as in :func:`~tallytree.jax.log_partition`; default none.
    tables : optional
        Log-tables of the groups of a :class:`~tallytree.CountTree`, as in :func:`log_partition`.
    mask : array of bool, (..., D), optional
        True for variables that take part, as in :func:`log_partition`.

    Returns
    -------
    jax.Array, (..., D)
        Zeros and ones.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.jax.sample
    tallytree.CountModel

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> ttj.mode(jnp.array([0.3, -1.0, 0.1]), tt.exactly(2))
    Array([1., 0., 1.], dtype=float32)
    """
    problem = read(logits, groups, tables, mask)
    require_possible(problem)
    return problem.shaped(_states(problem, compiled(best, problem.structure)))


def _states(problem: Problem, search: Any) -> Any:
    """What a search finds, (..., B, D); NaN for models that are impossible or hold NaN, which have no state."""
    nu, packed, own = (jax.lax.stop_gradient(x) for x in (problem.nu, problem.tables, problem.own))
    states, value = search(nu, packed)
    states = states[..., : problem.n_variables]
    return jnp.where((value + own > -jnp.inf)[..., None], states, jnp.nan)


def sample_shape_of(shape: Any) -> tuple[int, ...]:
    """Axes of independent draws, checked."""
    if not isinstance(shape, (tuple, list)):
        raise ParameterError(f"`sample_shape` must be a tuple of integers; {checks.describe(shape)} arrived.")
    numbers = tuple(checks.integer("sample_shape", s) for s in shape)
    if any(s < 0 for s in numbers):
        raise ParameterError(f"`sample_shape` must not be negative; {numbers} arrived.")
    return numbers


def require_key(key: Any) -> None:
    """Refuse what is not one key of jax.random."""
    dtype, shape = getattr(key, "dtype", None), getattr(key, "shape", None)
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key) and shape == ()
    if not typed and not (dtype == np.uint32 and shape == (2,)):
        arrived = checks.describe(key) if dtype is None else f"an array of shape {shape} and dtype {dtype}"
        raise ParameterError(
            f"`key` must be one key of jax.random, as jax.random.key(0) makes it; {arrived} arrived."
        )


Choose = Callable[
    [Any, int], Any
]  # log-weights (..., m) and the number of the step to the index that is taken


def many(structure: Structure, draws: int, key: Any, nu: Any, tables: Any) -> tuple[Any, Any]:
    """`draws` configurations per model, (draws, B, D), and values, (draws, B): -inf or NaN where there is none."""
    descend, value = _upward(structure, nu, tables, maximum=False)

    def draw(key: Any) -> Any:
        def choose(log_weights: Any, step: int) -> Any:
            places = uniform(jax.random.fold_in(key, step), log_weights.shape, log_weights.dtype)
            noise = -jnp.log(-jnp.log(places))
            return _largest(jnp.where(log_weights == -jnp.inf, -jnp.inf, log_weights + noise), step)

        return descend(choose)

    states = jax.vmap(draw)(jax.random.split(key, draws))
    return states, jnp.broadcast_to(value, states.shape[:-1])


def uniform(key: Any, shape: Any, dtype: Any) -> Any:
    """Numbers in (0, 1) with 53 or 23 random bits, drawn as 32-bit words: 64-bit words need the caller's flag."""
    high, low = jax.random.bits(key, (2, *shape), jnp.uint32).astype(dtype)
    if dtype == jnp.float32:
        return (jnp.floor(high / 512.0) + 0.5) * 2.0**-23
    return (jnp.floor(high / 64.0) * 2.0**27 + jnp.floor(low / 32.0) + 0.5) * 2.0**-53


def best(structure: Structure, nu: Any, tables: Any) -> tuple[Any, Any]:
    """A most probable configuration (B, D) per model, and its value as for `many`."""
    descend, value = _upward(structure, nu, tables, maximum=True)
    return descend(_largest), value


def _largest(log_weights: Any, step: int) -> Any:
    # The place of the largest, by comparison: a 64-bit argmax cannot be lowered unless the caller's flag is on.
    places = jnp.arange(log_weights.shape[-1], dtype=jnp.int32)
    first = jnp.where(log_weights == jnp.max(log_weights, -1, keepdims=True), places, places[-1])
    return jnp.min(first, -1)


def _upward(
    structure: Structure, nu: Any, tables: Any, *, maximum: bool
) -> tuple[Callable[[Choose], Any], Any]:
    """How to descend upward messages in logarithms, the root's times its table; and what they come to, (B,)."""
    if structure.tree is None:
        levels = flat.upward(log_leaves(nu), max_convolve if maximum else log_convolve)
        root = levels[-1] + tables[:, None, :]
        return partial(_descend_levels, [*levels[:-1], root]), jnp.max(root, (-1, -2))
    program = structure.tree.program
    up = tree.upward(full_schedule(program), MAXIMUM if maximum else LOGARITHMS, log_leaves(nu), tables)
    value = jnp.where(jnp.any(jnp.isnan(nu), -1), jnp.nan, up.log_mean)
    return partial(_descend_schedule, program, nu, up.messages), value


def _split(left: Any, right: Any, counts: Any, choose: Choose, step: int) -> tuple[Any, Any]:
    """Counts of the two children, given those of their parents, (B, nodes)."""
    j = jnp.arange(left.shape[-1], dtype=jnp.int32)
    other = counts[..., None] - j
    inside = (other >= 0) & (other < right.shape[-1])
    weights = left + jnp.take_along_axis(right, jnp.clip(other, 0, right.shape[-1] - 1), -1)
    taken = choose(jnp.where(inside, weights, -jnp.inf), step)
    return taken, counts - taken


def _descend_levels(levels: list[Any], choose: Choose) -> Any:
    counts = choose(levels[-1], 0)
    for step, below in enumerate(reversed(levels[:-1]), 1):
        left, right = _split(below[..., 0::2, :], below[..., 1::2, :], counts, choose, step)
        counts = jnp.stack([left, right], -1).reshape(*below.shape[:-1])
    return counts


def _descend_schedule(program: TreeProgram, nu: Any, messages: Messages, choose: Choose) -> Any:
    schedule = full_schedule(program)
    n = program.n_leaves
    counts = jnp.zeros((nu.shape[0], program.n_nodes), jnp.int32)
    free = np.flatnonzero(program.parent[:n] < 0).astype(np.int32)
    if len(free):
        counts = counts.at[:, free].set(choose(log_leaves(nu[:, free]), 0))
    roots = schedule.roots
    if len(roots.nodes):
        allowed = np.asarray(roots.own_cells) > 0
        own = jnp.where(allowed, messages.at(roots.own_cells), -jnp.inf)
        counts = counts.at[:, roots.nodes].set(choose(own, 1))
    for number, step in enumerate(reversed(schedule.up), 2):
        left, right = messages.at(step.left), messages.at(step.right)
        a, b = _split(left, right, counts[:, step.nodes], choose, number)
        counts = counts.at[:, program.left[step.nodes - n]].set(a)
        counts = counts.at[:, program.right[step.nodes - n]].set(b)
    return counts[:, :n]
