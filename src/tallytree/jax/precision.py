"""64-bit arithmetic whatever JAX's global flag says, or 32-bit arithmetic where a device has no other.

Answers have the dtype of the input. Which arithmetic serves is settled when a function is traced.
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

_asked_for_single = ContextVar("asked_for_single", default=False)


@contextmanager
def single_precision() -> Iterator[None]:
    """Everything that is traced inside is computed in 32-bit floats, as it is on TPUs, which have no others.

    Sums are taken in logarithms, and :func:`~tallytree.jax.error_bound` says how good the answers are: a bound of
    1e-3 for a hundred variables with log-odds of ordinary size (errors are about 1e-6), more where numbers are large.

    Yields
    ------
    None
        Nothing; it is a context.

    See Also
    --------
    tallytree.jax.error_bound

    Examples
    --------
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


in_own_floats = in_floats


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
