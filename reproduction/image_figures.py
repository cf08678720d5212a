"""The figures of section 6.4, drawn from the stored numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tallytree.plot import pictures
from tallytree.plot.base import BLUE, GREY, ORANGE, finish

from . import images, ising
from .figures import RED, load

_COLOURS = {"tree": ORANGE, "rc": BLUE, "fresh": GREY, "data": "0.25"}


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
    for name in ("data", "tree", "rc"):
        mean = one[f"{name}_profile"]
        panels[3].plot(
            np.arange(1, side), mean, marker="o", ms=3, color=_COLOURS[name], label=images.NAMES[name]
        )
    panels[3].axhline(0, color="0.8", lw=0.8, zorder=0)
    finish(panels[3], "distance of two pixels", "mean correlation")
    return figure


def counts_figure(one: Mapping[str, Any]) -> Any:
    """Figure 7: error of count distributions against subset size for three clusterings, and one distribution."""
    figure, panels = load().subplots(1, 4, figsize=(14, 3.5), layout="constrained")
    for axis, clustering in zip(panels, images.CLUSTERINGS):
        for name in ("tree", "rc", "fresh"):
            pictures.error_line(
                axis, one[f"{clustering}_sizes"], one[f"{clustering}_{name}_errors"], images.NAMES[name],
                color=_COLOURS[name],
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
        width = 3.2 if name == "data" else 1.3  # the data stay visible where a model follows them
        panels[3].plot(
            counts, one[f"{name}_counts"], color=_COLOURS[name], lw=width, label=images.NAMES[name]
        )
    panels[3].set_title("all-or-none", fontsize=10)
    adaptive = f"count of one adaptive group of {len(counts) - 1} pixels"
    finish(panels[3], adaptive, "probability", size=8.5)
    panels[3].set_ylim(0, 1.3 * panels[3].get_ylim()[1])  # room for the legend
    return figure


def samples_figure(one: Mapping[str, Any], columns: int = 6, lines: int = 3) -> Any:
    """Images of the data and drawn from both models."""
    figure, panels = load().subplots(1, 3, figsize=(10.5, 2.3), layout="constrained")
    side = int(one["side"])
    for axis, key, title in zip(
        panels, ("data_drawn", "tree_drawn", "rc_drawn"), ("actual data", "pairwise tree", "RC")
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
    """The tree's likelihood against the coupling with the printed value, and both models' over the steps of the fit."""
    figure, (left, right) = load().subplots(1, 2, figsize=(10.5, 3.4), layout="constrained")
    coupling, nll = np.array(found["scan"]).T
    left.plot(coupling, nll, marker="o", color=_COLOURS["tree"], label="pairwise tree, ours")
    left.axhline(images.PAPER_TREE, color="0.4", lw=1, ls="--", label=f"printed: {images.PAPER_TREE}")
    left.axvline(ising.CRITICAL, color=RED, lw=1, ls=":", label="critical coupling")
    matched = found["couplings"][0]
    left.axvline(matched, color=BLUE, lw=1, ls=":", label=f"fitted: {matched:.3f}")
    finish(left, "coupling (inverse temperature)", "negative log-likelihood, nats", size=8.5)
    styles = dict(
        zip(found["curves"], ((_COLOURS["tree"], "-"), (_COLOURS["rc"], "-"), (_COLOURS["rc"], "--")))
    )
    for name, values in found["curves"].items():
        colour, line = styles[name]
        right.semilogx(np.arange(1, len(values) + 1), values, color=colour, ls=line, label=name)
    for value, colour in ((images.PAPER_TREE, _COLOURS["tree"]), (images.PAPER_RC, _COLOURS["rc"])):
        right.axhline(value, color=colour, lw=0.9, ls=":")
    last = min(v[-1] for v in found["curves"].values())
    right.set_ylim(last - 2.0, max(last + 25.0, images.PAPER_RC + 3.0))
    objective = "objective per image, nats\n(dotted: printed)"
    finish(right, "steps of conjugate gradients", objective, size=8.5)
    return figure
