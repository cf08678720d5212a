"""The only reader of what users pass in: a call declares what an argument must be, and gets it or an error.

Single numbers: :func:`integer`, :func:`real`, :func:`flag`, :func:`one_of`, :func:`generator`. Arrays: :func:`array`
with a shape and what its entries are (:data:`REALS`, :data:`LOGS`, :data:`PROBABILITIES`, :data:`WHOLE`, ...);
:func:`logits` and :func:`log_table` also keep the dtype and are quick. Groups and sums have modules of
their own. Every message says what was required, what arrived and, where a user would make the mistake, what to do next.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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


def one_given(**given: Any) -> tuple[str, Any]:
    """The one of two arguments that is given, and its name."""
    known = [(name, value) for name, value in given.items() if value is not None]
    if len(known) != 1:
        both = "`" + "` and `".join(given) + "`"
        raise ParameterError(f"Give exactly one of {both}; {'both' if known else 'neither'} arrived.")
    return known[0]


def comparable(what: str, first: int, second: int) -> None:
    """Refuse the divergence of laws that are not over as many of something."""
    if first != second:
        raise ParameterError(
            f"The Kullback-Leibler divergence needs laws of the same number of {what}; {first} and {second} arrived."
        )


def instance(name: str, value: Any, kind: type, hint: str = "") -> Any:
    """An object of a class."""
    if not isinstance(value, kind):
        raise ParameterError(f"`{name}` must be a {kind.__name__}{hint}; {describe(value)} arrived.")
    return value


def group_number(group: Any, total: int, instead: str = "") -> int:
    """The number of a group, 0 to total - 1; negative numbers count from the end."""
    known = f"the number of a group, 0 to {total - 1}" if total else "but the model has no groups"
    return integer("group", group, -total, total - 1, f"{known}{instead}") % total


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
    """What the entries of an array must be: of these NumPy kinds, between two ends, so no NaN, and perhaps whole.

    With ``dtype=None`` they stay of the type that they have.
    """

    what: str
    low: float = -_LARGEST
    high: float = _LARGEST
    kinds: str = "fiub"
    dtype: Any = np.float64
    hint: str = ""
    whole: bool = False
    look: bool = True

    def wrong(self, found: NDArray[Any]) -> NDArray[np.bool_]:
        """Which entries are not what they must be."""
        inside = (found >= self.low) & (found <= self.high)
        return np.asarray(~(inside & (found == np.floor(found))) if self.whole else ~inside)

    def right(self, found: NDArray[Any]) -> bool:
        """Whether all entries are what they must be, or nobody looks; a NaN fails every comparison."""
        if not (self.look and found.size):
            return True
        above = self.low == -math.inf or self.low <= float(found.min())
        whole = not self.whole or found.dtype.kind in "iub" or bool((found == np.floor(found)).all())
        return above and float(found.max()) <= self.high and whole


REALS = Entries("finite real numbers", hint=" Leave out what is NaN or infinite.")
NUMBERS = Entries("real numbers", -math.inf, math.inf, hint=" Leave out what is NaN.")
LOGS = Entries("logarithms below +inf", low=-math.inf, hint=" Use -inf for what is impossible.")
PROBABILITIES = Entries("probabilities between 0 and 1", 0.0, 1.0)
INTEGERS = Entries("integers", -(2**62), 2**62, "iu", np.int64)
NON_NEGATIVE = Entries("finite numbers of at least 0", 0.0)
POSITIVE = Entries("finite numbers above 0", math.ulp(0.0))
WHOLE = Entries("whole numbers of at least 0", 0, 2**62, "iu", np.int64)
ZERO_OR_ONE = Entries("zeros and ones", 0, 1, dtype=None, whole=True)
_LOG_ODDS = Entries(
    "log-odds",
    -math.inf,
    math.inf,
    hint=" Use -inf to exclude a variable, inf to force it on and 0 where nothing is known.",
)
_ANY = Entries("real numbers", dtype=None, look=False)


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
    called = _called(name)

    def wanted() -> str:
        shown = ", ".join("..." if size is ... else str(size) for size in shape) + "," * (len(shape) == 1)
        text = f"{called} must be an array of {entries.what}"
        return text if shape == (...,) else f"{text}, shape ({shown})"

    found = unmasked(called, value, lambda: f"{wanted()}; rows of different lengths arrived.{hint}")
    kind, half = found.dtype.kind, found.dtype == np.float16
    if found.size == 0 and kind == "f" and "f" not in entries.kinds:
        kind = "i"  # an empty list has no type of its own
    if kind not in entries.kinds or half or not _has_shape(found.shape, shape):
        next_step = (
            " The digits of half precision are too few: convert it to float32 or float64." if half else hint
        )
        raise error(f"{wanted()}; {describe(found)} arrived.{next_step}")
    if not entries.right(found):
        place = tuple(np.argwhere(entries.wrong(found))[0].tolist())
        entry = f"entry {place[0] if len(place) == 1 else place}" if place else "the number"
        arrived = "NaN" if np.isnan(found[place]) else found[place]
        raise error(f"{wanted()}; {entry} is {arrived}.{hint or entries.hint}")
    return found.astype(entries.dtype or found.dtype, copy=copy)


def _called(name: str) -> str:
    """An argument between backticks; a phrase such as "The table of group 3" stands for itself."""
    return name if name[0] == "`" or (name[0].isupper() and " " in name) else f"`{name}`"


def _has_shape(shape: tuple[int, ...], wanted: tuple[Any, ...]) -> bool:
    if wanted[:1] == (...,):
        wanted = wanted[1:]
        shape = shape[max(len(shape) - len(wanted), 0) :]
    return len(shape) == len(wanted) and all(isinstance(w, str) or w == own for w, own in zip(wanted, shape))


def flags(name: str, value: Any, *shape: int | str) -> NDArray[np.bool_]:
    """Truth values of this shape; zeros and ones are taken for them."""
    return array(name, value, shape, ZERO_OR_ONE, hint=" Compare other numbers first.").astype(np.bool_)


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


def real_array(name: str, value: Any, last: int | str, hint: str = "") -> tuple[Float64, np.dtype[Any]]:
    """`value` as a float64 array (..., last), not looked at, and the dtype in which answers are returned."""
    usual = type(value) is np.ndarray and value.dtype is _DOUBLE and value.ndim and value.flags.c_contiguous
    if usual and (type(last) is str or value.shape[-1] == last):
        return value, _DOUBLE  # kept short
    found = array(name, value, (..., last), _ANY, hint=hint)
    dtype = np.dtype(np.float32) if found.dtype == np.float32 else _DOUBLE
    return np.ascontiguousarray(found, np.float64), dtype


_FEW = 8192  # up to here a BLAS keeps to one thread; its others would go on spinning beside ours


def has_nan(array: Float64) -> bool:
    if array.size > _FEW:
        return math.isnan(array.min())
    # Squares add up to NaN only if an entry is NaN, and nothing is quicker for a few numbers. `vdot` is silent about
    # squares that overflow.
    return math.isnan(np.vdot(array, array))


def logits(value: Any, n: int | None = None, *, unseen: int | None = None) -> tuple[Float64, np.dtype[Any]]:
    """Log-odds (..., D) of n variables in [-inf, inf]; in an array of `unseen` or more nothing is looked at."""
    found, dtype = real_array("logits", value, "variables" if n is None else n, " Give one per variable.")
    if (unseen is None or found.size < unseen) and has_nan(found):
        array("logits", found, (...,), _LOG_ODDS)  # which says where
    return found, dtype


def log_table(value: Any, size: int, *, name: str, unseen: int | None = None) -> Float64:
    """A log-table (..., size + 1) with entries in [-inf, inf); in one of `unseen` or more nothing is looked at."""
    found, _ = real_array(name, value, "counts")
    table_length(name, found, size)
    seen = unseen is not None and found.size >= unseen
    if seen or (found.size <= _FEW and math.isfinite(np.vdot(found, found))):
        return found  # the quickest way for a few numbers
    return array(name, found, (..., size + 1), LOGS)


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
        return array if array.shape == shape else np.broadcast_to(array, shape)
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
        if shape == batch_shape:
            continue
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


# -- configurations, variables and evidence ----------------------------------------------------------------------


def states(
    y: ArrayLike, n: int, batch_shape: tuple[int, ...] = (), *, lead: bool = True
) -> NDArray[np.bool_]:
    """Configurations (..., D) of zeros and ones, whose leading axes, if allowed, broadcast against the batch."""
    on = array("y", y, (..., n) if lead else (n,), ZERO_OR_ONE).astype(np.bool_)
    if batch_shape and on.ndim > 1:
        broadcast(batch_shape, [("`y`", on.shape[:-1])])
    return on


def variables(
    value: ArrayLike | None, n: int, name: str, shape: tuple[Any, ...] = (...,)
) -> NDArray[np.int64]:
    """Variable numbers, checked; None: all of them."""
    known = integers(0, n - 1, "numbers of variables")
    return np.arange(n) if value is None else array(name, value, shape, known)


def one_hot(count: int, n: int) -> Float64:
    """Log-table of "exactly `count`"."""
    table = np.full(n + 1, -math.inf)
    table[count] = 0.0
    return table


def evidence(values: Mapping[int, int], n: int, outcomes: int = 2) -> tuple[NDArray[np.int64], list[Float64]]:
    """Variables and one-hot leaf tables from {variable: value}; a chain has positions and their labels."""
    instance("evidence", values, Mapping, f" from 0 ... {n - 1} to 0 ... {outcomes - 1}, such as {{3: 1}}")
    variables = [integer("evidence", v, 0, n - 1, "the number of a variable") for v in values]
    tables = []
    for value in values.values():
        whole = int(value) if isinstance(value, (bool, np.bool_)) else value
        c = integer("evidence", whole, 0, outcomes - 1, "the value of a variable")
        tables.append(one_hot(c, outcomes - 1))
    return np.array(variables, np.int64), tables
