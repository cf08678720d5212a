"""The only reader of what users pass in: a call declares what an argument must be, and gets it or an error.

Single numbers: :func:`integer`, :func:`real`, :func:`flag`, :func:`one_of`, :func:`generator`. Arrays: :func:`array`
with a shape and what its entries are (:data:`REALS`, :data:`LOGS`, :data:`PROBABILITIES`, :data:`WHOLE`, ...);
:func:`logits` and :func:`log_table` also keep the dtype and are quick. Groups, configurations and sums have modules of
their own. Every message says what was required, what arrived and, where a user would make the mistake, what to do next.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64
from ..errors import ParameterError, TallyTreeError

_DOUBLE = np.dtype(np.float64)
_LARGEST = float(np.finfo(np.float64).max)


def describe(value: Any) -> str:
    """A short description of an argument for an error message."""
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype}"
    text = repr(value)
    return f"{text[:60]}..." if len(text) > 63 else text


# -- single numbers ------------------------------------------------------------------------------------------------


def integer(name: str, value: Any, least: int | None = None, most: int | None = None, what: str = "") -> int:
    """An integer of at most 64 bits, between `least` and `most`, which is `what`; truth values and floats are none."""
    number = None
    if not isinstance(value, (bool, np.bool_)):
        try:
            number = operator.index(value)
        except (TypeError, RuntimeError):
            refuse_framework(f"`{name}`", value)
    low = -(2**63) if least is None else least
    high = 2**63 - 1 if most is None else most
    if number is None or not low <= number <= high:
        limits = (
            ("", f" of at least {least}")[least is not None] if most is None else f" between {low} and {most}"
        )
        size = " of at most 64 bits" if number is not None and abs(number) >= 2**63 else ""
        hint = " Convert it with int(...)." if isinstance(value, (float, np.floating)) else ""
        raise ParameterError(
            f"`{name}` must be an integer{size}{limits}{what and f', {what}'}; {describe(value)} arrived.{hint}"
        )
    return number


def real(
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    strict: bool = False,
    infinite: bool = False,
) -> float:
    """A number in ``[low, high]``, without ``low`` if `strict`, and finite unless `infinite`."""
    number = math.nan
    if not isinstance(value, (bool, np.bool_, str, bytes)) and getattr(value, "ndim", 0) == 0:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            refuse_framework(f"`{name}`", value)
    inside = low < number <= high if strict else low <= number <= high
    if not inside or (math.isinf(number) and not infinite):
        limits = f" {'above' if strict else 'of at least'} {low:g}" if low > -math.inf else ""
        limits = f" in {'(' if strict else '['}{low:g}, {high:g}]" if high < math.inf else limits
        raise ParameterError(
            f"`{name}` must be a {'' if infinite else 'finite '}real number{limits}; {describe(value)} arrived."
        )
    return number + 0.0  # -0.0 becomes 0.0, so that equal numbers print alike


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ParameterError(f"`{name}` must be True or False, but {describe(value)} arrived.")
    return bool(value)


def one_of(name: str, value: Any, allowed: Sequence[Any]) -> Any:
    """The one of a few texts or integers that `value` is; truth values do not stand for 0 and 1."""
    if isinstance(value, (str, int, np.integer)) and not isinstance(value, bool):
        for choice in allowed:
            if value == choice:
                return choice
    names = [repr(a) for a in allowed]
    wanted = " or ".join(names) if len(names) == 2 else f"one of {', '.join(names)}"
    raise ParameterError(f"`{name}` must be {wanted}; {describe(value)} arrived.")


def instance(name: str, value: Any, kind: type, hint: str = "") -> Any:
    """An object of a class."""
    if not isinstance(value, kind):
        raise ParameterError(f"`{name}` must be a {kind.__name__}{hint}; {describe(value)} arrived.")
    return value


def group_number(group: Any, total: int, instead: str = "") -> int:
    """The number of a group, 0 to total - 1; negative numbers count from the end."""
    number = integer("group", group)
    if not -total <= number < total:
        known = f"0 to {total - 1}" if total else "but the model has no groups"
        raise ParameterError(f"`group` must be the number of a group, {known}{instead}; {number} arrived.")
    return number % total


def shape(name: str, value: Any) -> tuple[int, ...]:
    """The axes that an integer, a sequence of them, or None for no axis asks for."""
    if value is None:
        return ()
    several = isinstance(value, (tuple, list, range)) or getattr(value, "ndim", 0) == 1
    axes = tuple(integer(name, axis, 0) for axis in value) if several else (integer(name, value, 0),)
    if math.prod([max(axis, 1) for axis in axes]) >= 2**60:  # a list, which compilers of PyTorch can follow
        raise ParameterError(
            f"`{name}` asks for more numbers than any machine holds; {describe(value)} arrived."
        )
    return axes


def unmasked_rows(left: Any, least: Any) -> None:
    """Refuse masks that leave fewer entries of a row than are to be chosen."""
    left, least = np.broadcast_arrays(left, least)
    short = np.argwhere(least > left)
    if not len(short):
        return
    row = tuple(short[0].tolist())
    which = "the only row" if not row else f"row {row[0] if len(row) == 1 else row}"
    raise ParameterError(
        f"Every row must have at least k unmasked entries; {which} has {left[row]} unmasked entries, k = {least[row]}. "
        "`mask` is True for entries that may be chosen; if it is True for padding, pass ~mask."
    )


def callback(name: str, value: Any) -> None:
    """Refuse what is neither None nor a function."""
    if value is not None and not callable(value):
        raise ParameterError(f"`{name}` must be a function or None; {describe(value)} arrived. Leave it out.")


def generator(rng: Any, name: str = "rng") -> np.random.Generator:
    """A NumPy generator from what NumPy takes: a generator of any kind, a seed, or None."""
    if isinstance(rng, np.random.RandomState):
        return np.random.Generator(rng._bit_generator)  # both go on with the same stream
    if not isinstance(rng, (bool, np.bool_)):
        try:
            return np.random.default_rng(rng)
        except (TypeError, ValueError):
            pass
    raise ParameterError(
        f"`{name}` must be a numpy.random.Generator, RandomState, BitGenerator or SeedSequence, a non-negative integer "
        f"seed or None; {describe(rng)} arrived."
    )


# -- arrays --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entries:
    """What the entries of an array must be: of these NumPy kinds and, if one looks, between two ends, so no NaN."""

    what: str
    low: float = -_LARGEST
    high: float = _LARGEST
    kinds: str = "fiub"
    dtype: Any = np.float64
    hint: str = ""
    look: bool = True


REALS = Entries("finite real numbers", hint=" Leave out what is NaN or infinite.")
NUMBERS = Entries("real numbers", -math.inf, math.inf, hint=" Leave out what is NaN.")
LOGS = Entries("logarithms below +inf", low=-math.inf, hint=" Use -inf for what is impossible.")
PROBABILITIES = Entries("probabilities between 0 and 1", 0.0, 1.0)
INTEGERS = Entries("integers", -(2**62), 2**62, "iu", np.int64)
NON_NEGATIVE = Entries("finite numbers of at least 0", 0.0)
POSITIVE = Entries("finite numbers above 0", math.ulp(0.0))
WHOLE = Entries("whole numbers of at least 0", 0, 2**62, "iu", np.int64)


def integers(low: int, high: int, what: str = "integers") -> Entries:
    """Integers between two ends."""
    return Entries(f"{what} from {low} to {high}", low, high, "iu", np.int64)


def number(name: str, value: Any, entries: Entries) -> Any:
    """A single number of what :func:`array` reads arrays of."""
    low, high = entries.low, entries.high
    if "f" not in entries.kinds:
        return integer(name, value, int(low), None if high >= 2**62 else int(high))
    strict = low == POSITIVE.low
    low, high = (-math.inf if low == -_LARGEST else low), (math.inf if high == _LARGEST else high)
    return real(name, value, 0.0 if strict else low, high, strict=strict, infinite=entries.high == math.inf)


def array(
    name: str,
    value: Any,
    shape: tuple[Any, ...],
    entries: Entries = REALS,
    *,
    hint: str = "",
    error: type[TallyTreeError] = ParameterError,
    copy: bool = False,
) -> NDArray[Any]:
    """An array of a declared shape: sizes, names of sizes that are free, and ``...`` for leading axes.

    ``array("pairs", value, ("E", 2), WHOLE)`` reads pairs of whole numbers.
    """

    def wanted() -> str:
        shown = ", ".join("..." if size is ... else str(size) for size in shape) + "," * (len(shape) == 1)
        text = f"`{name}` must be an array of {entries.what}"
        return text if shape == (...,) else f"{text}, shape ({shown})"

    found = unmasked(f"`{name}`", value, lambda: f"{wanted()}; rows of different lengths arrived.{hint}")
    kind = found.dtype.kind
    if found.size == 0 and kind == "f" and "f" not in entries.kinds:
        kind = "i"  # an empty list has no type of its own
    if kind not in entries.kinds or found.dtype == np.float16 or not _has_shape(found.shape, shape):
        raise error(f"{wanted()}; {describe(found)} arrived.{hint}")
    if (
        entries.look
        and found.size
        and not (entries.low <= float(found.min()) and float(found.max()) <= entries.high)
    ):
        place = tuple(np.argwhere(~((found >= entries.low) & (found <= entries.high)))[0].tolist())
        entry = f"entry {place[0] if len(place) == 1 else place}" if place else "the number"
        arrived = "NaN" if np.isnan(found[place]) else found[place]
        raise error(f"{wanted()}; {entry} is {arrived}.{hint or entries.hint}")
    return found.astype(entries.dtype, copy=copy)


def _has_shape(shape: tuple[int, ...], wanted: tuple[Any, ...]) -> bool:
    if wanted[:1] == (...,):
        wanted = wanted[1:]
        shape = shape[max(len(shape) - len(wanted), 0) :]
    return len(shape) == len(wanted) and all(isinstance(w, str) or w == own for w, own in zip(wanted, shape))


def flags(name: str, value: Any, *shape: int | str) -> NDArray[np.bool_]:
    """Truth values of this shape; zeros and ones are taken for them."""
    found = array(name, value, shape, Entries("truth values", 0, 1, hint=" Compare them first."))
    if not np.isin(found, (0, 1)).all():
        raise ParameterError(
            f"`{name}` must be an array of truth values; other numbers than 0 and 1 arrived."
        )
    return found.astype(np.bool_)


def rectangular(name: str, value: Any, what: str) -> NDArray[Any]:
    """`value` as an array; rows of different lengths are refused."""
    ragged = f"`{name}` must be {what}, but rows of different lengths arrived. Give all rows one length."
    return unmasked(f"`{name}`", value, ragged)


def refuse_framework(called: str, value: Any, function: str = "") -> None:
    """Raise for an array of PyTorch or JAX that NumPy cannot read; `function` is what takes it in `tallytree.torch`."""
    package = type(value).__module__.partition(".")[0]
    home = {"torch": "torch", "jax": "jax", "jaxlib": "jax"}.get(package)
    if home is not None:
        what, plain = (
            ("a tensor", ".detach().cpu()") if home == "torch" else ("a traced array", "numpy.asarray(...)")
        )
        raise ParameterError(
            f"{called} must be numbers that NumPy can read; {what} on another device, or whose gradient is followed, "
            f"arrived. Use `tallytree.{home}{function}`, which takes it, or pass its numbers by `{plain}`."
        )


def unmasked(
    called: str, value: Any, otherwise: str | Callable[[], str] | None = None, function: str = ""
) -> NDArray[Any]:
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
    except (ValueError, TypeError, RuntimeError):
        refuse_framework(called, value, function)
        if otherwise is None:
            raise
        raise ParameterError(otherwise() if callable(otherwise) else otherwise) from None


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


def logits(value: Any, n: int | None = None, *, unseen: int | None = None) -> tuple[Float64, np.dtype[Any]]:
    """Log-odds (..., D) of n variables in [-inf, inf]; in an array of `unseen` or more nothing is looked at."""
    array, dtype = real_array("logits", value, axis="variables")
    if n is not None and array.shape[-1] != n:
        raise ParameterError(
            f"`logits` must have {n} entries on the last axis, one per variable; shape {array.shape} arrived. For "
            "another number of variables make a new model."
        )
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
    table_length(name, array, size)
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


def table_length(name: str, table: Any, size: int) -> None:
    """Refuse a log-table, of whatever framework, that has not one entry per count of `size` variables."""
    if table.shape[-1] != size + 1:
        raise ParameterError(
            f"{name} must have {size + 1} entries, log f(0), ..., log f({size}), because the group has {size} "
            f"variables; one with {table.shape[-1]} entries arrived."
        )


def listed(value: Any, count: int | None, wanted: str, hint: str = "") -> list[Any]:
    """The entries of a list, of `count` if that is known; `wanted` says of what, `hint` what to do next."""
    single = isinstance(value, (str, bytes)) or getattr(value, "ndim", 1) == 0
    entries = None if single or not isinstance(value, Iterable) else list(value)
    if entries is None or len(entries) != (len(entries) if count is None else count):
        raise ParameterError(
            f"{wanted}; {describe(value) if entries is None else len(entries)} arrived.{hint}"
        )
    return entries


def spread(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """An array that broadcasts to a shape."""
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ParameterError(
            f"`{name}` must broadcast to shape {shape}; shape {array.shape} arrived."
        ) from None


def broadcast(
    batch_shape: tuple[int, ...],
    shapes: Sequence[tuple[str, tuple[int, ...]]],
    join: Callable[..., tuple[int, ...]] = np.broadcast_shapes,
    *,
    grow: bool = True,
) -> tuple[int, ...]:
    """The batch shape of several arrays together, each with a name for the message; without `grow` it must stay."""
    for name, shape in shapes:
        try:
            common = join(batch_shape, shape)
            if not grow and common != batch_shape:
                raise ValueError
            batch_shape = common
        except ValueError:
            raise ParameterError(
                f"{name} has batch shape {shape}, which does not broadcast against {batch_shape}. Batch axes lead: "
                "logits (..., D), tables (..., n + 1)."
            ) from None
    return batch_shape
