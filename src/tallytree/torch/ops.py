"""The operators that PyTorch sees: pure functions of tensors, with shapes that a compiler can know beforehand.

Two modules have the same verbs: :mod:`.host` for CPU tensors, :mod:`.device` for others. Everything is float64;
log-odds are (*b, D), packed tables (T,) or (*b, T) or None, and answers that are not wanted are empty, (*b, 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import ParameterError
from . import device, host
from .edges import EdgedStructure
from .structure import Structure, cells_of, structure_of


class Operator:
    """An operator that PyTorch can trace; tensors with numbers go to the verb directly, which is quicker.

    `arguments` are those after the log-odds and tables: tensors, the key of the structure, then numbers. `empty` makes
    tensors like the answers, for compilers. The verb may take a solved model after its arguments, and answer with one
    after its tensors; the operator does neither.
    """

    rules: Any  # derivatives and mapped axes; see :mod:`.autograd`

    def __init__(
        self, verb: str, arguments: str, answers: str, empty: Any, *, call: Callable[..., Any] | None = None
    ) -> None:
        self._verb, self._call = verb, call or answer
        self._key, self._width = 2 + arguments.count("Tensor"), 3 + arguments.count(",")
        self._answers = answers.count("Tensor")
        self.op = torch.library.custom_op(
            f"tallytree::{verb}",
            self._tensors,
            mutates_args=(),
            schema=f"(Tensor logits, Tensor? tables, {arguments}) -> {answers}",
        )

        @self.op.register_fake
        def _(*tensors: Any) -> Any:
            if torch.onnx.is_in_onnx_export():  # asked here, for Dynamo takes it for False where it traces
                raise ParameterError(
                    f"ONNX has no operator for `{verb}` of a count model. Export the network up to its scores, or a "
                    "KSubset layer in evaluation mode, which sorts; torch.export keeps the exact operators."
                )
            return empty(*tensors)

    def __call__(self, *arguments: Any) -> Any:
        if torch.compiler.is_compiling() or not all(map(has_memory, arguments)):
            return self.op(*arguments[: self._width])
        return self.direct(*arguments)

    def direct(self, *arguments: Any) -> Any:
        """The answers for tensors with numbers."""
        structure = structure_of(arguments[self._key], arguments[0].shape[-1])
        return self._call(self._verb, structure, *arguments[: self._key], *arguments[self._key + 1 :])

    def _tensors(self, *arguments: Any) -> Any:
        found = self.direct(*arguments)
        return found if self._answers == 1 else found[: self._answers]


def has_memory(value: Any) -> bool:
    """Whether there are numbers to be read now: not while they are traced or mapped."""
    if not isinstance(value, Tensor):
        return True
    try:
        return value.data_ptr() != 0 or value.numel() == 0
    except RuntimeError:
        return False


def answer(verb: str, structure: Structure, logits: Tensor, *arguments: Any) -> Any:
    """By kernels on the device, or by the host, which serves models with edges, too."""
    if device.has_kernels(logits) and not isinstance(structure, EdgedStructure):
        return getattr(device, verb)(structure, logits, *arguments)
    if logits.device.type == "cpu":
        return getattr(host, verb)(structure, logits, *arguments)
    return host.from_afar(verb, structure, logits, *arguments)


def _tangent(
    verb: str,
    structure: Structure,
    logits: Tensor,
    tables: Tensor | None,
    direction: Tensor,
    table_direction: Tensor | None,
    counts: bool,
    *solved: Any,
) -> Any:
    """Rows with an infinite direction, or NaN, become NaN."""
    if not logits.numel():
        return torch.zeros_like(logits), _cells(logits, structure.n_cells if counts else 0)
    lost = infinite_rows(direction, logits)
    if table_direction is not None:
        own = structure.packed_on(logits.device) if tables is None else tables
        lost = lost | infinite_rows(table_direction, own)
        table_direction = finite(table_direction)
    spoiled = lost.device.type != "cpu" or bool(lost.any())  # without looking, where that would take time
    given = finite(direction) if spoiled else direction
    found = answer(verb, structure, logits, tables, given, table_direction, counts, *solved)
    return tuple(part.masked_fill(lost, math.nan) for part in found) if spoiled else found


def infinite_rows(direction: Tensor, parameters: Tensor) -> Tensor:
    """Rows (*b, 1) with a direction that is infinite or NaN where the parameter is not: nothing else depends on it."""
    return (~torch.isfinite(direction) & torch.isfinite(parameters)).any(-1, keepdim=True)


def finite(direction: Tensor) -> Tensor:
    """A direction without the entries of impossible counts, which change nothing."""
    return torch.where(torch.isfinite(direction), direction, 0.0)


def _cells(logits: Tensor, width: int) -> Tensor:
    return logits.new_empty(*logits.shape[:-1], width)


def _width(start: Any, stop: Any) -> Any:
    return stop - start


def empty_like(logits: Tensor) -> Tensor:
    """An answer for every variable, to be filled."""
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


# Log Z (*b,), marginals (*b, D) and the probabilities of the counts of all groups (*b, T).
sums = Operator(
    "sums",
    "int key, bool marginals, bool counts",
    "(Tensor, Tensor, Tensor)",
    lambda logits, tables, key, marginals, counts: (
        logits.new_empty(logits.shape[:-1]),
        _cells(logits, logits.shape[-1] if marginals else 0),
        _cells(logits, cells_of(key, logits.shape[-1])[1] if counts else 0),
    ),
)
# The Hessian of log Z times a direction: d marginals (*b, D) and d count probabilities (*b, T).
tangent = Operator(
    "tangent",
    "Tensor direction, Tensor? table_direction, int key, bool counts",
    "(Tensor, Tensor)",
    lambda logits, tables, direction, pushed, key, counts: (
        empty_like(logits),
        _cells(logits, cells_of(key, logits.shape[-1])[1] if counts else 0),
    ),
    call=_tangent,
)
# Log-probabilities of the counts of one group, (*b, n + 1).
count_log_probs = Operator(
    "count_log_probs",
    "int key, int group",
    "Tensor",
    lambda logits, tables, key, group: _cells(logits, _width(*cells_of(key, logits.shape[-1], group))),
)
# Exact joint samples (count, *b, D) of zeros and ones, uint8; the seed is one integer.
draw = Operator(
    "draw",
    "Tensor seed, int key, int count",
    "Tensor",
    lambda logits, tables, seed, key, count: logits.new_empty(count, *logits.shape, dtype=torch.uint8),
)
# A most probable configuration, (*b, D), uint8.
mode = Operator(
    "mode", "int key", "Tensor", lambda logits, *_: logits.new_empty(logits.shape, dtype=torch.uint8)
)
# Entropy in nats, (*b,), accurate also where it is tiny.
entropy = Operator("entropy", "int key", "Tensor", lambda logits, *_: logits.new_empty(logits.shape[:-1]))
