"""Answers of the engine of :mod:`tallytree`, for CPU tensors; the verbs are those of :mod:`.device`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..models.count import CountModel
from ..models.parameters import pack
from . import edges
from .edges import EdgedStructure
from .structure import Structure


def from_afar(verb: str, structure: Structure, logits: Tensor, *arguments: Any) -> Any:
    """The answers for tensors of another device, which go to the host and back."""
    given = (value.cpu() if isinstance(value, Tensor) else value for value in (logits, *arguments))
    found = globals()[verb](structure, *given)
    if isinstance(found, Tensor):
        return found.to(logits.device)
    return tuple(part.to(logits.device) for part in found if isinstance(part, Tensor))


def sums(
    structure: Structure,
    logits: Tensor,
    tables: Tensor | None,
    marginals: bool,
    counts: bool,
    solved: CountModel | None = None,
) -> tuple[Tensor, Tensor, Tensor, CountModel]:
    """What :func:`.device.sums` answers, and the models that were solved, which may be given the next time."""
    model = _model(structure, logits, tables, solved)
    shape = logits.shape[:-1]
    log_z = np.array(model.log_partition, np.float64)
    means = model._solved.marginals() if marginals else np.empty((math.prod(shape), 0))
    if counts and isinstance(structure, EdgedStructure):
        packed = edges.expectations(model, tuple(shape))
    else:
        packed = pack(model.expected_statistics.tables if counts else (), tuple(shape))
    return _tensor(log_z, shape), _tensor(means, (*shape, means.shape[-1])), _tensor(packed), model


def tangent(
    structure: Structure,
    logits: Tensor,
    tables: Tensor | None,
    direction: Tensor,
    table_direction: Tensor | None,
    counts: bool,
    solved: CountModel | None = None,
) -> tuple[Tensor, Tensor]:
    """What :func:`.device.tangent` answers, of models that may have been solved before."""
    shape = logits.shape[:-1]
    model = _model(structure, logits, tables, solved)
    if isinstance(structure, EdgedStructure):
        along = None if table_direction is None else array(table_direction.expand(*shape, structure.n_cells))
        moved, probs = edges.hessian_product(structure, model, array(direction), along, counts)
        return _tensor(moved, logits.shape), _tensor(probs, (*shape, probs.shape[-1]))
    pushed = None if table_direction is None or not structure.n_cells else array(table_direction)
    found = model.hessian_vector_product(array(direction), pushed, counts=counts)
    packed = pack(found.tables if counts else (), tuple(shape))
    return _tensor(found.logits, logits.shape), _tensor(packed)


def count_log_probs(structure: Structure, logits: Tensor, tables: Tensor | None, group: int) -> Tensor:
    """See :func:`.device.count_log_probs`."""
    found = _model(structure, logits, tables)._counts(group)
    return _tensor(found, (*logits.shape[:-1], found.shape[-1]))


def draw(structure: Structure, logits: Tensor, tables: Tensor | None, seed: Tensor, count: int) -> Tensor:
    """See :func:`.device.draw`."""
    drawn = _model(structure, logits, tables).sample(count, rng=int(seed))
    return _tensor(drawn, (count, *logits.shape))


def mode(structure: Structure, logits: Tensor, tables: Tensor | None) -> Tensor:
    """See :func:`.device.mode`."""
    return _tensor(_model(structure, logits, tables).mode(), logits.shape)


def entropy(structure: Structure, logits: Tensor, tables: Tensor | None) -> Tensor:
    """See :func:`.device.entropy`."""
    found = np.array(_model(structure, logits, tables).entropy, np.float64)
    return _tensor(found, logits.shape[:-1])


def _model(
    structure: Structure, logits: Tensor, tables: Tensor | None, solved: CountModel | None = None
) -> CountModel:
    """The models of these tensors: those that are solved already, unless a mapped axis was added since."""
    if solved is not None and solved.batch_shape == tuple(logits.shape[:-1]):
        return solved
    return structure.model(array(logits), None if tables is None else array(tables))


def array(tensor: Tensor) -> Any:
    """A view of the tensor's memory where its layout allows."""
    return tensor.detach().resolve_neg().numpy()


def _tensor(found: Any, shape: Any = None) -> Tensor:
    """A tensor over the array's memory; what a model keeps for itself is copied."""
    found = np.ascontiguousarray(found).reshape(found.shape if shape is None else tuple(shape))
    return torch.from_numpy(found if found.flags.writeable else found.copy())
