"""Laws of the number of independent variables that are on, and of their weighted sums, from log-odds or probabilities.

Probabilities of 0 and 1 have derivatives where infinite log-odds have none, so both are kept as they were given:
every function takes log-odds, and the probabilities if those were given or None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ..checks.sums import refuse_second_derivative
from ..errors import ParameterError
from ..models.poisson_binomial import WeightedEvents
from . import answers
from .arguments import read
from .arrays import in_floats, is_concrete
from .ladder import all_of


def log_odds(probs: Any) -> Any:
    """Infinite at 0 and 1, with derivative 0 there."""
    decided = (probs == 0.0) | (probs == 1.0)
    p = jnp.where(decided, 0.5, probs)
    return jnp.where(decided, jnp.where(probs > 0.0, jnp.inf, -jnp.inf), jnp.log(p) - jnp.log1p(-p))


def log_pmf(logits: Any, probs: Any, count: Any) -> Any:
    shape = jnp.broadcast_shapes(count.shape, logits.shape[:-1])
    count = jnp.broadcast_to(count, shape)
    given = jnp.broadcast_to(logits if probs is None else probs, (*shape, logits.shape[-1]))
    if probs is None:
        return answers.event_log_prob(given, answers.one_count(count, given.shape[-1]))

    def beside(steps: Any) -> Any:
        several = jnp.broadcast_to(given[..., None, :], (*shape, len(steps), given.shape[-1]))
        return _undecided_log_prob(several, count[..., None] + steps)[..., None, :]

    return _at(_with_decided(given, beside), 0)


def sum_log_prob(events: WeightedEvents, which: str, logits: Any, probs: Any, value: Any) -> Any:
    """Log-probabilities of weighted sums, by the host; derivatives are changes of probabilities, of the same pass.

    Probabilities of 0 and 1 have derivatives of their own, which infinite log-odds do not have.
    """
    shape = jnp.broadcast_shapes(value.shape, logits.shape[:-1])
    x = lax.stop_gradient(jnp.broadcast_to(value, shape).astype(logits.dtype))

    if not all(isinstance(size, int) for size in shape):
        raise ParameterError(
            f"Weighted sums are computed by the host, which needs a batch of a known size; {shape} arrived. Export the "
            "function with fixed shapes, or call it outside `jax.export`."
        )

    def both(nu: Any, x: Any, edges: bool) -> Any:
        answers = tuple(jax.ShapeDtypeStruct(a.shape, nu.dtype) for a in (x, nu))  # type: ignore[no-untyped-call]
        return jax.pure_callback(
            lambda a, b: tuple(r.astype(nu.dtype) for r in events.log_probs(which, a, b, edges=edges)),
            answers, nu, x, vmap_method="broadcast_all",
        )  # fmt: skip

    @jax.custom_jvp
    def log_prob(nu: Any, p: Any) -> Any:
        return both(nu, x, False)[0]

    @jax.custom_jvp
    def with_slope(nu: Any) -> Any:
        return both(nu, x, probs is not None)

    @with_slope.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        refuse_second_derivative()

    @log_prob.defjvp
    def _(primals: Any, tangents: Any) -> tuple[Any, Any]:
        found, slope = with_slope(primals[0])
        moves = jnp.where(jnp.isinf(primals[0]), tangents[1], tangents[0])
        return found, jnp.sum(jnp.where(slope == 0.0, 0.0, slope * moves), -1)

    each = (*shape, logits.shape[-1])
    return log_prob(*(jnp.broadcast_to(a, each) for a in (logits, logits if probs is None else probs)))


@jax.custom_jvp
def _undecided_log_prob(probs: Any, count: Any) -> Any:
    """Log P(so many are on), differentiable in probabilities other than 0 and 1; to the others it is constant."""
    return answers.event_log_prob(log_odds(probs), answers.one_count(count, probs.shape[-1]))


@_undecided_log_prob.defjvp
@in_floats
def _undecided_jvp(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """With m = log P_i(k - 1) / P_i(k), P_i the law without variable i: d log P(k) / dp_i = (e^m - 1) / (q + p e^m).

    Nothing cancels, however near to 0 or 1 a probability is.
    """
    probs, count = primals
    value = _undecided_log_prob(probs, count)
    problem = read(log_odds(probs), answers.one_count(count, probs.shape[-1]))
    messages = problem.core.messages(problem.odds, problem.tables).messages
    m = messages[:, : probs.shape[-1]].reshape(probs.shape)
    moves = (probs > 0.0) & (probs < 1.0) & (value > -jnp.inf)[..., None]
    m, p = jnp.where(moves, m, 0.0), jnp.where(moves, probs, 0.5)
    rises = m > 0.0
    small = jnp.where(rises, -m, m)
    less, gap = jnp.exp(small), -jnp.expm1(small)
    slope = jnp.where(rises, gap / ((1.0 - p) * less + p), -gap / (1.0 - p + p * less))
    return value, jnp.sum(jnp.where(moves, slope * tangents[0], 0.0), -1)


_STEPS = np.arange(-2, 3)


def _with_decided(probs: Any, undecided: Callable[[Any], Any], *, log: bool = True) -> Any:
    """(Log-)probabilities of counts, (..., m), from those of the variables without probabilities of 0 and 1.

    ``undecided(steps)`` are the logarithms of the latter for counts that are so many higher, (..., m, steps). The law
    of the decided variables is a constant; but it moves with their probabilities, by one count to first order and by
    two to second order.
    """
    off, on = probs == 0.0, probs == 1.0

    def moved() -> Any:
        extra, lacking = _rarely(jnp.where(off, probs, 0.0)), _rarely(jnp.where(on, 1.0 - probs, 0.0))
        weights: list[Any] = [0.0] * len(_STEPS)
        for i, a in enumerate(extra):
            for j, b in enumerate(lacking):
                weights[j - i + 2] = weights[j - i + 2] + a * b
        around = undecided(_STEPS)
        weight = jnp.stack(weights, -1)[..., None, :]
        if not log:
            return jnp.sum(weight * jnp.exp(around), -1)
        here = _at(around, 2)
        possible = here > -jnp.inf
        base = jnp.where(possible, here, 0.0)
        # A ratio beyond the largest number is a derivative that no float holds.
        total = jnp.sum(weight * jnp.exp(jnp.minimum(around - base[..., None], 700.0)), -1)
        return jnp.where(possible, base + jnp.log(jnp.where(possible, total, 1.0)), -jnp.inf)

    def fixed() -> Any:
        law = _at(undecided(np.zeros(1, int)), 0)
        return law if log else jnp.exp(law)

    none = jnp.all(~(off | on))
    if is_concrete(none):
        return fixed() if none else moved()
    return lax.cond(all_of(none), fixed, moved)


def _at(x: Any, place: int) -> Any:
    """An entry of the last axis; unlike an index it is no gather where the batch axis is symbolic."""
    return lax.index_in_dim(x, place, axis=-1, keepdims=False)


def _rarely(p: Any) -> tuple[Any, Any, Any]:
    """P(none), P(one) and P(two) of variables that are on with probabilities p = 0, with two derivatives."""
    one = jnp.sum(p, -1)
    two = 0.5 * (one**2 - jnp.sum(p**2, -1))
    return 1.0 - one + two, one - 2.0 * two, two


def count_law(logits: Any, probs: Any, *, log: bool = True) -> Any:
    """(Log-)probabilities of all counts, (..., n + 1)."""
    law = answers.count_log_probs(logits)
    if probs is None:
        return law if log else jnp.exp(law)
    beyond = jnp.full((*law.shape[:-1], 2), -jnp.inf, law.dtype)
    wide = jnp.concatenate([beyond, law, beyond], -1)

    def beside(steps: Any) -> Any:
        cuts = ((2 + step, 2 + step + law.shape[-1]) for step in steps.tolist())
        return jnp.stack([lax.slice_in_dim(wide, *cut, axis=-1) for cut in cuts], -1)

    return _with_decided(probs, beside, log=log)


def cdf(logits: Any, probs: Any, value: Any) -> Any:
    law = count_law(logits, probs, log=False)
    n = law.shape[-1] - 1
    total = jnp.sum(jnp.where(jnp.arange(n + 1) <= value[..., None], law, 0.0), -1)
    return jnp.where(jnp.isnan(value), jnp.nan, jnp.where(value >= n, 1.0, total))


def entropy(logits: Any, probs: Any) -> Any:
    law = count_law(logits, probs)
    possible = law > -jnp.inf
    return -jnp.sum(jnp.where(possible, jnp.exp(law) * jnp.where(possible, law, 0.0), 0.0), -1)
