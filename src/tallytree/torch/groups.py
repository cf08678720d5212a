"""Reading what users pass as `logits` and `groups`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import InfeasibleError, ParameterError
from ..memo import recent
from ..models.group import Group, read_groups
from ..potentials import Potential
from ..potentials.constraints import Interval
from ..structure.nested.count_tree import CountTree
from . import structure as structures
from .edges import with_edges
from .potentials import TensorPotential
from .structure import Structure
from .tensors import anywhere, as_logits, as_real


class Posed(NamedTuple):
    """A batch of models in float64: log-odds (*b, D), packed tables (T,), (*b, T) or None; and the answers' dtype.

    `constant` is what a potential over no variables adds to log Z, (*b,).
    """

    logits: Tensor
    tables: Tensor | None
    structure: Structure
    dtype: torch.dtype
    constant: Tensor | None = None

    def wide(self) -> Posed:
        """Answers in double precision and without the constant, for sums that are rounded at their end."""
        return self._replace(dtype=torch.float64, constant=None)

    def expand(self, shape: Sequence[int]) -> Posed:
        """The same models over more batch axes."""
        tables, constant = self.tables, self.constant
        return self._replace(
            logits=self.logits.expand(*shape, self.logits.shape[-1]),
            tables=tables if tables is None or tables.dim() == 1 else tables.expand(*shape, tables.shape[-1]),
            constant=None if constant is None else constant.expand(shape),
        )

    def detach(self) -> Posed:
        """The same without derivatives."""
        tables = None if self.tables is None else self.tables.detach()
        return self._replace(logits=self.logits.detach(), tables=tables)

    def packed(self) -> Tensor:
        """The tables, also where they are fixed."""
        if self.tables is not None:
            return self.tables
        return structures.packed(self.structure.key).to(self.logits.device)


def pose(logits: Any, groups: Any, edges: Any = None) -> Posed:
    """Log-odds and tables with one batch shape."""
    given = as_logits(logits)
    if not given.shape[-1] and edges is None and _is_potential(groups):
        return _pose_nothing(given, groups)
    structure, tables = read(groups, given)
    if edges is not None:
        structure, tables = with_edges(structure, tables, edges, given)
    values = given.to(torch.float64)
    if tables is not None and tables.dim() > 1:
        shape = _common(values.shape[:-1], tables.shape[:-1])
        values = values.expand(*shape, values.shape[-1])
        tables = tables.expand(*shape, tables.shape[-1])
    return Posed(values, tables, structure, given.dtype)


def _is_potential(groups: Any) -> bool:
    """Whether `groups` is one potential over all variables."""
    return groups is not None and not isinstance(groups, (list, tuple, CountTree, Group))


def _pose_nothing(given: Tensor, potential: Any) -> Posed:
    """A potential over no variables is a constant."""
    constant = _table(potential, 0, given, "`groups`")[..., 0]
    if anywhere(constant == -math.inf):
        raise InfeasibleError(
            "`groups` excludes the count 0, but there are no variables. Relax the potential."
        )
    shape = _common(given.shape[:-1], constant.shape)
    values = given.to(torch.float64).expand(*shape, 0)
    return Posed(values, None, structures.without_groups(0), given.dtype, constant.expand(shape))


def read(groups: Any, logits: Tensor) -> tuple[Structure, Tensor | None]:
    """Structure, and the packed log-tables in float64 where any of them is a tensor."""
    n = len(range(logits.shape[-1]))  # a constant for compilers too, whatever they think of shapes
    if isinstance(groups, Interval) and torch.compiler.is_compiling():
        return structures.flat_interval(n, *groups._support(n)), None
    if isinstance(groups, Potential):
        return structures.flat(n, groups), None
    if groups is None:
        return structures.without_groups(n), None
    if isinstance(groups, (Tensor, TensorPotential)):
        return structures.flat_open(n), _table(groups, n, logits, "`groups`")
    if torch.compiler.is_compiling():
        return _read_constant(groups, n, logits)
    tree, entries = _tree_and_entries(groups, n)
    if isinstance(entries, (Tensor, np.ndarray)):
        return Structure(tree, None), _packed_by_user(tree, entries, logits)
    if len(entries) != tree.family.n_groups:
        raise ParameterError(
            f"`groups` must have one table per group of the tree, {tree.family.n_groups} in all; "
            f"{len(entries)} arrived."
        )
    if all(entry is None or isinstance(entry, Potential) for entry in entries):
        return Structure(tree, tuple(entries)), None
    sizes = [tree.group_size(g) for g in range(tree.family.n_groups)]
    return Structure(tree, None), pack(sizes, entries, logits)


def _read_constant(groups: Any, n: int, logits: Tensor) -> tuple[Structure, Tensor]:
    """The same for compilers: structure and sizes are constants of the graph, tables are tensors."""
    if isinstance(groups, tuple) and len(groups) == 2 and isinstance(groups[0], CountTree):
        structure, entries = structures.of_tree(groups[0]), groups[1]
    elif isinstance(groups, CountTree):
        structure, entries = structures.of_tree(groups), None
    else:
        given = [groups] if isinstance(groups, Group) else groups
        if not isinstance(given, (list, tuple)) or not all(isinstance(group, Group) for group in given):
            return structures.flat_open(n), structures.fixed_table(groups, n).to(logits.device)
        structure = structures.of_members(tuple(group.members for group in given), n)
        entries = [group.potential for group in given]
    sizes = structures.group_sizes(structure.key)
    if isinstance(entries, Tensor):
        return structure, entries.to(device=logits.device, dtype=torch.float64)
    return structure, pack(sizes, [None] * len(sizes) if entries is None else entries, logits)


def _tree_and_entries(groups: Any, n: int) -> tuple[CountTree, Any]:
    entries: Any
    if isinstance(groups, CountTree):
        tree, entries = groups, [None] * groups.family.n_groups
    elif isinstance(groups, tuple) and len(groups) == 2 and isinstance(groups[0], CountTree):
        tree, entries = groups
    else:
        tree, entries = _recent_tree(groups, n) or read_groups(groups, n)
    if tree.n_variables != n:
        raise ParameterError(
            f"`logits` must have {tree.n_variables} entries on the last axis, one per variable of the tree; "
            f"{n} arrived."
        )
    return tree, entries


def _recent_tree(groups: Any, n: int) -> tuple[CountTree, Sequence[Any]] | None:
    """Groups whose members were seen before, or can be recognised, share a tree: training passes them every step."""
    if not isinstance(groups, (list, tuple)) or not all(isinstance(group, Group) for group in groups):
        return None
    members = tuple(_recognised(group.members) for group in groups)
    if ... in members or len(groups) < 2:
        return None
    return _tree_of(members, n), [group.potential for group in groups]


def _recognised(members: Any) -> Any:
    """Members by which a tree can be found again; an ellipsis for those that are not plain integers."""
    if members is None or isinstance(members, range):
        return members
    if isinstance(members, (list, tuple)) and all(type(member) is int for member in members):
        return tuple(members)
    return ...


@recent(64)
def _tree_of(members: tuple[Any, ...], n: int) -> CountTree:
    return CountTree.from_groups([list(m) if isinstance(m, tuple) else m for m in members], n)


def pack(sizes: Sequence[int], entries: Sequence[Any], logits: Tensor) -> Tensor:
    """Log-tables of groups of these sizes one after the other, with the batch axes that any of them has."""
    tables = [
        _table(entry, size, logits, f"The table of group {g}")
        for g, (entry, size) in enumerate(zip(entries, sizes))
    ]
    shape: tuple[int, ...] = ()
    for table in tables:
        shape = _common(shape, table.shape[:-1])
    return torch.cat([table.expand(*shape, table.shape[-1]) for table in tables], dim=-1)


def _packed_by_user(tree: CountTree, tables: Any, logits: Tensor) -> Tensor:
    packed = as_real("groups", tables).to(device=logits.device, dtype=torch.float64)
    wanted = int(tree.family.group_offset[-1])
    if packed.dim() == 0 or packed.shape[-1] != wanted:
        raise ParameterError(
            f"Packed tables must have {wanted} entries on the last axis, n + 1 for every group of the tree; "
            f"shape {tuple(packed.shape)} arrived."
        )
    return packed


def _table(entry: Any, size: int, logits: Tensor, name: str) -> Tensor:
    """One log-table (..., size + 1) in float64."""
    if isinstance(entry, TensorPotential):
        return entry.log_table(size, logits.device)
    if isinstance(entry, Interval) and torch.compiler.is_compiling():
        entry = structures.interval_table(size, *entry._support(size))
    elif not isinstance(entry, Tensor):
        entry = structures.fixed_table(entry, size)
    if entry.dtype.is_complex or entry.dtype == torch.bool or entry.dim() == 0 or entry.shape[-1] != size + 1:
        raise ParameterError(
            f"{name} must have {size + 1} real entries on the last axis, log f(0), ..., log f({size}), because the "
            f"group has {size} variables; a tensor of shape {tuple(entry.shape)} and dtype {entry.dtype} arrived."
        )
    return entry.to(device=logits.device, dtype=torch.float64)


def _common(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(torch.broadcast_shapes(tuple(first), tuple(second)))
    except RuntimeError:
        raise ParameterError(
            f"`groups` has batch shape {tuple(second)}, which does not broadcast against {tuple(first)} of `logits`. "
            "Batch axes lead: logits (..., D), tables (..., n + 1)."
        ) from None
