"""64-bit arithmetic whatever JAX's global flag says; answers in the dtype of the input."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp

UNIT_ROUNDOFF = 2.0**-53


def wide() -> Any:
    """A context in which float64 arrays exist; it may be entered while a function is traced."""
    found: Any = getattr(jax, "enable_x64", None)
    if found is None:  # before it moved out of `experimental`
        found = importlib.import_module("jax.experimental").enable_x64
    return found(True)


def in_wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, run in :func:`wide`."""

    @wraps(function)
    def run(*args: Any, **named: Any) -> Any:
        with wide():
            return function(*args, **named)

    return run


def answer_dtype(dtype: Any) -> Any:
    """The dtype of answers to log-odds of `dtype`: the same for floats, the default float for integers."""
    if jnp.issubdtype(dtype, jnp.floating):
        return dtype
    return jnp.result_type(float)
