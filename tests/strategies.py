"""Random nested models: seeded (`random_case`) and as hypothesis strategies (`nested_models` and others).

Hypothesis draws the size, the shape and the scales, which shrink to something readable; the numbers inside
come from a seeded generator. Unless asked otherwise a model is possible, because a hidden assignment is drawn
first and no table or logit rules it out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from accuracy_cases import ward_linkage, ward_tree_case
from case import Case
from families import SHAPES, random_family

__all__ = [
    "SHAPES",
    "TABLE_SCALES",
    "THETA_SCALES",
    "BatchedCase",
    "Case",
    "batched_nested_models",
    "impossible_models",
    "nested_models",
    "random_case",
    "random_family",
    "ward_linkage",
    "ward_tree_case",
]

INF = math.inf
THETA_SCALES = (1.0, 0.1, 10.0, 300.0)
TABLE_SCALES = (0.5, 5.0, 50.0, 1000.0)

# -------------------------------------------------------------------------------------- numbers in them


def random_case(
    rng: np.random.Generator | int,
    size: int | None = None,
    *,
    max_variables: int = 12,
    shape: str | None = None,
    theta_scale: float | None = None,
    table_scale: float | None = None,
    zeros: bool | None = None,
    infinite: bool | None = None,
    integers: bool = False,
    allow_impossible: bool = False,
) -> Case:
    """A random model. What is None is drawn.

    ``zeros`` puts -inf in tables, ``infinite`` puts infinite logits; ``integers`` rounds all numbers, so that
    ties are exact. ``allow_impossible`` lets zeros and infinite logits contradict each other.
    """
    rng = np.random.default_rng(rng)
    size = int(rng.integers(1, max_variables + 1)) if size is None else size
    shape = str(rng.choice(list(SHAPES))) if shape is None else shape
    theta_scale = float(rng.choice(THETA_SCALES)) if theta_scale is None else theta_scale
    table_scale = float(rng.choice(TABLE_SCALES)) if table_scale is None else table_scale
    zeros = bool(rng.random() < 0.5) if zeros is None else zeros
    infinite = bool(rng.random() < 0.3) if infinite is None else infinite
    family = random_family(rng, size, shape)
    theta, tables = _fill(
        rng, size, family, theta_scale, table_scale, zeros, infinite, integers, allow_impossible
    )
    flags = ", zeros" * zeros + ", infinite" * infinite
    name = f"{shape}, theta {theta_scale:g}, tables {table_scale:g}{flags}"
    return Case(theta, tuple(zip(family, tables)), name)


def _fill(
    rng: np.random.Generator,
    size: int,
    family: Sequence[tuple[int, ...]],
    theta_scale: float,
    table_scale: float,
    zeros: bool,
    infinite: bool,
    integers: bool = False,
    allow_impossible: bool = False,
) -> tuple[np.ndarray, list[np.ndarray]]:
    hidden = rng.integers(0, 2, size)  # stays possible
    theta = theta_scale * rng.standard_normal(size)
    tables = [table_scale * rng.standard_normal(len(s) + 1) for s in family]
    if integers:
        theta, tables = np.rint(theta), [np.rint(table) for table in tables]
    if infinite:
        sign = rng.choice([-INF, INF], size) if allow_impossible else np.where(hidden == 1, INF, -INF)
        theta = np.where(rng.random(size) < 0.25, sign, theta)
    if zeros:
        for s, table in zip(family, tables):
            # Now and then only one count survives.
            drop = rng.random(len(table)) < rng.choice([0.0, 0.3, 0.7, 1.0], p=[0.3, 0.3, 0.3, 0.1])
            drop[rng.integers(len(table)) if allow_impossible else hidden[list(s)].sum()] = False
            table[drop] = -INF
    return theta, tables


# ----------------------------------------------------------------------------------------------- hypothesis


def nested_models(
    max_variables: int = 12,
    *,
    min_variables: int = 1,
    shapes: Sequence[str] = tuple(SHAPES),
    theta_scales: Sequence[float] = THETA_SCALES,
    table_scales: Sequence[float] = TABLE_SCALES,
    zeros: bool | None = None,
    infinite: bool | None = None,
    integers: bool = False,
    allow_impossible: bool = False,
) -> st.SearchStrategy[Case]:
    """Models as `Case`; see `random_case` for the flags (None: both)."""
    return st.builds(
        random_case,
        st.integers(0, 2**32 - 1),
        st.integers(min_variables, max_variables),
        shape=st.sampled_from(list(shapes)),
        theta_scale=st.sampled_from(list(theta_scales)),
        table_scale=st.sampled_from(list(table_scales)),
        zeros=st.booleans() if zeros is None else st.just(zeros),
        infinite=st.booleans() if infinite is None else st.just(infinite),
        integers=st.just(integers),
        allow_impossible=st.just(allow_impossible),
    )


@st.composite
def impossible_models(draw: st.DrawFn, max_variables: int = 12) -> Case:
    """Models without any possible assignment, for one of four reasons."""
    case = draw(nested_models(max_variables, min_variables=2))
    reasons = ["empty table", "forced too many", "excluded too many", "inner against outer"]
    reason = draw(st.sampled_from(reasons))
    everything, counts = tuple(range(case.size)), np.arange(case.size + 1)
    theta, sets = case.theta, list(case.sets)
    k = draw(st.integers(1, case.size))
    if reason == "empty table":
        sets.append((everything, np.full(case.size + 1, -INF)))
    elif reason == "inner against outer":
        part = [s for s, _ in sets if 0 < len(s) < case.size] or [everything]
        inner = part[k % len(part)]
        sets.append((inner, np.where(np.arange(len(inner) + 1) == len(inner), 0.0, -INF)))
        sets.append((everything, np.where(counts < len(inner), 0.0, -INF)))
    else:
        forced = reason == "forced too many"
        theta = theta.copy()
        theta[:k] = INF if forced else -INF
        sets.append((everything, np.where(counts < k if forced else counts > case.size - k, 0.0, -INF)))
    return Case(theta, tuple(sets), f"impossible: {reason}; {case.name}")


@dataclass(frozen=True, eq=False)
class BatchedCase:
    """Models over one family: ``theta`` (*batch, D), ``sets`` of (members, log tables (*batch, n + 1))."""

    theta: np.ndarray
    sets: tuple[tuple[tuple[int, ...], np.ndarray], ...]
    name: str = ""

    @property
    def batch_shape(self) -> tuple[int, ...]:
        return self.theta.shape[:-1]

    def __getitem__(self, index: tuple[int, ...]) -> Case:
        sets = tuple((s, table[index]) for s, table in self.sets)
        return Case(self.theta[index], sets, f"{self.name} {index}")

    def items(self) -> list[tuple[tuple[int, ...], Case]]:
        """Every index of the batch with its model."""
        return [(index, self[index]) for index in np.ndindex(self.batch_shape)]

    def __repr__(self) -> str:
        return f"BatchedCase(batch={self.batch_shape}, {[case for _, case in self.items()]})"


@st.composite
def batched_nested_models(
    draw: st.DrawFn,
    max_variables: int = 8,
    *,
    batch_shapes: Sequence[tuple[int, ...]] = ((2,), (1,), (3,), (2, 3)),
    shapes: Sequence[str] = tuple(SHAPES),
    theta_scales: Sequence[float] = THETA_SCALES,
    table_scales: Sequence[float] = TABLE_SCALES,
    zeros: bool | None = None,
    infinite: bool | None = None,
) -> BatchedCase:
    """Batches of models over one family; zeros and infinite logits differ between the models of a batch."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size, shape = draw(st.integers(1, max_variables)), draw(st.sampled_from(list(shapes)))
    batch = draw(st.sampled_from(list(batch_shapes)))
    theta_scale = draw(st.sampled_from(list(theta_scales)))
    table_scale = draw(st.sampled_from(list(table_scales)))
    zeros = draw(st.booleans()) if zeros is None else zeros
    infinite = draw(st.booleans()) if infinite is None else infinite
    family = random_family(rng, size, shape)
    theta = np.empty((*batch, size))
    tables = [np.empty((*batch, len(s) + 1)) for s in family]
    for index in np.ndindex(batch):
        theta[index], filled = _fill(rng, size, family, theta_scale, table_scale, zeros, infinite)
        for table, values in zip(tables, filled):
            table[index] = values
    return BatchedCase(theta, tuple(zip(family, tables)), shape)
