"""From log-odds (B, D) and packed log-tables, (B, T) or (1, T), to answers, with the derivative rules.

    d log Z = sum_d P(y_d = 1) d nu_d + sum_k,c P(z_k = c) d log f_k(c)

`log_partition` states this rule in terms of `posterior`, and `posterior` differentiates the passes themselves, which
are plain differentiable array code; so derivatives of higher order exist, forward and backward. Values are found by a
function that sends the models without a certificate to the slow pass; mapped axes become batch axes, so that `vmap`
does not turn that decision into running both passes for all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero

from ..engine.masks import MASK
from ..memo import lru
from ..structure.nested.count_tree import CountTree
from ..structure.nested.schedule import full_schedule
from . import arithmetic, characteristic, flat, tree
from .arrays import in_floats, is_concrete, unit_roundoff
from .ladder import Pass, Rungs, Solution, climb, differential, lean, log_weight_of_leaves, near
from .stages import on_cpu

LONG = 32  # variables, from which on a characteristic function beats a tree of direct convolutions


class Structure(NamedTuple):
    """What is static: the padded size of a flat model, or a tree; and whether arithmetic is 32-bit."""

    size: int
    tree: CountTree | None = None
    single: bool = False


class Posterior(NamedTuple):
    """What a model says beside log Z."""

    messages: Any  # (B, D)
    log_beliefs: Any  # (B, T); None where they were not asked for
    log_partition: Any  # (B,) a constant to derivatives; -inf for an impossible model


class Core(NamedTuple):
    """The functions of one structure; all of them take ``nu, tables`` with one batch axis.

    Far log-odds are made infinite here, block by block: a copy of all of them costs as much as some of the passes.
    """

    log_partition: Callable[[Any, Any], Any]
    messages: Callable[[Any, Any], Posterior]  # it may have no log-beliefs
    posterior: Callable[[Any, Any], Posterior]
    bound: Callable[[Any, Any], Any]
    tails: Callable[
        [Any, Any], Posterior
    ]  # as `posterior`, with log-beliefs that are right in the far tails, too


def _passes(structure: Structure) -> tuple[Rungs, Rungs]:
    """The quick pass and the one that is always right, for the posterior and for the far tails of counts."""
    if structure.tree is None:
        right: Pass = flat.solve_logarithms
        quick: Pass = characteristic.solve if structure.size >= LONG else flat.solve_plain
        in_tails: Rungs = flat.solve_plain_in_tails, right
    else:
        schedule = full_schedule(structure.tree.program)
        right, quick = (partial(tree.solve, schedule, x) for x in (arithmetic.LOGARITHMS, arithmetic.PLAIN))
        in_tails = right, None
    if structure.single:  # plain numbers have too little room
        return (right, None), (right, None)
    return (quick, right), in_tails


def _mapped_as_batch(solve: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`solve`, whose mapped axes join the batch axis: the batch decides once which pass it needs."""
    run = custom_vmap(solve)

    @run.def_vmap
    def rule(size: int, mapped: Any, nu: Any, tables: Any) -> Any:
        batch = nu.shape[1 if mapped[0] else 0]
        if not mapped[1] and tables.shape[0] == 1 and batch > 0:
            shared = tables
        else:
            shared = _joined(tables, size, batch, mapped=mapped[1])
        found = run(_joined(nu, size, batch, mapped=mapped[0]), shared)
        answers = jax.tree.map(lambda x: x.reshape(size, batch, *x.shape[1:]), found)
        return answers, jax.tree.map(lambda _: True, found)

    return run


def _joined(x: Any, size: int, batch: int, *, mapped: bool) -> Any:
    """Rows of a mapped axis and those of every batch on it, as one batch."""
    x = x if mapped else x[None]
    return jnp.broadcast_to(x, (size, batch, x.shape[-1])).reshape(size * batch, x.shape[-1])


@lru(256)
def compiled(function: Callable[..., Any], *static: Any) -> Callable[..., Any]:
    """A step before or after the core, compiled once; the core is compiled on its own and shared by all questions."""
    return jax.jit(partial(function, *static))


@lru(256)
def core_of(structure: Structure) -> Core:
    """The functions of a structure, made once so that compilations are shared."""
    rungs, in_tails = _passes(structure)
    wide = not structure.single
    values, posterior = _differentiable(rungs, wide=wide)
    tails = posterior if in_tails == rungs else _differentiable(in_tails, wide=wide)[1]
    messages = posterior
    if rungs[0] is characteristic.solve:  # there the law of the count is work of its own
        values, messages = _differentiable(lean(rungs), wide=wide)

    @jax.custom_jvp
    def log_partition(nu: Any, tables: Any) -> Any:
        return values(nu, tables)[0].log_partition

    @partial(log_partition.defjvp, symbolic_zeros=True)
    @partial(in_floats, wide=wide)
    def rule(primals: Any, tangents: Any) -> tuple[Any, Any]:
        nu, tables = primals
        d_nu, d_tables = tangents
        fixed = isinstance(d_tables, SymbolicZero)
        found = (messages if fixed else posterior)(nu, tables)
        value = log_partition(nu, tables)
        # Where nothing is possible no direction helps: the derivative of -inf is taken as 0.
        possible = (value > -jnp.inf)[:, None]
        moved = jnp.zeros_like(value)
        if not isinstance(d_nu, SymbolicZero):
            # Far log-odds do not move: what is finite in them is a constant of log Z, with its own derivative.
            moving = possible & (jnp.abs(nu) <= MASK)
            on = jnp.where(moving, on_probability(nu, found.messages), 0.0)
            moved = moved + jnp.sum(on * d_nu, -1)
        if not fixed:
            probs = jnp.where(possible, jnp.exp(found.log_beliefs), 0.0)
            moved = moved + jnp.sum(probs * d_tables, -1)
        return value, moved

    def bound(nu: Any, tables: Any) -> Any:
        nu, tables = lax.stop_gradient(nu), lax.stop_gradient(tables)
        found = lax.stop_gradient(values(nu, tables)[0].bound)
        if structure.single:  # in 64 bits the leaves add nothing that anybody could see
            found = found + nu.shape[-1] * unit_roundoff(found.dtype) * log_weight_of_leaves(near(nu))
        return found

    return Core(log_partition, messages, posterior, bound, tails)


def _differentiable(
    rungs: Rungs, *, wide: bool
) -> tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Posterior]]:
    """What `climb` finds, and the posterior, with the derivatives of the passes that gave it."""

    def of_near(solve: Pass) -> Pass:
        return lambda nu, tables: solve(near(nu), tables)

    rungs = of_near(rungs[0]), rungs[1] and of_near(rungs[1])
    both = jax.jit(_mapped_as_batch(partial(climb, rungs)))
    quick = jax.jit(partial(climb, (rungs[0], None)))

    def values(nu: Any, tables: Any) -> Any:
        """Where numbers can be looked at the slow pass is not even compiled, and its memory not mapped, in vain."""
        if rungs[1] is not None and nu.shape[0] and on_cpu() and is_concrete(nu, tables):
            found = quick(nu, tables)
            if np.all(found[1]):
                return found
        return both(nu, tables)

    def parts(found: Solution) -> Posterior:
        return Posterior(found.messages, found.log_beliefs, lax.stop_gradient(found.log_partition))

    @jax.custom_jvp
    def posterior(nu: Any, tables: Any) -> Posterior:
        return parts(values(nu, tables)[0])

    @partial(posterior.defjvp, symbolic_zeros=True)
    @partial(in_floats, wide=wide)
    def rule(primals: Any, directions: Any) -> Any:
        directions = tuple(None if isinstance(d, SymbolicZero) else d for d in directions)
        found, certified = values(*(lax.stop_gradient(x) for x in primals))
        messages, log_beliefs = moved(certified, primals, directions)
        return posterior(*primals), Posterior(messages, log_beliefs, jnp.zeros_like(found.log_partition))

    moved = jax.jit(partial(differential, rungs))
    return values, posterior


def posterior_logits(nu: Any, messages: Any) -> Any:
    """``nu + messages``; infinite log-odds decide by themselves."""
    decided = jnp.isinf(nu)
    return jnp.where(decided, nu, jnp.where(decided, 0.0, nu) + jnp.where(decided, 0.0, messages))


def on_probability(nu: Any, messages: Any) -> Any:
    """P(y = 1)."""
    return jax.nn.sigmoid(posterior_logits(nu, messages))
