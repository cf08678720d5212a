"""Arrays that users pass, read as JAX or NumPy has them, and the floats that all work is done in.

Arithmetic is in 64 bits whatever JAX's global flag says, or in 32 where a device has no other. Answers have the
dtype of the input. Which arithmetic serves is settled when a function is traced.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..errors import ParameterError

REAL = (jnp.floating, jnp.integer, jnp.bool_)


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


def numbers(name: str, value: Any, wanted: str, kinds: tuple[Any, ...] = REAL) -> Any:
    """An array of some kinds of numbers, of any shape; `wanted` says what it must be."""
    array = as_array(name, value, f"{wanted}; {checks.describe(value)} arrived.")
    if not holds(array, *kinds):
        raise ParameterError(f"`{name}` must be {wanted}; {checks.describe(value)} arrived.")
    return array


def require(name: str, array: Any, legal: Any, wanted: str, hint: str = "") -> None:
    """Raise for the first entry that is not legal, if it can be looked at: nothing can be raised about traced ones."""
    if is_concrete(array, legal) and not np.all(legal):
        place = tuple(np.argwhere(~np.asarray(legal))[0].tolist())
        entry = np.broadcast_to(array, np.shape(legal))[place]
        arrived = (
            f"entry {place[0] if len(place) == 1 else place} is {entry}" if place else f"{entry} arrived"
        )
        raise ParameterError(f"`{name}` must {wanted}; {arrived}.{hint}")


def real(name: str, value: Any, *, axis: str) -> Any:
    """An array of real numbers with at least one axis, in its own dtype."""
    array = as_array(
        name,
        value,
        f"a rectangular array of numbers with the {axis} on the last axis, but the rows that arrived have different "
        "lengths. Pad them with -inf.",
    )
    if not holds(array, *REAL):
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
    array = jnp.asarray(numbers(name, value, "zeros and ones"))
    on = array == 1
    return on, ~on & (array != 0)


# -- floats --------------------------------------------------------------------------------------------------------

_asked_for_single = ContextVar("asked_for_single", default=False)


@contextmanager
def single_precision() -> Iterator[None]:
    """Context manager: compute everything that is traced inside in 32-bit floats, as on TPUs, which have no others.

    Sums are taken in logarithms. :func:`~tallytree.jax.error_bound` certifies how good the answers are: about 1e-3
    for a hundred variables with log-odds of ordinary size (true errors are about 1e-6), more if numbers are large.

    Yields
    ------
    None
        Nothing; it is a context.

    See Also
    --------
    tallytree.jax.error_bound

    Examples
    --------
    >>> import jax.numpy as jnp, tallytree.jax as ttj
    >>> with ttj.single_precision():
    ...     bool(ttj.error_bound(jnp.zeros(8), tt.exactly(4)) < 1e-4)
    True
    """
    token = _asked_for_single.set(True)
    try:
        yield
    finally:
        _asked_for_single.reset(token)


def narrow() -> bool:
    """Whether arithmetic is 32-bit here."""
    return _asked_for_single.get() or jax.default_backend() == "tpu"


def floats(*, wide: bool) -> Any:
    """A context in which floats have 64 bits, or 32; it may be entered while a function is traced."""
    found: Any = getattr(jax, "enable_x64", None)
    if found is None:  # before it moved out of `experimental`
        found = importlib.import_module("jax.experimental").enable_x64
    return found(wide)


def in_floats(function: Callable[..., Any], *, wide: bool | None = None) -> Callable[..., Any]:
    """`function`, run in :func:`floats`; by default in the arithmetic of the place where it is called."""

    @wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        with floats(wide=not narrow() if wide is None else wide):
            return function(*args, **named)

    return run


def working_dtype() -> Any:
    """The dtype of all arithmetic here."""
    return jnp.float32 if narrow() else jnp.float64


def unit_roundoff(dtype: Any) -> float:
    """Largest relative error of a rounded number."""
    info: Any = jnp.finfo  # untyped in JAX
    return 0.5 * float(info(dtype).eps)


def answer_dtype(dtype: Any) -> Any:
    """The dtype of answers to log-odds of `dtype`: the same for floats of at most 64 bits, else the default float."""
    if jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize <= 8:
        return dtype
    return jnp.result_type(float)
