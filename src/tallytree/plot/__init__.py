"""Pictures of models and answers: every function draws into ``ax``, or into a new figure, and returns the axes.

matplotlib is imported when a picture is drawn: ``pip install tallytree[plot]``.
"""

from __future__ import annotations

from .pictures import (
    assignment_heatmap,
    count_distribution,
    count_tree,
    density_comparison,
    group_tree,
    loopy_trace,
    marginals,
    potential,
)

__all__ = [
    "assignment_heatmap",
    "count_distribution",
    "count_tree",
    "density_comparison",
    "group_tree",
    "loopy_trace",
    "marginals",
    "potential",
]
