"""What a model answers about its edges: the part of `CountModel` that only models with a forest have."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import Bools, FloatArray
from ..errors import ParameterError
from ..memo import answer
from .binary import BinaryModel
from .edges import Forest


class OnEdges(BinaryModel):
    """Edges and what they say; a base class of :class:`~tallytree.CountModel`, not used on its own."""

    @property
    def edges(self) -> Forest | None:
        """The forest, or None.

        See Also
        --------
        Forest

        Examples
        --------
        >>> model = tt.CountModel(np.zeros(2), edges=tt.Forest([(0, 1)], coupling=np.log(2.0)))
        >>> model.edges.pairs
        array([[0, 1]])
        """
        return self._forest

    @answer
    def edge_marginals(self) -> FloatArray:
        """P(y_i, y_j) of every edge, (..., E, 2, 2), axes in the order of its pair.

        Raises
        ------
        ParameterError
            If the model has no edges.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        marginals, Forest

        Examples
        --------
        >>> model = tt.CountModel(np.zeros(2), edges=tt.Forest([(0, 1)], coupling=np.log(2.0)))
        >>> model.edge_marginals[0].round(4)
        array([[0.4, 0.1],
               [0.1, 0.4]])
        """
        self._with_edges("edge_marginals")
        return self._vector(np.exp(self._solved.edge_log_probs()))

    @property
    def width(self) -> int:
        """Largest number of boundary vertices that a group needs on the edges: 0, 1 or 2.

        Raises
        ------
        ParameterError
            If the model has no edges.

        See Also
        --------
        boundary, Forest.boundary_width

        Examples
        --------
        >>> model = tt.CountModel(np.zeros(2), tt.exactly(1), edges=tt.Forest([(0, 1)], coupling=1.0))
        >>> model.width
        0
        """
        self._with_edges("width")
        assert self._structure is not None
        return self._structure.program.width

    def boundary(self, group: int) -> tuple[int, ...]:
        """Vertices that cover the edges leaving a group: its table is summed up for every state of theirs.

        Parameters
        ----------
        group : int
            Number of the group.

        Returns
        -------
        tuple of int
            Variables; empty where no edge leaves the group.

        Raises
        ------
        ParameterError
            If there is no group of this number, or the model has no edges.

        See Also
        --------
        width, Forest.boundary_width

        Examples
        --------
        >>> path = tt.Forest([(0, 1), (1, 2)], coupling=1.0)
        >>> tt.CountModel(np.zeros(3), [tt.Group([0, 1], tt.exactly(1))], edges=path).boundary(0)
        (1,)
        """
        self._with_edges("boundary")
        assert self._structure is not None
        index = self._group(group)
        s = int(self._tree.family.set_of_group[index])
        if s < 0:
            return (int(self._tree.family.variable_of_group[index]),)
        return self._structure.program.set_boundary[s]

    # -- how it is done ----------------------------------------------------------------------------------------

    def _with_edges(self, what: str) -> Forest:
        if self._forest is None:
            raise ParameterError(
                f"`{what}` is for models with edges, and this one has none. "
                "Make it with CountModel(logits, groups, edges=Forest(pairs, log_tables))."
            )
        return self._forest

    def _new_edges(self, edges: Any) -> Forest:
        own = self._with_edges("replace(edges=...)")
        forest = edges if isinstance(edges, Forest) else own.replace(edges)
        if not np.array_equal(forest.pairs, own.pairs):
            raise ParameterError(
                "`edges` must keep the pairs of the model. For others make a new CountModel."
            )
        return forest

    def _edge_weight(self, states: Bools) -> Any:
        """Log-weights that the edges give to configurations, far numbers apart."""
        if self._forest is None:
            return 0.0
        pairs, tables = self._forest.pairs, self._near_edges.tables
        first, second = states[..., pairs[:, 0]], states[..., pairs[:, 1]]
        on = np.where(second, tables[..., 1, 1], tables[..., 1, 0])
        off = np.where(second, tables[..., 0, 1], tables[..., 0, 0])
        return np.where(first, on, off).sum(-1)
