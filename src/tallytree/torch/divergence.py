"""The Kullback-Leibler divergence of two count models over the same variables."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.distributions import register_kl

from ..errors import ParameterError
from . import functions
from .distributions import CountDistribution
from .edges import EdgedStructure
from .groups import Posed
from .structure import Structure
from .weights import expected_weight, packed, wide


@register_kl(CountDistribution, CountDistribution)
def _kl(p: CountDistribution, q: CountDistribution) -> Tensor:
    """KL(p || q) = E_p[log weight_p - log weight_q] - log Z_p + log Z_q on the groups of both."""
    if p.event_shape != q.event_shape:
        raise ParameterError(
            f"The Kullback-Leibler divergence needs models over the same variables; {p.event_shape[0]} and "
            f"{q.event_shape[0]} variables arrived."
        )
    first, second = _together(wide(p._posed), wide(q._posed))
    log_z, marginals, probs = functions.statistics(first)
    gap = functions.log_partition_of(second) - log_z
    own, other = (expected_weight(marginals, probs, weights) for weights in (first, second))
    found = own - other + gap
    return found.to(p._posed.dtype)


def _together(p: Posed, q: Posed) -> tuple[Posed, Posed]:
    """Both models on the groups of both, with one batch shape."""
    shape = torch.broadcast_shapes(p.logits.shape, q.logits.shape)
    a, b = p.structure.tree, q.structure.tree
    same = a == b
    tree = a if same else a.with_groups(list(b.groups))
    structure = _shared_edges(p.structure, q.structure).on(tree, None)
    extra = 0 if same else b.family.group_offset[-1]
    before = 0 if same else a.family.group_offset[-1]

    def moved(posed: Posed, first: int, last: int) -> Posed:
        tables, end = packed(posed), int(posed.structure.tree.family.group_offset[-1])
        groups = torch.nn.functional.pad(tables[..., :end], (int(first), int(last)))
        edges = tables[..., end:]
        missing = structure.n_cells - groups.shape[-1] - edges.shape[-1]
        tables = torch.cat([groups, torch.nn.functional.pad(edges, (0, missing))], dim=-1)
        return posed._replace(
            logits=posed.logits.expand(shape),
            tables=tables.expand(*shape[:-1], tables.shape[-1]),
            structure=structure,
        )

    return moved(p, 0, extra), moved(q, before, 0)


def _shared_edges(p: Structure, q: Structure) -> Structure:
    """The one of two structures that has edges; both may if they are the same."""
    if not isinstance(p, EdgedStructure):
        return q
    if isinstance(q, EdgedStructure) and not np.array_equal(p.frame.pairs, q.frame.pairs):
        raise ParameterError(
            "The Kullback-Leibler divergence needs models with the same edges, or one without; different pairs arrived."
        )
    return p
