"""The operators that PyTorch sees: pure functions of tensors, with shapes that a compiler can know beforehand.

Two modules have the same verbs: :mod:`.host` for CPU tensors, :mod:`.device` for others. Everything is float64;
log-odds are (*b, D), packed tables (T,) or (*b, T) or None, and answers that are not wanted are empty, (*b, 0).
"""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from torch import Tensor

from . import device, host
from .edges import EdgedStructure
from .structure import structure_of


class Operator:
    """An operator that PyTorch can trace; tensors with numbers go to a function directly, which is quicker.

    `empty` makes tensors like the answers, for compilers. The function may take a solved model after the arguments of
    the operator, and answer with one after its tensors.
    """

    rules: Any  # derivatives and mapped axes; see :mod:`.autograd`

    def __init__(self, name: str, function: Any, empty: Any, direct: Any = None) -> None:
        self.direct = direct or function
        self.width = len(inspect.signature(function).parameters)
        self.op = torch.library.custom_op(f"tallytree::{name}", function, mutates_args=())
        self.op.register_fake(empty)

    def __call__(self, *arguments: Any) -> Any:
        if torch.compiler.is_compiling() or not all(map(has_memory, arguments)):
            return self.op(*arguments[: self.width])
        return self.direct(*arguments)


def has_memory(value: Any) -> bool:
    """Whether there are numbers to be read now: not while they are traced or mapped."""
    if not isinstance(value, Tensor):
        return True
    try:
        return value.data_ptr() != 0 or value.numel() == 0
    except RuntimeError:
        return False


def _answer(verb: str, key: int, logits: Tensor, *arguments: Any, solved: Any = None) -> Any:
    """By the device, or by the host: models with edges, and what the kernels that are missing would answer."""
    structure = structure_of(key)
    able = device.serves(logits) and not isinstance(structure, EdgedStructure)
    if able and (device.has_kernels(logits) or verb in ("sums", "tangent")):
        return getattr(device, verb)(structure, logits, *arguments)
    function, more = getattr(host, verb), {} if solved is None else {"solved": solved}
    if logits.device.type == "cpu":
        return function(structure, logits, *arguments, **more)
    found = function(structure, *(v.cpu() if isinstance(v, Tensor) else v for v in (logits, *arguments)))
    if isinstance(found, Tensor):
        return found.to(logits.device)
    return tuple(part.to(logits.device) for part in found if isinstance(part, Tensor))


def _sums(
    logits: Tensor, tables: Tensor | None, key: int, marginals: bool, counts: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Log Z (*b,), marginals (*b, D) and the probabilities of the counts of all groups (*b, T)."""
    log_z, means, probs = _sums_of(logits, tables, key, marginals, counts)[:3]
    return log_z, means, probs


def _sums_of(
    logits: Tensor, tables: Tensor | None, key: int, marginals: bool, counts: bool, solved: Any = None
) -> Any:
    """The same, with the models that were solved on the way, if the host did; they may be given the next time."""
    return _answer("sums", key, logits, tables, marginals, counts, solved=solved)


def _empty_sums(logits: Tensor, tables: Tensor | None, key: int, marginals: bool, counts: bool) -> Any:
    widths = logits.shape[-1] if marginals else 0, structure_of(key).n_cells if counts else 0
    return logits.new_empty(logits.shape[:-1]), *(logits.new_empty(*logits.shape[:-1], w) for w in widths)


sums = Operator("sums", _sums, _empty_sums, _sums_of)


def _tangent(
    logits: Tensor,
    tables: Tensor | None,
    direction: Tensor,
    table_direction: Tensor | None,
    key: int,
    counts: bool,
) -> tuple[Tensor, Tensor]:
    """The Hessian of log Z times a direction: d marginals (*b, D) and d count probabilities (*b, T)."""
    return _tangent_of(logits, tables, direction, table_direction, key, counts)


def _tangent_of(
    logits: Tensor,
    tables: Tensor | None,
    direction: Tensor,
    table_direction: Tensor | None,
    key: int,
    counts: bool,
    solved: Any = None,
) -> tuple[Tensor, Tensor]:
    """The same, of models that may have been solved before; rows with an infinite direction, or NaN, become NaN."""
    structure = structure_of(key)
    if not logits.numel():
        cells = structure.n_cells if counts else 0
        return torch.zeros_like(logits), logits.new_zeros(*logits.shape[:-1], cells)
    lost = infinite_rows(direction, logits)
    if table_direction is not None:
        own = structure.packed_on(logits.device) if tables is None else tables
        lost = lost | infinite_rows(table_direction, own)
        table_direction = finite(table_direction)
    spoiled = lost.device.type != "cpu" or bool(lost.any())  # without looking, where that would take time
    given = finite(direction) if spoiled else direction
    moved, probs = _answer("tangent", key, logits, tables, given, table_direction, counts, solved=solved)
    if not spoiled:
        return moved, probs
    return moved.masked_fill(lost, math.nan), probs.masked_fill(lost, math.nan)


def infinite_rows(direction: Tensor, parameters: Tensor) -> Tensor:
    """Rows (*b, 1) with a direction that is infinite or NaN where the parameter is not: nothing else depends on it."""
    return (~torch.isfinite(direction) & torch.isfinite(parameters)).any(-1, keepdim=True)


def finite(direction: Tensor) -> Tensor:
    """A direction without the entries of impossible counts, which change nothing."""
    return torch.where(torch.isfinite(direction), direction, 0.0)


def _empty_tangent(logits: Tensor, *arguments: Any) -> Any:
    key, counts = arguments[-2:]
    cells = structure_of(key).n_cells if counts else 0
    return empty_like(logits), logits.new_empty(*logits.shape[:-1], cells)


def empty_like(logits: Tensor) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


tangent = Operator("tangent", _tangent, _empty_tangent, _tangent_of)


def _count_log_probs(logits: Tensor, tables: Tensor | None, key: int, group: int) -> Tensor:
    """Log-probabilities of the counts of one group, (*b, n + 1)."""
    found: Tensor = _answer("count_log_probs", key, logits, tables, group)
    return found


def _empty_counts(logits: Tensor, tables: Tensor | None, key: int, group: int) -> Tensor:
    return logits.new_empty(*logits.shape[:-1], structure_of(key).tree.group_size(group) + 1)


count_log_probs = Operator("count_log_probs", _count_log_probs, _empty_counts)


def _draw(logits: Tensor, tables: Tensor | None, seed: Tensor, key: int, count: int) -> Tensor:
    """Exact joint samples (count, *b, D) of zeros and ones, uint8; `seed` is one integer."""
    if not count:
        return _empty_draws(logits, tables, seed, key, count)
    found: Tensor = _answer("draw", key, logits, tables, seed, count)
    return found


def _empty_draws(logits: Tensor, tables: Tensor | None, seed: Tensor, key: int, count: int) -> Tensor:
    return logits.new_empty(count, *logits.shape, dtype=torch.uint8)


draw = Operator("draw", _draw, _empty_draws)


def _mode(logits: Tensor, tables: Tensor | None, key: int) -> Tensor:
    """A most probable configuration, (*b, D), uint8."""
    found: Tensor = _answer("mode", key, logits, tables)
    return found


mode = Operator("mode", _mode, lambda logits, tables, key: logits.new_empty(logits.shape, dtype=torch.uint8))


def _entropy(logits: Tensor, tables: Tensor | None, key: int) -> Tensor:
    """Entropy in nats, (*b,), accurate also where it is tiny."""
    found: Tensor = _answer("entropy", key, logits, tables)
    return found


entropy = Operator("entropy", _entropy, lambda logits, tables, key: logits.new_empty(logits.shape[:-1]))
