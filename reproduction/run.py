"""All parts, one after the other, into a folder: figures, tables and the report."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tallytree._progress import Progress
from tallytree.errors import ParameterError, TallyTreeError

from . import bag_sets, bags, densities, figures, image_figures, images, matching, runtime
from .bags_claims import bags_claims
from .claim import Claim
from .image_claims import image_claims
from .matching_claims import matching_claims
from .report import Picture, Section, csv_text, machine, page
from .runtime_claims import runtime_claims
from .sizes import PARTS, QUICK, Sizes
from .store import Store, prepare, write_whole


class _Run:
    """Where results go, and with what."""

    def __init__(self, out: Path, sizes: Sizes, seed: int, jobs: int, folder: Any, shown: bool) -> None:
        self.out, self.sizes, self.seed, self.jobs = out, sizes, seed, jobs
        self.folder, self.shown = folder, shown

    def store(self, progress: Progress) -> Store:
        return Store(self.out / "steps", lambda name, reused: progress.advance(note=name, earlier=reused))

    def picture(self, section: Section, name: str, figure: Any, caption: str, paper: str) -> None:
        content = figures.rendered(figure)
        for kind, data in content.items():
            write_whole(self.out / "figures" / f"{name}.{kind}", data)
        section.pictures.append(Picture(name, caption, paper, content))

    def table(self, name: str, rows: Sequence[dict[str, Any]]) -> None:
        write_whole(self.out / "tables" / f"{name}.csv", csv_text(rows).encode())


def reproduce(
    parts: Sequence[str] = PARTS,
    out: str | os.PathLike[str] = "reproduction-results",
    *,
    sizes: Sizes = QUICK,
    seed: int = 0,
    jobs: int = 1,
    data: str | os.PathLike[str] | None = None,
    progress: bool = False,
) -> list[Claim]:
    """Run experiments of section 6 and write ``report.html``, ``figures/`` and ``tables/`` into a folder.

    Parameters
    ----------
    parts : sequence of str
        Of "runtime", "matching", "bags", "images", "densities".
    out : path
        Folder for the results; made if its parent is there. Finished steps in it are reused.
    sizes : Sizes
        QUICK or FULL.
    seed : int
        Of all random numbers. Everything but times and memory depends on it alone.
    jobs : int
        Processes for what does not measure time.
    data : path, optional
        Folder with the data sets; default that named by ``TALLYTREE_DATA``.
    progress : bool
        Whether to show progress on standard error.

    Returns
    -------
    list of Claim
        What the paper states, what was found, and the verdict.

    Raises
    ------
    TallyTreeError
        If the folder cannot be written, a data file is broken, or bags alone were asked for and there is no data.
    """
    wanted = _check(parts, seed, jobs, data)
    data = None if data is None else os.fspath(data)
    figures.load()
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise TallyTreeError(
            'The experiments need scikit-learn. Install it with `pip install ".[reproduction]"`.'
        ) from None
    missing = bags.check_data(data) if "bags" in wanted else ""
    if missing and wanted == ["bags"]:
        raise TallyTreeError(f"the data of the bags is not here. {missing}")
    if "images" in wanted:
        images.check_data(data, sizes)
    run = _Run(prepare(out), sizes, seed, jobs, data, progress)
    start = time.monotonic()
    sections = [_model(run)] if wanted == list(PARTS) else []
    sections += [_no_bags(missing) if part == "bags" and missing else _MAKE[part](run) for part in wanted]
    found = [c for s in sections for c in s.claims]
    run.table("claims", [dict(vars(c)) for c in found])
    settings = {
        "size": f"{sizes.name}, seed {seed}, jobs {jobs}",
        "time of this run": f"{time.monotonic() - start:.0f} s (steps of earlier runs are reused)",
        **machine(),
    }
    write_whole(run.out / "report.html", page(sections, settings).encode())
    return found


def _check(parts: Sequence[str], seed: int, jobs: int, data: Any) -> list[str]:
    for part in parts:
        if part not in PARTS:
            raise ParameterError(f"`parts` must be of {', '.join(PARTS)}; {part!r} arrived.")
    if seed < 0 or jobs < 1:
        raise ParameterError(f"`seed` must be at least 0 and `jobs` at least 1; {seed} and {jobs} arrived.")
    if data is not None and not Path(data).is_dir():
        raise ParameterError(f"`data` must be a folder; there is none at {os.fspath(data)}.")
    return [p for p in PARTS if p in parts]


def _model(run: _Run) -> Section:
    section = Section(
        "model",
        "2 and 3: the model (Figures 1 and 2)",
        "The pictures with which the paper explains the model.",
    )
    run.picture(
        section,
        "figure1-tree",
        figures.count_tree_figure(),
        "Figure 1: a binary tree of counts z with a potential on every one of them; leaves are the variables y.",
        "A recursive cardinality model: counts of nested subsets are the sums of the counts of their two parts.",
    )
    run.picture(
        section,
        "figure2-potentials",
        figures.potentials_figure(),
        "Figure 2: example potentials on the count of a set of 20 variables.",
        "Potentials of many shapes are all functions of a count.",
    )
    return section


def _runtime(run: _Run) -> Section:
    total = sum(len(runtime.points(run.sizes, m)) for m in runtime.NAMES)
    bar = Progress("runtime", total, run.shown)
    rows = runtime.measure(run.sizes, run.seed, run.store(bar))
    bar.close()
    section = Section(
        "runtime",
        "6.1 Chain vs tree as D grows (Figure 3)",
        "All marginals under one random potential; log-odds and log-potential are standard normal. Every point has a "
        "process of its own with one thread: the best of several repetitions, and the peak of its "
        "memory. The first repetition also analyses the structure, which later ones reuse; the table has its time.",
        claims=runtime_claims(rows),
    )
    run.table("runtime", rows)
    run.picture(
        section,
        "figure3-runtime",
        figures.runtime_figure(rows),
        "Figure 3: time (left) and peak memory (right) against the number of variables; exponents of processor "
        "time and memory are fitted from 2^12 on (Chain: 2^10, Potetz-Lee: 32).",
        '"For very small D, the Chain algorithm is slightly faster, but it runs out of memory after around D = 15000 '
        '... The FFT Tree algorithm runtime grows near linearly up through all experiments."',
    )
    absent = [r for r in rows if r["note"]]
    first = {m: next((r for r in absent if r["method"] == m), None) for m in runtime.NAMES}
    section.notes += [f"{runtime.NAMES[m]} at D = {r['D']}: {r['note']}." for m, r in first.items() if r]
    return section


def _matching(run: _Run) -> Section:
    total = 2 * sum(run.sizes.runs) + len(run.sizes.large_grids) + 1
    bar = Progress("matching", total, run.shown)
    found = matching.measure(run.sizes, run.seed, run.store(bar), run.jobs)
    bar.close()
    section = Section(
        "matching",
        "6.2 Generalised bipartite matching (Figure 4)",
        "Rows hold 2 or 3, columns 1 or 2 (larger square grids: both 2 or 3); affinities are standard normal. Times "
        "include all that a method needs, for Gibbs the linear program that starts it.",
        claims=matching_claims(found),
    )
    run.table("matching", found["rows"])
    large = [{k: v for k, v in g.items() if k != "trace"} for g in found["large"]]
    run.table("matching-large", large)
    run.picture(
        section,
        "figure4-matching",
        figures.matching_figure(found),
        "Figure 4: mean absolute error of marginals against time; each dot is a random problem, the line joins medians "
        "of Gibbs runs of growing length.",
        '"LBP achieves a low bias in a relatively short amount of time ... the LP method tends to be slower than LBP, '
        'becomes relatively slower on larger problems, and exhibits significant bias."',
    )
    run.picture(
        section,
        "figure4-larger",
        figures.larger_figure(found, run.seed),
        "Convergence of LBP on larger problems (left), and its marginals on a 20x40 problem (right).",
        '"It converges quickly even on e.g., 100x100 problems, but we are unable to measure accuracy."',
    )
    section.tables["Mean error and median time"] = [
        {
            "grid": shape,
            "method": name,
            "mean absolute error": matching.means(found["rows"], shape, m)[0],
            "median ms": 1e3 * matching.means(found["rows"], shape, m)[1],
        }
        for shape in ("3x6", "20x40")
        for m, name in matching.NAMES.items()
    ]
    section.tables["Larger problems"] = large
    return section


def _bags(run: _Run) -> Section:
    more = len(run.sizes.bag_sets) * len(bag_sets.settings(run.sizes))
    bar = Progress("bags", (len(bags.grid(run.sizes)) + more) * run.sizes.divisions, run.shown)
    store = run.store(bar)
    rows = bags.measure(run.sizes, run.seed, store, run.jobs, run.folder)
    others = bag_sets.measure(run.sizes, run.seed, store, run.jobs, run.folder, rows)
    bar.close()
    curves = [c for curve in bags.curves(rows).values() for c in curve]
    fixed = [c for curve in bags.fixed_curves(rows).values() for c in curve]
    section = Section(
        "bags",
        "6.3 Multiple instance learning (Figure 5)",
        f"Musk1, {run.sizes.divisions} divisions into 10 folds, {run.sizes.folds} of them run: one for testing, "
        "two for "
        "validation, seven for training. The exponents of the Normal potential are read as squares, "
        "exp(-(mu - c/D)^2 / 2 sigma^2); the paper prints them without.",
        claims=bags_claims(rows),
        tables={
            "Curves, the rest chosen by validation": curves,
            "Curves, the rest fixed": fixed,
            "Accuracy on all sets of bags, +- standard error over bags": others,
        },
    )
    run.table("bags", [{k: v for k, v in r.items() if k != "wrong"} | _means(r) for r in rows])
    run.table("bags-curves", curves)
    run.table("bags-fixed", fixed)
    run.table("bags-sets", others)
    run.picture(
        section,
        "figure5-bags",
        figures.bags_figure(rows),
        "Figure 5: test error, other parameters by validation (left), and expected number of active instances "
        "in positive "
        "test bags given their label, other parameters fixed (right).",
        '"We do see a trend where varying the f functions can affect performance, and that a Normal cardinality '
        "potential out-performs the standard Noisy-OR ... varying f does indeed affect how many instances within "
        'a positive bag that the model chooses to label as positive."',
    )
    return section


def _means(row: dict[str, Any]) -> dict[str, float]:
    return {k: float(np.mean(v)) for k, v in row.items() if k != "wrong" and isinstance(v, list) and v}


def _no_bags(why: str) -> Section:
    about = "This part was left out: the data is not here."
    return Section("bags", "6.3 Multiple instance learning (Figure 5)", about, notes=[why])


def _images(run: _Run) -> Section:
    steps = 4 + len(run.sizes.linkages) + run.sizes.data_sets
    bar = Progress("images", steps + images.has_silhouettes(run.folder, run.sizes), run.shown)
    found = images.measure(run.sizes, run.seed, run.store(bar), run.jobs, run.folder)
    bar.close()
    s = run.sizes
    section = Section(
        "images",
        "6.4 Generative image models (Figures 6 and 7)",
        f"{s.n_images} Ising images of {s.side}x{s.side} pixels with free borders, {s.sweeps} Swendsen-Wang sweeps "
        "each. The pairwise tree is the Chow-Liu tree (closed form); RC is fitted by nonlinear conjugate gradients "
        "with a weak penalty, on silhouettes by L-BFGS. As many images are drawn exactly from each model as "
        "there are in "
        "the data.",
        claims=image_claims(found),
        notes=[found["note"]] if found["note"] else [],
    )
    run.table("images-scan", [{"coupling": c, "tree_nll": v} for c, v in found["scan"]])
    run.picture(
        section,
        "figure6-coupling",
        image_figures.scan_figure(found),
        "Which temperature? Negative log-likelihood of the pairwise tree against the coupling (left), and of "
        "both models "
        "after every step of conjugate gradients at the matched coupling (right).",
        f'Images "near the critical temperature"; {images.PAPER_TREE} for the tree, {images.PAPER_RC} for RC.',
    )
    summary = [row for name, one in found["sets"].items() for row in images.summary(name, one)]
    run.table("images", summary)
    run.table("images-pairs", found["pairs"])
    section.tables["Fits: linkages, stops and data"] = summary
    section.tables["Likelihoods on further sets of images at the matched coupling"] = found["pairs"]
    for name, title in (
        ("matched", f"Ising at coupling {found['matched']:.3f}"),
        ("critical", "Ising at the critical coupling"),
        ("silhouettes", "Caltech silhouettes"),
    ):
        if name in found["sets"]:
            _image_set(run, section, name, title, found["sets"][name])
    return section


def _image_set(run: _Run, section: Section, name: str, title: str, one: dict[str, Any]) -> None:
    run.table(f"images-{name}-counts", images.error_rows(one))
    run.picture(
        section,
        f"figure6-{name}-samples",
        image_figures.samples_figure(one),
        f"{title}: images of the data and drawn from both models.",
        "Samples are drawn from both models, as many as in the data, to compare statistics.",
    )
    run.picture(
        section,
        f"figure6-{name}-correlations",
        image_figures.correlation_figure(one),
        f"Figure 6, {title}: correlations of the first pixels, and mean correlation against distance.",
        '"The RC model does a better job of capturing long range correlations corresponding to the more faded '
        'bands away from the main diagonal."',
    )
    run.picture(
        section,
        f"figure7-{name}-counts",
        image_figures.counts_figure(one),
        f"Figure 7, {title}: error of count distributions against subset size (dots: subsets; lines: means), and "
        "the count of one group.",
        '"The RC model does a better job than the pairwise tree model at capturing higher-order count statistics, '
        "even if it does not encode them directly ... the spanning tree is unable to model this 'all-or-none' "
        'effect."',
    )


def _densities(run: _Run) -> Section:
    wanted = densities.there(run.sizes, run.folder)
    section = Section(
        "densities",
        "Beyond the paper: densities of binary data",
        "Mean test log-likelihood in nats on public data sets; settings by validation, RC and its mixtures fitted to "
        f"convergence, mixtures of {run.sizes.mixture}.",
        notes=[] if wanted else ["The data sets are not here or not wanted at this size."],
    )
    if wanted:
        count = sum(len(c) for c in densities.choices(run.sizes.mixture).values())
        bar = Progress("densities", len(wanted) * count, run.shown)
        rows = densities.measure(run.sizes, run.seed, run.store(bar), run.jobs, run.folder)
        bar.close()
        section.tables["Test log-likelihood"] = densities.table(rows)
        run.table("densities", rows)
    return section


_MAKE: dict[str, Callable[[_Run], Section]] = {
    "runtime": _runtime,
    "matching": _matching,
    "bags": _bags,
    "images": _images,
    "densities": _densities,
}
