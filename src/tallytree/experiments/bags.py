"""Section 6.3: multiple-instance learning on Musk1, Normal against Noisy-OR potentials.

Ten folds; each is the test set once, the next two are for validation, seven for training. For every value of mu
(Normal) or lambda (Noisy-OR) the other parameters, sigma or epsilon and the L1 penalty, have the least mean
validation error.
"""

from __future__ import annotations

import itertools
import os
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import data
from .sizes import Sizes
from .store import Store
from .workers import each

KINDS = ("normal", "noisy-or")
NAMES = {"normal": "Normal", "noisy-or": "Noisy-OR"}
VARIED = {"normal": "mu", "noisy-or": "rate"}

Folder = str | os.PathLike[str] | None


def check_data(folder: Folder) -> str:
    """Empty if Musk1 can be read, else how to get it; a file that is there but broken raises ``DataError``."""
    if any(name in data.available(folder) for name in ("mil/musk1.npz", "mil/clean1.data")):
        data.load_bags("musk1", folder)
        return ""
    try:
        data.load_bags("musk1", folder)
    except data.DataError as error:
        return (
            f"{error} Save that file as mil/clean1.data in a folder of your choice and name the folder with --data "
            f"or in the environment variable {data.FOLDER_VARIABLE}."
        )
    return ""


def measure(sizes: Sizes, seed: int, store: Store, jobs: int, folder: Folder) -> list[dict[str, Any]]:
    """One row per setting: errors of all folds, and the share of active instances in positive test bags."""
    place = None if folder is None else os.fspath(folder)
    tasks = []
    for setting in grid(sizes):
        name = "bags-" + "-".join(str(v) for v in setting.values())
        inputs = {"setting": setting, "seed": seed, "folds": sizes.folds}
        tasks.append((name, inputs, (setting, seed, sizes.folds, place)))
    found = each(store, cross_validate, tasks, jobs)
    return [{**setting, **row} for setting, row in zip(grid(sizes), found)]


def grid(sizes: Sizes) -> list[dict[str, Any]]:
    """All settings."""
    normal = [
        {"potential": "normal", "mu": m, "sigma": s, "l1": a}
        for m, s, a in itertools.product(sizes.mus, sizes.sigmas, sizes.l1)
    ]
    noisy = [
        {"potential": "noisy-or", "rate": r, "leak": e, "l1": a}
        for r, e, a in itertools.product(sizes.rates, sizes.leaks, sizes.l1)
    ]
    return normal + noisy


def cross_validate(
    setting: dict[str, Any], seed: int, folds: int, folder: str | None, name: str = "musk1"
) -> dict[str, Any]:
    """Validation and test errors of every fold; expected active instances per positive bag, and their share."""
    from ..estimators import BagClassifier

    bags = data.load_bags(name, folder)
    spread = bags.X.std(0)
    x = (bags.X[:, spread > 0] - bags.X[:, spread > 0].mean(0)) / spread[spread > 0]
    fold = folds_of(bags, seed)
    valid: list[float] = []
    test: list[float] = []
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
        for where, errors in ((is_valid, valid), (is_test, test)):
            rows = where[bags.groups]
            errors.append(1.0 - float(model.score(x[rows], bags.y[where], bags.groups[rows])))
        positive = is_test & (bags.y == 1)
        rows = positive[bags.groups]
        if rows.any():
            on = model.instance_probabilities(x[rows], bags.groups[rows])
            active.append(float(np.sum(on) / positive.sum()))
            share.append(float(np.mean(on)))
    return {"valid": valid, "test": test, "active": active, "share": share}


def folds_of(bags: data.BagData, seed: int) -> NDArray[np.int64]:
    """Test fold of every bag: a published division, or a balanced random one."""
    if bags.folds is not None:
        return np.asarray(bags.folds[seed % len(bags.folds)], np.int64)
    rng = np.random.default_rng(seed)
    fold = np.empty(len(bags.y), np.int64)
    for label in (0, 1):
        members = rng.permutation(np.flatnonzero(bags.y == label))
        fold[members] = np.arange(len(members)) % 10
    return fold


def curves(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """For every kind and value of its parameter the setting of least validation error."""
    out: dict[str, list[dict[str, Any]]] = {}
    for kind in KINDS:
        name = VARIED[kind]
        mine = [r for r in rows if r["potential"] == kind]
        out[kind] = []
        for value in sorted({r[name] for r in mine}):
            chosen = min((r for r in mine if r[name] == value), key=lambda r: float(np.mean(r["valid"])))
            out[kind].append(
                {
                    "kind": kind,
                    "value": value,
                    "validation_error": float(np.mean(chosen["valid"])),
                    "test_error": float(np.mean(chosen["test"])),
                    "fold_sd": float(np.std(chosen["test"], ddof=1)),
                    "standard_error": float(np.std(chosen["test"], ddof=1) / np.sqrt(len(chosen["test"]))),
                    "active": float(np.mean(chosen["active"])) if chosen["active"] else float("nan"),
                    "active_sd": float(np.std(chosen["active"])) if chosen["active"] else float("nan"),
                    "share": float(np.mean(chosen["share"])) if chosen["share"] else float("nan"),
                    "l1": chosen["l1"],
                    "second": chosen["sigma" if kind == "normal" else "leak"],
                }
            )
    return out
