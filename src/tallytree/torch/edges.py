"""Pairwise tables on the edges of a forest, as tensors.

The statistics of a model with edges are its variables, the indicators of every count and the indicators of every pair
of states of every edge. So the tables of the edges simply follow those of the groups in the packed tables, and the
derivatives of log Z by packed tables are count probabilities followed by the probabilities of the edges.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .. import checks
from ..engine.forest.tangent import Direction
from ..errors import ParameterError
from ..memo import cached, lru
from ..models import edges as arrays
from ..models.count import CountModel
from ..models.group import Group
from ..models.parameters import pack
from ..potentials import Potential
from ..structure.nested.count_tree import CountTree
from . import structure as structures
from .structure import Structure
from .tensors import anywhere, as_double, side_by_side


class Forest:
    """Edges between variables, without cycles, and a log-table on each, which may be a tensor with gradients.

    Adds ``sum_(i, j) log t_ij(y_i, y_j)`` to the log-weight of a configuration.

    Parameters
    ----------
    pairs : array_like of int, (E, 2)
        The variables that each edge joins.
    log_tables : tensor, (..., E, 2, 2), optional
        ``log t(y_i, y_j)`` of every edge, ``-inf`` where a combination is impossible; leading axes are a batch.
    coupling : float or tensor, (..., E), optional
        Ising couplings J in place of tables, one for all edges or one for each: ``log t = J`` where the two variables
        agree and ``-J`` where they differ.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.
    StructureError
        If the edges have a cycle.

    See Also
    --------
    tallytree.Forest
    tallytree.torch.log_partition

    Notes
    -----
    Cost: that of :class:`tallytree.CountModel` with edges. Second derivatives that involve edges take one pass in
    logarithms; third derivatives raise an error. Models with edges are solved on the CPU: tensors on other devices
    are copied there and back. Accuracy: as :class:`tallytree.CountModel`. Under ``torch.compile(fullgraph=True)`` the
    forest must be made outside the compiled function.

    Examples
    --------
    A chain of four variables that prefer to agree, exactly two on; the gradient with respect to the couplings:

    >>> import torch, tallytree.torch as ttt
    >>> coupling = torch.ones(3, requires_grad=True)
    >>> chain = ttt.Forest([(0, 1), (1, 2), (2, 3)], coupling=coupling)
    >>> ttt.log_partition(torch.zeros(4), tt.exactly(2), edges=chain).backward()
    >>> coupling.grad.round(decimals=4)
    tensor([ 0.7336, -0.7654,  0.7336])
    """

    def __init__(self, pairs: Any, log_tables: Any = None, *, coupling: Any = None) -> None:
        checks.one_given(log_tables=log_tables, coupling=coupling)
        self._frame = arrays.Forest(pairs.cpu() if isinstance(pairs, Tensor) else pairs, 0.0)
        self._tables = (
            _read_tables(log_tables, self.n_edges) if coupling is None else _agreeing(coupling, self.n_edges)
        )

    @property
    def pairs(self) -> Any:
        """The edges, an array (E, 2)."""
        return self._frame.pairs

    @property
    def n_edges(self) -> int:
        """Number of edges E."""
        return self._frame.n_edges

    @property
    def log_tables(self) -> Tensor:
        """Log-table of every edge, (..., E, 2, 2)."""
        return self._tables

    def __repr__(self) -> str:
        return f"Forest(n_edges={self.n_edges})"


def _read_tables(value: Any, n_edges: int) -> Tensor:
    tables = as_double("log_tables", value).to(torch.float64)
    if tables.shape[-3:] != (n_edges, 2, 2):
        raise ParameterError(
            f"`log_tables` must have shape (..., {n_edges}, 2, 2), one table per edge; shape {tuple(tables.shape)} "
            "arrived. Ising couplings are given as `coupling`."
        )
    return tables


def _agreeing(value: Any, n_edges: int) -> Tensor:
    given = as_double("coupling", value).to(torch.float64)
    if given.dim() == 0:
        given = given.expand(n_edges)
    if given.shape[-1] != n_edges:
        raise ParameterError(
            f"`coupling` must be one number, or have {n_edges} entries on the last axis, one per edge; shape "
            f"{tuple(given.shape)} arrived."
        )
    return given[..., None, None] * given.new_tensor([[1.0, -1.0], [-1.0, 1.0]])


class EdgedStructure(Structure):
    """Groups and the edges of a forest; tables of the edges follow those of the groups."""

    def __init__(
        self, tree: CountTree, potentials: tuple[Potential | None, ...] | None, frame: arrays.Forest
    ) -> None:
        super().__init__(tree, potentials)
        self.frame = frame

    @property
    def n_group_cells(self) -> int:
        """Entries of the packed tables that belong to groups."""
        return super().n_cells

    @property
    def n_cells(self) -> int:
        return self.n_group_cells + 4 * self.frame.n_edges

    def _pack(self) -> Any:
        """Tables of groups and edges, one after the other."""
        own, edges = super()._pack(), self.frame.log_tables
        return pack([own, edges.reshape(*edges.shape[:-3], -1)])

    @cached
    def opened(self) -> Structure:
        return self if self.potentials is None else _framed(self.tree, self.frame.pairs)

    def on(self, tree: CountTree, potentials: tuple[Potential | None, ...] | None) -> Structure:
        return EdgedStructure(tree, potentials, self.frame)

    @cached
    def _prototype(self) -> CountModel:
        """A model of the same shape, analysed once."""
        groups = [Group(members.tolist()) for members in self.tree.groups]
        return CountModel(np.zeros(self.n_variables), groups, edges=self.frame)

    def model(self, logits: Any, tables: Any) -> CountModel:
        given = self._packed if tables is None else tables
        cells, n_edges = self.n_group_cells, self.frame.n_edges
        edges = given[..., cells:].reshape(*given.shape[:-1], n_edges, 2, 2)
        own = given[..., :cells] if cells else None
        return self._prototype.replace(logits=logits, tables=own, edges=edges)

    def __reduce__(self) -> tuple[Any, ...]:
        return EdgedStructure, (self.tree, self.potentials, self.frame)


def joined(tables: Tensor, edges: Tensor) -> Tensor:
    """Packed tables (..., T) and tables of edges (..., E, 2, 2) one after the other."""
    return side_by_side([tables, edges.flatten(-3)])


def with_edges(
    structure: Structure, tables: Tensor | None, edges: Any, logits: Tensor
) -> tuple[Structure, Tensor | None]:
    """The same groups with edges; tables arrive with every call where any of them is a tensor."""
    if isinstance(edges, arrays.Forest):
        arrays.check_members(edges, logits.shape[-1])
        if tables is None:
            return EdgedStructure(structure.tree, structure.potentials, edges), None
        own = torch.from_numpy(np.array(edges.log_tables)).to(logits.device)
        return _framed(structure.tree, edges.pairs), joined(tables, own)
    if not isinstance(edges, Forest):
        raise ParameterError(
            "`edges` must be a Forest, such as tallytree.torch.Forest(pairs, log_tables); "
            f"{type(edges).__name__} arrived."
        )
    framed = _of_key(structure.key, logits.shape[-1], edges._frame)
    groups = structures.packed(structure.key).to(logits.device) if tables is None else tables
    own = edges.log_tables.to(logits.device)
    if anywhere(torch.isnan(own) | (own == math.inf)):
        raise ParameterError(
            "`log_tables` must hold logarithms below +inf, without NaN. Use -inf for impossible pairs."
        )
    return framed, joined(groups, own)


@structures.made
def _of_key(key: int, n: int, frame: arrays.Forest) -> Structure:
    """The groups of a structure and the edges of a forest."""
    structure = structures.structure_of(key, n)
    arrays.check_members(frame, structure.n_variables)
    return _framed(structure.tree, frame.pairs)


def _framed(tree: CountTree, pairs: Any) -> Structure:
    """Groups and edges that were seen before share their analysis."""
    return _structure_of(tree, tuple(map(tuple, pairs.tolist())))


@lru(64)
def _structure_of(tree: Hashable, pairs: tuple[tuple[int, int], ...]) -> Structure:
    assert isinstance(tree, CountTree)
    return EdgedStructure(tree, None, arrays.Forest(np.array(pairs, np.int64).reshape(-1, 2), 0.0))


def edge_weight(frame: arrays.Forest, tables: Tensor, on: Tensor) -> Tensor:
    """Log-weights that tables (..., 4 E) give to configurations (..., D) of truth values."""
    pairs = torch.as_tensor(np.array(frame.pairs), device=on.device)
    state = 2 * on[..., pairs[:, 0]].long() + on[..., pairs[:, 1]].long()
    own = tables.unflatten(-1, (frame.n_edges, 4))
    return own.expand(*state.shape, 4).gather(-1, state[..., None]).squeeze(-1).sum(-1)


# -- expectations and products with the covariance matrix -----------------------------------------------------------


def expectations(model: CountModel, shape: tuple[int, ...]) -> Any:
    """Probabilities of counts, then of the states of both ends of every edge, packed, (*shape, T + 4 E)."""
    pairs = model.edge_marginals
    return pack([*model.expected_statistics.tables, pairs.reshape(*pairs.shape[:-3], -1)], shape)


def hessian_product(structure: EdgedStructure, model: CountModel, v: Any, h: Any, counts: bool) -> Any:
    """The Hessian of log Z times v (*b, D) and h (*b, T + 4 E) or None, (B, D) and (B, T + 4 E or 0)."""
    batch, cells = math.prod(model.batch_shape), structure.n_group_cells
    push = None if h is None or not cells else h[..., :cells]
    if not counts and (h is None or not h[..., cells:].any()):
        return np.array(model.hessian_vector_product(v, push, counts=False).logits), np.empty((batch, 0))
    leaf, tables = model._params.direction(v, push)
    shape = (batch, structure.frame.n_edges, 2, 2)
    edges = np.zeros(shape) if h is None else h[..., cells:].reshape(shape)
    moved = model._solved.moved(Direction(np.stack([np.zeros_like(leaf), leaf], -1), edges, tables))
    on = moved.leaf[..., 1]
    packed = *model._params.group_counts(on, moved.tables, total=0.0), moved.edge.reshape(batch, -1)
    return on, pack(packed) if counts else np.empty((batch, 0))
