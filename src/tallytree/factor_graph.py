"""`FactorGraph`: binary variables with any number of overlapping count factors, and pairwise factors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _validate
from .arguments import states
from .errors import InfeasibleError, ParameterError, StructureError
from .model import CountModel, Group
from .potentials import Potential, as_potential

Float64 = NDArray[np.float64]
Ints = NDArray[np.int64]


class FactorGraph:
    """Binary variables with potentials on counts of groups that may overlap in any way.

    ``p(y) = exp(sum_d logits_d y_d) prod_a f_a(y_a) / Z``, where the factor ``f_a`` is a potential on the count of its
    group, a whole :class:`CountModel` over its group, or a table over a pair.

    Exact answers are out of reach in general (with "exactly one" in every row and column of a matrix, Z is a
    permanent); :func:`loopy_bp`, :func:`~tallytree.loopy.holder_bound` and
    :func:`~tallytree.loopy.dual_decomposition` approximate and bound them. If the groups are nested, use
    :class:`CountModel`, which is exact.

    Parameters
    ----------
    logits : array_like, (D,)
        Log-odds of the variables; ``-inf`` excludes a variable, ``inf`` forces it on with weight one.
    groups : sequence of Group
        The count factors. The potential of a :class:`Group` is whatever :class:`CountModel` accepts, or a
        :class:`CountModel` over as many variables as the group has members, in their order; the logits of such a model
        add to those of the variables.
    edges : (pairs, log_tables), optional
        Pairwise factors: ``pairs`` (m, 2) integers and ``log_tables`` (m, 2, 2) or (2, 2), where
        ``log_tables[e, a, b]`` belongs to ``y_i = a, y_j = b`` for ``pairs[e] = (i, j)``. An object with attributes
        ``pairs`` and ``log_tables`` serves too.

    Notes
    -----
    Cost: linear in the total size of the groups. The graph is frozen and keeps copies of its parameters.

    Examples
    --------
    Two overlapping groups of three variables, exactly one active in each:

    >>> graph = tt.FactorGraph(np.zeros(5), [tt.Group([0, 1, 2], tt.exactly(1)), tt.Group([2, 3, 4], tt.exactly(1))])
    >>> graph
    FactorGraph(n_variables=5, n_groups=2, n_edges=0)
    >>> tt.loopy_bp(graph).marginals.round(3)
    array([0.4, 0.4, 0.2, 0.4, 0.4])
    """

    def __init__(self, logits: ArrayLike, groups: Iterable[Group] = (), *, edges: Any = None) -> None:
        values, _ = _validate.logits(logits)
        if values.ndim != 1:
            raise ParameterError(
                f"`logits` of a FactorGraph must be one-dimensional, one entry per variable; shape {values.shape} "
                "arrived. Make one graph per model, or ravel a matrix of variables."
            )
        listed = _groups(groups)
        members, offsets = _validate.all_members([g.members for g in listed], len(values))
        n = len(values)
        cache: dict[Any, Float64] = {}
        potentials: list[Any] = []
        tables: list[Float64 | None] = []
        for i, group in enumerate(listed):
            size = int(offsets[i + 1] - offsets[i])
            potential, table = _potential(group.potential, size, i, cache)
            potentials.append(potential)
            tables.append(table)
        pairs, pair_tables = _edges(edges, n)
        self._setup(values.copy(), members, offsets, tuple(potentials), tuple(tables), pairs, pair_tables)

    def _setup(
        self,
        logits: Float64,
        members: Ints,
        offsets: Ints,
        potentials: tuple[Any, ...],
        tables: tuple[Float64 | None, ...],
        pairs: Ints,
        pair_tables: Float64,
    ) -> None:
        for array in (logits, members, offsets, pairs, pair_tables):
            array.flags.writeable = False
        self._logits, self._members, self._offsets = logits, members, offsets
        self._potentials, self._tables = potentials, tables
        self._pairs, self._pair_tables = pairs, pair_tables
        self._cache: dict[Any, Any] = {}

    # -- what it is made of ------------------------------------------------------------------------------------

    @property
    def n_variables(self) -> int:
        """Number of variables D."""
        return len(self._logits)

    @property
    def n_groups(self) -> int:
        """Number of count factors; pairwise factors are numbered after them."""
        return len(self._potentials)

    @property
    def n_edges(self) -> int:
        """Number of pairwise factors."""
        return len(self._pairs)

    @property
    def logits(self) -> Float64:
        """Log-odds as given, (D,), read-only."""
        return self._logits

    @property
    def groups(self) -> tuple[Group, ...]:
        """Members and potential of every count factor."""
        return tuple(Group(self.members(i), p) for i, p in enumerate(self._potentials))

    @property
    def tables(self) -> tuple[Float64 | None, ...]:
        """Log-table of every count factor, (n + 1,); None where the factor is a CountModel."""
        return self._tables

    @property
    def pairs(self) -> Ints:
        """Variables of the pairwise factors, (m, 2)."""
        return self._pairs

    @property
    def pair_tables(self) -> Float64:
        """Log-tables of the pairwise factors, (m, 2, 2)."""
        return self._pair_tables

    def members(self, group: int) -> Ints:
        """Variables of one count factor."""
        return self._members[self._offsets[group] : self._offsets[group + 1]]

    @property
    def total_logits(self) -> Float64:
        """Log-odds with those of the factors that are models added, (D,): infinite ones decide by themselves."""
        found = self._cache.get("total")
        if found is None:
            found = self._cache["total"] = self._total_logits()
        return found

    def _total_logits(self) -> Float64:
        total = self._logits.copy()
        for i, potential in enumerate(self._potentials):
            if isinstance(potential, CountModel):
                own, at = np.asarray(potential.logits, np.float64), self.members(i)
                clash = (np.isinf(own) & np.isinf(total[at])) & (own != total[at])
                if clash.any():
                    v = int(at[np.argmax(clash)])
                    raise InfeasibleError(
                        f"Variable {v} is forced on by one infinite logit and excluded by another (group {i}). "
                        "Remove one of them."
                    )
                total[at] = np.where(
                    np.isinf(total[at]), total[at], np.where(np.isinf(own), own, total[at] + own)
                )
        total.flags.writeable = False
        return total

    def replace(self, *, logits: ArrayLike) -> FactorGraph:
        """The same factors with other log-odds.

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(2), [tt.Group([0, 1], tt.exactly(1))])
        >>> tt.loopy_bp(graph.replace(logits=[0.0, np.log(3.0)])).marginals
        array([0.25, 0.75])
        """
        values, _ = _validate.logits(logits)
        if values.shape != self._logits.shape:
            raise ParameterError(
                f"`logits` must have shape {self._logits.shape}; shape {values.shape} arrived."
            )
        new = FactorGraph.__new__(FactorGraph)
        new._setup(
            values.copy(),
            self._members,
            self._offsets,
            self._potentials,
            self._tables,
            self._pairs,
            self._pair_tables,
        )
        return new

    def log_weight(self, y: ArrayLike) -> Any:
        """Logarithm of the unnormalised weight of configurations (..., D).

        Examples
        --------
        >>> graph = tt.FactorGraph([1.0, 2.0, 4.0], [tt.Group([0, 1], tt.at_most(1)), tt.Group([1, 2], tt.at_most(1))])
        >>> graph.log_weight([[1, 0, 1], [1, 1, 0]])
        array([  5., -inf])
        """
        on = states(y, self.n_variables)
        forced = self._logits == math.inf
        with np.errstate(invalid="ignore"):
            total = np.where(on, np.where(forced, 0.0, self._logits), 0.0).sum(-1)
        total = np.where((~on & forced).any(-1), -math.inf, total)
        for i, table in enumerate(self._tables):
            at = self.members(i)
            if table is None:
                model = self._potentials[i]
                total = total + np.asarray(model.log_prob(on[..., at])) + np.asarray(model.log_partition)
            else:
                total = total + table[on[..., at].sum(-1)]
        if self.n_edges:
            a, b = on[..., self._pairs[:, 0]].astype(np.intp), on[..., self._pairs[:, 1]].astype(np.intp)
            total = total + self._pair_tables[np.arange(self.n_edges), a, b].sum(-1)
        return np.asarray(total)[()]

    # -- as a Python object ------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return (
            f"FactorGraph(n_variables={self.n_variables}, n_groups={self.n_groups}, n_edges={self.n_edges})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FactorGraph):
            return NotImplemented
        return (
            np.array_equal(self._logits, other._logits)
            and np.array_equal(self._members, other._members)
            and np.array_equal(self._offsets, other._offsets)
            and all(_same(a, b) for a, b in zip(self._tables, other._tables))
            and all(p == q for p, q in zip(self._potentials, other._potentials) if isinstance(p, CountModel))
            and np.array_equal(self._pairs, other._pairs)
            and np.array_equal(self._pair_tables, other._pair_tables)
        )

    def __hash__(self) -> int:
        return hash((self._logits.tobytes(), self._members.tobytes(), self._offsets.tobytes()))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "_cache"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _cache={})
        for value in state.values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False

    def __copy__(self) -> FactorGraph:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FactorGraph:
        return self  # frozen


def _same(a: Float64 | None, b: Float64 | None) -> bool:
    return a is b or (a is not None and b is not None and np.array_equal(a, b))


def _groups(groups: Any) -> Sequence[Group]:
    if isinstance(groups, Group):
        return [groups]
    try:
        listed = list(groups)
    except TypeError:
        listed = [groups]
    for g in listed:
        if not isinstance(g, Group):
            raise ParameterError(
                f"`groups` must be a list of Group objects, but it holds {_validate.describe(g)}. Wrap every entry: "
                "Group(members, potential)."
            )
    return listed


def _potential(value: Any, size: int, number: int, cache: dict[Any, Float64]) -> tuple[Any, Float64 | None]:
    """A factor's potential as kept, and its log-table unless it is a model."""
    if isinstance(value, CountModel):
        if value.n_variables != size or value.batch_shape:
            what = (
                f"batch shape {value.batch_shape}" if value.batch_shape else f"{value.n_variables} variables"
            )
            raise StructureError(
                f"The model of group {number} must be a single CountModel over {size} variables, one per member; one "
                f"with {what} arrived."
            )
        return value, None
    if isinstance(value, Potential) or value is None or callable(value):
        potential = as_potential(value)
        try:
            known = cache.get((potential, size))
        except TypeError:  # a potential written by the user may not be hashable
            return potential, _checked(potential.log_table(size), size, number)
        if known is None:
            known = cache[(potential, size)] = _checked(potential.log_table(size), size, number)
        return potential, known
    frozen = isinstance(value, np.ndarray) and value.dtype == np.float64 and not value.flags.writeable
    table = _checked(value if frozen else np.array(value, np.float64), size, number)
    if table.ndim != 1:
        raise ParameterError(
            f"The table of group {number} must be one-dimensional; shape {table.shape} arrived. Make one graph "
            f"per model."
        )
    return table, table


def _checked(table: Any, size: int, number: int) -> Float64:
    checked = _validate.log_table(table, size, name=f"The table of group {number}")
    checked.flags.writeable = False
    return checked


def _edges(edges: Any, n: int) -> tuple[Ints, Float64]:
    if edges is None:
        return np.empty((0, 2), np.int64), np.empty((0, 2, 2))
    if hasattr(edges, "pairs") and hasattr(edges, "log_tables"):
        edges = (edges.pairs, edges.log_tables)
    if not (isinstance(edges, (tuple, list)) and len(edges) == 2):
        raise ParameterError(
            "`edges` must be a tuple (pairs, log_tables) with shapes (m, 2) and (m, 2, 2); "
            f"{_validate.describe(edges)} arrived."
        )
    pairs = np.asarray(edges[0])
    if pairs.size == 0:
        return np.empty((0, 2), np.int64), np.empty((0, 2, 2))
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise StructureError(
            f"`pairs` must be integers of shape (m, 2); {_validate.describe(pairs)} arrived."
        )
    if pairs.min() < 0 or pairs.max() >= n:
        bad = pairs[(pairs < 0) | (pairs >= n)][0]
        raise StructureError(f"`pairs` names variable {int(bad)}, but variables are numbered 0 to {n - 1}.")
    loops = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
    if len(loops):
        raise StructureError(
            f"Edge {int(loops[0])} joins variable {int(pairs[loops[0], 0])} to itself. Leave it out."
        )
    tables, _ = _validate.real_array("log_tables", edges[1], axis="states")
    if tables.shape not in ((2, 2), (len(pairs), 2, 2)):
        raise ParameterError(
            f"`log_tables` must have shape (2, 2) or ({len(pairs)}, 2, 2), one table per edge; shape "
            f"{tables.shape} arrived."
        )
    if np.isnan(tables).any() or (tables == math.inf).any():
        raise ParameterError("`log_tables` must hold logarithms below +inf, but NaN or +inf arrived.")
    return pairs.astype(np.int64), np.broadcast_to(tables, (len(pairs), 2, 2)).copy()
