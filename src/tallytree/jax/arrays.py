"""Arrays that users pass: read as JAX or NumPy has them, and looked at only where they can be."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..errors import ParameterError

_REAL = (jnp.floating, jnp.integer, jnp.bool_)


def is_concrete(*values: Any) -> bool:
    """Whether numbers can be looked at: nothing here is being traced."""
    return not any(isinstance(v, jax.core.Tracer) for v in values)


def as_array(name: str, value: Any, ragged: str) -> Any:
    """`value` as an array of JAX or NumPy, whatever it holds; `ragged` is what to say about rows that differ."""
    if isinstance(value, jax.Array):
        return value
    try:
        traced = isinstance(value, (list, tuple)) and not is_concrete(*jax.tree.leaves(value))
        return jnp.asarray(value) if traced else checks.unmasked(f"`{name}`", value)
    except ParameterError:
        raise
    except (TypeError, ValueError):
        raise ParameterError(f"`{name}` must be {ragged}") from None


def holds(array: Any, *kinds: Any) -> bool:
    """Whether the entries are of one of some kinds of JAX's numbers; records, strings, dates and keys are of none."""
    return any(jnp.issubdtype(array.dtype, kind) for kind in kinds)


def real(name: str, value: Any, *, axis: str) -> Any:
    """An array of real numbers with at least one axis, in its own dtype."""
    array = as_array(
        name,
        value,
        f"a rectangular array of numbers with the {axis} on the last axis, but the rows that arrived have different "
        "lengths. Pad them with -inf.",
    )
    if not holds(array, *_REAL):
        raise ParameterError(
            f"`{name}` must hold real numbers, but values of type {array.dtype} arrived. Convert it to a float array."
        )
    if array.ndim == 0:
        raise ParameterError(
            f"`{name}` must have the {axis} on its last axis, but a single number arrived. "
            "For one entry pass a list of length one."
        )
    return array


def in_floats_of_jax(name: str, value: Any, *, axis: str) -> Any:
    """The same as an array of JAX; integers become its default float."""
    array = jnp.asarray(real(name, value, axis=axis))
    return array if holds(array, jnp.floating) else array.astype(jnp.result_type(float))


def zeros_and_ones(name: str, value: Any) -> tuple[Any, Any]:
    """Which entries are 1, and which are neither 0 nor 1, of real numbers or truth values of any shape."""
    array = as_array(name, value, "zeros and ones, but rows of different lengths arrived.")
    if not holds(array, *_REAL):
        raise ParameterError(f"`{name}` must hold zeros and ones; {checks.describe(value)} arrived.")
    array = jnp.asarray(array)
    on = array == 1
    return on, ~on & (array != 0)


def refuse_others(name: str, others: Any) -> None:
    """Raise if the entries that are neither 0 nor 1 can be looked at and there are any."""
    if is_concrete(others) and np.any(others):
        where = tuple(np.argwhere(np.asarray(others))[0].tolist())
        raise ParameterError(
            f"`{name}` must hold zeros and ones; entry {where} is neither. Round probabilities first."
        )
