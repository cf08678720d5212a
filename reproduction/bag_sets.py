"""Other sets of bags, by the protocol of section 6.3, beside published figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from . import bags, data
from .sizes import Sizes
from .store import Store

# Accuracy in percent, ten-fold cross-validation. APR: Dietterich et al. 1997; the SVMs and EM-DD as commonly quoted
# from Andrews et al. 2002. Test folds only: none of them set aside a fifth of the bags for validation.
PUBLISHED = {
    "musk1": "iterated APR 92.4, mi-SVM 87.4, MI-SVM 77.9, EM-DD 84.8",
    "musk2": "iterated APR 89.2, mi-SVM 83.6, MI-SVM 84.3, EM-DD 84.9",
    "elephant": "mi-SVM 82.2, MI-SVM 81.4, EM-DD 78.3",
    "fox": "mi-SVM 58.2, MI-SVM 57.8, EM-DD 56.1",
    "tiger": "mi-SVM 78.4, MI-SVM 84.0, EM-DD 72.1",
}


def settings(sizes: Sizes) -> list[dict[str, Any]]:
    """A smaller grid than for Musk1."""
    normal = replace(sizes, mus=(0.3, 0.6, 0.9), sigmas=(0.15, 0.3))
    return bags.grid(replace(normal, rates=(0.1, 0.5, 0.9), leaks=(1e-2, 1e-1), l1=(0.02,)))


def measure(
    sizes: Sizes, seed: int, store: Store, jobs: int, folder: bags.Folder, musk: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """A row per set: accuracy of both potentials chosen by validation; Musk1 from its own rows."""
    there = [name for name in sizes.bag_sets if f"mil/{name}.npz" in data.available(folder)]
    found = {"musk1": musk} | {
        name: bags.measure_set(name, settings(sizes), sizes, seed, store, jobs, folder) for name in there
    }
    return [_row(name, rows) for name, rows in found.items()]


def _row(name: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {"set": name, "bags": len(rows[0]["wrong"])}
    for kind in bags.KINDS:
        best = bags.summary(bags.chosen(rows, kind))
        spread = f"{100 * (1 - best['highest']):.1f} to {100 * (1 - best['lowest']):.1f}"
        out[f"{bags.NAMES[kind]} %"] = (
            f"{100 * (1 - best['test_error']):.1f} +- {100 * best['standard_error']:.1f}"
        )
        out[f"{bags.NAMES[kind]}, by division"] = spread
    out["published %"] = PUBLISHED.get(name, "none at hand")
    return out
