"""Checks of the numbers that potentials are made from: counts, reals and finished log tables."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from tallytree.errors import ParameterError

FloatArray = npt.NDArray[np.float64]


def check_count(value: Any, name: str, least: int = 0) -> int:
    """Return ``value`` as a Python integer of at least ``least``; booleans and floats are refused."""
    wanted = f"`{name}` must be an integer, at least {least}"
    if isinstance(value, (bool, np.bool_)):
        raise ParameterError(f"{wanted}; the boolean {value!r} arrived. Write the number itself.")
    try:
        number = operator.index(value)
    except TypeError:
        raise ParameterError(
            f"{wanted}; {value!r} of type {type(value).__name__} arrived. Convert it with int(...) first."
        ) from None
    if number >= 2**63:
        raise ParameterError(f"{wanted}, and fit in 64 bits; {number} arrived. No group is that large.")
    if number < least:
        raise ParameterError(f"{wanted}; {number} arrived. Counts run from 0 to the size of the group.")
    return number


def check_real(
    value: Any,
    name: str,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    strict: bool = False,
    infinite: bool = False,
) -> float:
    """Return ``value`` as a float in ``[low, high]``, without ``low`` if ``strict``."""
    wanted = f"`{name}` must be a {'' if infinite else 'finite '}real number{_range(low, high, strict)}"
    number = _as_float(value, wanted)
    if math.isnan(number):
        raise ParameterError(f"{wanted}; NaN arrived. Check the calculation that produced it.")
    if math.isinf(number) and not infinite:
        raise ParameterError(f"{wanted}; {number} arrived. Use a finite value, or a hard constraint.")
    if number < low or number > high or (strict and number == low):
        raise ParameterError(f"{wanted}; {number} arrived. Choose a value inside the range.")
    return number + 0.0  # -0.0 becomes 0.0, so that equal potentials print alike


def _as_float(value: Any, wanted: str) -> float:
    boolean = isinstance(value, (bool, np.bool_))
    array = isinstance(value, np.ndarray) and value.ndim > 0
    if boolean or array or isinstance(value, (str, bytes, complex, np.complexfloating)):
        what = f"an array of shape {value.shape}" if array else f"{value!r} of type {type(value).__name__}"
        raise ParameterError(f"{wanted}; {what} arrived. Pass a single number.")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(
            f"{wanted}; {value!r} of type {type(value).__name__} arrived. Pass a single number."
        ) from None


def _range(low: float, high: float, strict: bool) -> str:
    if math.isfinite(low) and math.isfinite(high):
        return f" in [{low:g}, {high:g}]"
    if math.isfinite(low):
        return f" {'above' if strict else 'of at least'} {low:g}"
    return ""


def check_choice(value: Any, name: str, choices: tuple[Any, ...]) -> Any:
    """Return the member of ``choices`` that equals ``value``; booleans do not stand for 0 and 1."""
    if not isinstance(value, (bool, np.bool_)):
        for choice in choices:
            if isinstance(value, (str, int, np.integer)) and value == choice:
                return choice
    listed = " or ".join(repr(choice) for choice in choices)
    raise ParameterError(f"`{name}` must be {listed}; {value!r} arrived. Pass one of the listed values.")


def check_flag(value: Any, name: str) -> bool:
    """Return ``value`` if it is a boolean."""
    if not isinstance(value, (bool, np.bool_)):
        raise ParameterError(f"`{name}` must be True or False; {value!r} arrived. Pass a boolean.")
    return bool(value)


def check_log_values(values: FloatArray, name: str) -> None:
    """Refuse NaN and ``+inf`` in a log table; ``-inf`` (an impossible count) is legal."""
    bad = ~(values < np.inf)
    if bad.any():
        c = int(np.argmax(bad))
        raise ParameterError(
            f"`{name}` must hold real logarithms below +inf (-inf marks an impossible count); entry {c} is "
            f"{values[c]}. Replace that entry, or subtract a constant from all of them."
        )


def check_range(log_f: FloatArray, possible: FloatArray, potential: object) -> FloatArray:
    """Return ``log_f`` of a potential if it is finite wherever ``possible`` is not ``-inf``.

    An overflow would silently turn a merely improbable count into an impossible one.
    """
    finite = np.isfinite(log_f)
    if finite.all():
        return log_f
    bad = ~(finite | (possible == -np.inf))
    if bad.any():
        *model, c = np.argwhere(bad)[0].tolist()
        of_model = f" of model {model[0] if len(model) == 1 else tuple(model)}" if model else ""
        raise ParameterError(
            f"`{potential!r}` must have log values within the range of float64 for n = {log_f.shape[-1] - 1}; the value"
            f"{of_model} at count {c} overflows. Use milder parameters, or a hard constraint such as `exactly`."
        )
    return log_f


def show(number: float) -> str:
    """Print a float so that it evaluates back to itself, with ``np.inf`` for infinity."""
    return repr(number) if math.isfinite(number) else ("np.inf" if number > 0 else "-np.inf")
