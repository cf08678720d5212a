"""The figures of section 6, drawn from the stored numbers."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tallytree import CountModel, Group, TallyTreeError
from tallytree.assignment import assignment
from tallytree.plot import answers, structures
from tallytree.plot.base import BLUE, GREY, ORANGE, finish
from tallytree.potentials import (
    all_or_none,
    at_least,
    at_most,
    between,
    exactly,
    gaussian,
    noisy_or,
    parity,
    quadratic,
)

from . import bags, matching, runtime

GREEN, RED = "#4f9d5d", "#b5403a"
_COLOURS = {
    "chain": RED, "tree": GREEN, "fft-tree": ORANGE, "auto": BLUE,
    "potetz-lee": "#7d5ba6",
    "lbp": BLUE, "node": GREY, "lp": RED, "gibbs": GREEN,
    "normal": BLUE, "noisy-or": ORANGE,
}  # fmt: skip
_MARKERS = {"chain": "s", "tree": "^", "fft-tree": "D", "auto": "o", "potetz-lee": "v"}


def load() -> Any:
    """Matplotlib's pyplot with the backend that needs no screen."""
    try:
        import matplotlib
    except ImportError:
        raise TallyTreeError(
            'The figures need matplotlib. Install it with `pip install ".[reproduction]"`.'
        ) from None
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def rendered(figure: Any) -> dict[str, bytes]:
    """The figure as PNG and as SVG; the same numbers give the same bytes."""
    import matplotlib.pyplot as plt
    from matplotlib import rc_context

    out = {}
    with rc_context({"svg.hashsalt": "tallytree"}):
        for kind in ("png", "svg"):
            buffer = io.BytesIO()
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            figure.savefig(buffer, format=kind, dpi=140, metadata=metadata)
            out[kind] = buffer.getvalue()
    plt.close(figure)
    return out


def count_tree_figure() -> Any:
    """Figure 1: counts of nested subsets in a binary tree, with a potential on each."""
    model = CountModel(
        np.array([0.5, -1.0, 0.3, 1.2, -0.4, 0.8, -0.2, 0.1]),
        [
            Group(range(8), at_least(3)),
            Group(range(4), parity("even")),
            Group(range(4, 8), all_or_none(2.0)),
            Group([0, 1], at_most(1)),
            Group([2, 3], all_or_none(1.0)),
            Group([4, 5], exactly(1)),
            Group([6, 7], noisy_or(0.6)),
        ],
    )
    figure, axis = load().subplots(figsize=(9.5, 4.4), layout="constrained")
    structures.count_tree(model, axis)
    return figure


def potentials_figure() -> Any:
    """Figure 2: potentials of many shapes."""
    shapes = {
        "exactly 7": exactly(7), "between 5 and 12": between(5, 12), "Gaussian": gaussian(10.0, 3.0),
        "noisy-OR, rate 0.3": noisy_or(0.3), "all or none": all_or_none(3.0), "robust all or none": all_or_none(3.0, 5),
        "even": parity("even"), "convex": quadratic(0.03),
    }  # fmt: skip
    figure, panels = load().subplots(2, 4, figsize=(11, 4.4), layout="constrained", sharex=True)
    for axis, (name, potential) in zip(panels.flat, shapes.items()):
        structures.potential(potential, 20, axis)
        axis.set_title(name, fontsize=10)
    for axis in panels[0]:
        axis.set_xlabel("")
    for axis in panels[:, 1:].flat:
        axis.set_ylabel("")
    return figure


def runtime_figure(rows: Sequence[dict[str, Any]]) -> Any:
    """Figure 3: seconds and memory against D, on logarithmic axes, with fitted growth."""
    figure, (left, right) = load().subplots(1, 2, figsize=(10.5, 4.3), layout="constrained")
    for axis, value, scale in ((left, "seconds", 1.0), (right, "bytes", 1e-6)):
        fitted = "processor" if value == "seconds" else value
        for method in runtime.NAMES:
            d, y = runtime.measured(rows, method, value)
            if len(d) == 0:
                continue
            power, _ = runtime.growth(rows, method, fitted, runtime.FITTED_FROM[method])
            reach = d[d >= runtime.FITTED_FROM[method]]
            told = len(reach) >= 3 and max(reach) >= 8 * min(reach)  # a power needs a range of sizes
            name = runtime.NAMES[method] + (f"  $\\sim D^{{{power:.2f}}}$" if told else "")
            look = {"marker": _MARKERS[method], "color": _COLOURS[method]}
            axis.loglog(d, y * scale, ms=4.5, lw=1.4, label=name, **look)
        axis.set_xscale("log", base=2)
        axis.set_xlabel("number of variables D")
        axis.grid(True, which="major", color="0.92")
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8.5, loc="upper left")
        axis.margins(y=0.12)
    for method in runtime.NAMES:
        left.plot(
            *runtime.measured(rows, method, "processor"), color=_COLOURS[method], lw=0.9, ls="--", alpha=0.7
        )
    left.set_ylabel("seconds for all marginals\n(dashed: processor time)")
    right.set_ylabel("peak memory beyond the inputs, MB")
    right.axhline(2000, color="0.5", lw=0.8, ls=":")
    right.annotate(
        "2 GB", (1.0, 2000), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8
    )
    for axis in (left, right):
        low, high = axis.get_ylim()
        axis.set_ylim(low, high * (high / low) ** 0.35)  # room for the legend
    return figure


def matching_figure(found: Mapping[str, Any]) -> Any:
    """Figure 4: error against time on both grids, every run a dot."""
    figure, panels = load().subplots(1, 2, figsize=(10.5, 4.1), layout="constrained")
    rows = found["rows"]
    for axis, shape in zip(panels, ("3x6", "20x40")):
        for method, marker in (("node", "s"), ("lp", "^"), ("gibbs", "."), ("lbp", "o")):
            taken = [r for r in rows if r["shape"] == shape and r["method"] == method]
            if not taken:
                continue
            x, y = [r["seconds"] * 1e3 for r in taken], [r["error"] for r in taken]
            axis.plot(x, y, marker, ms=5, alpha=0.55, color=_COLOURS[method], label=matching.NAMES[method])
            if method == "gibbs":
                line = [
                    [np.median([r[k] for r in taken if r["sweeps"] == s]) for k in ("seconds", "error")]
                    for s in sorted({r["sweeps"] for r in taken})
                ]
                t, e = np.array(line).T
                axis.plot(t * 1e3, e, color=_COLOURS[method], lw=1.2)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("milliseconds")
        axis.set_title(
            f"{shape} grid ({'enumeration' if shape == '3x6' else 'long Gibbs run'} is the truth)",
            fontsize=10,
        )
        axis.grid(True, which="major", color="0.92")
        axis.spines[["top", "right"]].set_visible(False)
    floor = [r["truth_error"] for r in rows if r["shape"] == "20x40" and "truth_error" in r]
    if floor:
        panels[1].axhline(
            float(np.mean(floor)), color="0.5", lw=0.9, ls=":", label="standard error of the truth"
        )
    panels[0].set_ylabel("mean absolute error of marginals")
    for axis in panels:
        axis.legend(frameon=True, framealpha=0.85, edgecolor="none", fontsize=8.5)
    return figure


def larger_figure(found: Mapping[str, Any], seed: int) -> Any:
    """Traces of LBP on larger problems, and the marginals of one 20 x 40 problem."""
    figure, (left, right) = load().subplots(
        1, 2, figsize=(10.5, 3.6), layout="constrained", width_ratios=[1, 1.4]
    )
    for g in found["large"]:
        answers.trace_line(np.array(g["trace"]), left, label=f"{g['shape']}, {g['seconds']:.2f} s")
    theta = matching.affinity((20, 40), 0, seed)
    beliefs = assignment(theta, rows=between(2, 3), columns=between(1, 2)).loopy_bp()
    answers.assignment_heatmap(beliefs, right, title="LBP marginals of the first 20x40 problem")
    return figure


def bags_figure(rows: list[dict[str, Any]]) -> Any:
    """Figure 5: error and number of active instances against mu and lambda."""
    figure, panels = load().subplots(1, 2, figsize=(10.5, 3.9), layout="constrained")
    for axis, curves, value, bar in (
        (panels[0], bags.curves(rows), "test_error", "standard_error"),
        (panels[1], bags.fixed_curves(rows), "active", "active_sd"),
    ):
        for kind, curve in curves.items():
            x = [c["value"] for c in curve]
            symbol = "$\\mu$" if kind == "normal" else "$\\lambda$"
            shift = -0.004 if kind == "normal" else 0.004  # so that the bars do not hide one another
            axis.errorbar(
                np.array(x) + shift, [c[value] for c in curve], [c[bar] for c in curve], marker="o", ms=5, capsize=3,
                color=_COLOURS[kind], label=f"{bags.NAMES[kind]} ({symbol})",
            )  # fmt: skip
    for axis, text in (
        (panels[0], "test error, mean over divisions and folds"),
        (panels[1], "expected active per positive bag, given t = 1"),
    ):
        axis.set_ylim(bottom=0)
        finish(axis, "$\\mu$ (Normal) or $\\lambda$ (Noisy-OR)", text)
    panels[0].set_title("bars: standard error over bags", fontsize=9)
    panels[1].set_title(
        "sigma, epsilon and penalty fixed; bars: standard deviation over divisions", fontsize=9
    )
    return figure
