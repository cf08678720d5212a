"""Every answer about a small factor graph against enumeration; returns what is wrong, in words."""

from __future__ import annotations

import math

import numpy as np

import tallytree as tt
from oracle_graphs import Case, build, is_tree, log_weights, solve
from tallytree.loopy import dual_decomposition, holder_bound, mean_field, trw_bound


def _off(a: float, b: float, tol: float) -> bool:
    if math.isinf(a) or math.isinf(b):
        return a != b
    return not abs(a - b) <= tol * (1.0 + abs(b))


def check(case: Case, *, bounds: bool = True) -> list[str]:
    """Messages about all that is wrong; empty if nothing is."""
    graph, exact = build(case), solve(case)
    wrong: list[str] = []
    y, w = log_weights(case)
    got = np.asarray(graph.log_weight(y))
    size = 1.0 + np.abs(w[np.isfinite(w)]).max(initial=0.0)  # terms may cancel
    if any(_off(a / size, b / size, 1e-12) for a, b in zip(got, w)):
        wrong.append(f"log_weight {got} is not {w}")
    wrong += _beliefs(case, graph, exact)
    if bounds:
        wrong += _upper(case, graph, exact) + _dual(graph, exact) + _lower(graph, exact)
    return wrong


def _beliefs(case: Case, graph: tt.FactorGraph, exact) -> list[str]:
    wrong: list[str] = []
    tree = is_tree(case)
    for semiring in ("sum", "max"):
        try:
            found = tt.loopy_bp(
                graph, damping=0.0 if tree else 0.2, semiring=semiring, max_iter=60, accelerate=False
            )
            value, odds = found.bethe_log_partition, found.log_odds
        except tt.InfeasibleError:
            if exact is not None:
                wrong.append(f"loopy_bp({semiring}) calls a possible graph impossible")
            continue
        if np.isnan(odds).any() or math.isnan(value):
            wrong.append(f"loopy_bp({semiring}): NaN in {odds} or {value}")
        if not tree:
            continue
        if exact is None:
            wrong.append(f"loopy_bp({semiring}) answers {value} for an impossible tree")
            continue
        if semiring == "sum":
            # cancellation of large terms is relative to the largest of them
            if _off(value, exact[0], 1e-9):
                wrong.append(f"Bethe value {value!r} of a tree is not log Z = {exact[0]!r}")
            if np.abs(found.marginals - exact[1]).max(initial=0.0) > 1e-8:
                wrong.append(f"marginals {found.marginals} of a tree are not {exact[1]}")
        elif _off(value, exact[2], 1e-9):
            wrong.append(f"max-product value {value!r} of a tree is not {exact[2]!r}")
    return wrong


def _upper(case: Case, graph: tt.FactorGraph, exact) -> list[str]:
    wrong: list[str] = []
    for name, bound in (
        ("holder_bound", lambda: holder_bound(graph, max_iter=30)),
        ('holder_bound(weights="optimal")', lambda: holder_bound(graph, weights="optimal", max_iter=30)),
        ("trw_bound", lambda: trw_bound(graph, max_iter=10)),
    ):
        try:
            found = bound()
        except tt.InfeasibleError:
            if exact is not None:
                wrong.append(f"{name} calls a possible graph impossible")
            continue
        if math.isnan(found.value) or np.isnan(found.marginals).any():
            wrong.append(f"{name}: NaN")
        if exact is not None and found.value < exact[0] - 1e-9 * (1.0 + abs(exact[0])):
            wrong.append(f"{name} {found.value!r} is below log Z = {exact[0]!r}")
        if exact is not None and len(found.weights) == 1 and _off(found.value, exact[0], 1e-9):
            wrong.append(f"one class: bound {found.value!r} is not log Z = {exact[0]!r}")
    return wrong


def _lower(graph: tt.FactorGraph, exact) -> list[str]:
    try:
        found = mean_field(graph, max_iter=20)
    except (tt.InfeasibleError, tt.StructureError):  # contradictory logits, or something is forbidden
        return []
    best = -math.inf if exact is None else exact[0]
    if math.isnan(found.value) or np.isnan(found.marginals).any():
        return ["mean_field: NaN"]
    # its terms may be larger than their sum
    size = 1.0 + abs(best) + sum(np.abs(t[np.isfinite(t)]).sum() for t in graph.tables if t is not None)
    if found.value > best + 1e-9 * size:
        return [f"mean_field {found.value!r} is above log Z = {best!r}"]
    return []


def _dual(graph: tt.FactorGraph, exact) -> list[str]:
    try:
        found = dual_decomposition(graph, max_iter=20, temperatures=(1.0, 0.1, 0.01))
    except tt.InfeasibleError:
        return [] if exact is None else ["dual_decomposition calls a possible graph impossible"]
    wrong: list[str] = []
    if math.isnan(found.upper_bound) or math.isnan(found.log_weight):
        wrong.append("dual_decomposition: NaN")
    if found.log_weight > found.upper_bound:
        wrong.append(f"log_weight {found.log_weight!r} above its bound {found.upper_bound!r}")
    best = -math.inf if exact is None else exact[2]
    tol = 1e-10 * (1.0 + abs(best)) if math.isfinite(best) else 0.0
    if found.upper_bound < best - tol:
        wrong.append(f"dual bound {found.upper_bound!r} is below the best {best!r}")
    if found.log_weight > best + tol:
        wrong.append(f"log_weight {found.log_weight!r} is above the best {best!r}")
    if found.log_weight > -math.inf and _off(float(graph.log_weight(found.mode)), found.log_weight, 1e-12):
        wrong.append("log_weight is not that of the configuration")
    if found.gap <= 1e-6 and found.log_weight < best - 1e-6 - tol:
        wrong.append(f"proved {found.log_weight!r} but the best is {best!r}")
    return wrong
