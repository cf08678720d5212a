"""What notebooks show: small inline SVG in colours that are readable on light and dark pages, and never an error."""

from __future__ import annotations

from .answers import fit_page, marginals_page, matrix_page, mode_page, rows_page, statistics_page
from .bars import MOST_BARS, bars
from .heat import MOST_CELLS, heat_of_cells
from .models import (
    chain_page,
    chunks_page,
    forest_page,
    graph_page,
    linear_page,
    model_page,
    ragged_page,
    sum_page,
    thinned_page,
)
from .page import page
from .potentials import group_page, potential_page
from .trace import trace

__all__ = [
    "MOST_BARS",
    "MOST_CELLS",
    "bars",
    "chain_page",
    "chunks_page",
    "fit_page",
    "forest_page",
    "graph_page",
    "group_page",
    "heat_of_cells",
    "linear_page",
    "marginals_page",
    "matrix_page",
    "mode_page",
    "model_page",
    "page",
    "potential_page",
    "ragged_page",
    "rows_page",
    "statistics_page",
    "sum_page",
    "thinned_page",
    "trace",
]
