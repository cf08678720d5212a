"""The statements of section 6.3 about multiple-instance learning; every division into folds is a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import bags
from .claim import Claim, Measure, Reading, plain, standard_error

_SHUFFLES = 2000
_LEVEL = 0.05
_BEYOND = 1.96  # standard errors from which a difference is called significant
_HIGH = 0.25  # standard deviation over folds, relative to the mean, that is called high
_MOVED = 1.1  # factor by which the number of active instances has to change

Rows = Sequence[dict[str, Any]]


def bags_claims(rows: Rows) -> list[Claim]:
    """Section 6.3."""
    parts = bags.divisions(rows)
    gaps = [_gap(part) for part in parts]
    pooled = _gap(rows)
    valid = [bags.chosen(part, "normal")[0]["valid"] for part in parts]
    best = {k: bags.summary(bags.chosen(rows, k)) for k in bags.KINDS}
    return [
        plain(
            "normal-ahead",
            [Measure("test error of Noisy-OR minus Normal", tuple(g[0] for g in gaps), 0.0, signed=True)],
            "Settings by validation within each division. Chosen over all divisions together: "
            + ", ".join(
                f"{bags.NAMES[k]} {b['test_error']:.3f} at {_SYMBOL[k]} = {b['value']:g}"
                for k, b in best.items()
            )
            + ".",
        ),
        Claim(
            "folds-spread",
            (
                Reading(
                    "compared with a quarter of the mean error",
                    (
                        Measure(
                            "standard deviation of Normal's validation error over folds, over its mean",
                            tuple(float(np.std(v, ddof=1) / np.mean(v)) for v in valid),
                            _HIGH,
                        ),
                    ),
                ),
                Reading(
                    "compared with the difference of the two models",
                    (
                        Measure(
                            "the same standard deviation over the difference of the two models",
                            tuple(
                                float(np.std(v, ddof=1)) / max(abs(g[0]), 1e-3) for v, g in zip(valid, gaps)
                            ),
                            1.0,
                        ),
                    ),
                ),
            ),
            f"The standard deviation is {np.mean([np.std(v, ddof=1) for v in valid]):.3f} on average.",
        ),
        plain(
            "not-significant",
            [
                Measure(
                    "difference in standard errors over bags",
                    tuple(abs(g[0] / g[1]) for g in gaps),
                    high=_BEYOND,
                )
            ],
            f"Averaged over all divisions the difference is {pooled[0]:+.3f} with a standard error of {pooled[1]:.3f}.",
        ),
        plain(
            "f-matters",
            [
                Measure(
                    "probability of such a spread of the curves' points by chance",
                    tuple(_chance(part) for part in parts),
                    high=_LEVEL,
                )
            ],
            f"By {_SHUFFLES} permutations of the points within every bag.",
        ),
        _large_mu(rows, parts),
        _active(rows, parts),
    ]


_SYMBOL = {"normal": "mu", "noisy-or": "lambda"}


def _gap(rows: Rows) -> tuple[float, float]:
    """Noisy-OR minus Normal of the settings chosen by validation, paired over bags, and its standard error."""
    apart = bags.mistakes(bags.chosen(rows, "noisy-or")) - bags.mistakes(bags.chosen(rows, "normal"))
    apart = apart[~np.isnan(apart)]
    return float(apart.mean()), max(standard_error(apart), 1e-9)


def _chance(rows: Rows) -> float:
    groups = [bags.chosen(rows, kind, v) for kind in bags.KINDS for v in bags.values_of(rows, kind)]
    wrong = np.array([bags.mistakes(g) for g in groups])
    return permutation_p(wrong[:, ~np.isnan(wrong).any(0)], np.random.default_rng(0))


def permutation_p(wrong: Any, rng: np.random.Generator) -> float:
    """Probability that the means of the rows spread as they do if every column is in random order, (points, bags)."""
    seen = float(wrong.mean(1).var())
    passed = sum(float(rng.permuted(wrong, axis=0).mean(1).var()) >= seen - 1e-15 for _ in range(_SHUFFLES))
    return (1 + passed) / (1 + _SHUFFLES)


def _large_mu(rows: Rows, parts: Sequence[Rows]) -> Claim:
    curves = [bags.curves(part)["normal"] for part in parts]
    return plain(
        "large-mu",
        [
            Measure(
                f"test error at mu = {curves[0][0]['value']:g} minus that at {curves[0][-1]['value']:g}",
                tuple(c[0]["test_error"] - c[-1]["test_error"] for c in curves),
                0.0,
                signed=True,
            )
        ],
        "Mean test error against mu: "
        + ", ".join(f"{c['value']:g}: {c['test_error']:.3f}" for c in bags.curves(rows)["normal"])
        + ".",
    )


def _active(rows: Rows, parts: Sequence[Rows]) -> Claim:
    """Whatever the second parameter and the penalty are: the curve that moves least is judged."""

    def least(part: Rows, kind: str) -> float:
        curves = bags.fixed_curves(part, kind).values()
        return float(
            min(max(c["active"] for c in curve) / min(c["active"] for c in curve) for curve in curves)
        )

    words = []
    for kind in bags.KINDS:
        curves = bags.fixed_curves(rows, kind).values()
        rising = sum(curve[-1]["active"] > curve[0]["active"] for curve in curves)
        words.append(f"{rising} of {len(curves)} curves rise with {_SYMBOL[kind]}")
    return plain(
        "active",
        [
            Measure(
                f"largest over smallest number of active instances against {_SYMBOL[kind]}, the least curve",
                tuple(least(part, kind) for part in parts),
                _MOVED,
            )
            for kind in bags.KINDS
        ],
        "A curve for every sigma or epsilon and penalty; " + ", ".join(words) + ", the others fall.",
    )
