"""The operators that PyTorch sees: pure functions of tensors, with shapes that a compiler can know beforehand.

CPU tensors go to the engine of :mod:`tallytree`; other devices to the code of :mod:`.device`. Everything is float64;
log-odds are (*b, D), packed tables (T,) or (*b, T) or None, and answers that are not wanted are empty, (*b, 0).
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import ParameterError
from ..models.count import CountModel
from . import device, edge_products, recent
from .edges import EdgedStructure
from .structure import Structure, structure_of


class Operator:
    """An operator that PyTorch can trace; plain tensors go to its function directly, which is quicker.

    `empty` makes tensors like the answers, for compilers.
    """

    def __init__(self, name: str, function: Any, empty: Any) -> None:
        self.function = function
        self.__signature__ = inspect.signature(
            function
        )  # which PyTorch asks for at every call of a derivative
        self.op = torch.library.custom_op(f"tallytree::{name}", function, mutates_args=())
        self.op.register_fake(empty)

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
    if _by_device(structure, logits):
        return device.sums(structure, logits, tables, marginals, counts)
    if logits.device.type != "cpu":
        return _by_host(_sums, logits, tables, key, marginals, counts)
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


def _empty_sums(logits: Tensor, tables: Tensor | None, key: int, marginals: bool, counts: bool) -> Any:
    widths = logits.shape[-1] if marginals else 0, structure_of(key).n_cells if counts else 0
    return logits.new_empty(logits.shape[:-1]), *(logits.new_empty(*logits.shape[:-1], w) for w in widths)


sums = Operator("sums", _sums, _empty_sums)


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
    cells = structure.n_cells if counts else 0
    if _by_device(structure, logits):
        return device.tangent(structure, logits, tables, direction, table_direction, counts)
    if logits.device.type != "cpu":
        return _by_host(_tangent, logits, tables, direction, table_direction, key, counts)
    if not logits.numel():
        return torch.zeros_like(logits), logits.new_zeros(*logits.shape[:-1], cells)
    _refuse_infinite(direction, logits)
    if isinstance(structure, EdgedStructure):
        return _edged_tangent(structure, logits, tables, direction, table_direction, counts)
    model = recent.find(logits, tables, key) or _model(structure, logits, tables)
    pushed = None if table_direction is None or not structure.n_cells else _array(finite(table_direction))
    moved = model.hessian_vector_product(_array(direction), pushed, counts=counts)
    packed = np.concatenate([np.empty((*logits.shape[:-1], 0)), *(moved.tables if counts else ())], axis=-1)
    return _tensor(moved.logits, logits.shape), _tensor(packed, packed.shape)


def _refuse_infinite(direction: Tensor, logits: Tensor) -> None:
    """A direction is the gradient of a loss as a rule, which the user has not seen; what is decided may not move."""
    sound = torch.isfinite(direction)
    if not bool(sound.all()) and not bool((sound | ~torch.isfinite(logits)).all()):
        raise ParameterError(
            "Derivatives of marginals need finite directions, but an infinite one, or NaN, arrived from what depends "
            "on the marginals. A loss that is infinite has no gradient: look for a divergence from a model that "
            "excludes what is possible here, for the logarithm of a marginal that is zero, or for an overflow."
        )


def _empty_tangent(logits: Tensor, *arguments: Any) -> Any:
    key, counts = arguments[-2:]
    return empty_like(logits), logits.new_empty(
        *logits.shape[:-1], structure_of(key).n_cells if counts else 0
    )


tangent = Operator("tangent", _tangent, _empty_tangent)


def _count_log_probs(logits: Tensor, tables: Tensor | None, key: int, group: int) -> Tensor:
    """Log-probabilities of the counts of one group, (*b, n + 1)."""
    structure = structure_of(key)
    if device.has_kernels(logits) and _by_device(structure, logits):
        return device.count_log_probs(structure, logits, tables, group)
    if logits.device.type != "cpu":
        return _by_host(_count_log_probs, logits, tables, key, group)
    found = _model(structure, logits, tables)._counts(group)
    return _tensor(found, (*logits.shape[:-1], found.shape[-1]))


def _empty_counts(logits: Tensor, tables: Tensor | None, key: int, group: int) -> Tensor:
    return logits.new_empty(*logits.shape[:-1], structure_of(key).tree.group_size(group) + 1)


count_log_probs = Operator("count_log_probs", _count_log_probs, _empty_counts)


def _draw(logits: Tensor, tables: Tensor | None, seed: Tensor, key: int, count: int) -> Tensor:
    """Exact joint samples (count, *b, D) of zeros and ones, uint8; `seed` is one integer."""
    structure = structure_of(key)
    if device.has_kernels(logits) and _by_device(structure, logits) and count:
        return device.draw(structure, logits, tables, seed, count)
    if logits.device.type != "cpu":
        return _by_host(_draw, logits, tables, seed, key, count)
    drawn = _model(structure, logits, tables).sample(count, rng=int(seed))
    return _tensor(drawn, (count, *logits.shape))


def _empty_draws(logits: Tensor, tables: Tensor | None, seed: Tensor, key: int, count: int) -> Tensor:
    return logits.new_empty(count, *logits.shape, dtype=torch.uint8)


draw = Operator("draw", _draw, _empty_draws)


def _mode(logits: Tensor, tables: Tensor | None, key: int) -> Tensor:
    """A most probable configuration, (*b, D), uint8."""
    structure = structure_of(key)
    if device.has_kernels(logits) and _by_device(structure, logits):
        return device.mode(structure, logits, tables)
    if logits.device.type != "cpu":
        return _by_host(_mode, logits, tables, key)
    return _tensor(_model(structure, logits, tables).mode(), logits.shape)


mode = Operator("mode", _mode, lambda logits, tables, key: logits.new_empty(logits.shape, dtype=torch.uint8))


def _entropy(logits: Tensor, tables: Tensor | None, key: int) -> Tensor:
    """Entropy in nats, (*b,), accurate also where it is tiny."""
    structure = structure_of(key)
    if device.has_kernels(logits) and _by_device(structure, logits):
        return _device_entropy(structure, logits, tables)
    return _by_host(_host_entropy, logits, tables, key)


def _host_entropy(logits: Tensor, tables: Tensor | None, key: int) -> Tensor:
    found = np.array(_model(structure_of(key), logits, tables).entropy, np.float64)
    return _tensor(found, logits.shape[:-1])


def _device_entropy(structure: Structure, logits: Tensor, tables: Tensor | None) -> Tensor:
    """On the device, except small ones, which cancel: those rows, and only they, go to the engine."""
    found, sound = device.entropy(structure, logits, tables)
    if not bool(sound.all()):
        packed = structure.packed_on(logits.device) if tables is None else tables
        small = torch.nonzero(~sound).squeeze(-1)
        x = logits.reshape(len(found), -1)[small]
        if packed.dim() > 1:
            packed = packed.expand(*logits.shape[:-1], packed.shape[-1]).reshape(len(found), -1)[small]
        found[small] = _by_host(_host_entropy, x, packed, structure.opened.key)
    return found.reshape(logits.shape[:-1])


entropy = Operator("entropy", _entropy, lambda logits, tables, key: logits.new_empty(logits.shape[:-1]))


# -- models with edges ---------------------------------------------------------------------------------------------


def _edged_tangent(
    structure: EdgedStructure,
    logits: Tensor,
    tables: Tensor | None,
    direction: Tensor,
    table_direction: Tensor | None,
    counts: bool,
) -> tuple[Tensor, Tensor]:
    shape = logits.shape[:-1]
    rows = math.prod(shape)
    x, t = _array(logits).reshape(rows, -1), _rows_of(structure.packed if tables is None else tables, shape)
    moves = _array(direction.expand(logits.shape)).reshape(rows, -1)
    h = None if table_direction is None else finite(table_direction)
    pushed = None if h is None else _array(h.expand(*shape, h.shape[-1])).reshape(rows, -1)
    moved, probs = edge_products.hessian_product(
        structure, structure.model(x, t), (x, t), moves, pushed, counts
    )
    return _tensor(moved, logits.shape), _tensor(probs, (*shape, probs.shape[-1]))


def _rows_of(tables: Tensor, shape: Any) -> Any:
    """Packed tables as (T,) or (B, T)."""
    if tables.dim() == 1:
        return _array(tables)
    return _array(tables.expand(*shape, tables.shape[-1])).reshape(math.prod(shape), -1)


# -- between the two worlds ----------------------------------------------------------------------------------------


def _by_host(function: Any, logits: Tensor, *arguments: Any) -> Any:
    """The answer of the host, on the device of the log-odds."""
    found = function(*(v.cpu() if isinstance(v, Tensor) else v for v in (logits, *arguments)))
    if isinstance(found, Tensor):
        return found.to(logits.device)
    return tuple(part.to(logits.device) for part in found)


def empty_like(logits: Tensor) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


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


def finite(direction: Tensor) -> Tensor:
    """A direction without the entries of impossible counts, which change nothing."""
    return torch.where(torch.isfinite(direction), direction, 0.0)
