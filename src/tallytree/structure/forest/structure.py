"""A forest with the sets that are counted on it, analysed when somebody asks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Ints
from ...memo import cached
from ..nested.family import NestedFamily
from . import top_tree
from .clusters import ClusterProgram
from .contraction import contract, top_sets, without_sets


class ForestStructure:
    """Edges, what each vertex can add to a count, and a nested family of sets.

    Attributes
    ----------
    pairs : (E, 2)
    degree : (D,)
        Largest score of any state of a vertex.
    offset : (n_sets + 1,)
        Where the log-table of each set starts in the packed tables.
    """

    def __init__(self, pairs: Ints, degree: Ints, family: NestedFamily) -> None:
        self.pairs, self.degree, self.family = pairs, degree, family
        before = np.concatenate([[0], np.cumsum(degree[family.order])])
        sizes = before[family.stop] - before[family.start] + 1
        self.offset: Ints = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

    @cached
    def program(self) -> ClusterProgram:
        """In which order clusters are contracted; refuses sets that do not fit the edges."""
        return contract(self.family.n_variables, self.pairs, self.degree, self.family)

    @cached
    def bare_program(self) -> ClusterProgram:
        """The same clusters when nothing is counted."""
        return without_sets(self.program)

    @cached
    def rooting(self) -> tuple[NDArray[Any], ...]:
        """The forest, rooted, for the compiled engine."""
        return top_tree.compiled_rooting(self.family.n_variables, self.pairs)

    @cached
    def top_set(self) -> Ints:
        """The largest set that holds each vertex, or -1."""
        return top_sets(self.family)

    def fits(self, family: NestedFamily) -> bool:
        """Whether another family has the same sets, so that the analysis serves it too."""
        names = ("order", "start", "stop")
        return all(np.array_equal(getattr(family, name), getattr(self.family, name)) for name in names)
