"""What results of a run show: its numbers, and pictures of marginals, cells and convergence."""

from __future__ import annotations

from typing import Any

import numpy as np

from .bars import distribution, of_variables
from .heat import heat
from .models import variables
from .page import page, page_of
from .trace import trace

_MOST_TABLES = 4  # distributions of groups that are shown side by side


def marginals_page(result: Any, changes: Any = None) -> str:
    """A result about single variables, with the changes of every sweep where they are known."""

    def draw() -> list[str]:
        pictures = of_variables(result.marginals, "P(variable is on), approximate")
        return pictures + ([] if changes is None else trace(changes, "change of a sweep", logarithmic=True))

    return page_of(result, draw)


def mode_page(result: Any) -> str:
    """One configuration."""
    return page_of(result, lambda: of_variables(result.mode, "the configuration"))


def matrix_page(result: Any, matrix: Any, title: str, changes: Any = None) -> str:
    """A result about the cells of a matrix."""

    def draw() -> list[str]:
        line = [] if changes is None else trace(changes, "change of a sweep", logarithmic=True)
        return [heat(matrix, title), *line]

    return page_of(result, draw)


def rows_page(result: Any, rows: Any, title: str) -> str:
    """Configurations (..., D), one to a row."""
    values = np.asarray(rows)
    return page_of(result, lambda: [heat(values.reshape(-1, values.shape[-1]), title)] if values.size else [])


def fit_page(fit: Any, **facts: object) -> str:
    """A fit: how it ended, the parameters of its potentials, and the objective of every step."""
    state = "converged" if fit.converged else "not converged"
    named = {"log_likelihood": f"{fit.log_likelihood:.6g}", **facts}
    named |= {name: f"{value:.6g}" for name, value in fit.parameters.items()}
    text = ", ".join([state, *(f"{name}={value}" for name, value in named.items())])
    return page(f"{type(fit).__name__}({text})", trace(fit.history, "objective"))


def statistics_page(result: Any) -> str:
    """Expected statistics: marginals, and the counts of the first groups."""

    def draw() -> list[str]:
        pictures = variables(result.logits) if np.size(result.logits) else []
        for g, table in enumerate(result.tables[:_MOST_TABLES]):
            if np.ndim(table) == 1:
                mass = np.asarray(table, np.float64)
                pictures.append(distribution(mass, range(len(mass)), f"P(count of group {g})"))
        return pictures

    return page_of(result, draw)
