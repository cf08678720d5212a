"""Make the pictures of the README: ``python docs/figures.py`` (needs matplotlib)."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

import tallytree as tt

HERE = Path(__file__).resolve().parent / "figures"
Wide = NDArray[np.longdouble]
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


def exact_log_odds(logits: Wide, log_f: Wide) -> Wide:
    """Posterior log-odds of the first variable, by adding one variable after the other in long double."""
    batch, n = logits.shape
    law = np.zeros((batch, n + 1), np.longdouble)  # weight of every count of all variables but the first
    law[:, 0] = 1
    for i in range(1, n):
        law[:, 1 : i + 1] += law[:, :i] * np.exp(logits[:, i : i + 1])
        law /= law.max(1, keepdims=True)
    with np.errstate(divide="ignore"):
        log_law = np.log(law)
    off = np.logaddexp.reduce(log_law[:, :n] + log_f[:, :n], 1)
    on = np.logaddexp.reduce(log_law[:, :n] + log_f[:, 1:], 1) + logits[:, 0]
    return on - off


def certificates(models: int = 1000) -> None:
    """Bound against true error for ten times `models` random models; no bound may be below its error."""
    rng = np.random.default_rng(0)
    n = 400
    c = np.arange(n + 1.0)
    kinds: list[tuple[str, str, object]] = [
        ("exactly k", "#4c72b0", lambda: np.where(c == rng.integers(1, n), 0.0, -np.inf)),
        ("at least k", "#dd8452", lambda: np.where(c >= rng.integers(1, n), 0.0, -np.inf)),
        (
            "Gaussian, far from the mean",
            "#55a868",
            lambda: -0.5 * ((c - rng.uniform(0, n)) / rng.uniform(1, 30)) ** 2,
        ),
        ("random table, sd 1 to 100", "#c44e52", lambda: rng.normal(0, 10 ** rng.uniform(0, 2), n + 1)),
        (
            "two far modes",
            "#8172b3",
            lambda: np.where((c == rng.integers(1, 40)) | (c == rng.integers(360, n)), 0.0, -np.inf),
        ),
    ]
    figure, axis = plt.subplots(figsize=(6.4, 4.8))
    least = 1e-18  # smaller errors are drawn here
    points: list[tuple[float, float, str]] = []
    for name, colour, draw in kinds:
        axis.plot([], [], ".", ms=12, color=colour, label=name)
        for spread in (1.0, 10.0):
            logits = rng.normal(0, spread, (models, n))
            log_f = np.array([draw() for _ in range(models)])  # type: ignore[operator]
            answers = [tt.CountModel(x, f) for x, f in zip(logits, log_f, strict=True)]
            log_odds = exact_log_odds(logits.astype(np.longdouble), log_f.astype(np.longdouble))
            errors = np.array(
                [abs(m.posterior_logits[0] - x) for m, x in zip(answers, log_odds, strict=True)], float
            )
            bounds = np.array([m.error_bound for m in answers])
            rounding = 2.0**-53 * np.abs(log_odds).astype(float)  # of the answer itself
            assert np.all(errors <= bounds + rounding), f"{name}: an error is above its bound"
            points += [(x, y, colour) for x, y in zip(np.maximum(errors, least), bounds, strict=True)]
    assert max(bound for _, bound, _ in points) < 1e-10  # as the page says
    rng.shuffle(points)  # so that no kind hides another
    x, y, colours = zip(*points, strict=True)
    axis.scatter(x, y, s=2, alpha=0.5, c=colours, linewidths=0)
    axis.plot([least, 1e-9], [least, 1e-9], color="0.3", lw=1)
    axis.text(3e-12, 1.5e-12, "bound = error", rotation=38, fontsize=9, color="0.3", ha="center", va="top")
    axis.axhline(1e-9, color="0.3", lw=1, ls="--")
    axis.text(2e-18, 1.3e-9, "promised: 1e-9", fontsize=9, color="0.3")
    axis.set(xscale="log", yscale="log", xlabel="true error of a posterior log-odds", ylabel="error_bound")
    axis.set_ylim(1e-15, 1e-8)
    axis.set_title(f"{2 * len(kinds) * models:,} random models of {n} variables", fontsize=11)
    axis.legend(frameon=False, fontsize=9, loc="lower right")
    axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(HERE / "certificates.png", dpi=130)


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    sensors()
    certificates()
