"""What models show: answers of those that are solved at once, the structure of the others.

Notebooks show an object without being asked to, so no display starts work that can be felt: every kind of model has a
size, in the unit that its cost grows with, up to which it is solved for a picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .bars import distribution, gathered, of_variables
from .heat import heat
from .links import links, log_odds_ratios
from .page import page, page_of

MOST_VARIABLES = 4096  # of count models: milliseconds
MOST_WITH_EDGES = 1024  # strong couplings take 1.4 s of processor time at 4096
MOST_CHAIN_STEPS = 1 << 19  # largest count times labels cubed; 2^21 take 0.2 s
MOST_GRID_STEPS = 1 << 20  # variables times points of the grid of a linear model


def model_page(model: Any) -> str:
    """A count model: marginals and counts, of a batch the marginals of all its models."""
    edges = model.edges
    most = MOST_VARIABLES if edges is None else MOST_WITH_EDGES

    def draw() -> list[str]:
        pictures = variables(model.marginals)
        if not model.batch_shape:
            pictures.append(counts(model.count_log_probs()))
        if edges is not None:
            pictures.append(edge_picture(edges, model.n_variables))
        return pictures

    return page_of(model, draw, small=0 < _size(model) <= most)


def chain_page(model: Any, largest: int) -> str:
    """A chain of labels: its counts, up to `largest`, and the probabilities of its labels at every position."""
    steps = math.prod(model.batch_shape) * max(largest, model.n_positions) * model.n_labels**3

    def draw() -> list[str]:
        marginals = np.asarray(model.marginals, np.float64)
        if model.batch_shape:
            return (
                [heat(_rows(marginals[..., 1]), "P(label 1), one chain to a row")]
                if model.n_labels == 2
                else []
            )
        if model.n_labels == 2:
            pictures = of_variables(marginals[:, 1], "P(label 1)")
        else:
            pictures = [heat(marginals.T, "P(label), one label to a row")]
        return [*pictures, counts(model.count_log_probs())]

    return page_of(model, draw, small=0 < steps <= MOST_CHAIN_STEPS)


def linear_page(model: Any) -> str:
    """A linear model: marginals, and the distribution of the linear combination."""
    steps = math.prod(model.batch_shape) * model.n_variables * len(model.values)

    def draw() -> list[str]:
        pictures = variables(model.marginals)
        if not model.batch_shape:
            mass = np.exp(np.asarray(model.sum_log_probs, np.float64))
            pictures.append(distribution(mass, [f"{v:g}" for v in model.values.tolist()], "P(sum)"))
        return pictures

    return page_of(model, draw, small=0 < steps <= MOST_GRID_STEPS)


def thinned_page(model: Any) -> str:
    """A thinned model: who is on, and who acts, with the leak in the last place."""

    def draw() -> list[str]:
        return [*variables(model.marginals), *variables(model.acting.marginals, "P(variable acts)")]

    return page_of(model, draw, small=0 < _size(model) <= MOST_VARIABLES)


def ragged_page(models: Any) -> str:
    """Models of different sizes: one to a row, and how large they are."""
    sizes = models.sizes

    def draw() -> list[str]:
        matrix = np.zeros((len(sizes), int(sizes.max())))
        for row, found in zip(matrix, models.marginals):
            row[: len(found)] = found
        sized = distribution(
            np.bincount(sizes).astype(np.float64), range(int(sizes.max()) + 1), "models by size"
        )
        return [heat(matrix, "P(variable is on), one model to a row"), sized]

    return page_of(models, draw, small=0 < int(sizes.sum()) <= MOST_VARIABLES)


def sum_page(distribution_of: Any, n_values: int) -> str:
    """The distribution of a sum, of a batch one to a row; `n_values` says how many values there are without a table."""

    def draw() -> list[str]:
        mass = np.exp(np.asarray(distribution_of.count_log_probs, np.float64))
        if distribution_of.batch_shape:
            return [heat(_rows(mass), "P(X = k), one distribution to a row")]
        return [distribution(mass, distribution_of.values.tolist(), "P(X = k)")]

    size = math.prod((*distribution_of.batch_shape, n_values))
    return page_of(distribution_of, draw, small=0 < size <= MOST_VARIABLES)


def chunks_page(text: str, sizes: Sequence[int]) -> str:
    """Something in chunks: how long they are."""
    lengths = np.asarray(sizes, np.float64)
    if not len(lengths):
        return page(text)
    return page(text, [gathered(lengths, range(len(lengths)), "numbers by chunk", "chunks")])


def graph_page(graph: Any) -> str:
    """A factor graph: which variables its factors hold. No answers, because it has no exact ones."""
    return page_of(graph, lambda: [_graph_picture(graph)])


def _graph_picture(graph: Any) -> str:
    if graph.n_variables > MOST_VARIABLES or graph.n_groups > MOST_VARIABLES:
        return ""
    groups = [(np.asarray(g.members), _short(g.potential)) for g in graph.groups]
    return links(graph.n_variables, groups, graph.pairs, log_odds_ratios(graph.pair_tables), "factor graph")


def forest_page(forest: Any) -> str:
    """Edges as arcs between variables."""
    return page_of(forest, lambda: [edge_picture(forest, forest.largest + 1)])


def edge_picture(forest: Any, n: int) -> str:
    """The same inside the display of a model of n variables."""
    if n > MOST_VARIABLES:
        return ""
    return links(n, [], forest.pairs, log_odds_ratios(forest.log_tables), "edges")


def _size(model: Any) -> int:
    return math.prod((*model.batch_shape, model.n_variables))


def variables(marginals: Any, title: str = "P(variable is on)") -> list[str]:
    """Bars of one model, a heat map of a batch."""
    values = np.asarray(marginals, np.float64)
    if values.ndim == 1:
        return of_variables(values, title)
    return [heat(_rows(values), f"{title}, one model to a row")]


def counts(count_log_probs: Any) -> str:
    """The distribution of a count."""
    mass = np.exp(np.asarray(count_log_probs, np.float64))
    return distribution(mass, range(len(mass)), "P(count)")


def _rows(values: Any) -> Any:
    return values.reshape(-1, values.shape[-1])


def _short(value: object) -> str:
    """The text of a potential, in one line."""
    text = "a table" if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
