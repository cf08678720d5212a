"""The figures of section 6, drawn from the stored numbers."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tallytree import TallyTreeError
from tallytree.assignment import assignment
from tallytree.plot import pictures
from tallytree.plot.base import BLUE, GREY, ORANGE, finish
from tallytree.potentials import (
    all_or_none,
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
    "chain": RED, "tree": GREEN, "fft-tree": ORANGE, "auto": BLUE, "potetz-lee": "#7d5ba6",
    "rc": BLUE, "sample": ORANGE, "edges": GREEN, "unbalanced": RED, "limited-d": "#7d5ba6", "limited-k": "#8a6d3b",
    "edges-path": GREEN, "sample-rc": ORANGE, "sample-one": GREY,
    "lbp": BLUE, "node": GREY, "lp": RED, "gibbs": GREEN, "normal": BLUE, "noisy-or": ORANGE,
}  # fmt: skip
_MARKERS = {"chain": "s", "tree": "^", "fft-tree": "D", "auto": "o", "potetz-lee": "v"}
_LARGEST = 2**22  # both axes of sizes end here


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


def nested_figure() -> Any:
    """Figure 1: sets that are nested, and sets that are not, as rounded boxes around the variables."""
    from matplotlib.patches import FancyBboxPatch

    figure, panels = load().subplots(1, 2, figsize=(9.0, 2.4), layout="constrained")
    families = {
        "(a) Nested": [(0, 5), (0, 1), (2, 4), (3, 4)],
        "(b) Not nested": [(0, 2), (1, 4), (3, 5)],
    }
    for axis, (title, sets) in zip(panels, families.items()):
        axis.plot(range(6), np.zeros(6), "o", ms=17, color="white", mec=ORANGE, mew=1.4, zorder=3)
        for d in range(6):
            axis.annotate(f"$y_{d + 1}$", (d, 0), ha="center", va="center", fontsize=10, zorder=4)
        for i, (first, last) in enumerate(sets):
            inside = sum(a >= first and b <= last for a, b in sets) - 1
            half = 0.3 + 0.16 * inside if title.startswith("(a)") else 0.34 + 0.13 * i
            axis.add_patch(
                FancyBboxPatch(
                    (first - half, -half), last - first + 2 * half, 2 * half,
                    boxstyle="round,pad=0,rounding_size=0.25", fill=False, lw=1.6,
                    ec=BLUE if title.startswith("(a)") else RED,
                )
            )  # fmt: skip
        axis.set(xlim=(-1.0, 6.0), ylim=(-1.0, 1.0), aspect="equal")
        axis.set_title(title, fontsize=11)
        axis.set_axis_off()
    return figure


def count_tree_figure() -> Any:
    """Figure 2: counts of a binary tree over eight variables, with potentials on five of them."""
    figure, axis = load().subplots(figsize=(8.2, 3.7), layout="constrained")
    place = {1: (0.5, 1), 2: (2.5, 1), 3: (4.5, 1), 4: (6.5, 1), 5: (1.5, 2), 6: (5.5, 2), 7: (3.5, 3)}
    below = {5: (1, 2), 6: (3, 4), 7: (5, 6)}
    for z, (x, y) in place.items():
        feet = [place[c] for c in below[z]] if z in below else [(x - 0.5, 0.0), (x + 0.5, 0.0)]
        for a, b in feet:
            axis.plot([x, a], [y, b], color="0.6", lw=1.1, zorder=1)
    for d in range(8):
        axis.plot(d, 0, "o", ms=22, color="white", mec=ORANGE, mew=1.5, zorder=3)
        axis.annotate(f"$y_{d + 1}$", (d, 0), ha="center", va="center", fontsize=11, zorder=4)
    for z, (x, y) in place.items():
        axis.plot(x, y, "o", ms=24, color="white", mec=BLUE, mew=1.5, zorder=3)
        axis.annotate(f"$z_{z}$", (x, y), ha="center", va="center", fontsize=11, zorder=4)
        if z in (2, 3, 5, 6, 7):
            axis.plot([x, x], [y, y + 0.52], color="0.6", lw=1.1, zorder=1)
            axis.plot(x, y + 0.52, "s", ms=9, color=RED, zorder=3)
            axis.annotate(f"$f_{z}$", (x + 0.16, y + 0.54), va="center", fontsize=11)
    axis.set(xlim=(-0.6, 7.6), ylim=(-0.4, 3.8))
    axis.set_axis_off()
    return figure


def potentials_figure() -> Any:
    """Ours, beside section 4.2: potentials of many shapes."""
    shapes = {
        "exactly 7": exactly(7), "between 5 and 12": between(5, 12), "Gaussian": gaussian(10.0, 3.0),
        "noisy-OR, rate 0.3": noisy_or(0.3), "all or none": all_or_none(3.0), "robust all or none": all_or_none(3.0, 5),
        "even": parity("even"), "convex": quadratic(0.03),
    }  # fmt: skip
    figure, panels = load().subplots(2, 4, figsize=(11, 4.4), layout="constrained", sharex=True)
    for axis, (name, potential) in zip(panels.flat, shapes.items()):
        pictures.potential(potential, 20, axis)
        axis.set_title(name, fontsize=10)
    for axis in panels[0]:
        axis.set_xlabel("")
    for axis in panels[:, 1:].flat:
        axis.set_ylabel("")
    return figure


def runtime_figure(rows: Sequence[dict[str, Any]]) -> Any:
    """Figure 3: processor time and memory against D, on logarithmic axes, with fitted exponents."""
    figure, (left, right) = load().subplots(1, 2, figsize=(11.0, 5.2), layout="constrained")
    for axis, value, scale in ((left, "processor", 1.0), (right, "bytes", 1e-6)):
        for method, marker in _MARKERS.items():
            _growth_line(axis, rows, method, value, scale, marker, "D")
        _growth_axis(axis, "number of variables D", (8, _LARGEST))
    left.axvline(2**19, color="0.6", lw=0.8, ls="--")
    left.annotate(
        " the paper ends",
        (2**19, 0.01),
        xycoords=("data", "axes fraction"),
        fontsize=8,
        ha="right",
        rotation=90,
    )
    left.set_ylabel("processor seconds for all marginals")
    right.set_ylabel("peak memory beyond the inputs, MB")
    right.axhline(2000, color="0.5", lw=0.8, ls=":")
    right.annotate(
        "2 GB", (1.0, 2000), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8
    )
    return figure


def costs_figure(rows: Sequence[dict[str, Any]], checked: Sequence[dict[str, Any]]) -> Any:
    """Ours: costs that sections 3 to 5 state without a figure, and errors of the printed algorithm and the library."""
    figure, (left, right) = load().subplots(1, 2, figsize=(11.0, 5.6), layout="constrained")
    for kind, name in runtime.NAMES.items():
        if kind not in _MARKERS:
            marker = "x" if name.startswith("ours") else "o"
            _growth_line(left, rows, kind, "processor", 1.0, marker, "k" if kind == "limited-k" else "D")
    _growth_axis(left, "number of variables D (or largest count k)", (16, _LARGEST))
    left.set_ylabel("processor seconds")
    for setting, line in (("tail", "-"), ("ordinary", "--")):
        mine = [r for r in checked if r["setting"] == setting]
        for which, colour in (("printed", RED), ("library", BLUE)):
            shown = [max(float(np.mean(r[which])), 1e-17) for r in mine]
            name = f"{'printed algorithm' if which == 'printed' else 'library'}, {setting}"
            right.loglog([r["D"] for r in mine], shown, marker="o", ms=4.5, ls=line, color=colour, label=name)
    right.set_xscale("log", base=2)
    right.grid(True, which="major", color="0.92")
    finish(right, "number of variables D", "largest error of a marginal")
    return figure


def _growth_line(
    axis: Any, rows: Sequence[dict[str, Any]], kind: str, value: str, scale: float, marker: str, letter: str
) -> None:
    """Means over seeds, with the fitted exponent and its interval in the legend."""
    x, y = runtime.measured(rows, kind, value)
    if len(x) == 0:
        return
    power = runtime.growth_text(rows, kind, value)
    name = runtime.NAMES[kind] + (f"  $\\sim {letter}^{{{power}}}$" if power else "")
    line = ":" if runtime.NAMES[kind].startswith("ours:") else "-"
    axis.loglog(
        x, y.mean(1) * scale, marker=marker, ms=4.5, lw=1.4, ls=line, color=_COLOURS[kind], label=name
    )


def _growth_axis(axis: Any, label: str, sizes: tuple[int, int]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xlim(sizes[0] / 1.5, sizes[1] * 1.5)
    axis.set_xticks([2**e for e in range(4, 23, 3)])
    axis.set_xlabel(label)
    axis.grid(True, which="major", color="0.92")
    axis.spines[["top", "right"]].set_visible(False)
    below = {"loc": "upper center", "bbox_to_anchor": (0.46, -0.13), "ncols": 2}
    axis.legend(frameon=False, fontsize=7.5, handlelength=1.6, columnspacing=0.8, **below)


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
        axis.set_xlabel("milliseconds of processor time")
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
    for g in (g for g in found["large"] if g["seed"] == 0):
        pictures.trace_line(np.array(g["trace"]), left, label=f"{g['shape']}, {g['seconds']:.2f} s")
    theta = matching.affinity((20, 40), 0, [seed, 0])
    beliefs = assignment(theta, rows=between(2, 3), columns=between(1, 2)).loopy_bp()
    pictures.assignment_heatmap(beliefs, right, title="LBP marginals of the first 20x40 problem")
    return figure


def bags_figure(rows: list[dict[str, Any]]) -> Any:
    """Figure 5: error and number of active instances against mu and lambda."""
    figure, (left, right) = load().subplots(1, 2, figsize=(10.5, 3.9), layout="constrained")
    for kind, curve in bags.curves(rows).items():
        shift = -0.004 if kind == "normal" else 0.004  # so that the bars do not hide one another
        left.errorbar(
            np.array([c["value"] for c in curve]) + shift, [c["test_error"] for c in curve],
            [c["standard_error"] for c in curve], marker="o", ms=5, capsize=3,
            color=_COLOURS[kind], label=_bag_name(kind),
        )  # fmt: skip
        fixed = bags.fixed_curves(rows, kind)
        for i, ((second, _), line) in enumerate(fixed.items()):
            right.plot(
                [c["value"] for c in line], [c["active"] for c in line], marker=".", lw=1.0,
                alpha=0.35 + 0.65 * i / max(len(fixed) - 1, 1), color=_COLOURS[kind],
                label=_bag_name(kind) if i == len(fixed) - 1 else None,
            )  # fmt: skip
            right.annotate(f"{second:g}", (line[-1]["value"], line[-1]["active"]), fontsize=7, xytext=(4, 0),
                           textcoords="offset points", va="center", color=_COLOURS[kind])  # fmt: skip
    for axis, text in (
        (left, "test error, mean over divisions and folds"),
        (right, "expected active per positive bag, given t = 1"),
    ):
        axis.set_ylim(bottom=0)
        finish(axis, "$\\mu$ (Normal) or $\\lambda$ (Noisy-OR)", text)
    left.set_title("other parameters by validation; bars: standard error over bags", fontsize=9)
    right.set_title("a line per fixed sigma or epsilon (its number) and penalty", fontsize=9)
    return figure


def _bag_name(kind: str) -> str:
    symbol = "$\\mu$" if kind == "normal" else "$\\lambda$"
    return f"{bags.NAMES[kind]} ({symbol})"
