"""The Kullback-Leibler divergence of two count models over the same variables."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.distributions import register_kl

from ..errors import ParameterError
from . import functions
from . import structure as structures
from .distributions import CountDistribution
from .edges import EdgedStructure
from .groups import Posed
from .structure import Structure, structure_of
from .weights import expected_weight


@register_kl(CountDistribution, CountDistribution)
def _kl(p: CountDistribution, q: CountDistribution) -> Tensor:
    """KL(p || q) = E_p[log weight_p - log weight_q] - log Z_p + log Z_q on the groups of both."""
    if p.event_shape != q.event_shape:
        raise ParameterError(
            f"The Kullback-Leibler divergence needs models over the same variables; {p.event_shape[0]} and "
            f"{q.event_shape[0]} variables arrived."
        )
    first, second = _together(p._posed.wide(), q._posed.wide())
    log_z, marginals, probs = functions.statistics(first)
    gap = functions.log_partition_of(second) - log_z
    own, other = (expected_weight(marginals, probs, weights) for weights in (first, second))
    found = own - other + gap
    return found.to(p._posed.dtype)


def _together(p: Posed, q: Posed) -> tuple[Posed, Posed]:
    """Both models on the groups of both, with one batch shape."""
    shape = torch.broadcast_shapes(p.logits.shape, q.logits.shape)
    keys = p.structure.key, q.structure.key
    structure = _joint(*keys)
    ends, added = _ends(*keys), _added(*keys)
    cells = structures.cells_in_all(structure.key)

    def moved(posed: Posed, end: int, first: int, last: int) -> Posed:
        own = posed.packed()
        groups = torch.nn.functional.pad(own[..., :end], (first, last))
        edges = own[..., end:]
        missing = cells - groups.shape[-1] - edges.shape[-1]
        tables = torch.cat([groups, torch.nn.functional.pad(edges, (0, missing))], dim=-1)
        return posed._replace(
            logits=posed.logits.expand(shape),
            tables=tables.expand(*shape[:-1], tables.shape[-1]),
            structure=structure,
        )

    return moved(p, ends[0], 0, added[1]), moved(q, ends[1], added[0], 0)


@structures.made
def _joint(first: int, second: int) -> Structure:
    """The groups and edges of two structures, with tables that arrive with every call."""
    p, q = structure_of(first), structure_of(second)
    tree = p.tree if p.tree == q.tree else p.tree.with_groups(list(q.tree.groups))
    return _shared_edges(p, q).on(tree, None)


@torch.compiler.assume_constant_result
def _ends(first: int, second: int) -> tuple[int, int]:
    """Where the tables of the groups end in those of either."""
    p, q = structure_of(first).tree.family, structure_of(second).tree.family
    return int(p.group_offset[-1]), int(q.group_offset[-1])


@torch.compiler.assume_constant_result
def _added(first: int, second: int) -> tuple[int, int]:
    """How many cells the groups of either add to the other's: none where both have the same."""
    same = structure_of(first).tree == structure_of(second).tree
    return (0, 0) if same else _ends(first, second)


def _shared_edges(p: Structure, q: Structure) -> Structure:
    """The one of two structures that has edges; both may if they are the same."""
    if not isinstance(p, EdgedStructure):
        return q
    if isinstance(q, EdgedStructure) and not np.array_equal(p.frame.pairs, q.frame.pairs):
        raise ParameterError(
            "The Kullback-Leibler divergence needs models with the same edges, or one without; different pairs arrived."
        )
    return p
