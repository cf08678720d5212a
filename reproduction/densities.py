"""Densities of binary rows: trees, trees with counts, recursive cardinality models and their mixtures."""

from __future__ import annotations

import time
import warnings
from typing import Any

from . import data
from .sizes import Sizes
from .store import Store
from .workers import each

# Mean test log-likelihood in nats. Independent variables and Chow-Liu trees can be checked; the others are as commonly
# quoted: mixtures of trees (MT), ID-SPN and ACMN from Rooshenas and Lowd 2014, LearnSPN from Gens and Domingos 2013.
_SOURCES = ("independent", "Chow-Liu", "MT", "LearnSPN", "ID-SPN", "ACMN")
PUBLISHED = {
    "nltcs": (-9.2336, -6.7590, -6.01, -6.11, -6.02, -6.00),
    "plants": (-31.2662, -16.5240, -12.95, -12.98, -12.54, -12.80),
    "jester": (-63.8831, -58.2265, -53.08, -53.48, -52.86, -53.31),
    "baudio": (-49.3369, -44.3749, -40.08, -40.50, -39.79, -40.32),
    "bnetflix": (-64.5614, -60.2503, -56.74, -57.33, -56.36, -57.22),
    "accidents": (-45.5597, -33.1881, -29.63, -30.04, -26.98, -27.11),
}
MODELS = (
    "Chow-Liu tree",
    "tree + count",
    "RC",
    "mixture of trees",
    "mixture of trees + count",
    "mixture of RC",
)


def choices(components: int) -> dict[str, list[dict[str, Any]]]:
    """The settings of every model; validation chooses among several."""
    single: dict[str, Any] = {"max_iter": 4000, "tol": 1e-4}
    mixed = {"n_components": components, "em_iter": 100, "em_tol": 1e-3}
    return {
        "Chow-Liu tree": [{"kind": "tree"}],
        "tree + count": [{"kind": "tree+counts"}],
        "RC": [single | {"l2": l2} for l2 in (0.1, 1.0)],
        "mixture of trees": [mixed | {"kind": "tree"}],
        "mixture of trees + count": [mixed | {"kind": "tree+counts"}],
        "mixture of RC": [mixed | {"l2": l2, "max_iter": 200, "em_steps": 10} for l2 in (0.3, 3.0)],
    }


def measure(sizes: Sizes, seed: int, store: Store, jobs: int, folder: Any) -> list[dict[str, Any]]:
    """A row per set and model."""
    tasks = []
    for name in there(sizes, folder):
        for model, options in choices(sizes.mixture).items():
            for i, option in enumerate(options):
                inputs = {"set": name, "option": option, "seed": seed}
                step = f"density-{name}-{model.replace(' ', '')}-{i}"
                tasks.append((step, inputs, fitted, (name, model, option, seed, folder)))
    found = each(store, tasks, jobs)
    best: dict[tuple[str, str], dict[str, Any]] = {}
    for row in found:
        key = row["set"], row["model"]
        if key not in best or row["valid"] > best[key]["valid"]:
            best[key] = row
    return list(best.values())


def there(sizes: Sizes, folder: Any) -> list[str]:
    """The sets that are wanted and at hand."""
    return [name for name in sizes.densities if f"density/{name}.npz" in data.available(folder)]


def fitted(name: str, model: str, option: dict[str, Any], seed: int, folder: str | None) -> dict[str, Any]:
    """Fit on the training rows; mean log-likelihoods of all three parts."""
    from tallytree.estimators import CountDensity

    rows = data.load_binary(name, folder)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        density = CountDensity(random_state=seed, **option).fit(rows.train)
    return {
        "set": name,
        "model": model,
        **{part: float(density.score(getattr(rows, part))) for part in ("train", "valid", "test")},
        "rounds": int(density.n_iter_),
        "converged": not said and density.n_iter_ < option.get("em_iter", option.get("max_iter", 10**9)),
        "seconds": time.perf_counter() - start,
    }


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line per set: ours and the published figures, mean test log-likelihood in nats."""
    out = []
    for name in dict.fromkeys(r["set"] for r in rows):
        mine = {r["model"]: r for r in rows if r["set"] == name}
        line: dict[str, Any] = {"set": name}
        line |= {
            m: f"{mine[m]['test']:.2f}" + ("" if mine[m]["converged"] else " (not converged)") for m in MODELS
        }
        line |= {f"published: {m}": v for m, v in zip(_SOURCES, PUBLISHED.get(name, ()))}
        out.append(line)
    return out
