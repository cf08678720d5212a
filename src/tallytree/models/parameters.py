"""The numbers of a model: log-odds and log-tables, validated, broadcast and packed for the engine."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..arrays import Float64, Ints, frozen, is_frozen
from ..engine import masks, native
from ..engine.count.moments import Folded, fold_singletons
from ..errors import ParameterError
from ..memo import Caching, cached, lru
from ..potentials import Potential, as_potential
from ..potentials.named import Named
from ..structure.nested.count_tree import CountTree, flat
from ..structure.nested.family import NestedFamily
from .base import rows_of

Mixture = tuple[NDArray[Any], NDArray[Any]]
WORTH_A_BLOCK = 1 << 15  # numbers: from here on one pass that copies and looks is quicker than several


@dataclass(eq=False)
class Parameters(Caching):
    """Parameters of a batch of models on one tree.

    Attributes
    ----------
    logits : (..., D), in the dtype of the answers
    potentials
        What the user gave per group: a potential or a validated log-table; kept for `replace`.
    own_constant : (B,) or scalar
        Part of log Z that no variable can change: log f(0) of a potential over no variables.
    logits_unmasked, tables_unmasked
        Whether the copying has seen that none of these numbers is a mask; see :mod:`~tallytree.engine.masks`.
    """

    logits_unmasked = tables_unmasked = False

    tree: CountTree
    logits: NDArray[np.floating[Any]]
    dtype: np.dtype[Any]
    potentials: tuple[Any, ...]
    tables: tuple[Float64, ...]
    batch_shape: tuple[int, ...]
    own_constant: Any

    def _changed(self, **numbers: Any) -> Parameters:
        """Parameters with other log-odds; what follows from the old ones is forgotten."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__getstate__(), **numbers)
        return new

    @cached
    def _replaced(self) -> Parameters | None:
        """Parameters with infinities for finite numbers that stand for them; None if there are none of these."""
        if (self.logits_unmasked or masks.absent(self.logits)) and self._without_masked_tables():
            return None
        found = masks.resolve(np.asarray(self.logits, np.float64), self.tables, self.potentials)
        numbers = found.potentials, found.tables, self.batch_shape, self.own_constant
        new = Parameters(self.tree, found.logits, self.dtype, *numbers)
        new._replaced = None
        new.masked_constant = np.broadcast_to(found.constant, self.batch_shape).reshape(-1)
        return new

    def _without_masked_tables(self) -> bool:
        return self.tables_unmasked or all(
            (isinstance(given, Potential) and given.hard) or masks.absent(table)
            for given, table in zip(self.potentials, self.tables)
        )

    @property
    def unmasked(self) -> Parameters:
        """The numbers that the engines work with: masks are infinite; see :mod:`~tallytree.engine.masks`."""
        return self if self._replaced is None else self._replaced

    @cached
    def masked_constant(self) -> Any:
        """What masks add to log Z and to nothing else, () or (B,)."""
        return 0.0 if self._replaced is None else self._replaced.masked_constant

    @cached
    def leaves(self) -> Folded:
        """Log-odds with the singleton tables folded in, and what these add to log Z."""
        if self._replaced is not None:
            return self.unmasked.leaves
        logits = np.asarray(self.logits, np.float64)
        n = logits.shape[-1]
        alone = self.tree.singleton_groups
        if len(alone) == 0 and logits.ndim == 1 and not self.batch_shape:
            return Folded(logits.reshape(1, n), self.own_constant, None)
        nu = rows_of(logits, self.batch_shape)
        if len(alone) == 0:
            return Folded(np.ascontiguousarray(nu), self.own_constant, None)
        folded = self._with_singletons(nu)
        return Folded(folded.nu, folded.constant + self.own_constant, folded.log_norm + self.own_constant)

    def _with_singletons(self, nu: Float64) -> Folded:
        alone = self.tree.singleton_groups
        variables = self.tree.family.variable_of_group[alone].tolist()
        return fold_singletons(nu, variables, [self.rows(g) for g in alone.tolist()])

    @cached
    def tables_batch(self) -> tuple[int, ...]:
        """Batch shape of the tables alone."""
        constant = np.shape(self.own_constant) and self.batch_shape
        return np.broadcast_shapes(constant or (), *(t.shape[:-1] for t in self.tables if t.ndim > 1))

    @property
    def nu(self) -> Float64:
        """Log-odds of the leaves, (B, D)."""
        return self.leaves.nu

    @property
    def constant(self) -> Any:
        """What has to be added to log Z of the leaves, () or (B,)."""
        near = self.leaves.constant
        return near if self._replaced is None else near + self.masked_constant

    @cached
    def singleton_logits(self) -> Any:
        """What the tables of single variables add to the log-odds, (B, D) or 0."""
        if len(self.tree.singleton_groups) == 0:
            return 0.0
        zeros = np.zeros((math.prod(self.batch_shape), self.tree.n_variables))
        return self.unmasked._with_singletons(zeros).nu

    @property
    def batch_constant(self) -> Any:
        """Log f(0) of a potential over no variables, () or (...,)."""
        return np.reshape(self.own_constant, self.batch_shape if np.ndim(self.own_constant) else ())

    @cached
    def packed(self) -> Float64:
        """Log-tables of the sets one after the other, (1 or B, T); duplicates of a set multiply."""
        if self._replaced is not None:
            return self.unmasked.packed
        family = self.tree.family
        if len(self.tables) == 1 and family.n_sets == 1 and self.tables[0].ndim == 1:
            return np.asarray(self.tables[0].reshape(1, -1))
        shared = all(self.tables[g].ndim == 1 for g in np.flatnonzero(family.set_of_group >= 0))
        rows = [self.rows(g) for g in range(family.n_groups)]
        return packed_sets(family, family.set_offset, rows, 1 if shared else math.prod(self.batch_shape))

    def rows(self, group: int) -> Float64:
        """A group's table as (1 or B, n + 1)."""
        table = self.tables[group]
        return rows_of(table, self.batch_shape if table.ndim > 1 else ())

    @cached
    def mixtures(self) -> dict[int, Mixture]:
        """Exponential mixtures of the sets that hold a single potential with such a form."""
        if self._replaced is not None:
            return self.unmasked.mixtures
        found: dict[int, Mixture] = {}
        family = self.tree.family
        if family.n_sets != 1 or family.n_groups != 1 or not isinstance(self.potentials[0], Potential):
            return found
        terms = self.potentials[0].mixture(family.group_size(0))
        return found if terms is None else {0: terms}

    def direction(self, logits: Any, tables: Any) -> tuple[Float64, Float64]:
        """A direction in parameter space as (B, D) and packed (B, T); singleton tables move the leaves."""
        shape = (*self.batch_shape, self.tree.n_variables)
        given = np.zeros(shape) if logits is None else checks.logits(logits)[0]
        nu = np.array(rows_of(checks.spread("logits", given, shape), self.batch_shape))
        family = self.tree.family
        rows: list[Float64 | None] = [None] * family.n_groups
        for g, entry in enumerate(() if tables is None else unpack(self.tree, tables)):
            if entry is None:
                continue
            name = f"The direction of group {g}"
            array = checks.log_table(entry, family.group_size(g), name=name)
            checks.broadcast(self.batch_shape, [(name, array.shape[:-1])], grow=False)
            rows[g] = row = rows_of(array, self.batch_shape)
            if family.set_of_group[g] < 0:
                nu[:, int(family.variable_of_group[g])] += row[:, 1] - row[:, 0]
        return nu, packed_sets(family, family.set_offset, rows, len(nu))

    def group_counts(self, on: Any, packed: Any, *, total: float) -> tuple[Any, ...]:
        """Counts of every group: a set's from the packed (..., T), a variable's from its share (..., D) of the total.

        With probabilities the total is 1, with derivatives of probabilities it is 0.
        """
        family, offset = self.tree.family, self.tree.family.set_offset.tolist()
        found = []
        for g, s in enumerate(family.set_of_group.tolist()):
            if s >= 0:
                found.append(packed[..., offset[s] : offset[s + 1]])
            else:
                share = on[..., int(family.variable_of_group[g])]
                both = np.stack([total - share, share], axis=-1).astype(on.dtype, copy=False)
                found.append(frozen(both))
        return tuple(found)


def collect(
    tree: CountTree,
    logits: Float64,
    dtype: np.dtype[Any],
    potentials: Sequence[Any],
    constant: Any = None,
) -> Parameters:
    """Validate the potentials against their groups and freeze everything, copies included."""
    family = tree.family
    own_constant: Any = 0.0
    borrowed: list[int] = []
    if tree.n_variables == 0 and family.n_groups == 0 and len(potentials) == 1:
        # One potential over no variables: a constant.
        table = _table(potentials[0], 0, "`groups`")[1]
        own_constant = table[..., 0]
        batch_shape = checks.broadcast(logits.shape[:-1], [("`groups`", table.shape[:-1])])
        own_constant = np.broadcast_to(own_constant, batch_shape).reshape(-1)
        potentials, tables = [], []
    else:
        single = family.n_groups == 1
        checked = [_group_table(p, family.group_size(g), g, single) for g, p in enumerate(potentials)]
        potentials, tables = [c[0] for c in checked], [c[1] for c in checked]
        borrowed = [g for g, c in enumerate(checked) if c[2]]
        batch_shape = logits.shape[:-1]
        if not (single and tables[0].ndim == 1) and any(t.ndim > 1 for t in tables):
            shapes = [(table_name(g, False), t.shape[:-1]) for g, t in enumerate(tables)]
            batch_shape = checks.broadcast(batch_shape, shapes)
    copies, extremes = frozen_copies([*(tables[g] for g in borrowed), logits])
    for i, g in enumerate(borrowed):
        _check_copy(copies[i], extremes[i] if extremes else None, table_name(g, family.n_groups == 1))
        potentials[g] = copies[i] if potentials[g] is tables[g] else potentials[g]
        tables[g] = copies[i]
    kept = checked_logits(copies[-1], extremes, dtype)
    if constant is not None and tree.n_variables == 0:
        own_constant = constant
    new = Parameters(tree, kept, dtype, tuple(potentials), tuple(tables), batch_shape, own_constant)
    if extremes is not None:
        new.logits_unmasked = masks.absent_between(*extremes[-1])
        new.tables_unmasked = len(borrowed) == len(tables) and all(
            masks.absent_between(*e) for e in extremes[:-1]
        )
    return new


def frozen_copies(arrays: Sequence[Float64]) -> tuple[list[Float64], list[tuple[float, float]] | None]:
    """Read-only copies, and the smallest and largest number of each where the copying could tell; NaN if it met one."""
    extremes = None
    if sum([a.size for a in arrays]) < WORTH_A_BLOCK or not native.present():
        copies = [a.copy() for a in arrays]
    else:
        copies, extremes = native.copies(arrays)
    return list(map(frozen, copies)), extremes


def _check_copy(table: Float64, extremes: tuple[float, float] | None, name: str) -> None:
    """Look at a long table, which was not looked at before it was copied."""
    if table.size >= WORTH_A_BLOCK and (extremes is None or not extremes[1] < math.inf):
        checks.log_table(table, table.shape[-1] - 1, name=name)


def with_logits(old: Parameters, logits: Float64, dtype: np.dtype[Any]) -> Parameters:
    """The same tables with other log-odds."""
    batch_shape = logits.shape[:-1]
    if old.tables_batch:
        batch_shape = checks.broadcast(batch_shape, [("The tables", old.tables_batch)])
    copies, extremes = frozen_copies([logits])
    kept = checked_logits(copies[0], extremes, dtype)
    new = old._changed(logits=kept, dtype=dtype, batch_shape=batch_shape)
    new.logits_unmasked = extremes is not None and masks.absent_between(*extremes[-1])
    new.tables_unmasked = old._without_masked_tables()
    packed = old.__dict__.get("packed")
    near = old._replaced is None and new._replaced is None
    if packed is not None and near and (len(packed) == 1 or batch_shape == old.batch_shape):
        new.__dict__["packed"] = packed
    return new


def logits_to_keep(value: Any, n: int | None = None) -> tuple[Float64, np.dtype[Any]]:
    """Log-odds for :func:`collect` and :func:`with_logits`, which look for NaN in long arrays as they copy them."""
    return checks.logits(value, n, unseen=WORTH_A_BLOCK)


def checked_logits(copy: Float64, extremes: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    if copy.size >= WORTH_A_BLOCK and (extremes is None or math.isnan(sum(extremes[-1]))):
        checks.logits(copy)
    return copy if copy.dtype is dtype else frozen(copy.astype(dtype, copy=False))


def table_name(group: int, single: bool) -> str:
    return "`groups`" if single else f"The table of group {group}"


def _group_table(value: Any, n: int, group: int, single: bool) -> tuple[Any, Float64, bool]:
    """Like :func:`_table`; a potential that does not fit is reported with its group."""
    try:
        return _table(value, n, table_name(group, single))
    except ParameterError as error:
        if single or str(error).startswith(table_name(group, single)):
            raise
        raise ParameterError(f"Group {group}: {error}") from None


def _table(value: Any, n: int, name: str) -> tuple[Any, Float64, bool]:
    """A group's potential as given (if it is one), its log-table, and whether somebody else can change that."""
    if not isinstance(value, np.ndarray) and (
        value is None or isinstance(value, (Potential, str, bytes, int, float)) or callable(value)
    ):
        given: Any = as_potential(value)
        table = checks.log_table(given.log_table(n), n, name=name)
        made_here = table.base is None
    elif isinstance(value, np.ndarray) and not is_frozen(value):
        # Its numbers are looked at when it is copied, if it is long.
        given = table = checks.log_table(value, n, name=name, unseen=WORTH_A_BLOCK)
        return given, table, True
    else:
        given = table = checks.log_table(value, n, name=name)
        made_here = isinstance(value, (list, tuple)) or (table is not value and table.base is None)
    if not made_here and not is_frozen(table):
        return given, table, True
    return given, frozen(table), False


def is_packed(tables: Any) -> bool:
    """Whether the tables are one array of numbers, of NumPy or a framework."""
    if isinstance(tables, np.ndarray):
        return bool(tables.dtype != object)
    return type(tables).__module__.partition(".")[0] in ("jax", "jaxlib", "torch") and hasattr(
        tables, "shape"
    )


def check_packed_length(tree: CountTree, tables: Any) -> None:
    total = int(tree.family.group_offset[-1])
    if len(tables.shape) == 0 or tables.shape[-1] != total:
        raise ParameterError(
            f"Packed `tables` must have {total} entries on the last axis, n + 1 for each of the "
            f"{tree.family.n_groups} groups; shape {tuple(tables.shape)} arrived. Or pass a list, one table per group."
        )


def unpack(tree: CountTree, tables: Any) -> list[Any]:
    """One entry per group from a sequence, or from all tables packed in one array."""
    if is_packed(tables):
        check_packed_length(tree, tables)
        ends = tree.family.group_offset.tolist()
        return [tables[..., a:b] for a, b in itertools.pairwise(ends)] if tree.family.n_groups else []
    if isinstance(tables, (str, bytes, Potential)) or not isinstance(tables, Sequence):
        raise ParameterError(
            "`tables` must be a list with one potential, log-table or None per group, or one packed array; "
            f"{checks.describe(tables)} arrived."
        )
    if len(tables) != tree.family.n_groups and (tree.n_variables or len(tables) != 1):
        raise ParameterError(
            f"`tables` must have one entry per group of the tree, {tree.family.n_groups} in all; {len(tables)} "
            "arrived. Write None for a group that has none."
        )
    return list(tables)


def pack(tables: Sequence[Any], shape: tuple[int, ...] = ()) -> Float64:
    """Tables one after the other, (..., T), with the batch axes of `shape` and of any of them."""
    shape = np.broadcast_shapes(shape, *(table.shape[:-1] for table in tables))
    wide = (np.broadcast_to(table, (*shape, table.shape[-1])) for table in tables)
    return np.concatenate([np.empty((*shape, 0)), *wide], axis=-1)


def packed_sets(family: NestedFamily, offset: Ints, rows: Sequence[Float64 | None], batch: int) -> Float64:
    """Rows (1 or B, n + 1) of the groups at the places of their sets, (batch, T); those of a set add up."""
    packed = np.zeros((batch, int(offset[-1])))
    for s, row in zip(family.set_of_group.tolist(), rows):
        if s >= 0 and row is not None:
            packed[:, offset[s] : offset[s + 1]] += row
    return packed


class PackedParameters(Parameters):
    """Parameters whose tables arrived in one array (..., T), group after group; tables of their own are views of it."""

    def __init__(self, given: Float64, **numbers: Any) -> None:
        self.given = given
        self.own_constant = 0.0
        self.__dict__.update(numbers)

    def _without_masked_tables(self) -> bool:
        return self.tables_unmasked or masks.absent(self.given)

    @cached
    def tables(self) -> tuple[Float64, ...]:
        """One view per group."""
        return tuple(map(frozen, np.split(self.given, self.tree.family.group_offset[1:-1], axis=-1)))

    @cached
    def potentials(self) -> tuple[Any, ...]:
        """The tables themselves."""
        return self.tables

    @cached
    def tables_batch(self) -> tuple[int, ...]:
        """Batch shape of the tables alone."""
        return self.given.shape[:-1]

    @cached
    def packed(self) -> Float64:
        """As in `Parameters`; the order of the groups is often that of the sets already."""
        family = self.tree.family
        if self._replaced is not None or not family.groups_are_sets:
            return super().packed
        rows = rows_of(self.given, self.batch_shape if self.given.ndim > 1 else ())
        cells = family.set_cells
        return rows if cells is None else np.take(rows, cells, axis=1)


def from_user(
    tree: CountTree, logits: Float64, dtype: np.dtype[Any], tables: Any, constant: Any = None
) -> Parameters:
    """Parameters from a sequence with one entry per group, or from all tables packed in one array."""
    if is_packed(tables) and tree.family.n_groups:
        return _collect_packed(tree, logits, dtype, tables)
    return collect(tree, logits, dtype, unpack(tree, tables), constant)


def _collect_packed(
    tree: CountTree, logits: Float64, dtype: np.dtype[Any], tables: NDArray[Any]
) -> Parameters:
    check_packed_length(tree, tables)
    array, _ = checks.real_array("tables", tables, "counts")
    copies, extremes = frozen_copies([array, logits])
    given = copies[0]
    largest = extremes[0][1] if extremes is not None else float(given.max(initial=-math.inf))
    if not largest < math.inf:
        for g, table in enumerate(np.split(given, tree.family.group_offset[1:-1], axis=-1)):
            checks.log_table(table, tree.group_size(g), name=table_name(g, tree.family.n_groups == 1))
    batch_shape = checks.broadcast(logits.shape[:-1], [("`tables`", given.shape[:-1])])
    kept = checked_logits(copies[1], extremes, dtype)
    return PackedParameters(given, tree=tree, logits=kept, dtype=dtype, batch_shape=batch_shape)


_DOUBLE = np.dtype(np.float64)

# Unlike `ndarray.dot` it may overflow in silence; as it is, without the search for other kinds of arrays around it.
_dot = getattr(np.vdot, "__wrapped__", np.vdot)


def _made_table(kind: type[Potential], potential: Potential, n: int) -> tuple[Float64, bool]:
    """The log-table of a potential, and whether it is known to hold no mask; `kind` tells equal numbers apart."""
    table = potential._table(n)
    return table, potential.hard or _is_small(table) or _is_small(table[table > -math.inf])


def _is_small(numbers: Float64) -> bool:
    """Whether a small sum of squares tells at once that there is no NaN, nothing infinite and no mask."""
    return bool(_dot(numbers, numbers) < masks.SMALL_SQUARE)


_kept_table = lru(64)(_made_table)  # of potentials that are equal if their numbers are


def of_small_model(logits: Any, groups: Any) -> Parameters | None:
    """One log-table or potential over a few variables, the usual case, kept short; None if it is not this case."""
    if (
        type(logits) is not np.ndarray
        or logits.ndim != 1
        or logits.dtype is not _DOUBLE  # not of the other byte order
        or not 1 < logits.size < 8192
    ):
        return None
    n = logits.size
    if type(groups) is np.ndarray:
        if groups.shape != (n + 1,) or groups.dtype is not _DOUBLE:
            return None
        given: Any = groups.copy()
        own, small = given, _is_small(given)
    elif isinstance(groups, Potential):
        given = groups
        kind = type(groups)
        own, small = (_kept_table if issubclass(kind, Named) else _made_table)(kind, groups, n)
    else:
        return None
    if own.ndim > 1 or not small or not _is_small(logits):  # more dimensions: one parameter per model
        return None
    kept = logits.copy()
    kept.setflags(write=False)
    own.setflags(write=False)
    new = Parameters(flat(n), kept, kept.dtype, (given,), (own,), (), 0.0)
    new._replaced = None
    new.leaves = Folded(kept[None], 0.0, None)
    new.packed = own[None]
    return new
