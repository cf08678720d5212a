"""Section 6.4: binary images, a pairwise tree against the recursive cardinality (RC) model.

The tree is the Chow-Liu tree, whose parameters are the maximum of the likelihood in closed form; RC has a potential on
every group of a hierarchical clustering of the pixels and is fitted by nonlinear conjugate gradients.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.spatial.distance import cdist

from tallytree import CountModel, Forest
from tallytree.arrays import Float64
from tallytree.learn import fit
from tallytree.learn.densities import chow_liu
from tallytree.plot.answers import count_errors

from . import data, ising
from .sizes import Sizes
from .store import ARRAYS, Store
from .workers import each

Bits = NDArray[np.uint8]

PAPER_TREE, PAPER_RC = 145.22, 146.78  # printed as log-likelihoods; they are negative ones
CLUSTERINGS = ("adaptive", "anti", "random")
EARLY = "matched-early"
FAR = 3  # pixels from which a distance counts as long: the bands beside those of direct neighbours
HIGHER_ORDER = 8  # pixels from which a subset counts as higher-order
MODELS = ("tree", "rc")
NAMES = {"data": "data", "tree": "pairwise tree", "rc": "RC", "fresh": "fresh data (noise floor)"}
_L2 = 1.0  # pull on RC's tables, in units of one image
_TREE: dict[str, Any] = {"kind": "tree", "pseudo_count": 1.0}
_LARGE = 16  # pixels of a group whose all-or-none behaviour is looked at
_SILHOUETTES = "caltech101_silhouettes_28"


def measure(sizes: Sizes, seed: int, store: Store, jobs: int, folder: str | None) -> dict[str, Any]:
    """All image sets: Ising at the coupling that fits the paper and at the critical one, and silhouettes."""
    scan = store.numbers(
        "images-scan",
        _inputs(sizes, seed) | {"scan": sizes.scan},
        lambda: [[c, _tree_nll(sizes, seed, c)] for c in sizes.scan],
    )
    matched = round(matching_coupling(scan), 6) if sizes.side == 16 else 0.35
    note = ""
    tasks = [
        _ising_task(sizes, seed, name, c, link, steps) for name, c, link, steps in _ising(sizes, matched)
    ]
    if has_silhouettes(folder, sizes):
        inputs = {"side": sizes.silhouette_side, "seed": seed, "steps": sizes.silhouette_steps}
        tasks.append(("images-silhouettes", inputs, silhouette_set, (sizes, seed, folder)))
    elif sizes.silhouette_side:
        note = (
            f"Caltech silhouettes left out: images/{_SILHOUETTES}.npz is not in the data folder "
            f"(--data or {data.FOLDER_VARIABLE})."
        )
    else:
        note = "Caltech silhouettes left out at this size."
    sets = dict(zip([t[0].removeprefix("images-") for t in tasks], each(store, tasks, jobs, ARRAYS)))
    at_matched = _inputs(sizes, seed) | {"coupling": matched, "steps": sizes.steps}
    further = [
        (f"images-pair-{i}", at_matched | {"i": i}, likelihoods, (sizes, seed, matched, i))
        for i in range(sizes.data_sets)
    ]
    pairs = each(store, further, jobs)
    curves = store.numbers("images-curves", at_matched, partial(step_curves, sizes, seed, matched))
    return {"scan": scan, "matched": matched, "pairs": pairs, "curves": curves, "sets": sets, "note": note}


def _ising(sizes: Sizes, matched: float) -> list[tuple[str, float, str, int]]:
    """Name, coupling, linkage and steps of every Ising set; the first is the one that is judged as the paper's."""
    first, *others = sizes.linkages
    return [
        ("matched", matched, first, sizes.steps),
        *((f"matched-{name}", matched, name, sizes.steps) for name in others),
        (EARLY, matched, "average", sizes.early_steps),
        ("critical", ising.CRITICAL, "average", sizes.steps),
    ]


def _ising_task(sizes: Sizes, seed: int, name: str, coupling: float, linkage: str, steps: int) -> Any:
    inputs = _inputs(sizes, seed) | {"coupling": round(coupling, 6), "linkage": linkage, "steps": steps}
    return f"images-{name}", inputs, ising_set, (sizes, seed, coupling, linkage, steps)


def _rc(method: str, steps: int) -> dict[str, Any]:
    return {"method": method, "l2": _L2, "tol": 1e-4, "max_iter": steps}


def _inputs(sizes: Sizes, seed: int) -> dict[str, Any]:
    return {"n": sizes.n_images, "side": sizes.side, "sweeps": sizes.sweeps, "seed": seed}


def _rng(seed: int, *labels: int) -> np.random.Generator:
    return np.random.default_rng([seed, 64, *labels])


def _tree_nll(sizes: Sizes, seed: int, coupling: float) -> float:
    from tallytree.estimators import CountDensity

    rows = ising.images(sizes.n_images, sizes.side, coupling, sizes.sweeps, _rng(seed, 0))
    return -float(CountDensity(**_TREE).fit(rows).score(rows))


def likelihoods(sizes: Sizes, seed: int, coupling: float, i: int) -> dict[str, float]:
    """Negative log-likelihoods of tree and RC on one more set of training images."""
    from tallytree.estimators import CountDensity

    rows = ising.images(sizes.n_images, sizes.side, coupling, sizes.sweeps, _rng(seed, 3, i))
    rc = _rc("cg", sizes.steps) | {"linkage": sizes.linkages[0]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the limit on steps is a part of the protocol
        tree, other = (CountDensity(**c).fit(rows) for c in (_TREE, rc))
    return {"tree": -float(tree.score(rows)), "rc": -float(other.score(rows))}


def step_curves(sizes: Sizes, seed: int, coupling: float) -> dict[str, list[float]]:
    """Objective per image after every step of conjugate gradients: the tree, and RC with two linkages."""
    from tallytree.learn.densities import cluster

    rows = ising.images(sizes.n_images, sizes.side, coupling, sizes.sweeps, _rng(seed, 1))
    share = np.log(rows.sum(0) + 1.0) - np.log(len(rows) - rows.sum(0) + 1.0)
    parent = chow_liu(rows).parent
    pairs = [(int(p), d) for d, p in enumerate(parent) if p >= 0]
    start = CountModel(share, edges=Forest(pairs, coupling=0.0))
    options: dict[str, Any] = {"method": "cg", "tol": 1e-4, "max_iter": sizes.steps}
    out = {"pairwise tree": list(fit(start, rows, **options).history)}
    for name in dict.fromkeys((sizes.linkages[0], "average")):
        tree = cluster(rows, "adaptive", name, np.random.RandomState(0))
        model = CountModel.from_tree(tree, share, np.zeros(sum(len(g) + 1 for g in tree.groups)))
        found = fit(model, rows, l2=_L2 / len(rows), gauge=None, **options)
        out[f"RC, {name} linkage"] = list(found.history)
    return out


def matching_coupling(scan: list[list[float]]) -> float:
    """Coupling at which the tree's negative log-likelihood is the printed one, between scanned values."""
    coupling, nll = np.array(scan).T
    if not nll.min() < PAPER_TREE < nll.max():
        return float(coupling[np.argmin(np.abs(nll - PAPER_TREE))])
    order = np.argsort(coupling)
    curve = np.polynomial.Polynomial.fit(coupling[order], nll[order], min(3, len(order) - 1))
    return float(brentq(lambda c: curve(c) - PAPER_TREE, coupling.min(), coupling.max()))


def ising_set(sizes: Sizes, seed: int, coupling: float, linkage: str, steps: int) -> dict[str, NDArray[Any]]:
    """Fits and comparisons on images of one coupling."""
    rows = ising.images(sizes.n_images, sizes.side, coupling, sizes.sweeps, _rng(seed, 1))
    fresh = ising.images(sizes.n_images, sizes.side, coupling, sizes.sweeps, _rng(seed, 2))
    return compare(rows, fresh, sizes.side, _rc("cg", steps), seed, linkage) | {
        "coupling": np.array(coupling)
    }


def silhouette_set(sizes: Sizes, seed: int, folder: str | None) -> dict[str, NDArray[Any]]:
    """The same on Caltech silhouettes, whole or halved in both directions; objects are 1."""
    found = data.load_binary(_SILHOUETTES, folder)
    side = sizes.silhouette_side
    rc = _rc("l-bfgs", sizes.silhouette_steps)
    return compare(shrunk(found.train, side), shrunk(found.test, side), side, rc, seed, "average")


def shrunk(rows: Bits, side: int) -> Bits:
    """Upright silhouettes (N, side^2) with objects as 1; side 14 takes the majority of 2 x 2 pixels."""
    upright = 1 - rows.reshape(-1, 28, 28).transpose(0, 2, 1)
    step = 28 // side
    mean = upright.reshape(-1, side, step, side, step).mean((2, 4))
    return np.asarray(mean >= 0.5, np.uint8).reshape(len(rows), -1)


def compare(
    rows: Bits, fresh: Bits, side: int, rc: Mapping[str, Any], seed: int, linkage: str
) -> dict[str, NDArray[Any]]:
    """Likelihoods, draws, correlations, and errors of count distributions of both models."""
    from tallytree.estimators import CountDensity
    from tallytree.learn.densities import cluster

    random = np.random.RandomState(seed % 2**32)
    trees = {name: cluster(rows, name, linkage, random) for name in CLUSTERINGS}
    choices: dict[str, dict[str, Any]] = {"tree": _TREE, "rc": {"structure": trees["adaptive"], **rc}}
    out: dict[str, NDArray[Any]] = {"side": np.array(side), "rows": rows[:: max(len(rows) // 200, 1)][:200]}
    drawn = {"fresh": fresh[np.arange(len(rows)) % len(fresh)]}
    for name, choice in choices.items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the limit on steps is a part of the protocol
            model = CountDensity(random_state=seed % 2**32, **choice).fit(rows)
        out[f"{name}_seconds"] = np.array(time.perf_counter() - start)
        out[f"{name}_steps"] = np.array(model.n_iter_)
        out[f"{name}_stopped"] = np.array(name == "rc" and model.n_iter_ >= rc["max_iter"])
        out[f"{name}_nll"] = np.array([-model.score(rows), -model.score(fresh)])
        drawn[name] = model.sample(len(rows))
        out[f"{name}_drawn"] = drawn[name][:200]
    out["data_correlation"] = correlations(rows)
    for name, sample in drawn.items():
        out[f"{name}_correlation"] = correlations(sample)
        for clustering, tree in trees.items():
            sizes, errors = count_errors(rows, sample, tree)
            out[f"{clustering}_sizes"] = sizes
            out[f"{clustering}_{name}_errors"] = errors
    big = int(np.argmin(np.abs(out["adaptive_sizes"] - side * side // 4)))
    members = np.asarray(trees["adaptive"].groups[big])
    for name, sample in {"data": rows, **drawn}.items():
        counts = sample[:, members].sum(1, dtype=np.int64)
        out[f"{name}_counts"] = np.bincount(counts, minlength=len(members) + 1) / len(sample)
        out[f"{name}_ends"] = np.array(near_the_ends(sample, trees["adaptive"]))
    return out


def near_the_ends(rows: Bits, tree: Any) -> float:
    """How often an adaptive group of at least 16 pixels is nearly all on or nearly all off (an eighth aside)."""
    shares = [rows[:, g].mean(1) for g in tree.groups if len(g) >= _LARGE]
    return float(np.mean([np.mean((s <= 0.125) | (s >= 0.875)) for s in shares])) if shares else float("nan")


def correlations(rows: Bits) -> NDArray[np.float32]:
    """Correlation of every pair of pixels; 0 where a pixel never changes."""
    y = rows.astype(np.float64) - rows.mean(0)
    spread = np.sqrt((y**2).mean(0))
    safe = np.where(spread > 0, spread, 1.0)
    return np.asarray((y.T @ y) / len(y) / safe[:, None] / safe, np.float32)


def distances(side: int) -> Float64:
    """Distance of every pair of pixels."""
    place = np.indices((side, side)).reshape(2, -1).T
    return np.asarray(cdist(place, place))


def by_distance(found: Mapping[str, NDArray[Any]], model: str) -> tuple[NDArray[np.int64], Float64]:
    """Mean correlation of the pairs of pixels at every distance, rounded."""
    apart = np.rint(distances(int(found["side"]))).astype(np.int64).reshape(-1)
    total = np.bincount(apart, np.asarray(found[f"{model}_correlation"], np.float64).reshape(-1))
    reach = np.arange(1, int(found["side"]))
    return reach, total[reach] / np.bincount(apart)[reach]


def correlation_error(found: Mapping[str, NDArray[Any]], model: str, least: float) -> float:
    """Root mean square, over distances from `least` on, of the error of the mean correlation at a distance.

    Averages over many pairs before it compares: the noise of single pairs hides the models' differences.
    """
    reach, mean = by_distance(found, model)
    gap = (mean - by_distance(found, "data")[1])[reach >= least]
    return float(np.sqrt(np.mean(gap**2)))


def mean_error(found: Mapping[str, NDArray[Any]], clustering: str, model: str, from_size: int = 2) -> float:
    """Mean over groups of at least ``from_size`` pixels of the error of their count distribution."""
    there = found[f"{clustering}_sizes"] >= from_size
    return float(found[f"{clustering}_{model}_errors"][there].mean())


def has_silhouettes(folder: str | None, sizes: Sizes) -> bool:
    """Whether silhouettes are wanted and there."""
    return bool(sizes.silhouette_side) and f"images/{_SILHOUETTES}.npz" in data.available(folder)


def check_data(folder: str | None, sizes: Sizes) -> None:
    """Raise ``DataError`` if the silhouettes are there but broken."""
    if has_silhouettes(folder, sizes):
        data.path(f"images/{_SILHOUETTES}.npz", folder)


def summary(name: str, one: dict[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """A row per model: likelihoods, steps, time, errors."""
    return [
        {
            "set": name,
            "model": NAMES[m],
            "train_nll": float(one[f"{m}_nll"][0]),
            "other_nll": float(one[f"{m}_nll"][1]),
            "steps": int(one[f"{m}_steps"]),
            "fit_seconds": float(one[f"{m}_seconds"]),
            "correlation_error": correlation_error(one, m, FAR),
            **{f"{c}_count_rmse": mean_error(one, c, m, HIGHER_ORDER) for c in CLUSTERINGS},
        }
        for m in MODELS
    ]


def error_rows(one: dict[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """The numbers behind Figure 7, a row per subset."""
    return [
        {
            "clustering": c,
            "size": int(one[f"{c}_sizes"][g]),
            **{m: float(one[f"{c}_{m}_errors"][g]) for m in ("tree", "rc", "fresh")},
        }
        for c in CLUSTERINGS
        for g in range(len(one[f"{c}_sizes"]))
    ]
