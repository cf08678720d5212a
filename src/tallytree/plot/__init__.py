"""Pictures of models and answers: every function draws into ``ax``, or into a new figure, and returns the axes.

matplotlib is imported when a picture is drawn: ``pip install tallytree[plot]``.
"""

from __future__ import annotations

from .answers import assignment_heatmap, count_distribution, density_comparison, loopy_trace, marginals
from .structures import count_tree, group_tree, potential

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
