"""The operators that PyTorch sees: pure functions of tensors, with shapes that a compiler can know beforehand.

CPU tensors go to the engine of :mod:`tallytree`; other devices to the code of :mod:`.device`. Everything is float64;
log-odds are (*b, D), packed tables (T,) or (*b, T) or None, and answers that are not wanted are empty, (*b, 0).
"""

from __future__ import annotations

import math
from typing import Any

import array_api_compat.numpy as xp
import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from ..engine.count.tangent import tangent_pass
from ..models.count import CountModel
from . import device, edge_products, recent
from .edges import EdgedStructure
from .structure import Structure, structure_of


class Operator:
    """An operator that PyTorch can trace; plain tensors go to its function directly, which is quicker."""

    def __init__(self, name: str, function: Any) -> None:
        self.function = function
        self.op = torch.library.custom_op(f"tallytree::{name}", function, mutates_args=())

    def __call__(self, logits: Tensor, *arguments: Any) -> Any:
        if torch.compiler.is_compiling() or not all(map(_is_plain, (logits, *arguments))):
            return self.op(logits, *arguments)
        return self.function(logits, *arguments)


def _is_plain(tensor: Any) -> bool:
    """Whether nobody watches: no tracing mode, no wrapper, nothing to record."""
    return not isinstance(tensor, Tensor) or (
        type(tensor) is Tensor
        and not torch._C._len_torch_dispatch_stack()
        and torch._C._functorch.maybe_get_level(tensor) == -1
        and not (tensor.requires_grad and torch.is_grad_enabled())
    )


def _sums(
    logits: Tensor, tables: Tensor | None, key: int, marginals: bool, counts: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Log Z (*b,), marginals (*b, D) and the probabilities of the counts of all groups (*b, T)."""
    structure = structure_of(key)
    if isinstance(structure, EdgedStructure) and logits.device.type != "cpu":
        here, own = _on_host(logits, tables)
        found = _sums(here, own, key, marginals, counts)
        return found[0].to(logits.device), found[1].to(logits.device), found[2].to(logits.device)
    if _by_device(structure, logits):
        return device.sums(structure, logits, tables, marginals, counts)
    model = _model(structure, logits, tables)
    shape = logits.shape[:-1]
    log_z = np.array(model.log_partition, np.float64)
    means = model._solved.marginals() if marginals else np.empty((math.prod(shape), 0))
    recent.keep(model, logits, tables, key)
    return (
        _tensor(log_z, shape),
        _tensor(means, (*shape, means.shape[-1])),
        _all_counts(structure, model, shape) if counts else logits.new_empty(*shape, 0),
    )


sums = Operator("sums", _sums)


@sums.op.register_fake
def _(logits: Tensor, tables: Tensor | None, key: int, marginals: bool, counts: bool) -> Any:
    shape, structure = logits.shape[:-1], structure_of(key)
    return (
        logits.new_empty(shape),
        logits.new_empty(*shape, logits.shape[-1] if marginals else 0),
        logits.new_empty(*shape, structure.n_cells if counts else 0),
    )


def _tangent(
    logits: Tensor,
    tables: Tensor | None,
    direction: Tensor,
    table_direction: Tensor | None,
    key: int,
    counts: bool,
) -> tuple[Tensor, Tensor]:
    """The Hessian of log Z times a direction: d marginals (*b, D) and d count probabilities (*b, T)."""
    structure = structure_of(key)
    if isinstance(structure, EdgedStructure):
        return _edged_tangent(structure, logits, tables, direction, table_direction, counts)
    if device.serves(logits):
        return device.tangent(structure, logits, tables, direction, table_direction, counts)
    if not logits.numel():
        return torch.zeros_like(logits), logits.new_zeros(
            *logits.shape[:-1], structure.n_cells if counts else 0
        )
    model = recent.find(logits, tables, key) or _model(structure, logits, tables)
    pushed = None if table_direction is None or not structure.n_cells else _array(_finite(table_direction))
    moved = model.hessian_vector_product(_array(direction), pushed, counts=counts)
    shape = logits.shape[:-1]
    packed = (
        np.concatenate([np.empty((*shape, 0)), *moved.tables], axis=-1) if counts else np.empty((*shape, 0))
    )
    return _tensor(moved.logits, logits.shape), _tensor(packed, packed.shape)


tangent = Operator("tangent", _tangent)


@tangent.op.register_fake
def _(
    logits: Tensor,
    tables: Tensor | None,
    direction: Tensor,
    table_direction: Tensor | None,
    key: int,
    counts: bool,
) -> Any:
    cells = structure_of(key).n_cells if counts else 0
    return torch.empty_like(logits, memory_format=torch.contiguous_format), logits.new_empty(
        *logits.shape[:-1], cells
    )


def _count_log_probs(logits: Tensor, tables: Tensor | None, key: int, group: int) -> Tensor:
    """Log-probabilities of the counts of one group, (*b, n + 1)."""
    structure = structure_of(key)
    if _by_device(structure, logits) and device.has_kernels(logits):
        return device.count_log_probs(structure, logits, tables, group)
    if logits.device.type != "cpu":
        here, own = _on_host(logits, tables)
        return _count_log_probs(here, own, key, group).to(logits.device)
    found = _model(structure, logits, tables)._counts(group)
    return _tensor(found, (*logits.shape[:-1], found.shape[-1]))


count_log_probs = Operator("count_log_probs", _count_log_probs)


@count_log_probs.op.register_fake
def _(logits: Tensor, tables: Tensor | None, key: int, group: int) -> Tensor:
    return logits.new_empty(*logits.shape[:-1], structure_of(key).tree.group_size(group) + 1)


def _count_push(
    logits: Tensor,
    tables: Tensor | None,
    direction: Tensor,
    table_direction: Tensor | None,
    key: int,
    group: int,
) -> Tensor:
    """Derivative of the log-probabilities of one group's counts along a direction, (*b, n + 1)."""
    structure = structure_of(key)
    if logits.device.type != "cpu":
        here, own = _on_host(logits, tables)
        move, pushed = _on_host(direction, table_direction)
        return _count_push(here, own, move, pushed, key, group).to(logits.device)
    if isinstance(structure, EdgedStructure):
        return _edged_push(structure, logits, tables, direction, table_direction, group)
    model = _model(structure, logits, tables)
    pushed = None if table_direction is None else _array(_finite(table_direction))
    nu_direction, packed_direction = model._params.direction(_array(direction), pushed)
    # The pass in logarithms: ratios of derivatives to values are right also where probabilities underflow.
    problem = model._solved.problem
    tables_of_rows = np.broadcast_to(problem.tables, (len(problem.nu), problem.tables.shape[1]))
    with np.errstate(all="ignore"):
        found_tangent = tangent_pass(
            xp, structure.schedule, problem.nu, tables_of_rows, nu_direction, packed_direction
        )
    change, packed = np.asarray(found_tangent.logits), np.asarray(found_tangent.tables)
    family = structure.tree.family
    s = int(family.set_of_group[group])
    if s >= 0:
        found = packed[:, family.set_offset[s] : family.set_offset[s + 1]]
    else:
        odds, moved = (x[:, int(family.variable_of_group[group])] for x in (model._odds, change))
        moved = np.where(np.isfinite(odds), moved, 0.0)
        found = np.stack([-expit(odds) * moved, expit(-odds) * moved], axis=-1)
    return _tensor(np.array(found), (*logits.shape[:-1], found.shape[-1]))


count_push = Operator("count_push", _count_push)


@count_push.op.register_fake
def _(
    logits: Tensor,
    tables: Tensor | None,
    direction: Tensor,
    table_direction: Tensor | None,
    key: int,
    group: int,
) -> Tensor:
    return logits.new_empty(*logits.shape[:-1], structure_of(key).tree.group_size(group) + 1)


def _draw(logits: Tensor, tables: Tensor | None, seed: Tensor, key: int, count: int) -> Tensor:
    """Exact joint samples (count, *b, D) of zeros and ones, uint8; `seed` is one integer."""
    structure = structure_of(key)
    if _by_device(structure, logits) and device.has_kernels(logits) and count:
        return device.draw(structure, logits, tables, seed, count)
    if logits.device.type != "cpu":
        here, own = _on_host(logits, tables)
        return _draw(here, own, seed, key, count).to(logits.device)
    drawn = _model(structure, logits, tables).sample(count, rng=int(seed))
    return _tensor(drawn, (count, *logits.shape))


draw = Operator("draw", _draw)


@draw.op.register_fake
def _(logits: Tensor, tables: Tensor | None, seed: Tensor, key: int, count: int) -> Tensor:
    return logits.new_empty(count, *logits.shape, dtype=torch.uint8)


def _mode(logits: Tensor, tables: Tensor | None, key: int) -> Tensor:
    """A most probable configuration, (*b, D), uint8."""
    structure = structure_of(key)
    if _by_device(structure, logits) and device.has_kernels(logits):
        return device.mode(structure, logits, tables)
    found = _model(structure, logits.cpu(), None if tables is None else tables.cpu()).mode()
    return _tensor(found, logits.shape).to(logits.device)


mode = Operator("mode", _mode)


@mode.op.register_fake
def _(logits: Tensor, tables: Tensor | None, key: int) -> Tensor:
    return logits.new_empty(logits.shape, dtype=torch.uint8)


def _entropy(logits: Tensor, tables: Tensor | None, key: int) -> Tensor:
    """Entropy in nats, (*b,), accurate also where it is tiny."""
    structure = structure_of(key)
    if _by_device(structure, logits) and device.has_kernels(logits):
        return _device_entropy(structure, logits, tables)
    model = _model(structure, logits.cpu(), None if tables is None else tables.cpu())
    return _tensor(np.array(model.entropy, np.float64), logits.shape[:-1]).to(logits.device)


def _device_entropy(structure: Structure, logits: Tensor, tables: Tensor | None) -> Tensor:
    """On the device, except small ones, which cancel: those rows, and only they, go to the engine."""
    found, sound = device.entropy(structure, logits, tables)
    if not bool(sound.all()):
        packed = structure.packed_on(logits.device) if tables is None else tables
        small = torch.nonzero(~sound).squeeze(-1)
        x = logits.reshape(len(found), -1)[small].cpu()
        if packed.dim() > 1:
            packed = packed.expand(*logits.shape[:-1], packed.shape[-1]).reshape(len(found), -1)[small]
        model = _model(structure.opened, x, packed.cpu())
        found[small] = _tensor(np.array(model.entropy, np.float64), (len(small),)).to(found.device)
    return found.reshape(logits.shape[:-1])


entropy = Operator("entropy", _entropy)


@entropy.op.register_fake
def _(logits: Tensor, tables: Tensor | None, key: int) -> Tensor:
    return logits.new_empty(logits.shape[:-1])


# -- models with edges ---------------------------------------------------------------------------------------------


def _edged_tangent(
    structure: EdgedStructure,
    logits: Tensor,
    tables: Tensor | None,
    direction: Tensor,
    table_direction: Tensor | None,
    counts: bool,
) -> tuple[Tensor, Tensor]:
    shape, cells = logits.shape[:-1], structure.n_cells if counts else 0
    if not logits.numel():
        return torch.zeros_like(logits), logits.new_zeros(*shape, cells)
    here, packed, v, h = _on_host(logits, tables, direction, table_direction)
    rows = math.prod(shape)
    x, t = _array(here).reshape(rows, -1), _rows_of(structure.packed if packed is None else packed, shape)
    model = structure.model(x, t)
    moves = _array(v.expand(logits.shape)).reshape(rows, -1)
    pushed = None if h is None else _array(_finite(h).expand(*shape, h.shape[-1])).reshape(rows, -1)
    moved, probs = edge_products.hessian_product(structure, model, (x, t), moves, pushed, counts)
    return (
        _tensor(moved, logits.shape).to(logits.device),
        _tensor(probs, (*shape, cells)).to(logits.device),
    )


def _edged_push(
    structure: EdgedStructure,
    logits: Tensor,
    tables: Tensor | None,
    direction: Tensor,
    table_direction: Tensor | None,
    group: int,
) -> Tensor:
    """The derivative of log P(c), E[direction . s | c] - E[direction . s]: one model per count."""
    packed = structure.packed if tables is None else tables
    shape, (start, stop) = logits.shape[:-1], structure.cells(group)
    n = stop - start
    only = torch.full((n, n), -math.inf, dtype=torch.float64).fill_diagonal_(0.0)
    wide = packed.expand(*shape, packed.shape[-1]).unsqueeze(-2).expand(*shape, n, packed.shape[-1])
    fixed = torch.cat([wide[..., :start], wide[..., start:stop] + only, wide[..., stop:]], dim=-1)
    log_probs = _count_log_probs(logits, tables, structure.key, group)
    possible = log_probs > -math.inf
    # Impossible counts keep their model's own tables, and do not move.
    fixed = torch.where(possible[..., None], fixed, wide)
    x = logits.unsqueeze(-2).expand(*shape, n, logits.shape[-1])
    v = torch.where(torch.isfinite(logits), direction.expand(logits.shape), 0.0)
    h = torch.zeros_like(packed) if table_direction is None else _finite(table_direction)

    def along(point: Tensor, own: Tensor, step: Tensor, push: Tensor) -> Tensor:
        _, marginals, probs = _sums(point, own, structure.key, True, True)
        return (marginals * step).sum(-1) + (probs * push).sum(-1)

    push = h.expand(*shape, h.shape[-1])
    mean = along(logits, packed, v, push)
    given = along(x, fixed, v.unsqueeze(-2), push.unsqueeze(-2))
    return torch.where(possible, given - mean.unsqueeze(-1), 0.0)


def _rows_of(tables: Tensor, shape: Any) -> Any:
    """Packed tables as (T,) or (B, T)."""
    if tables.dim() == 1:
        return _array(tables)
    return _array(tables.expand(*shape, tables.shape[-1])).reshape(math.prod(shape), -1)


# -- between the two worlds ----------------------------------------------------------------------------------------


def _on_host(*tensors: Tensor | None) -> list[Any]:
    return [None if tensor is None else tensor.cpu() for tensor in tensors]


def _array(tensor: Tensor) -> Any:
    """A view of the tensor's memory where its layout allows."""
    return tensor.detach().numpy()


def _tensor(array: Any, shape: Any) -> Tensor:
    """A tensor over the array's memory; what a model keeps for itself is copied."""
    found = np.ascontiguousarray(array).reshape(tuple(shape))
    return torch.from_numpy(found if found.flags.writeable else found.copy())


def _model(structure: Structure, logits: Tensor, tables: Tensor | None) -> CountModel:
    return structure.model(_array(logits), None if tables is None else _array(tables))


def _by_device(structure: Structure, logits: Tensor) -> bool:
    """Whether the code for devices answers; models with edges are solved on the host."""
    return device.serves(logits) and not isinstance(structure, EdgedStructure)


def _all_counts(structure: Structure, model: CountModel, shape: Any) -> Tensor:
    if isinstance(structure, EdgedStructure):
        return _tensor(edge_products.all_statistics(model, tuple(shape)), (*shape, structure.n_cells))
    packed = np.concatenate([np.empty((*shape, 0)), *model.expected_statistics.tables], axis=-1)
    return _tensor(packed, packed.shape)


def _finite(direction: Tensor) -> Tensor:
    """A direction without the entries of impossible counts, which change nothing."""
    return torch.where(torch.isfinite(direction), direction, 0.0)
