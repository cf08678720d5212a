"""Checks of the arguments of count distributions: what was required, what arrived, what to do next."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax

from ..arrays import Float64, Ints
from ..errors import ParameterError
from . import NUMBERS, PROBABILITIES, REALS, array, describe, real, rectangular
from . import shape as axes

LARGEST_TABLE = 1 << 28  # entries of the table of all sums


def real_array(name: str, value: ArrayLike, least_axes: int = 1) -> Float64:
    """A copy of an array of real numbers, infinite ones included."""
    shape, hint = ((..., "n"), " For one entry pass a list of length one.") if least_axes else ((...,), "")
    return array(name, value, shape, NUMBERS, hint=hint, copy=True)


def from_probs(given: Any, hint: str = " Log-odds go in `logits`.") -> tuple[Float64, Float64, Float64]:
    """Return p, 1 - p and the log-odds, each with the digits that p has."""
    p = array("probs", given, (..., "n"), PROBABILITIES, hint=hint) + 0.0
    return p, 1.0 - p, log_odds(p)


def log_odds(p: Any) -> Float64:
    """Log-odds of probabilities, with the digits that these have."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(p) - np.log1p(-p))


def grid_step(step: Any, weights: Any) -> float | None:
    """Read the step of the grid of real weights; a plain count has none."""
    if step is not None and weights is None:
        raise ParameterError(
            "`step` is the grid of real `weights`; none arrived. Leave it out for a plain count."
        )
    return None if step is None else real("step", step, 0.0, strict=True)


def refuse_whole_law(what: str) -> NoReturn:
    """Raise because an answer in another array library is for plain counts."""
    raise ParameterError(
        f"`{what}` needs the law of all sums, which has no derivatives here with `weights`. Ask "
        "`tallytree.PoissonBinomial` for it, or `log_prob`, `cdf` and `log_sf` for single values."
    )


def refuse_second_derivative() -> NoReturn:
    """Raise because derivatives of a weighted sum have none in another array library."""
    raise ParameterError(
        "Weighted sums have first derivatives, but a higher one was asked for. Detach what need not be differentiated "
        "again (`stop_gradient` in JAX), or leave `weights` out."
    )


def rectangular_weights(value: ArrayLike) -> NDArray[Any]:
    """Weights as an array, whose axes say whether events have one outcome or several."""
    return rectangular("weights", value, "(n,), or (n, K) for K outcomes of each event")


def sum_weights(value: ArrayLike, n: int, step: float | None) -> Ints | Float64:
    """One number per variable, or per variable and outcome (n, K): integers, or real numbers for a grid."""
    given = rectangular_weights(value)
    shape: tuple[Any, ...] = (n, "K") if given.ndim == 2 else (n,)
    hint = " Give one per variable, or (n, K) for K outcomes of each."
    weights = array("weights", given, shape, REALS, hint=hint, copy=True)
    check_sizes(weights, step)
    if step is None and np.all(weights == np.floor(weights)):
        total = float(np.abs(weights).sum())
        divisor = (
            max(int(np.gcd.reduce(np.abs(weights).astype(np.int64), axis=None)), 1)
            if 0 < total < 2.0**53
            else 1
        )
        _check_cells(
            total / divisor, "`weights` allow", "Give a coarser `step`, or round them to a coarser unit."
        )
        return weights.astype(np.int64)
    if step is not None:
        _check_cells(float(np.abs(weights).sum()) / step, f"`step`={step:g} makes", "Take a larger step.")
    return weights


def check_sizes(weights: NDArray[Any], step: float | None) -> None:
    """Some weight is not 0 and large enough for the grid, and sums of them are numbers."""
    if not weights.size:
        return
    with np.errstate(over="ignore"):
        largest, size = float(np.abs(weights).max()), float(np.abs(weights).sum())
    if largest == 0.0:
        raise ParameterError(
            "`weights` must not all be 0, as the sum would be 0 whatever happens; zeros arrived. Give every event its "
            "size; for a plain count use PoissonBinomial without `weights`."
        )
    if not (largest > 1e-150 and size < 1e150):
        raise ParameterError(
            f"`weights` must have sizes between 1e-150 and 1e150; the largest is {largest:g}. Measure them in another "
            "unit."
        )
    if step is not None and step > largest:
        raise ParameterError(
            f"`step` must not exceed the largest weight, {largest:g}, or no event has a cell of its own; {step:g} "
            "arrived. Take a hundredth of a typical weight."
        )


def step_of_weights(step: float | None, weights: Float64, p: Float64) -> float:
    """The step of a grid of real weights; a warning counts events that are smaller than a given one.

    A weight between two cells adds at most ``p step^2 / 4`` to the variance. Without a step, one of 1, 2 or 5 times a
    power of ten is taken that adds at most 1e-4 of the variance; sums of few cells get a finer one.
    """
    sizes = np.abs(weights)
    if step is not None:
        small = (sizes > 0.0) & (sizes < step)
        if small.any():
            share = float((p * sizes * small).sum() / (p * sizes).sum()) if (p * sizes).any() else 0.0
            counted = np.count_nonzero(small if small.ndim == 1 else small.any(axis=1))
            warnings.warn(
                f"`step`={step:g} exceeds the weights of {counted} of {len(weights)} events, with {share:.1%} of the "
                "expected sum of sizes: rounded down they vanish. Their means are kept; `bracket` says what the grid "
                "may hide, and a smaller step shows them.",
                stacklevel=3,
            )
        return step
    squares = (p * (1.0 - p) * weights**2).sum(axis=tuple(range(-weights.ndim, 0)))
    events = np.where(squares > 0.0, p.sum(axis=tuple(range(-weights.ndim, 0))), 1.0)
    spread = 0.02 * np.sqrt(squares / events)
    total = float(sizes.sum())
    fine = (
        float(np.min(spread[spread > 0.0], initial=np.inf))
        if np.any(spread > 0.0)
        else float(sizes.max()) / 1000.0
    )
    return _round_number(max(min(fine, total / 4096.0), total / LARGEST_TABLE * 8.0))


def _round_number(step: float) -> float:
    """The largest of 1, 2 and 5 times a power of ten that does not exceed a number."""
    power = np.floor(np.log10(step))
    return float(f"{max(m for m in (1, 2, 5) if m * 10.0**power <= step * (1.0 + 1e-12))}e{int(power)}")


def _check_cells(cells: float, what: str, remedy: str) -> None:
    if not cells < LARGEST_TABLE:
        raise ParameterError(f"{what} {cells + 1:.10g} different sums; at most {LARGEST_TABLE} fit. {remedy}")


def outcome_probs(given: Any) -> Float64:
    """Log-probabilities (..., n, K + 1) of nothing and of K outcomes, from probabilities (..., n, K)."""
    p = array("probs", given, (..., "n", "K"), PROBABILITIES)
    total = p.sum(axis=-1)
    if np.any(total > 1.0 + 1e-9):
        raise ParameterError(
            f"`probs` of the outcomes of one event must add up to at most 1; {float(total.max()):g} arrived. The rest "
            "is the probability that nothing happens."
        )
    with np.errstate(divide="ignore"):
        none = np.log1p(-np.minimum(total, 1.0))
        return np.concatenate([none[..., None], np.log(p)], axis=-1)


def outcome_logits(given: Float64) -> Float64:
    """Log-probabilities from logarithms of the odds against nothing; an outcome of infinite odds is certain."""
    full = np.concatenate([np.zeros((*given.shape[:-1], 1)), given], axis=-1)
    certain = np.isposinf(full)
    if np.any(certain.sum(axis=-1) > 1):
        raise ParameterError(
            "`logits` must not make two outcomes of one event certain; one `inf` per event is the most."
        )
    settled = np.where(certain, 0.0, -np.inf)
    return np.asarray(log_softmax(np.where(certain.any(-1, keepdims=True), settled, full), axis=-1))


def full_shape(size: Any, batch: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that `scipy.stats` gives to draws: ``size`` ends with the axes of the batch."""
    if size is None:
        return batch
    shape = axes("size", size)
    tail = shape[len(shape) - len(batch) :]
    if len(shape) < len(batch) or any(b not in (1, s) for b, s in zip(batch, tail)):
        raise ParameterError(
            f"`size` must end with the axes of the batch, {batch}; {describe(size)} arrived. Write "
            f"size={(*shape, *batch)}, or call `sample({size!r})`, which adds the batch by itself."
        )
    return shape


def moment_letters(moments: Any, known: Iterable[str]) -> list[str]:
    """The letters of ``moments`` in the order of ``known``."""
    letters = list(known)
    if not isinstance(moments, str) or not moments or not set(moments) <= set(letters):
        raise ParameterError(
            "`moments` must be made of the letters m (mean), v (variance), s (skewness) and k (kurtosis), such as "
            f'"mv"; {describe(moments)} arrived.'
        )
    return [letter for letter in letters if letter in moments]


def function_values(func: Any, points: Ints) -> Float64:
    """Values of a user's function at integers, one each; without a function the integers themselves."""
    if func is None:
        return points.astype(np.float64)
    if not callable(func):
        raise ParameterError(
            f"`func` must be a function of an array of values, such as `lambda k: k**2`; {describe(func)} arrived."
        )
    try:
        values = np.broadcast_to(np.asarray(func(points), np.float64), points.shape)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"`func` must return one number for each of the {len(points)} values in the array that it gets; it failed "
            f"with: {error}. If it takes one value at a time, wrap it in np.vectorize."
        ) from error
    return array("func", values, points.shape, NUMBERS)
