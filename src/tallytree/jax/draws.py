"""Public names for whole configurations: samples and the mode."""

from __future__ import annotations

import math
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..errors import ParameterError
from . import backtrack
from .answers import require_possible
from .arguments import Problem, read
from .precision import in_own_floats


@in_own_floats
def sample(
    key: Any, logits: Any, groups: Any = None, tables: Any = None, *, sample_shape: tuple[int, ...] = ()
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
    No impossible state is drawn. Draws have no derivative: they are constants to ``grad``. An impossible model raises
    :class:`~tallytree.InfeasibleError`; under a transformation, where nothing can be raised, its draws are NaN.

    Examples
    --------
    >>> float(ttj.sample(jax.random.key(0), jnp.zeros(5), tt.exactly(2)).sum())
    2.0
    """
    shape = sample_shape_of(sample_shape)
    problem = read(logits, groups, tables)
    require_key(key)
    require_possible(problem)
    states = _states(problem, partial(_sampler(problem.structure, math.prod(shape)), key))
    return states.reshape(*shape, *problem.batch_shape, problem.n_variables).astype(problem.dtype)


@in_own_floats
def mode(logits: Any, groups: Any = None, tables: Any = None) -> Any:
    """A most probable configuration of every model, (..., D), zeros and ones in the dtype of ``logits``.

    Parameters
    ----------
    logits : array, (..., D)
        Log-odds; leading axes are a batch.
    groups : optional
        What :class:`~tallytree.CountModel` takes; potentials may hold arrays.
    tables : optional
        Log-tables of the groups of a :class:`~tallytree.CountTree`, as in :func:`log_partition`.

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
    >>> ttj.mode(jnp.array([0.3, -1.0, 0.1]), tt.exactly(2))
    Array([1., 0., 1.], dtype=float32)
    """
    problem = read(logits, groups, tables)
    require_possible(problem)
    return problem.shaped(_states(problem, _maximizer(problem.structure)))


def _states(problem: Problem, search: Any) -> Any:
    """What a search finds, (..., B, D); NaN for models that are impossible or hold NaN, which have no state."""
    nu, packed, own = (jax.lax.stop_gradient(x) for x in (problem.nu, problem.tables, problem.own))
    states, value = search(nu, packed)
    states = states[..., : problem.n_variables]
    return jnp.where((value + own > -jnp.inf)[..., None], states, jnp.nan)


@lru_cache(maxsize=256)
def _sampler(structure: Any, draws: int) -> Any:
    return jax.jit(partial(backtrack.many, structure, draws))


@lru_cache(maxsize=256)
def _maximizer(structure: Any) -> Any:
    return jax.jit(partial(backtrack.best, structure))


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
