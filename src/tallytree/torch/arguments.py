"""Reading what users pass as `logits` and `groups`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import InfeasibleError, ParameterError
from ..models.group import Group, read_groups
from ..potentials import Potential, formulas
from ..potentials.constraints import Interval
from ..structure.nested.count_tree import CountTree
from . import structure as structures
from .edges import with_edges
from .potentials import TensorPotential
from .structure import AnySize, Structure
from .tensors import anywhere, as_logits, as_real, common_shape, masked, require_enough, side_by_side


class Posed(NamedTuple):
    """A batch of models in float64: log-odds (*b, D), packed tables (T,), (*b, T) or None; and the answers' dtype.

    `constant` is what a potential over no variables adds to log Z, (*b,).
    """

    logits: Tensor
    tables: Tensor | None
    structure: Structure | AnySize
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
        if self.structure.key == structures.FREE.key:
            return self.logits.new_zeros(0)
        return structures.packed(self.structure.key).to(self.logits.device)


def pose(logits: Any, groups: Any, edges: Any = None, mask: Any = None) -> Posed:
    """Log-odds and tables with one batch shape; what is masked has log-odds of -inf."""
    given = as_logits(logits)
    if mask is not None:
        given = masked(given, mask)
        require_enough(given, _least(groups, given.shape[-1]))
    if not given.shape[-1] and edges is None and _is_potential(groups):
        return _pose_nothing(given, groups)
    structure, tables = read(groups, given, sized=edges is not None)
    if edges is not None:
        structure, tables = with_edges(structure, tables, edges, given)
    values = given.to(torch.float64)
    if tables is not None and tables.dim() > 1:
        shape = common_shape("`logits` and `groups`", values.shape[:-1], tables.shape[:-1])
        values = values.expand(*shape, values.shape[-1])
        tables = tables.expand(*shape, tables.shape[-1])
    elif tables is None and isinstance(structure, Structure) and structure.batch_shape:
        shape = common_shape("`logits` and `groups`", values.shape[:-1], structure.batch_shape)
        values = values.expand(*shape, values.shape[-1])
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
    shape = common_shape("`logits` and `groups`", given.shape[:-1], constant.shape)
    values = given.to(torch.float64).expand(*shape, 0)
    return Posed(values, None, structures.of_members((), 0), given.dtype, constant.expand(shape))


def _least(groups: Any, n: int) -> Any:
    """The smallest count that a potential over all variables allows, where that is plain; else None."""
    if isinstance(groups, TensorPotential):
        return groups.numbers[0] if formulas.REACHED.get(groups.name) else None
    if isinstance(groups, Potential) and not torch.compiler.is_compiling():
        return torch.as_tensor(groups.support(n)[0])
    return None


def read(groups: Any, logits: Tensor, *, sized: bool = True) -> tuple[Any, Tensor | None]:
    """Structure, and the packed log-tables in float64 where any of them is a tensor.

    For compilers groups and their sizes are constants of the graph, and all tables are tensors. The number of
    variables stays open, unless `sized`, where one potential over all of them is all there is.
    """
    compiling = torch.compiler.is_compiling()
    if compiling and not sized:
        if groups is None:
            return structures.FREE, None
        if isinstance(groups, (Tensor, TensorPotential, Interval)):
            return structures.WHOLE, _table(groups, logits.shape[-1], logits, "`groups`")
    if compiling and getattr(torch.compiler, "is_exporting", lambda: False)():
        raise ParameterError(
            "`groups` must be one table, one potential of tallytree.torch, or None in a program of torch.export: "
            "other structures live in this process alone. Use torch.compile, or export the network and call "
            "tallytree on what it returns."
        )
    if compiling and not sized and isinstance(groups, Potential):
        table = structures.table_of(structures.number_of(groups), logits.shape[-1])
        return structures.WHOLE, table.to(logits.device)
    n = len(range(logits.shape[-1]))  # a constant for compilers too, whatever they think of shapes
    if isinstance(groups, Potential) and not compiling:
        return structures.flat(n, groups), None
    if groups is None:
        return structures.of_members((), n), None
    structure, entries = _structure_and_entries(groups, n)
    sizes = structures.group_sizes(structure.key, n)
    if isinstance(entries, (Tensor, np.ndarray)):
        return structure, _packed_by_user(sum(sizes) + len(sizes), entries, logits)
    if len(entries) != len(sizes):
        raise ParameterError(
            f"`groups` must have one table per group of the tree, {len(sizes)} in all; {len(entries)} arrived."
        )
    if not len(sizes):
        return structure, None
    if not compiling and all(entry is None or isinstance(entry, Potential) for entry in entries):
        return structures.Structure(structure.tree, tuple(entries)), None
    return structure, pack(sizes, entries, logits)


def _structure_and_entries(groups: Any, n: int) -> tuple[Structure, Any]:
    """Groups with open tables, and what the user gave for each of them; groups seen before share their analysis."""
    if isinstance(groups, (Tensor, TensorPotential)):
        return structures.of_members((None,), n), [groups]
    whole = isinstance(groups, CountTree)
    if whole or (isinstance(groups, tuple) and len(groups) == 2 and isinstance(groups[0], CountTree)):
        tree = groups if whole else groups[0]
        structure = structures.of_tree(tree)
        if not torch.compiler.is_compiling() and tree.n_variables != n:
            raise ParameterError(
                f"`logits` must have {tree.n_variables} entries on the last axis, one per variable of the tree; "
                f"{n} arrived."
            )
        return structure, [None] * len(structures.group_sizes(structure.key, n)) if whole else groups[1]
    given = [groups] if isinstance(groups, Group) else groups
    if isinstance(given, (list, tuple)) and all(isinstance(group, Group) for group in given):
        members = tuple(group.members for group in given)
        return structures.of_members(members, n), [group.potential for group in given]
    if not torch.compiler.is_compiling():
        read_groups(groups, n)  # refuses what is neither a table nor a potential
    return structures.of_members((None,), n), [groups]


def pack(sizes: Sequence[int], entries: Sequence[Any], logits: Tensor) -> Tensor:
    """Log-tables of groups of these sizes one after the other, with the batch axes that any of them has."""
    tables = [
        _table(entry, size, logits, f"The table of group {g}")
        for g, (entry, size) in enumerate(zip(entries, sizes))
    ]
    if len(tables) == 1:
        return tables[0]
    common_shape("The tables of `groups`", *(table.shape[:-1] for table in tables))
    return side_by_side(tables)


def _packed_by_user(wanted: int, tables: Any, logits: Tensor) -> Tensor:
    packed = as_real("groups", tables).to(device=logits.device, dtype=torch.float64)
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
    if (
        isinstance(entry, Interval) and torch.compiler.is_compiling()
    ):  # made while tracing, it is no object yet
        low, high = entry._support(size)
        counts = torch.arange(size + 1, device=logits.device)
        entry = torch.where((counts >= low) & (counts <= high), 0.0, -math.inf)
    elif not isinstance(entry, Tensor):
        entry = structures.fixed_table(entry, size)
    if entry.dtype.is_complex or entry.dtype == torch.bool or entry.dim() == 0 or entry.shape[-1] != size + 1:
        raise ParameterError(
            f"{name} must have {size + 1} real entries on the last axis, log f(0), ..., log f({size}), because the "
            f"group has {size} variables; a tensor of shape {tuple(entry.shape)} and dtype {entry.dtype} arrived."
        )
    return entry.to(device=logits.device, dtype=torch.float64)
