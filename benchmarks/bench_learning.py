"""Learning: fit times against peers, multiple-instance protocol, density table, survey designs.

    python benchmarks/bench_learning.py clogit [--quick]
    python benchmarks/bench_learning.py musk --quick --jobs 2
    python benchmarks/bench_learning.py mil density ising survey

The real data are looked for in TALLYTREE_DATA.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import sys
import time
import warnings

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for joblib's workers: two processes, one thread each

import numpy as np

import tallytree as tt
from tallytree import data, learn
from tallytree.estimators import ConditionalLogit, CountDensity, MaxEntropySampler
from tallytree.experiments import ising
from tallytree.experiments.bags import cross_validate


def say(*cells: object) -> None:
    sys.stdout.write(" | ".join(str(c) for c in cells) + "\n")
    sys.stdout.flush()


# -- conditional logistic regression
# -------------------------------------------------------------------------------


def matched(n_strata: int, size: int, cases: int, p: int, seed: int = 0):
    """Strata with exactly `cases` cases each, drawn with log-odds x . beta."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n_strata * size, p))
    groups = np.repeat(np.arange(n_strata), size)
    score = x @ np.linspace(-0.5, 0.5, p) + rng.gumbel(size=n_strata * size)
    rank = np.argsort(np.argsort(-score.reshape(n_strata, size), axis=1), axis=1)
    return x, (rank < cases).astype(int).reshape(-1), groups


def statsmodels_fit(x, y, groups, queue) -> None:
    warnings.simplefilter("ignore")
    from statsmodels.discrete.conditional_models import ConditionalLogit as Peer

    start = time.perf_counter()
    try:
        found = Peer(y, x, groups=groups).fit(disp=0)
        queue.put((time.perf_counter() - start, np.asarray(found.params), np.asarray(found.bse)))
    except BaseException as error:
        queue.put((time.perf_counter() - start, type(error).__name__, None))


def clogit(quick: bool, jobs: int) -> None:
    say(
        "strata",
        "rows each",
        "cases each",
        "p",
        "tallytree s",
        "Newton steps",
        "statsmodels s",
        "largest differences",
    )
    limit = 20 if quick else 120
    shapes = [
        (200, 5, 1, 5),
        (100, 30, 6, 5),
        (20, 100, 20, 5),
        (1, 1500, 300, 5),
        (100, 1000, 200, 5),
        (1, 100_000, 20_000, 5),
    ]
    for shape in shapes:
        x, y, groups = matched(*shape)
        start = time.perf_counter()
        fit = ConditionalLogit().fit(x, y, groups)
        ours = time.perf_counter() - start
        queue = multiprocessing.Queue()
        worker = multiprocessing.Process(target=statsmodels_fit, args=(x, y, groups, queue))
        worker.start()
        try:
            took, params, errors = queue.get(timeout=limit)
            peer = f"{took:.2f}" if errors is not None else f"raises {params} after {took:.2f} s"
            gap = (
                f"coef {np.abs(params - fit.coef_).max():.1e}, se {np.abs(errors - fit.standard_errors_).max():.1e}"
                if errors is not None
                else "-"
            )
        except Exception:
            peer, gap = f"stopped after {limit} s", "-"
        worker.terminate()
        worker.join()
        say(*shape, f"{ours:.3f}", fit.n_iter_, peer, gap)


# -- multiple-instance learning
# --------------------------------------------------------------------------------------


def one_setting(name: str, setting):
    """Mean validation and test error over ten splits, the standard error, and the share of active instances."""
    found = cross_validate(setting, 0, 10, None, name)
    test = np.array(found["test"])
    return (
        float(np.mean(found["valid"])),
        float(test.mean()),
        float(test.std() / np.sqrt(len(test))),
        float(np.mean(found["share"])),
    )


def grids(quick: bool):
    l1 = (0.01, 0.03) if quick else (0.003, 0.01, 0.03)
    mus = (0.1, 0.5, 0.9) if quick else (0.1, 0.3, 0.5, 0.7, 0.9)
    sigmas = (0.1, 0.3) if quick else (0.1, 0.2, 0.4)
    rates = (0.1, 0.5, 0.9) if quick else (0.1, 0.3, 0.5, 0.7, 0.9)
    leaks = (1e-3, 1e-1) if quick else (1e-3, 1e-2, 1e-1)
    normal = [
        {"potential": "normal", "mu": m, "sigma": s, "l1": a}
        for m, s, a in itertools.product(mus, sigmas, l1)
    ]
    noisy = [
        {"potential": "noisy-or", "rate": r, "leak": e, "l1": a}
        for r, e, a in itertools.product(rates, leaks, l1)
    ]
    return normal, noisy


def run_settings(name: str, settings, jobs: int):
    from joblib import Parallel, delayed

    found = Parallel(n_jobs=jobs)(delayed(one_setting)(name, s) for s in settings)
    return list(zip(settings, found))


def best(found):
    """The setting of least validation error."""
    return min(found, key=lambda pair: pair[1][0])


def musk(quick: bool, jobs: int) -> None:
    start = time.perf_counter()
    normal, noisy = grids(quick)
    found = run_settings("musk1", normal + noisy, jobs)
    say("Musk1", "parameter", "validation error", "test error", "+-", "mean P(on) in positive bags", "chosen")
    for kind, name in (("normal", "mu"), ("noisy-or", "rate")):
        for value in sorted({s[name] for s, _ in found if s["potential"] == kind}):
            s, (v, t, se, on) = best([f for f in found if f[0]["potential"] == kind and f[0][name] == value])
            rest = {k: s[k] for k in s if k not in ("potential", name)}
            say(kind, f"{name}={value}", f"{v:.3f}", f"{t:.3f}", f"{se:.3f}", f"{on:.2f}", rest)
    for kind in ("normal", "noisy-or"):
        s, (v, t, se, _) = best([f for f in found if f[0]["potential"] == kind])
        say(f"best {kind} by validation", s, f"{v:.3f}", f"{t:.3f}", f"{se:.3f}")
    say(f"{len(found) * 10} fits in {time.perf_counter() - start:.0f} s")


PUBLISHED = {  # accuracy in %, ten-fold cross-validation; see the data's description for sources
    "musk1": "iterated-discrim APR 92.4; mi-SVM 87.4; MI-SVM 77.9; EM-DD 84.8",
    "musk2": "iterated-discrim APR 89.2; mi-SVM 83.6; MI-SVM 84.3; EM-DD 84.9",
    "elephant": "mi-SVM 82.2; MI-SVM 81.4; EM-DD 78.3",
    "fox": "mi-SVM 58.2; MI-SVM 57.8; EM-DD 56.1",
    "tiger": "mi-SVM 78.4; MI-SVM 84.0; EM-DD 72.1",
    "protein": "-",
}


def mil(quick: bool, jobs: int) -> None:
    say(
        "set",
        "normal %",
        "chosen",
        "noisy-or %",
        "chosen",
        "seconds",
        "published (Andrews et al. quoted, not checked)",
    )
    mus, sigmas, rates, leaks = (0.3, 0.6, 0.9), (0.15, 0.3), (0.1, 0.5, 0.9), (1e-2, 1e-1)
    if quick:
        mus, sigmas, rates, leaks = (0.5, 0.9), (0.3,), (0.5, 0.9), (1e-1,)
    for name in ("tiger", "elephant", "fox", "protein", "musk2"):
        start = time.perf_counter()
        normal = [
            {"potential": "normal", "mu": m, "sigma": s, "l1": a}
            for m, s, a in itertools.product(mus, sigmas, (0.01, 0.03))
        ]
        noisy = [
            {"potential": "noisy-or", "rate": r, "leak": e, "l1": a}
            for r, e, a in itertools.product(rates, leaks, (0.01, 0.03))
        ]
        found = run_settings(name, normal + noisy, jobs)
        cells = []
        for kind in ("normal", "noisy-or"):
            s, (_, t, se, _) = best([f for f in found if f[0]["potential"] == kind])
            cells += [f"{100 * (1 - t):.1f} +- {100 * se:.1f}", {k: s[k] for k in s if k != "potential"}]
        say(name, *cells, f"{time.perf_counter() - start:.0f}", PUBLISHED[name])


# -- densities
# --------------------------------------------------------------------------------------------------------

CHOW_LIU = {
    "nltcs": -6.7590, "plants": -16.5240, "jester": -58.2265, "bnetflix": -60.2503, "baudio": -44.3749,
    "accidents": -33.1881,
}  # fmt: skip


def density(quick: bool, jobs: int) -> None:
    warnings.simplefilter("ignore")
    names = ["nltcs", "jester"] if quick else list(CHOW_LIU)
    k = 5 if quick else 10
    settings = {
        "Chow-Liu tree": [{"kind": "tree"}],
        "tree + counts": [{"kind": "tree+counts"}],
        "RC": [{"l2": l2, "max_iter": 300} for l2 in (0.1, 1.0)],
        f"{k} trees": [{"kind": "tree", "n_components": k}],
        f"{k} trees + counts": [{"kind": "tree+counts", "n_components": k}],
        f"{k} RC": [{"n_components": k, "em_iter": 20, "max_iter": 60, "em_steps": 8}],
    }
    say("set", "model", "mean test log-likelihood", "Chow-Liu reference", "seconds per fit", "CPU s per fit")
    for name in names:
        found = data.load_binary(name)
        for model, choices in settings.items():
            start, cpu = time.perf_counter(), time.process_time()
            fits = [CountDensity(random_state=0, **c).fit(found.train) for c in choices]
            took, cpu = (
                (now - then) / len(fits)
                for now, then in ((time.perf_counter(), start), (time.process_time(), cpu))
            )
            chosen = max(fits, key=lambda f: f.score(found.valid))
            say(name, model, f"{chosen.score(found.test):.4f}", CHOW_LIU[name], f"{took:.1f}", f"{cpu:.1f}")


def count_error(rows, drawn, tree) -> float:
    """Root mean squared error of the count distributions of a tree's groups."""
    features = learn.CountFeatures(tree)
    gap = features.mean(rows).tables - features.mean(drawn).tables
    return float(np.sqrt(np.mean(gap**2)))


def ising_fits(quick: bool, jobs: int) -> None:
    warnings.simplefilter("ignore")
    rows, fresh = (
        ising.images(1000, 16, 0.44, 60 if quick else 300, np.random.default_rng(seed)) for seed in (0, 1)
    )
    say(
        "16x16 Ising, 1000 images",
        "fit s",
        "CPU s",
        "steps",
        "train -log p",
        "held-out -log p",
        "count rmse adaptive/anti",
    )
    fits = []
    choices = {"pairwise tree": {"kind": "tree"}}
    for method in ("l-bfgs", "cg") if quick else ("l-bfgs", "cg", "newton-cg"):
        choices[f"RC, {method}"] = {"l2": 1.0, "method": method, "tol": 1e-3, "max_iter": 300}
    for name, choice in choices.items():
        start, cpu = time.perf_counter(), time.process_time()
        model = CountDensity(**choice).fit(rows)
        fits.append((name, time.perf_counter() - start, time.process_time() - cpu, model))
    adaptive = fits[1][3].components_[0].model.tree
    anti = CountDensity(structure="anti", l2=1.0, tol=1e-1, max_iter=1).fit(rows).components_[0].model.tree
    for name, took, cpu, model in fits:
        drawn = model.sample(1000)
        errors = f"{count_error(rows, drawn, adaptive):.4f} / {count_error(rows, drawn, anti):.4f}"
        say(
            name,
            f"{took:.2f}",
            f"{cpu:.2f}",
            model.n_iter_,
            f"{-model.score(rows):.2f}",
            f"{-model.score(fresh):.2f}",
            errors,
        )


# -- optimisers of learn.fit
# ---------------------------------------------------------------------------------------


def optimisers(quick: bool, jobs: int) -> None:
    """Newton's method with exact products against L-BFGS, to the same tolerance; "auto" must be the quicker one.

    Measured on two shared cores, ms of processor time, Newton's method and L-BFGS: 19 and 19, 19 and 40, 23 and 37, 37
    and 113; on the tree, whose groups are nested seven deep, 258 and 132. "auto" took the quicker one everywhere.
    """
    rng = np.random.default_rng(0)
    rows = 500 if quick else 2000

    def nested(size: int, groups: int) -> list[tt.Group]:
        parts = [tt.Group(range(size * g, size * (g + 1)), rng.normal(size=size + 1)) for g in range(groups)]
        return [*parts, tt.Group(None, rng.normal(size=size * groups + 1))]

    tree = tt.CountTree.balanced(64)
    cases = {
        "one table, 20": tt.CountModel(rng.normal(size=20), rng.normal(size=21)),
        "one table, 200": tt.CountModel(rng.normal(size=200), rng.normal(size=201)),
        "groups 4 x 8 and a total": tt.CountModel(rng.normal(size=32), nested(8, 4)),
        "groups 10 x 20 and a total": tt.CountModel(rng.normal(size=200), nested(20, 10)),
        "balanced tree, 64": tt.CountModel.from_tree(
            tree, rng.normal(size=64), rng.normal(size=tree.program.table_total)
        ),
    }
    say("learn.fit", "method", "CPU ms", "steps", "products", "converged", "mean log-likelihood")
    for name, truth in cases.items():
        data_rows = truth.sample(rows, rng=1)
        start = truth.replace(
            logits=np.zeros(truth.n_variables), tables=[np.zeros(len(t)) for t in truth.tables]
        )
        for method in ("newton-cg", "l-bfgs", "auto"):
            cpu = time.process_time()
            found = learn.fit(start, data_rows, l2=1e-3, tol=1e-6, max_iter=1000, method=method)
            took = time.process_time() - cpu
            say(
                name,
                method,
                f"{1e3 * took:.0f}",
                found.n_iterations,
                found.n_products,
                found.converged,
                f"{found.log_likelihood:.6f}",
            )


def survey(quick: bool, jobs: int) -> None:
    say("population", "n", "largest error of pikt", "of pik", "Newton steps", "fit ms", "1000 samples ms")
    for table, column in (
        ("MU284", "P75_n20"), ("MU284", "P75_n50"), ("belgianmunicipalities", "income_n50"),
        ("belgianmunicipalities", "tot04_n50"), ("belgianmunicipalities", "tot04_n200"),
    ):  # fmt: skip
        frame = data.load_csv(f"survey/{table}.csv")
        pik, pikt = frame[f"pik_{column}"].to_numpy(), frame[f"pikt_{column}"].to_numpy()
        start = time.perf_counter()
        sampler = MaxEntropySampler(random_state=0).fit(pik)
        took = time.perf_counter() - start
        start = time.perf_counter()
        sampler.sample(1000)
        drawing = time.perf_counter() - start
        say(
            f"{table} {column}",
            sampler.sample_size_,
            f"{np.abs(sampler.pikt_ - pikt).max():.1e}",
            f"{np.abs(sampler.inclusion_probabilities_ - pik).max():.1e}",
            sampler.n_iter_,
            f"{1e3 * took:.1f}",
            f"{1e3 * drawing:.0f}",
        )


PARTS = {
    "clogit": clogit,
    "musk": musk,
    "mil": mil,
    "density": density,
    "ising": ising_fits,
    "optimisers": optimisers,
    "survey": survey,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=list(PARTS))
    parser.add_argument("--quick", action="store_true", help="smaller grids and fewer sets")
    parser.add_argument("--jobs", type=int, default=1, help="processes for the cross-validation")
    arguments = parser.parse_args()
    tt.show_config()
    for part in arguments.parts or list(PARTS):
        say(f"\n== {part}")
        PARTS[part](arguments.quick, arguments.jobs)


if __name__ == "__main__":
    main()
