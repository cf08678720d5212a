"""What users pass, read and checked: log-odds, groups and tables become one problem for the core.

Numbers can be looked at only when they are concrete; then they are also put together by NumPy, which compiles nothing,
so that only the core, whose shapes repeat, is ever compiled. Under a transformation the shapes are checked, everything
stays on the device, and NaN in gives NaN out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import checks
from ..engine import masks
from ..errors import InfeasibleError, ParameterError
from ..models.group import read_groups
from ..models.parameters import table_name, unpack
from ..potentials import Potential, as_potential, formulas
from ..structure.nested.count_tree import CountTree
from .arrays import answer_dtype, floats, is_concrete, narrow, real, require, working_dtype, zeros_and_ones
from .flat import bucket
from .potentials import ArrayPotential
from .solver import Core, Structure, core_of


class Problem(NamedTuple):
    """A batch of models on one structure, ready for the core; arrays are float64 where the device has that."""

    tree: CountTree
    structure: Structure
    nu: Any  # (B, D or its padded size), far ones infinite
    odds: Any  # the same with far ones as they are, which the core takes
    tables: Any  # (B, T), or (1, T) if all models share their tables
    group_tables: tuple[Any, ...]  # one per group, (..., n + 1)
    logits: Any  # (..., D), far ones infinite
    constant: Any  # (B,) what joins log Z
    own: Any  # (B,) -inf where that is
    batch_shape: tuple[int, ...]
    dtype: Any

    @property
    def core(self) -> Core:
        return core_of(self.structure)

    @property
    def n_variables(self) -> int:
        return self.tree.n_variables

    @property
    def places(self) -> tuple[Any, Any, Any]:
        """The set of every entry of the tables, its count or 0 in inner sets, and the outermost set of every variable.

        Padding of a table belongs to its set; a variable in no set has -1.
        """
        family = self.tree.family
        cells = np.arange(self.tables.shape[-1], dtype=np.int32)
        owner = np.searchsorted(family.set_offset[1:-1], cells, "right").astype(np.int32)
        outermost = np.full(self.nu.shape[-1], -1, np.int32)
        for s in np.flatnonzero(family.set_parent < 0):
            outermost[family.order[family.start[s] : family.stop[s]]] = s
        return owner, np.where(family.set_parent[owner] < 0, cells - family.set_offset[owner], 0), outermost

    def shaped(self, rows: Any) -> Any:
        """Rows (B, ...) in the batch shape and dtype of the answers."""
        with floats(wide=True):
            return rows.reshape(*self.batch_shape, *rows.shape[1:]).astype(self.dtype)


def read(logits: Any, groups: Any = None, tables: Any = None, mask: Any = None) -> Problem:
    """The problem that the arguments of a public function pose; must be called in 64 bits."""
    values, dtype = _logits(logits)
    if mask is not None:
        values = masked(values, mask, groups)
    n = values.shape[-1]
    tree, entries = _structure(groups, tables, n)
    if tree.n_variables == 0 and tree.family.n_groups == 0 and len(entries) == 1:
        own = _table(entries[0], 0, "`groups`")[..., 0]  # a potential over no variables is a constant
        given: list[Any] = []
    else:
        own = np.zeros(())
        single = tree.family.n_groups == 1
        given = [_table(e, tree.group_size(g), table_name(g, single)) for g, e in enumerate(entries)]
    shapes = [(f"The table of group {g}", t.shape[:-1]) for g, t in enumerate(given)]
    batch_shape = checks.broadcast(
        values.shape[:-1], [*shapes, ("`groups`", own.shape)], jnp.broadcast_shapes
    )
    return _assemble(tree, values, given, own, batch_shape, dtype)


def _logits(logits: Any) -> tuple[Any, Any]:
    array = real("logits", logits, axis="variables")
    dtype = answer_dtype(array.dtype)
    values = _widen(array)
    if is_concrete(values):
        checks.logits(values)
    return values, dtype


def masked(logits: Any, mask: Any, groups: Any) -> Any:
    """Log-odds with -inf where a mask is not true; one that leaves too few for a potential over all is refused."""
    allowed, others = zeros_and_ones("mask", mask)
    require("mask", mask, ~others, "hold truth values", " Compare first.")
    n = logits.shape[-1]
    if allowed.shape[-1:] not in ((n,), (1,)):
        raise ParameterError(
            f"`mask` must have {n} entries on its last axis, one per variable; shape {allowed.shape} arrived."
        )
    checks.broadcast(logits.shape[:-1], [("`mask`", allowed.shape[:-1])], jnp.broadcast_shapes)
    known = is_concrete(logits, allowed)
    found = (np if known else jnp).where(np.asarray(allowed) if known else allowed, logits, -math.inf)
    least = None
    if isinstance(groups, ArrayPotential) and is_concrete(*groups.parameters):
        least = np.asarray(groups.parameters[0]) if formulas.REACHED.get(groups.name) else None
    elif isinstance(groups, Potential):
        least = groups.support(n)[0]
    if known and least is not None:
        checks.unmasked_rows((found != -math.inf).sum(-1), least)
    return found.astype(logits.dtype)


def _widen(array: Any) -> Any:
    """In 64 bits: an array of NumPy if the numbers can be looked at. On the device in the bits that it has."""
    return np.asarray(array).astype(np.float64) if is_concrete(array) else array.astype(working_dtype())


def _structure(groups: Any, tables: Any, n: int) -> tuple[CountTree, Sequence[Any]]:
    if not isinstance(groups, CountTree):
        if tables is not None:
            raise ParameterError(
                f"`tables` goes with a CountTree as `groups`; {checks.describe(groups)} arrived as `groups`. "
                "Put the potentials into the groups, or pass a CountTree."
            )
        if isinstance(groups, ArrayPotential) or hasattr(groups, "shape"):
            return CountTree.flat(n), [groups]
        return read_groups(groups, n)
    if n != groups.n_variables:
        raise ParameterError(
            f"`logits` must have {groups.n_variables} entries on the last axis, one per variable of the tree; "
            f"{n} arrived."
        )
    return groups, [None] * groups.family.n_groups if tables is None else unpack(groups, tables)


def _table(value: Any, size: int, name: str) -> Any:
    """A log-table (..., size + 1) in float64."""
    if isinstance(value, ArrayPotential):
        array = value.log_table(size)
    elif value is None or isinstance(value, Potential) or (callable(value) and not hasattr(value, "shape")):
        array = as_potential(value).log_table(size)
    else:
        array = real(name.strip("`"), value, axis="counts")
    checks.table_length(name, array, size)
    table = _widen(array)
    return checks.log_table(table, size, name=name) if is_concrete(table) else table


def _assemble(
    tree: CountTree, values: Any, given: list[Any], own: Any, batch_shape: tuple[int, ...], dtype: Any
) -> Problem:
    """Far numbers made infinite, tables of single variables folded into the leaves, the others packed."""
    rows, n, family = math.prod(batch_shape), tree.n_variables, tree.family
    xp: Any = np if is_concrete(values, own, *given) else jnp

    def flatten(x: Any) -> Any:
        return xp.broadcast_to(x, (*batch_shape, x.shape[-1])).reshape(rows, x.shape[-1])

    def flatten_table(x: Any) -> Any:
        shared = rows > 0 and math.prod(x.shape[:-1]) == 1
        return x.reshape(1, x.shape[-1]) if shared else flatten(x)

    odds = flatten(values)
    values, constant = masks.resolve_logits(values, xp)
    constant = constant + own
    near = []
    for table in given:
        kind: Any = np if is_concrete(table) else xp
        table, base = masks.resolve_table(table, kind, jax.lax.stop_gradient if kind is jnp else None)
        # A long constant is kept from the compiler, which would spend seconds on folding what is computed from it.
        opaque: Any = jax.lax.optimization_barrier  # untyped in JAX
        near.append(opaque(jnp.asarray(table)) if xp is jnp and is_concrete(table) else table)
        constant = constant + base
    nu = flatten(values)
    constant, own = (xp.broadcast_to(x, batch_shape).reshape(rows) for x in (constant, own))
    flat = [flatten_table(t) for t in near]
    apart = next((t.shape[0] for t in flat if t.shape[0] != 1), 1 if rows > 0 else 0)
    packed = [xp.zeros((apart, size)) for size in np.diff(family.set_offset).tolist()]
    for g, table in enumerate(flat):
        s = int(family.set_of_group[g])
        if s >= 0:
            packed[s] = packed[s] + table
    if len(tree.singleton_groups):
        nu, constant = _fold_singletons(xp, tree, nu, flat, constant)
        odds, own = nu, constant  # tables of single variables may allow nothing
    if family.n_sets == 1 and int(family.set_size[0]) == n:
        structure = Structure(bucket(n), single=narrow())
        more = bucket(n) - n
        nu, odds, tables = (
            xp.concatenate([x, xp.full((x.shape[0], more), -math.inf)], -1) for x in (nu, odds, packed[0])
        )
    else:
        structure = Structure(n, tree, narrow())
        tables = xp.concatenate([xp.zeros((apart, 0)), *packed], -1)
    return Problem(tree, structure, nu, odds, tables, tuple(near), values, constant, own, batch_shape, dtype)


def _fold_singletons(
    xp: Any, tree: CountTree, nu: Any, tables: Sequence[Any], constant: Any
) -> tuple[Any, Any]:
    """Tables of single variables, multiplied into the leaves; see :mod:`tallytree.engine.count.moments`."""
    alone = tree.singleton_groups.tolist()
    log0 = xp.where(nu == math.inf, -math.inf, 0.0)
    log1 = xp.where(nu == math.inf, 0.0, nu)
    variables = np.arange(tree.n_variables)
    for g in alone:
        here = variables == int(tree.family.variable_of_group[g])
        off, on = xp.split(tables[g], 2, -1)
        log0 = xp.where(here, log0 + off, log0)
        log1 = xp.where(here, log1 + on, log1)
    touched = np.isin(variables, tree.family.variable_of_group[alone])
    can0, can1 = log0 > -math.inf, log1 > -math.inf
    both = can0 & can1
    odds = xp.where(both, log1, 0.0) - xp.where(both, log0, 0.0)
    odds = xp.where(both, odds, xp.where(can1, math.inf, -math.inf))
    weight = xp.where(both, log0, xp.where(can1, log1, log0))
    return xp.where(touched, odds, nu), constant + xp.sum(xp.where(touched, weight, 0.0), -1)


def refuse_impossible(log_partition: Any) -> None:
    """Raise if a model allows nothing and the numbers can be looked at."""
    if is_concrete(log_partition):
        impossible = np.argwhere(np.asarray(log_partition) == -math.inf)
        if len(impossible):
            which = (
                f"Model {tuple(impossible[0].tolist())} of the batch"
                if np.ndim(log_partition)
                else "The model"
            )
            raise InfeasibleError(
                f"{which} is impossible: its tables and infinite log-odds leave no configuration. "
                "Loosen one of them."
            )
