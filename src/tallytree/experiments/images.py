"""Section 6.4: binary images, a pairwise tree against the recursive cardinality (RC) model.

The tree is the Chow-Liu tree, whose parameters are the maximum of the likelihood in closed form; RC has a potential on
every group of a hierarchical clustering of the pixels and is fitted by nonlinear conjugate gradients.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from .. import data
from ..arrays import Float64
from ..plot import count_errors
from . import ising
from .sizes import Sizes
from .store import Store

Bits = NDArray[np.uint8]

PAPER_TREE, PAPER_RC = 145.22, 146.78  # printed as log-likelihoods; they are negative ones
CLUSTERINGS = ("adaptive", "anti", "random")
LINKAGES = ("average", "complete", "single")
MODELS = ("tree", "rc")
NAMES = {"data": "data", "tree": "pairwise tree", "rc": "RC", "fresh": "fresh data (noise floor)"}
_L2 = 1.0  # pull on RC's tables, in units of one image
_SILHOUETTES = "caltech101_silhouettes_28"


def measure(sizes: Sizes, seed: int, store: Store, folder: str | os.PathLike[str] | None) -> dict[str, Any]:
    """All image sets: Ising at the critical coupling, at the coupling that fits the paper, and silhouettes."""
    scan = store.numbers(
        "images-scan",
        _inputs(sizes, seed) | {"scan": sizes.scan},
        lambda: [[c, _tree_nll(sizes, seed, c)] for c in sizes.scan],
    )
    matched = matching_coupling(scan) if sizes.side == 16 else 0.35
    linkages = store.numbers(
        "images-linkages",
        _inputs(sizes, seed) | {"coupling": round(matched, 6), "steps": sizes.linkage_steps},
        lambda: _by_linkage(sizes, seed, matched),
    )
    sets = {}
    for name, coupling in (("critical", ising.CRITICAL), ("matched", matched)):
        sets[name] = store.arrays(
            f"images-{name}",
            _inputs(sizes, seed) | {"coupling": round(coupling, 6), "steps": sizes.steps},
            partial(ising_set, sizes, seed, coupling),
        )
    limits = {"critical": sizes.steps, "matched": sizes.steps, "silhouettes": sizes.silhouette_steps}
    note = ""
    if sizes.silhouette_side and f"images/{_SILHOUETTES}.npz" in data.available(folder):
        sets["silhouettes"] = store.arrays(
            "images-silhouettes",
            {"side": sizes.silhouette_side, "seed": seed, "steps": sizes.silhouette_steps},
            lambda: silhouette_set(sizes, seed, folder),
        )
    elif sizes.silhouette_side:
        note = (
            f"Caltech silhouettes left out: images/{_SILHOUETTES}.npz is not in the data folder "
            f"(--data or {data.FOLDER_VARIABLE})."
        )
    else:
        note = "Caltech silhouettes left out at this size."
    return {
        "scan": scan,
        "matched": matched,
        "linkages": linkages,
        "limits": limits,
        "sets": sets,
        "note": note,
    }


def _inputs(sizes: Sizes, seed: int) -> dict[str, Any]:
    return {"n": sizes.n_images, "side": sizes.side, "sweeps": sizes.sweeps, "seed": seed}


def _rng(seed: int, *labels: int) -> np.random.Generator:
    return np.random.default_rng([seed, 64, *labels])


def _tree_nll(sizes: Sizes, seed: int, coupling: float) -> float:
    from ..estimators import CountDensity

    rows = ising.images(sizes.n_images, sizes.side, coupling, sizes.sweeps, _rng(seed, 0))
    return -float(CountDensity(kind="tree").fit(rows).score(rows))


def _by_linkage(sizes: Sizes, seed: int, coupling: float) -> dict[str, float]:
    """RC's negative log-likelihood with trees of several linkages; the paper does not name its own."""
    from ..estimators import CountDensity

    rows = ising.images(sizes.n_images, sizes.side, coupling, sizes.sweeps, _rng(seed, 1))
    out = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the limit on steps is a part of the protocol
        for name in LINKAGES:
            model = CountDensity(linkage=name, method="cg", l2=_L2, tol=1e-4, max_iter=sizes.linkage_steps)
            out[name] = -float(model.fit(rows).score(rows))
    return out


def matching_coupling(scan: list[list[float]]) -> float:
    """Coupling at which the tree's negative log-likelihood is the printed one, between scanned values."""
    coupling, nll = np.array(scan).T
    if not nll.min() < PAPER_TREE < nll.max():
        return float(coupling[np.argmin(np.abs(nll - PAPER_TREE))])
    order = np.argsort(coupling)
    curve = np.polynomial.Polynomial.fit(coupling[order], nll[order], min(3, len(order) - 1))
    return float(brentq(lambda c: curve(c) - PAPER_TREE, coupling.min(), coupling.max()))


def ising_set(sizes: Sizes, seed: int, coupling: float) -> dict[str, NDArray[Any]]:
    """Fits and comparisons on images of one coupling."""
    rows = ising.images(sizes.n_images, sizes.side, coupling, sizes.sweeps, _rng(seed, 1))
    fresh = ising.images(sizes.n_images, sizes.side, coupling, sizes.sweeps, _rng(seed, 2))
    return compare(rows, fresh, sizes.side, sizes.steps, seed) | {"coupling": np.array(coupling)}


def silhouette_set(sizes: Sizes, seed: int, folder: str | os.PathLike[str] | None) -> dict[str, NDArray[Any]]:
    """The same on Caltech silhouettes, whole or halved in both directions; objects are 1."""
    found = data.load_binary(_SILHOUETTES, folder)
    side = sizes.silhouette_side
    return compare(shrunk(found.train, side), shrunk(found.test, side), side, sizes.silhouette_steps, seed)


def shrunk(rows: Bits, side: int) -> Bits:
    """Upright silhouettes (N, side^2) with objects as 1; side 14 takes the majority of 2 x 2 pixels."""
    upright = 1 - rows.reshape(-1, 28, 28).transpose(0, 2, 1)
    step = 28 // side
    mean = upright.reshape(-1, side, step, side, step).mean((2, 4))
    return np.asarray(mean >= 0.5, np.uint8).reshape(len(rows), -1)


def compare(rows: Bits, fresh: Bits, side: int, steps: int, seed: int) -> dict[str, NDArray[Any]]:
    """Likelihoods, draws, correlations, and errors of count distributions of both models."""
    from ..estimators import CountDensity
    from ..estimators._clustering import cluster

    random = np.random.RandomState(seed % 2**32)
    trees = {name: cluster(rows, name, "average", random) for name in CLUSTERINGS}
    choices: dict[str, dict[str, Any]] = {
        "tree": {"kind": "tree", "pseudo_count": 1.0},
        "rc": {"structure": trees["adaptive"], "method": "cg", "l2": _L2, "tol": 1e-4, "max_iter": steps},
    }
    out: dict[str, NDArray[Any]] = {"side": np.array(side), "rows": rows[:: max(len(rows) // 200, 1)][:200]}
    drawn = {"fresh": fresh[np.arange(len(rows)) % len(fresh)]}
    for name, choice in choices.items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the limit on steps is a part of the protocol
            model = CountDensity(random_state=seed % 2**32, **choice).fit(rows)
        out[f"{name}_seconds"] = np.array(time.perf_counter() - start)
        out[f"{name}_steps"] = np.array(model.n_iter_)
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
    return out


def correlations(rows: Bits) -> NDArray[np.float32]:
    """Correlation of every pair of pixels; 0 where a pixel never changes."""
    y = rows.astype(np.float64) - rows.mean(0)
    spread = np.sqrt((y**2).mean(0))
    safe = np.where(spread > 0, spread, 1.0)
    return np.asarray((y.T @ y) / len(y) / safe[:, None] / safe, np.float32)


def distances(side: int) -> Float64:
    """Distance of every pair of pixels."""
    place = np.indices((side, side)).reshape(2, -1)
    gap = place[:, :, None] - place[:, None, :]
    return np.asarray(np.sqrt((gap**2).sum(0)))


def correlation_error(found: Mapping[str, NDArray[Any]], model: str, near: float, far: float) -> float:
    """Root mean squared error of the correlations of pixels at a distance from ``near`` to below ``far``."""
    apart = distances(int(found["side"]))
    there = (apart >= near) & (apart < far)
    gap = found[f"{model}_correlation"] - found["data_correlation"]
    return float(np.sqrt(np.mean(gap[there] ** 2)))


def mean_error(found: Mapping[str, NDArray[Any]], clustering: str, model: str, from_size: int = 2) -> float:
    """Mean over groups of at least ``from_size`` pixels of the error of their count distribution."""
    there = found[f"{clustering}_sizes"] >= from_size
    return float(found[f"{clustering}_{model}_errors"][there].mean())


def has_silhouettes(folder: str | os.PathLike[str] | None, sizes: Sizes) -> bool:
    """Whether silhouettes are wanted and there."""
    return bool(sizes.silhouette_side) and f"images/{_SILHOUETTES}.npz" in data.available(folder)


def check_data(folder: str | os.PathLike[str] | None, sizes: Sizes) -> None:
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
            "far_correlation_rmse": correlation_error(one, m, int(one["side"]) / 3, np.inf),
            **{f"{c}_count_rmse": mean_error(one, c, m) for c in CLUSTERINGS},
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
