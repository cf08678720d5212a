"""What users pass to `FactorGraph`: groups with potentials or models, and pairwise tables, checked and frozen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import checks
from ..arrays import Float64, Ints
from ..engine.far import FAR
from ..errors import ParameterError, StructureError
from ..potentials import Potential, as_potential
from .count import CountModel
from .group import Group


def without_masks(logs: Float64) -> Float64:
    """A log-table with ``-inf`` for entries that are finite but stand for it, such as -1e20; largest entry apart."""
    top = float(logs.max(initial=-math.inf))
    if not math.isfinite(top):
        return logs
    with np.errstate(over="ignore"):
        masked = logs - top < -FAR
    return np.where(masked, -math.inf, logs) if masked.any() else logs


def logits_without_masks(logits: Float64) -> Float64:
    """Log-odds with ``-inf`` for entries that are finite but stand for it."""
    masked = logits < -FAR
    return np.where(masked, -math.inf, logits) if masked.any() else logits


def groups_of(groups: Any) -> Sequence[Group]:
    """The groups as a list."""
    if isinstance(groups, Group):
        return [groups]
    try:
        listed = list(groups)
    except TypeError:
        listed = [groups]
    for g in listed:
        if not isinstance(g, Group):
            raise ParameterError(
                f"`groups` must be a list of Group objects, but it holds {checks.describe(g)}. Wrap every entry: "
                "Group(members, potential)."
            )
    return listed


def factor(
    value: Any, size: int, number: int, cache: dict[Any, Float64]
) -> tuple[Any, Float64 | None, CountModel | None]:
    """A factor's potential as given, its log-table unless it is a model, and that model, masks taken for -inf."""
    if isinstance(value, CountModel):
        return value, None, _model(value, size, number)
    if isinstance(value, Potential) or value is None or callable(value):
        potential = as_potential(value)
        try:
            known = cache.get((potential, size))
        except TypeError:  # a potential written by the user may not be hashable
            return potential, _checked(potential.log_table(size), size, number), None
        if known is None:
            known = cache[(potential, size)] = _checked(potential.log_table(size), size, number)
        return potential, known, None
    _refuse_other_kinds(value, number)
    frozen = isinstance(value, np.ndarray) and value.dtype == np.float64 and not value.flags.writeable
    if not frozen:
        called = f"The table of group {number}"
        value = checks.real_array("potential", value, axis="counts", label=called)[0].copy()
    table = _checked(value, size, number)
    return table, table, None


def _refuse_other_kinds(value: Any, number: int) -> None:
    if isinstance(value, (np.ndarray, list, tuple)):
        return
    hint = (
        " A chain with two labels is CountModel(logits, edges=Forest(...))."
        if hasattr(value, "log_partition")
        else ""
    )
    if isinstance(value, (int, np.integer)):
        hint = f" For a fixed count use exactly({value})."
    raise ParameterError(
        f"The potential of group {number} must be a potential, an array of log-values, a function of the count, "
        f"a CountModel or None; {checks.describe(value)} arrived.{hint}"
    )


def _model(model: CountModel, size: int, number: int) -> CountModel:
    if model.n_variables != size or model.batch_shape:
        what = f"batch shape {model.batch_shape}" if model.batch_shape else f"{model.n_variables} variables"
        raise StructureError(
            f"The model of group {number} must be a single CountModel over {size} variables, one per member; one "
            f"with {what} arrived. Use one group per model, with as many members as the model has variables."
        )
    given = np.asarray(model.logits, np.float64)
    logits, tables = logits_without_masks(given), [without_masks(t) for t in model.tables]
    same = logits is given and all(a is b for a, b in zip(tables, model.tables))
    if model.edges is not None:
        edges = model.edges.log_tables
        cleaned = np.array([without_masks(t) for t in edges]).reshape(edges.shape)
        same = same and np.array_equal(edges, cleaned)
        return model if same else model.replace(logits=logits, tables=tables, edges=cleaned)
    return model if same else model.replace(logits=logits, tables=tables)


def _checked(table: Any, size: int, number: int) -> Float64:
    checked = checks.log_table(table, size, name=f"The table of group {number}")
    if checked.ndim != 1:
        raise ParameterError(
            f"The table of group {number} must be one-dimensional; shape {checked.shape} arrived. Make one graph "
            f"per model."
        )
    checked = without_masks(checked)
    checked.flags.writeable = False
    return checked


def pairwise(edges: Any, n: int) -> tuple[Ints, Float64]:
    """Pairs (m, 2) and log-tables (m, 2, 2) of the pairwise factors."""
    if edges is None:
        return np.empty((0, 2), np.int64), np.empty((0, 2, 2))
    if hasattr(edges, "pairs") and hasattr(edges, "log_tables"):
        edges = (edges.pairs, edges.log_tables)
    if not (isinstance(edges, (tuple, list)) and len(edges) == 2):
        raise ParameterError(
            "`edges` must be a tuple (pairs, log_tables) with shapes (m, 2) and (m, 2, 2); "
            f"{checks.describe(edges)} arrived."
        )
    pairs = _pairs(edges[0], n)
    if len(pairs) == 0:
        return pairs, np.empty((0, 2, 2))
    tables, _ = checks.real_array("log_tables", edges[1], axis="states")
    if tables.shape not in ((2, 2), (len(pairs), 2, 2)):
        raise ParameterError(
            f"`log_tables` must have shape (2, 2) or ({len(pairs)}, 2, 2), one table per edge; shape "
            f"{tables.shape} arrived."
        )
    if np.isnan(tables).any() or (tables == math.inf).any():
        raise ParameterError(
            "`log_tables` must hold logarithms below +inf, but NaN or +inf arrived. Use -inf for impossible pairs."
        )
    each = np.broadcast_to(tables, (len(pairs), 2, 2))
    return pairs, np.array([without_masks(t) for t in each])


def _pairs(value: Any, n: int) -> Ints:
    try:
        pairs = np.asarray(value)
    except ValueError:
        pairs = np.asarray(None)  # rows of different lengths
    if pairs.size == 0:
        return np.empty((0, 2), np.int64)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise StructureError(
            f"`pairs` must be integers of shape (m, 2); {checks.describe(value)} arrived. List the two variables "
            "of every edge."
        )
    if pairs.min() < 0 or pairs.max() >= n:
        bad = pairs[(pairs < 0) | (pairs >= n)][0]
        raise StructureError(
            f"`pairs` names variable {int(bad)}, but variables are numbered 0 to {n - 1}. Number them from 0."
        )
    loops = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
    if len(loops):
        raise StructureError(
            f"Edge {int(loops[0])} joins variable {int(pairs[loops[0], 0])} to itself. Leave it out."
        )
    return pairs.astype(np.int64)
