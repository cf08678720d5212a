"""Section 6.4: binary images, a pairwise tree against the recursive cardinality (RC) model.

The tree is the Chow-Liu tree, whose parameters are the maximum of the likelihood in closed form; RC has a potential on
every group of a hierarchical clustering of the pixels and is fitted by nonlinear conjugate gradients. The paper states
neither the temperature ("near the critical") nor the linkage of the clustering: every statement is judged at the
critical coupling and at the one where the tree has its printed likelihood, with two linkages each.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
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
from tallytree.plot.pictures import count_errors

from . import ising
from .sizes import Sizes
from .store import ARRAYS, Store
from .workers import each

Bits = NDArray[np.uint8]

PAPER_TREE, PAPER_RC = 145.22, 146.78  # printed as log-likelihoods; they are negative ones
CLUSTERINGS = ("adaptive", "anti", "random")
COUPLINGS = {"critical": "critical coupling", "matched": "coupling fitted to 145.22"}
LINKAGES = ("average", "median")
HIGHER_ORDER = 8  # pixels from which a subset counts as higher-order
MODELS = ("tree", "rc")
NAMES = {"data": "data", "tree": "pairwise tree", "rc": "RC", "fresh": "fresh data (noise floor)"}
_L2 = 1.0  # pull on RC's tables, in units of one image
_TREE: dict[str, Any] = {"kind": "tree", "pseudo_count": 1.0}
_LARGE = 16  # pixels of a group whose all-or-none behaviour is looked at
_BINS = 9  # of the share of a group that is on
_PICTURED = ("correlation", "drawn")  # arrays that only figures need: kept for the first seed

Set = Mapping[str, NDArray[Any]]


def measure(sizes: Sizes, seed: int, store: Store, jobs: int) -> dict[str, Any]:
    """Ising images under all readings on all seeds, and steps of the fit."""
    known = {"n": sizes.n_images, "side": sizes.side, "sweeps": sizes.sweeps, "seed": seed}
    seeds = range(sizes.seeds)
    scan_tasks = [
        (f"images-scan-{s}", known | {"scan": sizes.scan}, tree_scan, (sizes, [seed, s])) for s in seeds
    ]
    scans = each(store, scan_tasks, jobs)
    matched = [round(matching_coupling(scan), 6) if sizes.side == 16 else 0.35 for scan in scans]
    fits = known | {"steps": sizes.steps}
    couplings = {"critical": [ising.CRITICAL] * sizes.seeds, "matched": matched}
    cases = [(name, s) for name in COUPLINGS for s in seeds]
    tasks = [
        (
            f"images-{name}-{s}",
            fits | {"coupling": round(couplings[name][s], 6)},
            ising_sets,
            (sizes, [seed, s], couplings[name][s], s == 0),
        )
        for name, s in cases
    ]
    sets: dict[tuple[str, str], list[Set]] = {}
    for (name, _), found in zip(cases, each(store, tasks, jobs, ARRAYS)):
        for linkage in LINKAGES:
            one = {k.removeprefix(f"{linkage}_"): v for k, v in found.items() if k.startswith(f"{linkage}_")}
            sets.setdefault((name, linkage), []).append(one)
    first = fits | {"coupling": matched[0]}
    curves = store.numbers("images-curves", first, partial(step_curves, sizes, [seed, 0], matched[0]))
    return {"scan": scans[0], "couplings": matched, "sets": sets, "curves": curves}


def _rc(steps: int) -> dict[str, Any]:
    return {"method": "cg", "l2": _L2, "tol": 1e-4, "max_iter": steps}


def _rng(seed: Sequence[int], *labels: int) -> np.random.Generator:
    return np.random.default_rng([*seed, 64, *labels])


def tree_scan(sizes: Sizes, seed: Sequence[int]) -> list[list[float]]:
    """Couplings and the tree's negative log-likelihood of images there, all from the same random numbers."""
    from tallytree.estimators import CountDensity

    out = []
    for coupling in sizes.scan:
        rows = ising.images(sizes.n_images, sizes.side, coupling, sizes.sweeps, _rng(seed, 1))
        out.append([coupling, -float(CountDensity(**_TREE).fit(rows).score(rows))])
    return out


def step_curves(sizes: Sizes, seed: Sequence[int], coupling: float) -> dict[str, list[float]]:
    """Objective per image after every step of conjugate gradients: the tree, and RC with two linkages."""
    from tallytree.learn.densities import cluster

    rows = ising.images(sizes.n_images, sizes.side, coupling, sizes.sweeps, _rng(seed, 1))
    share = np.log(rows.sum(0) + 1.0) - np.log(len(rows) - rows.sum(0) + 1.0)
    parent = chow_liu(rows).parent
    pairs = [(int(p), d) for d, p in enumerate(parent) if p >= 0]
    start = CountModel(share, edges=Forest(pairs, coupling=0.0))
    options: dict[str, Any] = {"method": "cg", "tol": 1e-4, "max_iter": sizes.steps}
    out = {"pairwise tree": list(fit(start, rows, **options).history)}
    for name in LINKAGES[::-1]:
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


def ising_sets(sizes: Sizes, seed: Sequence[int], coupling: float, pictured: bool) -> dict[str, NDArray[Any]]:
    """Fits and comparisons on images of one coupling, with every linkage; its name starts the names of its arrays."""
    rows, fresh = (
        ising.images(sizes.n_images, sizes.side, coupling, sizes.sweeps, _rng(seed, i)) for i in (1, 2)
    )
    out: dict[str, NDArray[Any]] = {}
    for linkage in LINKAGES:
        one = compare(rows, fresh, sizes.side, _rc(sizes.steps), int(_rng(seed, 3).integers(2**31)), linkage)
        kept = {k: v for k, v in one.items() if pictured or not k.endswith(_PICTURED)}
        out |= {f"{linkage}_{k}": v for k, v in kept.items()}
    return out


def compare(
    rows: Bits, fresh: Bits, side: int, rc: Mapping[str, Any], seed: int, linkage: str
) -> dict[str, NDArray[Any]]:
    """Likelihoods, draws, correlations, agreement of pairs, and errors of count distributions of both models."""
    from tallytree.estimators import CountDensity
    from tallytree.learn.densities import cluster

    random = np.random.RandomState(seed % 2**32)
    trees = {name: cluster(rows, name, linkage, random) for name in CLUSTERINGS}
    choices: dict[str, dict[str, Any]] = {"tree": _TREE, "rc": {"structure": trees["adaptive"], **rc}}
    out: dict[str, NDArray[Any]] = {
        "side": np.array(side),
        "data_drawn": rows[:: max(len(rows) // 200, 1)][:200],
    }
    drawn = {"data": rows, "fresh": fresh[np.arange(len(rows)) % len(fresh)]}
    for name, choice in choices.items():
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the limit on steps is a part of the protocol
            model = CountDensity(random_state=seed % 2**32, **choice).fit(rows)
        out[f"{name}_seconds"] = np.array(time.process_time() - start)
        out[f"{name}_steps"] = np.array(model.n_iter_)
        out[f"{name}_nll"] = np.array([-model.score(rows), -model.score(fresh)])
        drawn[name] = model.sample(len(rows))
        out[f"{name}_drawn"] = drawn[name][:200]
    big = int(np.argmin(np.abs(np.array([len(g) for g in trees["adaptive"].groups]) - side * side // 4)))
    members = np.asarray(trees["adaptive"].groups[big])
    for name, sample in drawn.items():
        out[f"{name}_correlation"] = correlations(sample)
        out[f"{name}_profile"] = profile(out[f"{name}_correlation"], side)
        counts = sample[:, members].sum(1, dtype=np.int64)
        out[f"{name}_counts"] = np.bincount(counts, minlength=len(members) + 1) / len(sample)
        out[f"{name}_shares"] = shares(sample, trees["adaptive"])
        if name == "data":
            continue
        out[f"{name}_pairs"] = np.array(pair_errors(rows, sample, side))
        for clustering, tree in trees.items():
            sizes, errors = count_errors(rows, sample, tree)
            out[f"{clustering}_sizes"] = sizes
            out[f"{clustering}_{name}_errors"] = errors
    return out


def shares(rows: Bits, tree: Any) -> Float64:
    """How often which share of an adaptive group of at least 16 pixels is on: nine bins, a mean over groups."""
    taken = [rows[:, g].mean(1) for g in tree.groups if len(g) >= min(_LARGE, rows.shape[1])]
    return np.asarray(np.mean([np.histogram(s, _BINS, (0.0, 1.0))[0] / len(rows) for s in taken], axis=0))


def mode_from_half(one: Set, model: str) -> float:
    """Distance of the most frequent share of a group from one half."""
    seen = one[f"{model}_shares"]
    return float(abs((np.argmax(seen) + 0.5) / len(seen) - 0.5))


def at_the_ends(one: Set, model: str) -> float:
    """How often a group is nearly all on or nearly all off: in the outer bins."""
    seen = one[f"{model}_shares"]
    return float(seen[0] + seen[-1])


def pair_errors(rows: Bits, sample: Bits, side: int) -> tuple[float, float]:
    """Root mean square error of how often two pixels agree: over neighbours on the grid, and over all pairs."""
    gap = _agreement(rows) - _agreement(sample)
    near = np.abs(distances(side) - 1.0) < 1e-9
    return float(np.sqrt(np.mean(gap[near] ** 2))), float(
        np.sqrt(np.mean(gap[~np.eye(len(gap), dtype=bool)] ** 2))
    )


def _agreement(rows: Bits) -> Float64:
    y = 2.0 * rows.astype(np.float64) - 1.0
    return np.asarray(0.5 + 0.5 * (y.T @ y) / len(y))


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


def profile(correlation: NDArray[Any], side: int) -> Float64:
    """Mean correlation of the pairs of pixels at every distance from 1 to ``side - 1``, rounded."""
    apart = np.rint(distances(side)).astype(np.int64).reshape(-1)
    total = np.bincount(apart, np.asarray(correlation, np.float64).reshape(-1))
    reach = np.arange(1, side)
    return np.asarray(total[reach] / np.bincount(apart)[reach])


def correlation_error(one: Set, model: str, least: int) -> float:
    """Root mean square, over distances from `least` on, of the error of the mean correlation at a distance.

    Averages over many pairs before it compares: the noise of single pairs hides the models' differences.
    """
    gap = (one[f"{model}_profile"] - one["data_profile"])[least - 1 :]
    return float(np.sqrt(np.mean(gap**2)))


def mean_error(found: Set, clustering: str, model: str, from_size: int = 2) -> float:
    """Mean over groups of at least ``from_size`` pixels of the error of their count distribution."""
    there = found[f"{clustering}_sizes"] >= from_size
    return float(found[f"{clustering}_{model}_errors"][there].mean())


def summary(name: str, one: Set) -> list[dict[str, Any]]:
    """A row per model: likelihoods, steps, time, errors."""
    return [
        {
            "set": name,
            "model": NAMES[m],
            "train_nll": float(one[f"{m}_nll"][0]),
            "other_nll": float(one[f"{m}_nll"][1]),
            "steps": int(one[f"{m}_steps"]),
            "fit_seconds": float(one[f"{m}_seconds"]),
            "correlation_error": correlation_error(one, m, 2),
            "pair_error": float(one[f"{m}_pairs"][0]),
            **{f"{c}_count_rmse": mean_error(one, c, m, HIGHER_ORDER) for c in CLUSTERINGS},
        }
        for m in MODELS
    ]


def error_rows(one: Set) -> list[dict[str, Any]]:
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
