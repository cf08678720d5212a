"""What plots are given, checked, and the numbers that they draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..arrays import Float64
from ..checks import describe
from ..errors import ParameterError
from ..loopy import LoopyResult, LowerBound, UpperBound
from ..models.chain import ChainModel
from ..models.conditional_sum import ConditionalPoissonBinomial
from ..models.count import CountModel
from ..models.factor_graph import FactorGraph
from ..models.frozen_distribution import FrozenDistribution
from ..models.linear import LinearModel
from ..models.poisson_binomial import PoissonBinomial
from ..models.thinned import ThinnedModel
from ..structure.nested.count_tree import CountTree

MODELS = (CountModel, ChainModel, FrozenDistribution, LinearModel)
BELIEFS = (LoopyResult, UpperBound, LowerBound)


def single(model: Any, kinds: tuple[type, ...], hints: Mapping[str, str]) -> Any:
    """A model that is not a batch; of what cannot be drawn `hints`, by the name of the class, say what can."""
    if not isinstance(model, kinds):
        shared = {
            "Assignment": "Use `assignment_heatmap` with what its `loopy_bp()` returns.",
            "AssignmentBeliefs": "Use `assignment_heatmap` for it.",
            "FactorGraph": "Its answers are approximate: draw what `loopy_bp(graph)` returns.",
            "RaggedBatch": "Take one of its models, such as batch[0].",
        }
        hint = (shared | dict(hints)).get(type(model).__name__, "")
        raise ParameterError(
            "`model` must be a model of binary variables, a ChainModel, a PoissonBinomial or what `loopy_bp` returns; "
            f"{describe(model)} arrived.{hint and ' ' + hint}"
        )
    batch = getattr(model, "batch_shape", ())
    if batch:
        raise ParameterError(
            f"`model` must be a single model; batch shape {batch} arrived. Make a model of one row of it."
        )
    return model


def tree_of(value: Any) -> CountTree:
    found = value.tree if isinstance(value, (CountModel, ChainModel)) else value
    if not isinstance(found, CountTree):
        overlap = " Its groups may overlap: there is no tree." if isinstance(value, FactorGraph) else ""
        raise ParameterError(
            f"`tree` must be a CountTree, a CountModel or a ChainModel; {describe(value)} arrived.{overlap}"
        )
    return found


def variable_names(names: Any, n: int) -> list[str] | None:
    if names is None:
        return None
    alone = isinstance(names, (str, bytes, Mapping)) or getattr(names, "ndim", 1) == 0
    if alone or not isinstance(names, Iterable):
        raise ParameterError(f"`names` must be a list with one text per variable; {describe(names)} arrived.")
    labels = [str(name) for name in names]
    if len(labels) != n:
        raise ParameterError(f"`names` must have one entry per variable, {n}; {len(labels)} arrived.")
    return labels


def numbers(name: str, value: Any) -> Float64:
    try:
        return np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"`{name}` must hold real numbers; {describe(value)} arrived.") from None


def binary_rows(name: str, value: Any, n: int) -> NDArray[Any]:
    array = numbers(name, value)
    if array.ndim != 2 or array.shape[1] != n or len(array) == 0 or not np.isin(array, (0, 1)).all():
        raise ParameterError(
            f"`{name}` must be rows of 0 and 1 with {n} columns, one per variable of the tree; an array of shape "
            f"{array.shape} arrived."
        )
    return array.astype(np.uint8)


def probabilities(model: Any) -> tuple[Float64 | None, Float64]:
    """Probabilities of the variables by themselves, and given everything."""
    hints = {
        "ChunkedCountModel": "Its `marginals` come in chunks; `count_distribution` draws its count.",
        "ChunkedPoissonBinomial": "Its `probs` are yours; `pmf` has the distribution of the count.",
    }
    single(model, (*MODELS, ThinnedModel, *BELIEFS), hints)
    if isinstance(model, LoopyResult):
        return np.asarray(expit(model.graph.logits)), model.marginals
    if isinstance(model, BELIEFS):
        return None, model.marginals
    if isinstance(model, ConditionalPoissonBinomial):
        return model.prior, model.marginals
    if isinstance(model, PoissonBinomial):
        return None, model.probs
    posterior = np.asarray(model.marginals, np.float64)
    if isinstance(model, ChainModel):
        if posterior.shape[-1] != 2:
            raise ParameterError(
                f"`model` has {posterior.shape[-1]} states; bars show chains of two. Use `assignment_heatmap` with "
                "its `marginals`, one row per position."
            )
        return None, posterior[:, 1]
    return np.asarray(expit(np.asarray(model.logits, np.float64))), posterior


def distributions(
    model: Any, group: int | None
) -> tuple[NDArray[Any], Float64 | None, Float64, Float64 | None]:
    """Counts, their probabilities for the variables alone and given everything, and the log-potential."""
    hints = {
        "ThinnedModel": "Draw `model.acting`, whose count has the potential.",
        "ChunkedPoissonBinomial": "Ask its `pmf` for the counts to be drawn.",
    }
    if hasattr(model, "count_windows"):  # a ChunkedCountModel
        _no_group(group, "a model in chunks")
        window = model.count_log_probs()
        return window.first + np.arange(len(window.log_probs)), None, np.exp(window.log_probs), None
    single(model, (*MODELS, LoopyResult), hints)
    if isinstance(model, LinearModel):
        _no_group(group, "a linear combination")
        return model.values, np.exp(model._prior_log_probs), np.exp(model.sum_log_probs), model.log_f
    if isinstance(model, LoopyResult):
        if group is None:
            raise ParameterError(
                "`group` must be the number of a group for beliefs; None arrived. Take 0 for the first."
            )
        posterior = np.exp(model.count_log_probs(group))
        return np.arange(len(posterior)), None, posterior, None
    if isinstance(model, FrozenDistribution):
        _no_group(group, "a sum")
        before = model.before if isinstance(model, ConditionalPoissonBinomial) else None
        prior = None if before is None else np.exp(before.count_log_probs)
        return model.values, prior, np.exp(model.count_log_probs), None
    posterior = np.exp(np.asarray(model.count_log_probs(group), np.float64))
    if isinstance(model, ChainModel):
        return np.arange(len(posterior)), None, posterior, None
    members, potential = _group_parts(model, group, len(posterior))
    alone = CountModel(np.asarray(model.logits, np.float64)[members])
    prior = np.exp(np.asarray(alone.count_log_probs(), np.float64))
    return np.arange(len(posterior)), prior, posterior, potential


def _no_group(group: Any, what: str) -> None:
    if group is not None:
        raise ParameterError(f"`group` must be None for {what}; {describe(group)} arrived.")


def _group_parts(
    model: CountModel, group: int | None, width: int
) -> tuple[NDArray[np.int64], Float64 | None]:
    """Members of a group, and the sum of the log-tables of the groups with the same members."""
    groups = list(model.tree.groups)
    members = np.arange(model.n_variables) if group is None else np.asarray(groups[group])
    same = [
        np.asarray(table)
        for g, table in zip(groups, model.tables)
        if len(g) == len(members) and np.array_equal(g, members)
    ]
    return members, np.sum(same, axis=0) if same and len(same[0]) == width else None
