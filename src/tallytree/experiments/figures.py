"""The figures of section 6, drawn from the stored numbers."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .. import plot
from ..assignment import assignment
from ..errors import TallyTreeError
from ..potentials import between
from . import bags, images, ising, matching, runtime

_COLOURS = {
    "chain": plot.RED, "tree": plot.GREEN, "fft-tree": plot.ORANGE, "auto": plot.BLUE, "potetz-lee": plot.PALETTE[4],
    "lbp": plot.BLUE, "node": plot.GREY, "lp": plot.RED, "gibbs": plot.GREEN,
    "normal": plot.BLUE, "noisy-or": plot.ORANGE,
    "rc": plot.BLUE, "fresh": plot.GREY, "data": "0.25",
}  # fmt: skip
_MARKERS = {"chain": "s", "tree": "^", "fft-tree": "D", "auto": "o", "potetz-lee": "v"}
_IMAGE_TREE = plot.ORANGE  # the pairwise tree, beside RC


def load() -> Any:
    """Matplotlib's pyplot with the backend that needs no screen."""
    try:
        import matplotlib
    except ImportError:
        raise TallyTreeError(
            "The figures need matplotlib. Install it with `pip install tallytree[plot]`."
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


def runtime_figure(rows: Sequence[dict[str, Any]]) -> Any:
    """Figure 3: seconds and memory against D, on logarithmic axes, with fitted growth."""
    figure, (left, right) = load().subplots(1, 2, figsize=(10.5, 4.3), layout="constrained")
    for axis, value, scale in ((left, "seconds", 1.0), (right, "bytes", 1e-6)):
        for method in (*runtime.METHODS, "potetz-lee"):
            taken = [
                (r["D"], r[value] * scale) for r in rows if r["method"] == method and (r[value] or 0) > 0
            ]
            if not taken:
                continue
            fitted = "processor" if value == "seconds" else value
            power, _ = runtime.growth(rows, method, fitted, runtime.FITTED_FROM[method])
            name = runtime.NAMES[method] + ("" if np.isnan(power) else f"  $\\sim D^{{{power:.2f}}}$")
            d, y = np.array(taken).T
            axis.loglog(d, y, marker=_MARKERS[method], ms=4.5, lw=1.4, color=_COLOURS[method], label=name)
        axis.set_xscale("log", base=2)
        axis.set_xlabel("number of variables D")
        axis.grid(True, which="major", color="0.92")
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8.5, loc="upper left")
        axis.margins(y=0.12)
    for method in (*runtime.METHODS, "potetz-lee"):
        taken = [
            (r["D"], r["processor"]) for r in rows if r["method"] == method and (r["processor"] or 0) > 0
        ]
        if taken:
            left.plot(*np.array(taken).T, color=_COLOURS[method], lw=0.9, ls="--", alpha=0.7)
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
        plot.trace_line(np.array(g["trace"]), left, label=f"{g['shape']}, {g['seconds']:.2f} s")
    theta = matching.affinity((20, 40), 0, seed)
    beliefs = assignment(theta, rows=between(2, 3), columns=between(1, 2)).loopy_bp()
    plot.assignment_heatmap(beliefs, right, title="LBP marginals of the first 20x40 problem")
    return figure


def bags_figure(rows: list[dict[str, Any]]) -> Any:
    """Figure 5: error and number of active instances against mu and lambda."""
    figure, panels = load().subplots(1, 2, figsize=(10.5, 3.9), layout="constrained")
    for kind, curve in bags.curves(rows).items():
        x = [c["value"] for c in curve]
        symbol = "$\\mu$" if kind == "normal" else "$\\lambda$"
        shift = -0.004 if kind == "normal" else 0.004  # so that the bars do not hide one another
        for axis, value, bar in (
            (panels[0], "test_error", "standard_error"),
            (panels[1], "active", "active_sd"),
        ):
            axis.errorbar(
                np.array(x) + shift, [c[value] for c in curve], [c[bar] for c in curve], marker="o", ms=5, capsize=3,
                color=_COLOURS[kind], label=f"{bags.NAMES[kind]} ({symbol})",
            )  # fmt: skip
    for axis, text in (
        (panels[0], "test error, mean over folds"),
        (panels[1], "expected active per positive bag"),
    ):
        axis.set_xlabel("$\\mu$ (Normal) or $\\lambda$ (Noisy-OR)")
        axis.set_ylabel(text)
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=9)
    panels[0].set_title("bars: standard error over folds", fontsize=9)
    panels[1].set_title("bars: standard deviation over folds", fontsize=9)
    return figure


def correlation_figure(one: Mapping[str, Any]) -> Any:
    """Figure 6: a part of the correlation matrices side by side, and correlation against distance."""
    figure, panels = load().subplots(
        1, 4, figsize=(11.6, 3.1), layout="constrained", width_ratios=[1, 1, 1, 1.25]
    )
    side = int(one["side"])
    zoom = min(6 * side, side * side)
    for axis, name in zip(panels, ("data", "tree", "rc")):
        shown = axis.imshow(one[f"{name}_correlation"][:zoom, :zoom], cmap="gray", vmin=0, vmax=1)
        axis.set_title("actual data" if name == "data" else images.NAMES[name], fontsize=10)
        axis.set_xlabel("pixel")
    panels[0].set_ylabel("pixel")
    figure.colorbar(shown, ax=list(panels[:3]), shrink=0.85, label="correlation")
    apart = np.round(images.distances(side)).astype(int)
    reach = np.arange(1, side)
    for name in ("data", "tree", "rc"):
        mean = [float(one[f"{name}_correlation"][apart == r].mean()) for r in reach]
        panels[3].plot(reach, mean, marker="o", ms=3, color=_image_colour(name), label=images.NAMES[name])
    panels[3].set_xlabel("distance of two pixels")
    panels[3].set_ylabel("mean correlation")
    panels[3].axhline(0, color="0.8", lw=0.8, zorder=0)
    panels[3].spines[["top", "right"]].set_visible(False)
    panels[3].legend(frameon=False, fontsize=9)
    return figure


def counts_figure(one: Mapping[str, Any]) -> Any:
    """Figure 7: error of count distributions against subset size for three clusterings, and one distribution."""
    figure, panels = load().subplots(1, 4, figsize=(14, 3.5), layout="constrained")
    for axis, clustering in zip(panels, images.CLUSTERINGS):
        for name in ("tree", "rc", "fresh"):
            plot.error_line(
                axis, one[f"{clustering}_sizes"], one[f"{clustering}_{name}_errors"], images.NAMES[name],
                color=_image_colour(name),
            )  # fmt: skip
        axis.set_title(f"{clustering}{'-' if clustering == 'anti' else ' '}clustering", fontsize=10)
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
        if axis is not panels[0]:
            axis.set_ylabel("")
    top = max(axis.get_ylim()[1] for axis in panels[:3])
    for axis in panels[:3]:
        axis.set_ylim(0, top)
    panels[0].legend(frameon=False, fontsize=8.5)
    counts = np.arange(len(one["data_counts"]))
    for name in ("data", "tree", "rc"):
        panels[3].plot(
            counts, one[f"{name}_counts"], color=_image_colour(name), lw=1.4, label=images.NAMES[name]
        )
    panels[3].set_xlabel(f"count of one adaptive group of {len(counts) - 1} pixels")
    panels[3].set_ylabel("probability")
    panels[3].set_title("all-or-none", fontsize=10)
    panels[3].spines[["top", "right"]].set_visible(False)
    panels[3].legend(frameon=False, fontsize=8.5)
    return figure


def samples_figure(one: Mapping[str, Any], columns: int = 6, lines: int = 3) -> Any:
    """Images of the data and drawn from both models."""
    figure, panels = load().subplots(1, 3, figsize=(10.5, 2.3), layout="constrained")
    side = int(one["side"])
    for axis, key, title in zip(
        panels, ("rows", "tree_drawn", "rc_drawn"), ("actual data", "pairwise tree", "RC")
    ):
        sheet = np.full((lines * (side + 1) + 1, columns * (side + 1) + 1), 0.5)
        step = max(len(one[key]) // (lines * columns), 1)  # spread over classes of sorted data
        for i, row in enumerate(one[key][::step][: lines * columns]):
            y, x = (i // columns) * (side + 1) + 1, (i % columns) * (side + 1) + 1
            sheet[y : y + side, x : x + side] = row.reshape(side, side)
        axis.imshow(sheet, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axis.set_title(title, fontsize=10)
        axis.set_xticks([])
        axis.set_yticks([])
    return figure


def scan_figure(found: Mapping[str, Any]) -> Any:
    """Negative log-likelihood of the pairwise tree against the coupling, with the printed value."""
    figure, axis = load().subplots(figsize=(5.2, 3.2), layout="constrained")
    coupling, nll = np.array(found["scan"]).T
    axis.plot(coupling, nll, marker="o", color=_IMAGE_TREE, label="pairwise tree, ours")
    axis.axhline(images.PAPER_TREE, color="0.4", lw=1, ls="--", label=f"printed: {images.PAPER_TREE}")
    axis.axvline(ising.CRITICAL, color=plot.RED, lw=1, ls=":", label="critical coupling")
    axis.axvline(found["matched"], color=plot.BLUE, lw=1, ls=":", label=f"matched: {found['matched']:.3f}")
    axis.set_xlabel("coupling (inverse temperature)")
    axis.set_ylabel("negative log-likelihood, nats")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8.5)
    return figure


def _image_colour(name: str) -> str:
    return _IMAGE_TREE if name == "tree" else _COLOURS[name]
