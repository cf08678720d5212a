"""The only reader of what users pass in: every message says what was required, what arrived and what to do next.

What everybody needs is here; configurations, numbers of potentials and sums have modules of their own.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64, Ints
from ..errors import ParameterError, StructureError

_DOUBLE = np.dtype(np.float64)


def describe(value: Any) -> str:
    """A short description of an argument for an error message."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    text = repr(value)
    return f"{text[:60]}..." if len(text) > 63 else text


def unmasked(called: str, value: Any, otherwise: str | None = None) -> NDArray[Any]:
    """`value` as an array; masked entries are refused: what lies under a mask is no number of the user's.

    `otherwise` is said of rows of different lengths, which are no array.
    """
    masked = int(np.sum(value.mask)) if hasattr(value, "mask") and isinstance(value, np.ma.MaskedArray) else 0
    if masked:
        raise ParameterError(
            f"{called} must not be masked, but {masked} of {value.size} entries are. Fill them with `.filled(...)`, or "
            "leave them out with `.compressed()`."
        )
    try:
        return np.asarray(value)
    except (ValueError, TypeError):
        if otherwise is None:
            raise
        raise ParameterError(otherwise) from None


def real_array(
    name: str, value: Any, *, axis: str, label: str | None = None
) -> tuple[Float64, np.dtype[Any]]:
    """`value` as a float64 array with at least one axis, and the dtype in which answers are returned."""
    if type(value) is np.ndarray and value.dtype is _DOUBLE and value.ndim and value.flags.c_contiguous:
        return value, _DOUBLE  # the usual case, kept short
    called = label or f"`{name}`"
    ragged = (
        f"{called} must be a rectangular array of numbers with the {axis} on the last axis, but the rows that "
        "arrived have different lengths. Pass models of different sizes one by one."
    )
    array = unmasked(called, value, ragged)
    kind = array.dtype.kind
    if kind not in "fiub":
        what = "complex numbers" if kind == "c" else f"values of type {array.dtype}"
        raise ParameterError(
            f"{called} must hold real numbers, but {what} arrived. Convert it to a float array first."
        )
    if array.dtype == np.float16:
        raise ParameterError(
            f"{called} arrived in half precision (float16), whose three digits cannot carry log-odds. "
            "Convert it to float32 or float64."
        )
    if array.ndim == 0:
        raise ParameterError(
            f"{called} must have the {axis} on its last axis, but a single number arrived. "
            "For one entry pass a list of length one."
        )
    result_dtype = np.dtype(np.float32) if array.dtype == np.float32 else _DOUBLE
    return np.ascontiguousarray(array, np.float64), result_dtype


_FEW = 8192  # up to here a BLAS keeps to one thread; its others would go on spinning beside ours


def has_nan(array: Float64) -> bool:
    if array.size > _FEW:
        return math.isnan(array.min())
    # Squares add up to NaN only if an entry is NaN, and nothing is quicker for a few numbers. `vdot` is silent about
    # squares that overflow.
    return math.isnan(np.vdot(array, array))


def logits(value: Any, *, unseen: int | None = None) -> tuple[Float64, np.dtype[Any]]:
    """Log-odds (..., D) in [-inf, inf]; in an array of `unseen` or more nothing is looked at."""
    array, dtype = real_array("logits", value, axis="variables")
    if unseen is not None and array.size >= unseen:
        return array, dtype
    if has_nan(array):
        where = tuple(int(i) for i in np.argwhere(np.isnan(array))[0])
        raise ParameterError(
            f"`logits` must not contain NaN, but entry {where if len(where) > 1 else where[0]} is NaN. "
            "Use -inf to exclude a variable, inf to force it on and 0 where nothing is known."
        )
    return array, dtype


def log_table(value: Any, size: int, *, name: str, unseen: int | None = None) -> Float64:
    """A log-table (..., size + 1) with entries in [-inf, inf); in one of `unseen` or more nothing is looked at."""
    array, _ = real_array(name, value, axis="counts", label=name)
    if array.shape[-1] != size + 1:
        raise ParameterError(
            f"{name} must have {size + 1} entries, log f(0), ..., log f({size}), because the group has {size} "
            f"variables; one with {array.shape[-1]} entries arrived."
        )
    if unseen is not None and array.size >= unseen:
        return array
    if array.size <= _FEW and math.isfinite(np.vdot(array, array)):
        return array  # the quickest way for a few numbers
    largest = float(array.max()) if array.size else 0.0
    if math.isnan(largest) or largest == math.inf:
        what = "NaN" if math.isnan(largest) else "+inf"
        raise ParameterError(
            f"{name} must hold logarithms below +inf, but it contains {what}. "
            "Use -inf for impossible counts and finite values elsewhere."
        )
    return array


def count(name: str, value: Any, upper: int, what: str) -> int:
    """An integer in 0..upper."""
    number = integer(name, value)
    if not 0 <= number <= upper:
        raise ParameterError(f"`{name}` must be between 0 and {upper}, {what}; {number} arrived.")
    return number


def integer(name: str, value: Any) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise ParameterError(f"`{name}` must be an integer, but the truth value {value} arrived.")
    try:
        number = operator.index(value)
    except TypeError:
        raise ParameterError(f"`{name}` must be an integer, but {describe(value)} arrived.") from None
    if abs(number) >= 2**63:
        raise ParameterError(
            f"`{name}` must be an integer of at most 64 bits, but {describe(value)} arrived."
        )
    return number


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ParameterError(f"`{name}` must be True or False, but {describe(value)} arrived.")
    return bool(value)


def rectangular(name: str, value: Any, what: str) -> NDArray[Any]:
    """`value` as an array; rows of different lengths are refused."""
    ragged = f"`{name}` must be {what}, but rows of different lengths arrived. Give all rows one length."
    return unmasked(f"`{name}`", value, ragged)


def one_of(name: str, value: Any, allowed: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        names = ", ".join(repr(a) for a in allowed)
        raise ParameterError(f"`{name}` must be one of {names}; {describe(value)} arrived.")
    return value


def members(value: Any, n_variables: int, label: str) -> Ints:
    """The variables of one group as an index array; whether they repeat is checked for all groups together."""
    if value is None:
        return np.arange(n_variables)
    if isinstance(value, slice):
        return np.arange(n_variables)[value]
    if isinstance(value, range):
        return np.arange(value.start, value.stop, value.step)
    try:
        array = unmasked(label, value) if isinstance(value, np.ndarray) else np.asarray(list(value))
    except ParameterError:
        raise
    except (TypeError, ValueError):
        raise StructureError(
            f"{label} must be a list of variable indices, a range, a slice, a boolean mask or None for all "
            f"variables; {describe(value)} arrived."
        ) from None
    if array.ndim != 1:
        raise StructureError(f"{label} must be one-dimensional; an array of shape {array.shape} arrived.")
    if array.dtype.kind == "b":
        if len(array) != n_variables:
            raise StructureError(
                f"{label} is a boolean mask of length {len(array)}, but there are {n_variables} variables. "
                "A mask needs one entry per variable."
            )
        return np.flatnonzero(array)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise StructureError(
            f"{label} must hold integer indices of variables; values of type {array.dtype} arrived."
        )
    return array.astype(np.int64)


def group_list(groups: Any) -> list[Any]:
    """The groups of an iterable."""
    if isinstance(groups, (str, bytes)) or not isinstance(groups, Iterable):
        raise StructureError(
            f"`groups` must be a list of groups, such as [[0, 1], None]; {describe(groups)} arrived."
        )
    try:
        return list(groups)
    except TypeError:  # an array without axes
        raise StructureError("`groups` must be a list of groups; a single number arrived.") from None


def all_members(groups: Iterable[Any], n_variables: int) -> tuple[Ints, Ints]:
    """Member lists of all groups, concatenated, and the offsets between them; checked."""
    lists = [members(g, n_variables, f"Group {i}") for i, g in enumerate(group_list(groups))]
    sizes = np.array([len(m) for m in lists], np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        raise StructureError(
            f"Every group needs at least one variable, but group {empty[0]} is empty. Leave it out."
        )
    flat = np.concatenate([np.empty(0, np.int64), *lists])
    bad = np.flatnonzero((flat < 0) | (flat >= n_variables))
    if len(bad):
        group = int(np.searchsorted(offsets, bad[0], side="right")) - 1
        raise StructureError(
            f"Group {group} names variable {int(flat[bad[0]])}, but variables are numbered 0 to {n_variables - 1}."
        )
    _refuse_repeats(flat, offsets, n_variables)
    return flat, offsets


def _refuse_repeats(flat: Ints, offsets: Ints, n_variables: int) -> None:
    group = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    # Ranges and sorted lists, the common case, are recognised without sorting.
    rising = (flat[1:] > flat[:-1]) | (group[1:] != group[:-1])
    if rising.all():
        return
    suspects = np.zeros(len(offsets) - 1, bool)
    suspects[group[1:][~rising]] = True
    keep = suspects[group]
    key = np.sort(group[keep] * n_variables + flat[keep])
    twice = np.flatnonzero(key[1:] == key[:-1])
    if len(twice):
        g, v = divmod(int(key[twice[0]]), n_variables)
        raise StructureError(
            f"Group {g} names variable {v} more than once. List every variable once; "
            "for a variable that counts double use integer weights with `PoissonBinomial`."
        )


def listed(value: Any, count: int, wanted: str, hint: str = "") -> list[Any]:
    """The entries of a list of `count`; `wanted` says of what, `hint` what to do next."""
    single = isinstance(value, (str, bytes)) or getattr(value, "ndim", 1) == 0
    entries = None if single or not isinstance(value, Iterable) else list(value)
    if entries is None or len(entries) != count:
        raise ParameterError(
            f"{wanted}; {describe(value) if entries is None else len(entries)} arrived.{hint}"
        )
    return entries


def below_infinity(name: str, logs: Float64, what: str) -> None:
    """Refuse NaN and +inf among logarithms; `what` is impossible stands for -inf."""
    if not (logs < math.inf).all():
        raise ParameterError(f"`{name}` must hold logarithms below +inf, without NaN. Use -inf for {what}.")


def generator(rng: Any) -> np.random.Generator:
    """A NumPy generator from a generator, a seed or None."""
    if isinstance(rng, np.random.Generator):
        return rng
    if rng is None or (
        isinstance(rng, (int, np.integer)) and not isinstance(rng, (bool, np.bool_)) and rng >= 0
    ):
        return np.random.default_rng(rng)
    raise ParameterError(
        f"`rng` must be a numpy.random.Generator, a non-negative integer seed or None; {describe(rng)} arrived."
    )


def broadcast(
    batch_shape: tuple[int, ...], shapes: Sequence[tuple[str, tuple[int, ...]]], *, grow: bool = True
) -> tuple[int, ...]:
    """The batch shape of several arrays together, each with a name for the message; without `grow` it must stay."""
    for name, shape in shapes:
        try:
            common = np.broadcast_shapes(batch_shape, shape)
            if not grow and common != batch_shape:
                raise ValueError
            batch_shape = common
        except ValueError:
            raise ParameterError(
                f"{name} has batch shape {shape}, which does not broadcast against {batch_shape}. Batch axes lead: "
                "logits (..., D), tables (..., n + 1)."
            ) from None
    return batch_shape
