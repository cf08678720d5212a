"""Answers as functions that PyTorch can differentiate in both modes, to any order, and map.

    d log Z           = <E[s], d theta>                    s: the variables, and the indicators of every count
    d E[s]            = H d theta                          H = Cov(s), symmetric, so both modes are the same product
    d (H v)           = H dv + T(v, d theta)               T: third derivatives, from the log Z in logarithms
    d log P(c)        = <E[s | c] - E[s], d theta>
    d entropy         = - <H theta, d theta>

A solved model goes from a function to its derivatives as one more output, which PyTorch keeps in the context of the
backward pass; nothing is kept anywhere else.

`torch.compile` does not see through functions that have a forward-mode rule, so a compiled graph holds the operators of
:mod:`.ops`; the reverse rules of the functions are registered with them.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..errors import ParameterError
from . import log_tree, ops
from . import structure as structures
from .edges import EdgedStructure
from .structure import structure_of
from .tensors import known

vjp: Any = torch.func.vjp  # its type is a union of what it answers with and without further outputs


def answer(operator: ops.Operator, *arguments: Any) -> Any:
    """The outputs of an operator, differentiable; without a record where nobody asks for one, which is quicker."""
    if torch.compiler.is_compiling():
        return operator(*arguments)
    return (operator.rules.apply if watched(*arguments) else operator.direct)(*arguments)


def watched(*arguments: Any) -> bool:
    """Whether PyTorch follows what becomes of a tensor: for derivatives, along a mapped axis, or without numbers."""
    return any(
        (value.requires_grad and torch.is_grad_enabled())
        or not ops.has_memory(value)
        or forward_ad.unpack_dual(value).tangent is not None
        for value in arguments
        if isinstance(value, Tensor)
    )


class Function(torch.autograd.Function):
    """A function of tensors, of which log-odds (*b, D) are the first, then of a structure's key and other numbers.

    All arguments are kept for both modes of differentiation; a mapped axis becomes a batch axis. The rules of an
    operator are those of compiled graphs, too.
    """

    forward: Any
    operator: Any = None

    def __init_subclass__(cls) -> None:
        if (operator := cls.operator) is not None:
            operator.rules, op = cls, operator.op
            if cls.backward is not Function.backward:
                op.register_autograd(cls.backward, setup_context=cls.setup_context)
            op.register_vmap(lambda info, dims, *given: cls.mapped(op, info.batch_size, dims, *given))
        if "forward" not in vars(cls):
            cls.forward = staticmethod(lambda *arguments: operator(*arguments))
        # PyTorch asks for the signature at every call.
        cls.forward.__signature__ = inspect.signature(cls.forward)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        place = next(i for i, value in enumerate(inputs) if isinstance(value, int))
        ctx.numbers = inputs[place:]
        ctx.save_for_backward(*inputs[:place])
        ctx.save_for_forward(*inputs[:place])
        if not torch.compiler.is_compiling():  # a compiled computation refers to a structure that is pinned
            ctx.structure = structure_of(ctx.numbers[0], inputs[0].shape[-1])

    @classmethod
    def vmap(cls, info: Any, in_dims: Any, *arguments: Any) -> Any:
        return cls.mapped(cls.apply, info.batch_size, in_dims, *arguments)

    @staticmethod
    def mapped(call: Any, size: int, dims: Any, *arguments: Any) -> Any:
        found = call(*as_batch(size, dims, arguments))
        if isinstance(found, Tensor):
            return found, 0
        return found, tuple(0 if isinstance(part, Tensor) else None for part in found)


def as_batch(size: int, dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> list[Any]:
    """Arguments with the mapped axis in front; the first is (*b, D) and says what the batch axes are.

    Tensors without batch axes that are not mapped, such as tables that all models share, stay as they are.
    """
    inner = arguments[0].dim() - 1 - (dims[0] is not None)
    batch = arguments[0].shape if dims[0] is None else arguments[0].movedim(dims[0], 0).shape[1:]
    out: list[Any] = []
    for place, (value, dim) in enumerate(zip(arguments, dims)):
        # A direction (place 2) has the batch axes of the log-odds; tables may have none, if all models share them.
        unbatched = isinstance(value, Tensor) and value.dim() == 1 and (place == 1 or inner > 0)
        if not isinstance(value, Tensor) or (dim is None and unbatched):
            out.append(value)
        elif dim is None:
            out.append(value.expand(size, *value.shape))
        else:
            moved = value.movedim(dim, 0)
            if moved.dim() == 2 and inner:
                moved = moved.reshape(size, *[1] * inner, moved.shape[-1])
            out.append(moved.expand(size, *batch[:-1], moved.shape[-1]))
    return out


# -- forward mode --------------------------------------------------------------------------------------------------


class OverBatch(NamedTuple):
    """A rule of tensors (*b, .) of which the first has all batch axes; a mapped axis becomes one of them."""

    rule: Callable[..., Any]

    def __call__(self, *tensors: Tensor) -> Any:
        return self.rule(*tensors)

    @staticmethod
    def arguments(size: int, dims: tuple[Any, ...], tensors: tuple[Tensor, ...]) -> list[Tensor]:
        """Tensors with the mapped axis in front."""
        inner = tensors[0].dim() - 1 - (dims[0] is not None)
        out = []
        for value, dim in zip(tensors, dims):
            front = value.unsqueeze(0) if dim is None else value.movedim(dim, 0)
            front = front.reshape(len(front), *[1] * (inner + 2 - front.dim()), *front.shape[1:])
            out.append(front.expand(size, *front.shape[1:]).contiguous())
        return out


class Expression(torch.autograd.Function):
    """What a rule makes of tensors, as one function.

    Inside a forward-mode rule PyTorch follows nothing but functions of this kind, so that an outer forward mode would
    find that all other operations have the derivative zero.
    """

    @staticmethod
    def forward(rule: Callable[..., Any], *tensors: Tensor) -> Any:
        return rule(*tensors) if all(map(ops.has_memory, tensors)) else _row_by_row(rule, tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.rule, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        tensors, whole = ctx.saved_tensors, ctx.rule

        def pulled(*both: Tensor) -> Any:
            rule, reals = _of_reals(whole, both[: len(tensors)])
            found, pull = vjp(rule, *reals)
            weights = both[len(tensors) :]
            return pull(weights if isinstance(found, tuple) else weights[0])

        batched = isinstance(whole, OverBatch)
        both = (*tensors, *grads)
        moved = iter(Expression.apply(OverBatch(pulled), *both) if batched else pulled(*both))
        return None, *(next(moved) if t.is_floating_point() else None for t in tensors)

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
        tensors, whole = ctx.saved_for_forward, ctx.rule
        steps = [
            torch.zeros_like(x) if t is None else t
            for x, t in zip(tensors, tangents)
            if x.is_floating_point()
        ]

        def along(*both: Tensor) -> Any:
            """The derivative of the rule along a direction: that of the pull, which is linear, is the push."""
            rule, reals = _of_reals(whole, both[: len(tensors)])
            found, pull = vjp(rule, *reals)
            many = isinstance(found, tuple)
            nothing = tuple(map(torch.zeros_like, found)) if many else (torch.zeros_like(found),)
            _, push = vjp(lambda *weights: pull(weights if many else weights[0]), *nothing)
            moved = push(both[len(tensors) :])
            return moved if many else moved[0]

        rule = OverBatch(along) if isinstance(whole, OverBatch) else along
        return Expression.apply(rule, *tensors, *steps)

    @staticmethod
    def vmap(info: Any, in_dims: Any, rule: Callable[..., Any], *tensors: Tensor) -> Any:
        if isinstance(rule, OverBatch):
            found = Expression.apply(rule, *rule.arguments(info.batch_size, in_dims[1:], tensors))
        else:
            found = Expression.apply(torch.func.vmap(rule, in_dims=in_dims[1:]), *tensors)
        return found, (0,) * len(found) if isinstance(found, tuple) else 0


def _of_reals(rule: Callable[..., Any], tensors: Any) -> tuple[Callable[..., Any], list[Tensor]]:
    """A rule as one of those of its tensors that can have derivatives, and these."""

    def of_reals(*reals: Tensor) -> Any:
        left = iter(reals)
        return rule(*(next(left) if t.is_floating_point() else t for t in tensors))

    return of_reals, [t for t in tensors if t.is_floating_point()]


def _row_by_row(rule: Callable[..., Any], tensors: tuple[Tensor, ...]) -> Any:
    """What a rule makes of tensors that `torch.autograd` has batched: nothing but an operator is shown their rows."""
    number, many = next(_numbers), 0

    def found(*rows: Tensor) -> tuple[Tensor, ...]:
        nonlocal many
        parts = rule(*rows)
        many = len(parts) if isinstance(parts, tuple) else 0
        return tuple(part.clone() for part in (parts if many else (parts,)))

    _rules[number] = found
    try:
        parts = _of_rule(number, *tensors)
    finally:
        del _rules[number]
    return parts[:many] if many else parts[0]


_numbers = itertools.count()
_rules: dict[int, Callable[..., tuple[Tensor, ...]]] = {}  # only while one of them is evaluated


def _evaluate(number: int, *tensors: Tensor | None) -> Any:
    given = [part for part in tensors if part is not None]
    parts = _rules[number](*given)
    return *parts, *(given[0].new_empty(0) for _ in range(3 - len(parts)))


_of_rule = torch.library.custom_op(
    "tallytree::rule",
    _evaluate,
    mutates_args=(),
    schema=f"(int number, {', '.join(f'Tensor? {name}=None' for name in 'abcdefgh')}) -> (Tensor, Tensor, Tensor)",
)


def expression(rule: Callable[..., Any], *arguments: Tensor | None) -> Any:
    """The outputs of a rule, differentiable inside forward-mode rules too; arguments may be None.

    A rule refers to the context that it belongs to, which keeps the structure alive.
    """

    def of_tensors(*tensors: Tensor) -> Any:
        left = iter(tensors)
        return rule(*(None if value is None else next(left) for value in arguments))

    return Expression.apply(of_tensors, *(value for value in arguments if value is not None))


# -- log Z and expectations ----------------------------------------------------------------------------------------


class Sums(Function):
    """Log Z (*b,) and, if asked for, marginals (*b, D) and count probabilities (*b, T); and the solved models."""

    operator = ops.sums

    @staticmethod
    def forward(*arguments: Any) -> Any:
        return (*ops.sums(*arguments), None)[:4]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        Function.setup_context(ctx, inputs, output)
        ctx.solved = output[3] if len(output) > 3 else None
        ctx.save_for_backward(*inputs[:2], *output[1:3])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        by_norm, by_marginals, by_counts = grads[:3]
        logits, tables, marginals, probs = ctx.saved_tensors
        key, with_marginals, with_counts = ctx.numbers[:3]
        wants_tables = tables is not None and ctx.needs_input_grad[1]
        found_logits, found_tables = None, None
        if by_norm is not None:
            if not with_marginals or (wants_tables and not with_counts):
                marginals, probs = answer(ops.sums, logits, tables, key, True, wants_tables, ctx.solved)[1:3]
            found_logits = by_norm.unsqueeze(-1) * marginals
            found_tables = by_norm.unsqueeze(-1) * probs if wants_tables else None
        by_marginals = by_marginals if with_marginals else None
        by_counts = by_counts if with_counts else None
        if by_marginals is not None or by_counts is not None:
            direction = torch.zeros_like(logits) if by_marginals is None else by_marginals
            moved, moved_tables = answer(
                ops.tangent, logits, tables, direction, by_counts, key, wants_tables, ctx.solved
            )
            found_logits = moved if found_logits is None else found_logits + moved
            if wants_tables:
                found_tables = moved_tables if found_tables is None else found_tables + moved_tables
        return found_logits, shared(found_tables, tables), *[None] * len(ctx.numbers)

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, by_tables: Any, *_: Any) -> Any:
        key, with_marginals, with_counts = ctx.numbers[:3]

        def change(logits: Tensor, tables: Any, step: Any, table_step: Any) -> Tensor:
            counts = table_step is not None
            _, marginals, probs, _ = Sums.apply(logits, tables, ctx.numbers[0], True, counts, ctx.solved)
            found = torch.zeros_like(marginals[..., 0]) if step is None else (marginals * step).sum(-1)
            return found + torch.where(probs > 0.0, probs * table_step, 0.0).sum(-1) if counts else found

        point = ctx.saved_for_forward
        norm = expression(change, *point, by_logits, by_tables)
        moved = moved_tables = norm.new_zeros(*norm.shape, 0)
        if with_marginals or with_counts:
            step = torch.zeros_like(point[0]) if by_logits is None else by_logits
            found, moved_tables = Tangent.apply(*point, step, by_tables, key, with_counts, ctx.solved)
            moved = found if with_marginals else moved
        return norm, moved, moved_tables, None


class Tangent(Function):
    """The Hessian of log Z times a direction: d marginals (*b, D) and, if asked for, d count probabilities (*b, T)."""

    operator = ops.tangent

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        logits, tables, direction, table_direction = ctx.saved_tensors
        key, counts, *solved = ctx.numbers
        by_logits, by_counts = grads[0], grads[1] if counts else None
        found: list[Any] = [None] * (4 + len(ctx.numbers))
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            point = logits, tables
            found[0], moved = _third(key, point, (direction, table_direction), (by_logits, by_counts))
            found[1] = shared(moved, tables) if tables is not None else None
        if ctx.needs_input_grad[2] or ctx.needs_input_grad[3]:
            wants = table_direction is not None
            found[2], moved = answer(ops.tangent, logits, tables, by_logits, by_counts, key, wants, *solved)
            found[3] = shared(moved, table_direction) if wants else None
        return tuple(found)

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, by_tables: Any, by_direction: Any, by_pushed: Any, *_: Any) -> Any:
        def change(logits: Tensor, tables: Any, v: Any, h: Any, dx: Any, dt: Any, dv: Any, dh: Any) -> Any:
            key, counts, *solved = ctx.numbers
            nothing = torch.zeros_like(logits)
            step = nothing if dv is None else dv
            moved, moved_tables = Tangent.apply(logits, tables, step, dh, key, counts, *solved)
            if dx is not None or dt is not None:
                bent, bent_tables = _third(key, (logits, tables), (v, h), (nothing if dx is None else dx, dt))
                moved = moved + bent
                moved_tables = moved_tables + bent_tables if counts else moved_tables
            return moved, moved_tables

        return expression(change, *ctx.saved_for_forward, by_logits, by_tables, by_direction, by_pushed)


def _third(key: int, point: Any, first: Any, second: Any) -> Any:
    """The log Z in logarithms, from which derivatives beyond the second come, knows no edges."""
    structure = structure_of(key, point[0].shape[-1])
    if isinstance(structure, EdgedStructure):
        raise ParameterError(
            "Models with edges have first and second derivatives of log Z, but a higher one was asked for. "
            "Detach what need not be differentiated again."
        )
    logits, tables = point
    own = structure.packed.to(logits.device) if tables is None else tables
    nothing = logits.new_zeros(structure.n_cells)
    pairs = [(a, nothing if b is None else b) for a, b in (first, second)]
    lost = [ops.infinite_rows(a, logits) | ops.infinite_rows(b, own) for a, b in pairs]
    found = log_tree.derivative(structure, *point, *pairs)
    return tuple(part.masked_fill(lost[0] | lost[1], math.nan) for part in found)


def shared(grad: Tensor | None, tables: Tensor | None) -> Tensor | None:
    """A gradient of tables that all models share is the sum over the models."""
    if grad is None or tables is None or tables.dim() == grad.dim():
        return grad
    return grad.sum(dim=tuple(range(grad.dim() - tables.dim())))


class Entropy(Function):
    """Entropy in nats, (*b,), accurate also where it is tiny."""

    operator = ops.entropy

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        logits, tables = ctx.saved_tensors
        moved, moved_tables = _weight_covariance(logits, tables, *ctx.numbers)
        weight = -grads[0].unsqueeze(-1)
        by_tables = None if tables is None else shared(weight * moved_tables, tables)
        return weight * moved, by_tables, None

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, by_tables: Any, *_: Any) -> Any:
        def change(logits: Tensor, tables: Any, step: Any, table_step: Any) -> Tensor:
            moved, moved_tables = _weight_covariance(logits, tables, *ctx.numbers)
            found = torch.zeros_like(moved[..., 0]) if step is None else -(moved * step).sum(-1)
            return found if table_step is None else found - (moved_tables * ops.finite(table_step)).sum(-1)

        return expression(change, *ctx.saved_for_forward, by_logits, by_tables)


def _weight_covariance(logits: Tensor, tables: Tensor | None, key: int) -> Any:
    """Cov(s, log weight): the Hessian of log Z times the parameters themselves; a forced variable weighs one."""
    own = tables
    if own is None:
        free = key == structures.FREE.key
        own = logits.new_zeros(0) if free else structure_of(key, logits.shape[-1]).packed.to(logits.device)
    return answer(ops.tangent, logits, tables, ops.finite(logits), ops.finite(own), key, tables is not None)


# -- counts --------------------------------------------------------------------------------------------------------


class CountLogProbs(Function):
    """Log-probabilities of the counts of one group, (*b, n + 1), differentiable also where they underflow.

    A combination with weights g has the gradient ``sum_c g_c E[s | c] - (sum_c g_c) E[s]``. The first sum is the
    expectation of a model whose table is multiplied by ``g_c / P(c)``, once for the positive and once for the negative
    weights: two inferences in logarithms, in which no probability is ever divided by.
    """

    operator = ops.count_log_probs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        logits, tables = ctx.saved_tensors
        wants = ctx.needs_input_grad[1]
        found, moved = Pull.apply(logits, tables, grads[0], *ctx.numbers, wants)
        return found, shared(moved, tables) if wants else None, None, None

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, by_tables: Any, *_: Any) -> Any:
        def change(logits: Tensor, tables: Tensor, step: Any, table_step: Any) -> Tensor:
            step = torch.zeros_like(logits) if step is None else step
            table_step = torch.zeros_like(tables) if table_step is None else table_step
            return push(logits, tables, (step, table_step), *ctx.numbers)

        return expression(change, *ctx.saved_for_forward, by_logits, by_tables)


class Pull(Function):
    """The transposed Jacobian of log P(count) times weights (*b, n + 1): for log-odds (*b, D) and tables (*b, T).

    Rows with infinite weights, or NaN, become NaN.
    """

    @staticmethod
    def forward(
        logits: Tensor, tables: Tensor, weights: Tensor, key: int, group: int, wants: bool
    ) -> tuple[Tensor, Tensor]:
        log_probs = ops.count_log_probs(logits, tables, key, group)
        possible = log_probs > -math.inf
        weights = torch.where(possible, weights, 0.0)  # an impossible count stays impossible
        lost = ~torch.isfinite(weights).all(-1, keepdim=True)
        weights = weights.masked_fill(lost, 0.0)
        _, marginals, counts = ops.sums(logits, tables, key, True, wants)[:3]
        total = weights.sum(-1, keepdim=True)
        by_logits, by_tables = -total * marginals, -total * counts
        cells = structures.cells_of(key, logits.shape[-1], group)
        for sign in (1.0, -1.0):
            share = torch.clamp(sign * weights, min=0.0)
            mass = share.sum(-1, keepdim=True)
            if known(mass > 0.0) is False:
                continue
            # A row without weights of this sign keeps its own table; its share is zero.
            scale = torch.where(share > 0.0, share.log() - log_probs, -math.inf)
            own = _added(tables, torch.where(mass > 0.0, scale, 0.0), cells)
            _, marginals, counts = ops.sums(logits, own, key, True, wants)[:3]
            by_logits = by_logits + sign * mass * marginals
            by_tables = by_tables + sign * mass * counts
        return by_logits.masked_fill(lost, math.nan), by_tables.masked_fill(lost, math.nan)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        logits, tables, weights = ctx.saved_tensors
        wants = ctx.numbers[2]
        along = grads[0], grads[1] if wants else torch.zeros_like(tables)
        found: list[Any] = [None] * 6
        if ctx.needs_input_grad[0] or ctx.needs_input_grad[1]:
            found[0], found[1] = expression(
                lambda x, t, w, *v: _bent(x, t, w, v, *ctx.numbers[:2]), logits, tables, weights, *along
            )
        if ctx.needs_input_grad[2]:
            found[2] = expression(lambda x, t, *v: push(x, t, v, *ctx.numbers[:2]), logits, tables, *along)
        return tuple(found)

    @staticmethod
    def jvp(ctx: Any, by_logits: Any, by_tables: Any, by_weights: Any, *_: Any) -> Any:
        def change(logits: Tensor, tables: Tensor, weights: Tensor, dx: Any, dt: Any, dw: Any) -> Any:
            key, group, wants = ctx.numbers
            step = torch.zeros_like(weights) if dw is None else dw
            moved, moved_tables = Pull.apply(logits, tables, step, key, group, wants)
            if dx is not None or dt is not None:
                full = tables.expand(*logits.shape[:-1], tables.shape[-1])
                along = torch.zeros_like(logits) if dx is None else dx
                pushed = torch.zeros_like(full) if dt is None else dt
                bent, bent_tables = _bent(logits, full, weights, (along, pushed), key, group)
                moved = moved + bent
                moved_tables = moved_tables + bent_tables if wants else moved_tables
            return moved, moved_tables

        return expression(change, *ctx.saved_for_forward, by_logits, by_tables, by_weights)


def push(logits: Tensor, tables: Tensor, along: Any, key: int, group: int) -> Tensor:
    """The Jacobian of log P(count) times a direction, E[direction . s | c] - E[direction . s], (*b, n + 1).

    What is expected given a count does not depend on the table of the group, so it is asked of a model in which all
    possible counts are equally likely: no probability that is divided by is small.
    """
    cells = structures.cells_of(key, logits.shape[-1], group)
    log_probs = CountLogProbs.apply(logits.detach(), tables.detach(), key, group)
    level = _added(tables, torch.where(log_probs > -math.inf, -log_probs, 0.0), cells)
    direction = torch.where(torch.isfinite(logits), along[0], 0.0)
    pushed = ops.finite(along[1]).expand(level.shape)

    def expectation(own: Tensor) -> tuple[Tensor, Tensor]:
        _, marginals, probs, _ = Sums.apply(logits, own, key, True, True)
        return probs[..., slice(*cells)], (marginals * direction).sum(-1) + (probs * pushed).sum(-1)

    chance, mean = expectation(level)
    moved = Tangent.apply(logits, level, direction, pushed, key, True)[1][..., slice(*cells)]
    possible = chance > 0.0
    change = moved / torch.where(possible, chance, 1.0) + (mean - expectation(tables)[1]).unsqueeze(-1)
    return torch.where(possible, change, 0.0)


def _bent(logits: Tensor, tables: Tensor, weights: Tensor, along: Any, key: int, group: int) -> Any:
    """The Hessian of ``<weights, log P>`` times a direction; it is symmetric, so this is the gradient of a push."""
    return vjp(lambda x, t: push(x, t, along, key, group), logits, tables)[1](weights)


def _added(tables: Tensor, change: Tensor, cells: tuple[int, int]) -> Tensor:
    """Packed tables (*b, T) of which one group's have changed by (*b, n + 1)."""
    start, stop = cells
    full = tables.expand(*change.shape[:-1], tables.shape[-1])
    return torch.cat([full[..., :start], full[..., start:stop] + change, full[..., stop:]], dim=-1)


# -- configurations, which have no derivatives ---------------------------------------------------------------------


class Mode(Function):
    """A most probable configuration, (*b, D), uint8."""

    operator = ops.mode


class Draw(Function):
    """Exact joint samples (count, *b, D) of zeros and ones, uint8."""

    operator = ops.draw

    @staticmethod
    def mapped(call: Any, size: int, dims: Any, *arguments: Any) -> Any:
        """Rows of one call are independent, so that one of many seeds will do; a seed that all share stays shared."""
        logits, tables, seed, key, count = arguments
        x, t = as_batch(size, dims[:2], (logits, tables))
        if dims[2] is None:
            own = [t] * size if t is None or t.dim() < x.dim() else t
            return torch.stack([call(row, table, seed, key, count) for row, table in zip(x, own)]), 0
        return call(x.contiguous(), t, seed.movedim(dims[2], 0)[0], key, count), 1
