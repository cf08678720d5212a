"""Count models with pairwise tables on the edges of a forest."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks
from ..arrays import Float64, FloatArray, States
from ..engine.count import moments
from ..engine.forest import ladder
from ..errors import ParameterError
from ..structure.forest.clusters import ClusterProgram
from ..structure.nested.count_tree import CountTree
from . import arguments, parameters
from .count import CountModel, _structure
from .edges import Forest, check_members
from .forest_core import ForestCore, analyse
from .forest_divergence import divergence
from .parameters import Parameters
from .sampling import Size, SparseSamples, shape_of_size
from .second_order import ExpectedStatistics


@dataclass(frozen=True, eq=False)
class ForestStatistics(ExpectedStatistics):
    """Gradient of ``log_partition`` of a model with edges: also ``edges`` (..., E, 2, 2), the edge marginals."""

    edges: FloatArray


class ForestCountModel(ForestCore):
    """A count model with edges; made by ``CountModel(logits, groups, edges=forest)``.

    ``p(y) = exp(sum_d logits_d y_d) prod_(i,j) t_ij(y_i, y_j) prod_k f_k(sum_{d in group k} y_d) / Z``

    Parameters
    ----------
    logits, groups
        As for :class:`~tallytree.CountModel`. Groups must fit the edges. Any single group does; and all variables,
        subtrees, unions of subtrees with one parent and intervals of a chain, nested as one likes. In general groups
        are summed up one after the other, inner ones first. At most two vertices, its boundary, may cover the edges
        between what remains of a group and the rest, and if the group does not connect the two itself, nothing else
        may: it then becomes an edge between them, and what remains must be a forest. Variables around a group that no
        group counts may belong to either side.
    edges : Forest
        Pairs of variables and their log-tables.

    Notes
    -----
    Cost: O(D log^2 D) for any shape of the forest, plus the size of the tables; without groups that of ordinary belief
    propagation, O(D). Where rounding cannot be certified, O(D^2). ``mode`` and ``max_marginals`` take O(D^2), because
    (max, +) has no fast convolution; ``sample`` one inference and O(D log D) per sample.

    Accuracy: as for :class:`~tallytree.CountModel`.

    Examples
    --------
    A chain whose neighbours agree more often than not; at least one of the first two on, four on in all:

    >>> chain = tt.Forest([(i, i + 1) for i in range(5)], 0.5)
    >>> groups = [tt.Group([0, 1], tt.at_least(1)), tt.Group(None, tt.exactly(4))]
    >>> model = tt.CountModel(np.zeros(6), groups, edges=chain)
    >>> model
    CountModel(n_variables=6, n_groups=2, n_edges=5)
    >>> model.marginals.round(3)
    array([0.775, 0.824, 0.692, 0.692, 0.533, 0.483])
    """

    def __init__(self, logits: ArrayLike, groups: Any = None, *, edges: Forest, method: str = "auto") -> None:
        values, dtype = checks.logits(logits)
        n = values.shape[-1]
        forest = check_members(edges, n)
        if method != "auto":
            raise ParameterError(f'`method` must be "auto" for a model with edges; {method!r} arrived.')
        tree, potentials = _structure(groups, n)
        program = analyse(tree, forest) if tree.family.n_sets else None
        params = parameters.collect(tree, _stretched(values, forest), dtype, potentials)
        self._equip(tree, params, forest, program)

    def _equip(
        self, tree: CountTree, params: Parameters, forest: Forest, program: ClusterProgram | None
    ) -> None:
        self._setup(tree, params, "auto")
        self._forest, self._contracted = forest, program

    def _derive(self, tree: CountTree, params: Parameters, forest: Forest | None = None) -> ForestCountModel:
        """A model on the same edges; the analysis is kept if the sets are the same."""
        model = object.__new__(ForestCountModel)
        family, old = tree.family, self._tree.family
        same = all(
            np.array_equal(getattr(family, name), getattr(old, name)) for name in ("order", "start", "stop")
        )
        needed = analyse(tree, self._forest) if family.n_sets and not same else None
        program = self._contracted if same else needed
        model._equip(tree, params, forest or self._forest, program)
        if same and "rooting" in self._cache:
            model._cache["rooting"] = self._cache["rooting"]
        return model

    def _make(self, tree: CountTree, params: Parameters, method: str) -> CountModel:  # type: ignore[override]
        return self._derive(tree, params)

    @classmethod
    def from_tree(
        cls, tree: CountTree, logits: ArrayLike, tables: Any, *, method: str = "auto"
    ) -> CountModel:
        """A model without edges on an existing structure; see :meth:`CountModel.from_tree`."""
        return CountModel.from_tree(tree, logits, tables, method=method)

    # -- structure ---------------------------------------------------------------------------------------------

    @property
    def edges(self) -> Forest:
        """The forest."""
        return self._forest

    @property
    def width(self) -> int:
        """Largest number of boundary vertices that a group needs: 0, 1 or 2."""
        return self._program.width

    def boundary(self, group: int) -> tuple[int, ...]:
        """Vertices that cover the edges leaving a group: its table is summed up for every state of theirs."""
        index = self._group(group)
        s = int(self._tree.family.set_of_group[index])
        if s < 0:
            return (int(self._tree.family.variable_of_group[index]),)
        return self._program.set_boundary[s]

    def replace(
        self, *, logits: ArrayLike | None = None, tables: Any = None, edges: Any = None
    ) -> ForestCountModel:
        """The same structure with new parameters; nothing is analysed again.

        Parameters
        ----------
        logits, tables
            As in :meth:`CountModel.replace`.
        edges : Forest or array_like, optional
            A forest with the same pairs, or new log-tables or couplings for them.
        """
        forest = self._forest
        if edges is not None:
            forest = edges if isinstance(edges, Forest) else forest.replace(edges)
            if not np.array_equal(forest.pairs, self._forest.pairs):
                raise ParameterError(
                    "`edges` must keep the pairs of the model. For others make a new CountModel."
                )
        moved = self._derive(self._tree, self._params, forest)
        if logits is None and tables is None and moved._batch == self.batch_shape:
            return moved
        if logits is None:
            logits = np.asarray(self._params.logits)
        values, dtype = checks.logits(logits)
        stretched = _stretched(values, forest).astype(dtype)
        found = CountModel.replace(moved, logits=stretched, tables=tables)
        assert isinstance(found, ForestCountModel)
        return found

    @property
    def _batch(self) -> tuple[int, ...]:
        return np.broadcast_shapes(self._params.batch_shape, self._forest.batch_shape)

    # -- answers -----------------------------------------------------------------------------------------------

    @property
    def edge_marginals(self) -> FloatArray:
        """P(y_i, y_j) of every edge, (..., E, 2, 2), axes in the order of its pair."""
        return self._cached("edge_marginals", self._edge_marginals)

    def _edge_marginals(self) -> FloatArray:
        log_edges = self._answer.log_edges
        out = np.exp(log_edges).reshape(*self.batch_shape, *log_edges.shape[1:])
        out = out.astype(self._params.dtype, copy=False)
        out.flags.writeable = False
        return out

    def log_prob(self, y: ArrayLike) -> Any:
        """Log-probability of configurations, (..., D) of 0 and 1; leading axes broadcast against the batch."""
        states = arguments.states(y, self.n_variables)
        # What far numbers add to all configurations alike is in neither term.
        score = moments.log_weight(self._tree, self._params.near, states) + self._edge_weight(states)
        return self._result(score - np.reshape(self._log_norm, self.batch_shape))

    def _edge_weight(self, states: NDArray[np.bool_]) -> Float64:
        pairs, tables = self._forest.pairs, self._near_edges[0]
        first, second = states[..., pairs[:, 0]], states[..., pairs[:, 1]]
        on = np.where(second, tables[..., 1, 1], tables[..., 1, 0])
        off = np.where(second, tables[..., 0, 1], tables[..., 0, 0])
        return np.asarray(np.where(first, on, off).sum(-1))

    def _divergence(self, other: CountModel) -> Float64:
        return divergence(self, self._on_edges(other))

    @classmethod
    def _on_edges(cls, model: CountModel) -> ForestCountModel:
        """The same model; one without edges as one on a forest that has none."""
        if isinstance(model, ForestCountModel):
            return model
        nothing = Forest(np.empty((0, 2), np.int64), np.zeros((0, 2, 2)))
        new, tree = object.__new__(ForestCountModel), model._tree
        new._equip(tree, model._params, nothing, analyse(tree, nothing) if tree.family.n_sets else None)
        return new

    @overload
    def sample(self, size: Size = None, rng: Any = None, *, sparse: Literal[False] = False) -> States: ...
    @overload
    def sample(self, size: Size = None, rng: Any = None, *, sparse: Literal[True]) -> SparseSamples: ...
    def sample(self, size: Size = None, rng: Any = None, *, sparse: bool = False) -> States | SparseSamples:
        """Exact joint samples, (*size, ..., D) of 0 and 1.

        Parameters
        ----------
        size : int or tuple of int, optional
            Number of samples per model; default one, without an axis of its own.
        rng : Generator, int or None
            A generator or a seed.
        sparse : bool
            Return the variables that are on instead of an array of 0 and 1.

        Notes
        -----
        Cost: one inference, then O(D log D) per sample for a balanced spread of counts.

        Examples
        --------
        >>> chain = tt.Forest([(0, 1), (1, 2)], 2.0)
        >>> drawn = tt.CountModel(np.zeros(3), tt.exactly(1), edges=chain).sample(500, rng=0)
        >>> drawn.shape, np.unique(drawn.sum(-1)).tolist()
        ((500, 3), [1])
        """
        shape = shape_of_size(size)
        generator = checks.generator(rng)
        self._answer  # noqa: B018 - raises for an impossible model
        _, rungs, tilts = self._inferred
        found = ladder.draw(self._problem, rungs, tilts, math.prod(shape), generator)
        drawn = found.astype(np.uint8).reshape((*shape, *self.batch_shape, self.n_variables))
        return SparseSamples.from_dense(drawn) if sparse else drawn

    def _count_probs(self) -> tuple[FloatArray, ...]:
        return tuple(np.exp(self.count_log_probs(g)) for g in range(self._tree.family.n_groups))

    def _expected_statistics(self) -> ForestStatistics:
        found = super()._expected_statistics()
        return ForestStatistics(found.logits, found.tables, self.edge_marginals)

    # -- as a Python object ------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        parts = [
            f"n_variables={self.n_variables}",
            f"n_groups={self._n_groups}",
            f"n_edges={self._forest.n_edges}",
        ]
        if self.batch_shape:
            parts.append(f"batch_shape={self.batch_shape}")
        return f"CountModel({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ForestCountModel):
            return False if isinstance(other, CountModel) else NotImplemented
        return self._forest == other._forest and super().__eq__(other)

    def __hash__(self) -> int:
        return hash((super().__hash__(), self._forest))

    def __getstate__(self) -> dict[str, Any]:
        return {"tree": self._tree, "params": self._params, "forest": self._forest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        tree, forest = state["tree"], state["forest"]
        program = analyse(tree, forest) if tree.family.n_sets else None
        self._equip(tree, state["params"], forest, program)

    def __reduce__(self) -> Any:
        return _restore, (self.__getstate__(),)


def _restore(state: Mapping[str, Any]) -> ForestCountModel:
    model = object.__new__(ForestCountModel)
    model.__setstate__(dict(state))
    return model


def _stretched(values: Float64, forest: Forest) -> Float64:
    """Log-odds with the batch axes of the edges' tables too."""
    try:
        shape = np.broadcast_shapes(values.shape[:-1], forest.batch_shape)
    except ValueError:
        raise ParameterError(
            f"`edges` has batch shape {forest.batch_shape}, which does not broadcast against {values.shape[:-1]} of "
            "`logits`. Batch axes lead: logits (..., D), edge tables (..., E, 2, 2)."
        ) from None
    return np.broadcast_to(values, (*shape, values.shape[-1]))


CountModel._edge_model = ForestCountModel
