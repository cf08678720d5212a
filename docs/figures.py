"""Make the pictures of the README: ``python docs/figures.py`` (needs matplotlib)."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

import tallytree as tt

HERE = Path(__file__).resolve().parent / "figures"
ROOMS = {"hall": range(0, 4), "lab": range(4, 8), "attic": range(8, 12)}
LOGITS = np.array([-1.2, 0.3, -0.4, -2.0, 1.6, 0.9, 1.1, 0.2, -2.5, -1.9, -3.0, -2.2])


def sensors() -> None:
    """Twelve sensors in three rooms: at least one alarm per room, exactly four in all."""
    groups = [tt.Group(room, tt.at_least(1)) for room in ROOMS.values()]
    model = tt.CountModel(LOGITS, [*groups, tt.Group(None, tt.exactly(4))])
    colours = np.repeat(["#4c72b0", "#dd8452", "#55a868"], 4)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.4), width_ratios=[2.1, 1])

    place = np.arange(12)
    left.bar(place - 0.2, expit(LOGITS), 0.4, color="0.8", label="each sensor alone")
    left.bar(place + 0.2, model.marginals, 0.4, color=colours, label="given the counts (colour: room)")
    names = [f"{name} {i + 1}" for name, room in ROOMS.items() for i in range(len(room))]
    left.set_xticks(place, names, rotation=45, ha="right")
    left.set_ylim(0, 1)
    left.set_ylabel("P(sensor is on)")
    left.set_title("At least one per room, exactly four in all", fontsize=11)
    left.legend(frameon=False, fontsize=9)

    counts = np.arange(5)
    alone = tt.CountModel(LOGITS, [tt.Group(ROOMS["lab"])])
    right.bar(counts - 0.2, np.exp(alone.count_log_probs(0)), 0.4, color="0.8", label="sensors alone")
    right.bar(counts + 0.2, np.exp(model.count_log_probs(1)), 0.4, color="#dd8452", label="given the counts")
    right.set_xticks(counts)
    right.set_ylim(0, 1)
    right.set_xlabel("number of lab sensors that are on")
    right.set_ylabel("probability")
    right.set_title("How many in the lab", fontsize=11)
    right.legend(frameon=False, fontsize=9, loc="upper left")
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(HERE / "sensors.png", dpi=130)


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    sensors()
