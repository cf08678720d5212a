"""Section 6.3: multiple-instance learning on Musk1, Normal against Noisy-OR potentials.

Ten folds; each is the test set once, the next two are for validation, seven for training. The whole experiment is
repeated under several random divisions of the bags into folds, the seeds of this part: in each, for every value of mu
(Normal) or lambda (Noisy-OR), the other parameters, sigma or epsilon and the L1 penalty, have the least mean
validation error.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import data
from .claim import standard_error
from .sizes import Sizes
from .store import Store
from .workers import each

KINDS = ("normal", "noisy-or")
NAMES = {"normal": "Normal", "noisy-or": "Noisy-OR"}
VARIED = {"normal": "mu", "noisy-or": "rate"}
SECOND = {"normal": "sigma", "noisy-or": "leak"}
_SETTING = ("potential", "mu", "sigma", "rate", "leak", "l1")

Folder = str | None


def check_data(folder: Folder) -> str:
    """Empty if Musk1 can be read, else how to get it; a file that is there but broken raises ``DataError``."""
    try:
        data.load_bags("musk1", folder)
    except data.DataError as error:
        if any(name in data.available(folder) for name in ("mil/musk1.npz", "mil/clean1.data")):
            raise
        return (
            f"{error} Save that file as mil/clean1.data in a folder of your choice and name the folder with --data "
            f"or in the environment variable {data.FOLDER_VARIABLE}."
        )
    return ""


def measure(sizes: Sizes, seed: int, store: Store, jobs: int, folder: Folder) -> list[dict[str, Any]]:
    """One row per setting and division: errors of folds and bags, and active instances of positive test bags."""
    runs = list(itertools.product(grid(sizes), range(sizes.seeds)))
    tasks = []
    for setting, division in runs:
        step = "-".join(["bags", *(str(v) for v in setting.values()), str(division)])
        inputs = {"setting": setting, "seed": seed, "folds": sizes.folds, "division": division}
        tasks.append((step, inputs, cross_validate, (setting, (seed, division), sizes.folds, folder)))
    found = each(store, tasks, jobs)
    return [{**setting, "division": division, **row} for (setting, division), row in zip(runs, found)]


def grid(sizes: Sizes) -> list[dict[str, Any]]:
    """All settings."""
    normal = itertools.product(sizes.mus, sizes.sigmas, sizes.l1)
    noisy = itertools.product(sizes.rates, sizes.leaks, sizes.l1)
    return [
        *({"potential": "normal", "mu": m, "sigma": s, "l1": a} for m, s, a in normal),
        *({"potential": "noisy-or", "rate": r, "leak": e, "l1": a} for r, e, a in noisy),
    ]


def cross_validate(
    setting: dict[str, Any], seed: Sequence[int], folds: int, folder: Folder
) -> dict[str, Any]:
    """Errors of every fold, test mistakes of every bag, active instances of positive test bags given their label."""
    from tallytree.estimators import BagClassifier

    bags = data.load_bags("musk1", folder)
    spread = bags.X.std(0)
    x = (bags.X[:, spread > 0] - bags.X[:, spread > 0].mean(0)) / spread[spread > 0]
    fold = folds_of(bags, seed)
    valid: list[float] = []
    test: list[float] = []
    wrong = np.full(len(bags.y), np.nan)
    active: list[float] = []
    share: list[float] = []
    for k in range(folds):
        is_test = fold == k
        is_valid = (fold == (k + 1) % 10) | (fold == (k + 2) % 10)
        is_train = ~is_test & ~is_valid
        rows = is_train[bags.groups]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a fit that stops early is still a fit
            model = BagClassifier(l2=0.0, max_iter=200, **setting).fit(
                x[rows], bags.y[is_train], bags.groups[rows]
            )
        rows = is_valid[bags.groups]
        valid.append(1.0 - float(model.score(x[rows], bags.y[is_valid], bags.groups[rows])))
        rows = is_test[bags.groups]
        wrong[is_test] = model.predict(x[rows], bags.groups[rows]) != bags.y[is_test]
        test.append(float(np.mean(wrong[is_test])))
        positive = is_test & (bags.y == 1)
        rows = positive[bags.groups]
        if rows.any():
            on = model.instance_probabilities(x[rows], bags.groups[rows], bags.y[positive])
            active.append(float(np.sum(on) / positive.sum()))
            share.append(float(np.mean(on)))
    seen = [None if math.isnan(w) else int(w) for w in wrong]
    return {"valid": valid, "test": test, "wrong": seen, "active": active, "share": share}


def folds_of(bags: data.BagData, seed: Sequence[int]) -> NDArray[np.int64]:
    """Test fold of every bag: a random division, balanced within the labels."""
    rng = np.random.default_rng(seed)
    fold = np.empty(len(bags.y), np.int64)
    for label in (0, 1):
        members = rng.permutation(np.flatnonzero(bags.y == label))
        fold[members] = np.arange(len(members)) % 10
    return fold


def same_setting(rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The rows of every setting, one per division."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = tuple(sorted((k, v) for k, v in row.items() if k in _SETTING))
        groups.setdefault(key, []).append(row)
    return list(groups.values())


def summary(group: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean errors of one setting over divisions and folds, with their spread over divisions."""
    first = group[0]
    kind = first["potential"]
    tests = [float(np.mean(r["test"])) for r in group]
    active = [float(np.mean(r["active"])) if r["active"] else math.nan for r in group]
    return {
        "kind": kind,
        "value": first[VARIED[kind]],
        "validation_error": float(np.mean([np.mean(r["valid"]) for r in group])),
        "test_error": float(np.mean(tests)),
        "lowest": min(tests),
        "highest": max(tests),
        "standard_error": bag_standard_error(group),
        "active": float(np.mean(active)),
        "active_sd": float(np.std(active)),
        "share": float(np.mean([np.mean(r["share"]) if r["share"] else math.nan for r in group])),
        "l1": first["l1"],
        "second": first[SECOND[kind]],
    }


def mistakes(group: Sequence[dict[str, Any]]) -> NDArray[np.float64]:
    """Share of the divisions in which each bag was classified wrongly, NaN where it was never tested, (n_bags,)."""
    found = np.array([[np.nan if w is None else w for w in r["wrong"]] for r in group], np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bags that were never tested
        return np.asarray(np.nanmean(found, axis=0))


def bag_standard_error(group: Sequence[dict[str, Any]]) -> float:
    """Of the test error, from its spread over bags: these are independent, folds and divisions share them."""
    seen = mistakes(group)
    return standard_error(seen[~np.isnan(seen)])


def curves(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """For every kind and value of its parameter the setting of least validation error."""
    return {kind: [summary(chosen(rows, kind, value)) for value in values_of(rows, kind)] for kind in KINDS}


def fixed_curves(
    rows: Sequence[dict[str, Any]], kind: str
) -> dict[tuple[float, float], list[dict[str, Any]]]:
    """The curve of a kind for every fixed sigma or epsilon and penalty."""
    out: dict[tuple[float, float], list[dict[str, Any]]] = {}
    mine = [r for r in rows if r["potential"] == kind]
    for group in sorted(same_setting(mine), key=lambda g: float(g[0][VARIED[kind]])):
        out.setdefault((group[0][SECOND[kind]], group[0]["l1"]), []).append(summary(group))
    return out


def divisions(rows: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The rows of every division into folds: experiments of their own."""
    return [[r for r in rows if r["division"] == d] for d in sorted({r["division"] for r in rows})]


def values_of(rows: Sequence[dict[str, Any]], kind: str) -> list[float]:
    return sorted({float(r[VARIED[kind]]) for r in rows if r["potential"] == kind})


def chosen(rows: Sequence[dict[str, Any]], kind: str, value: float | None = None) -> list[dict[str, Any]]:
    """The rows of the setting of least mean validation error, of one value of the parameter or of all."""
    mine = [r for r in rows if r["potential"] == kind and (value is None or float(r[VARIED[kind]]) == value)]
    return min(same_setting(mine), key=lambda g: float(np.mean([r["valid"] for r in g])))
