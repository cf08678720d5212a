"""The statements of section 6.3 about multiple-instance learning."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from . import bags
from .claim import DIFFERS, UNDECIDED, Claim, standard_error, verdict

_SHUFFLES = 2000
_LEVEL = 0.05
_LARGE_MU = 0.5
_claim = partial(Claim, "bags")


def bags_claims(rows: Sequence[dict[str, Any]]) -> list[Claim]:
    """Section 6.3."""
    curves = bags.curves(rows)
    divisions = len({r["division"] for r in rows})
    return [
        *_normal_against_noisy_or(rows, curves, divisions),
        _varying_f(rows),
        _large_mu(curves, rows),
        _active(rows),
    ]


def _normal_against_noisy_or(rows: Any, curves: Any, divisions: int) -> list[Claim]:
    groups = {k: bags.chosen(rows, k) for k in bags.KINDS}
    best = {k: bags.summary(g) for k, g in groups.items()}
    lowest = {k: min(c["test_error"] for c in curves[k]) for k in bags.KINDS}
    n, o = best["normal"], best["noisy-or"]
    apart = bags.mistakes(groups["noisy-or"]) - bags.mistakes(groups["normal"])
    apart = apart[~np.isnan(apart)]
    gap, error = float(apart.mean()), standard_error(apart)
    significant = abs(gap) > 2 * error
    shown = (
        f"Normal {n['test_error']:.3f} ({n['lowest']:.3f} to {n['highest']:.3f} over {divisions} divisions; mu "
        f"{n['value']:g}, sigma {n['second']:g}), Noisy-OR {o['test_error']:.3f} ({o['lowest']:.3f} to "
        f"{o['highest']:.3f}; lambda {o['value']:g}, epsilon {o['second']:g})"
    )
    return [
        _claim(
            "A Normal cardinality potential out-performs the standard Noisy-OR (a trend).",
            f"Test error of the settings chosen by validation: {shown}; lowest points of the curves "
            f"{lowest['normal']:.3f} and {lowest['noisy-or']:.3f}.",
            verdict(gap > 0 and lowest["normal"] <= lowest["noisy-or"], DIFFERS),
            "Judged by the mean over all divisions into folds, of the chosen settings and of the curves' "
            "lowest points.",
        ),
        _claim(
            "The results are not statistically significant.",
            f"Noisy-OR minus Normal, paired over {len(apart)} bags, each averaged over {divisions} divisions: "
            f"{gap:+.3f} "
            f"+- {error:.3f}.",
            UNDECIDED if divisions < 2 else verdict(not significant, DIFFERS),
            "Significant: beyond two standard errors over bags, which are the independent units.",
        ),
    ]


def _varying_f(rows: Sequence[dict[str, Any]]) -> Claim:
    groups = [bags.chosen(rows, kind, v) for kind in bags.KINDS for v in bags.values_of(rows, kind)]
    wrong = np.array([bags.mistakes(g) for g in groups])
    wrong = wrong[:, ~np.isnan(wrong).any(0)]
    p = permutation_p(wrong, np.random.default_rng(0))
    errors = wrong.mean(1)
    return _claim(
        "Varying the f functions can affect performance (a trend).",
        f"Test errors of the {len(groups)} points of the curves range from {errors.min():.3f} to "
        f"{errors.max():.3f}; that "
        f"points which do not differ would spread so much has probability {p:.3g}.",
        verdict(p < _LEVEL, DIFFERS),
        f"By {_SHUFFLES} permutations of the points within every bag; below {_LEVEL} counts.",
    )


def permutation_p(wrong: Any, rng: np.random.Generator) -> float:
    """Probability that the means of the rows spread as they do if every column is in random order, (points, bags)."""
    seen = float(wrong.mean(1).var())
    passed = sum(float(rng.permuted(wrong, axis=0).mean(1).var()) >= seen - 1e-15 for _ in range(_SHUFFLES))
    return (1 + passed) / (1 + _SHUFFLES)


def _large_mu(curves: Any, rows: Any) -> Claim:
    normal = curves["normal"]
    best = bags.summary(bags.chosen(rows, "normal"))["value"]
    return _claim(
        "Setting mu large appears to be beneficial for learning.",
        "Test error against mu: " + ", ".join(f"{c['value']:g}: {c['test_error']:.3f}" for c in normal) + ".",
        verdict(normal[-1]["test_error"] < normal[0]["test_error"] and best >= _LARGE_MU, DIFFERS),
        f"The error at the largest mu must be below that at the smallest, and validation must choose at least "
        f"{_LARGE_MU}: it chooses {best:g}.",
    )


def _active(rows: Sequence[dict[str, Any]]) -> Claim:
    fixed = bags.fixed_curves(rows)
    words, ordered = [], []
    for kind, symbol in (("normal", "mu"), ("noisy-or", "lambda")):
        active = [c["active"] for c in fixed[kind]]
        rising = all(a <= b for a, b in pairwise(active))
        ordered.append(rising or all(a >= b for a, b in pairwise(active)))
        words.append(
            f"against {symbol} "
            + ", ".join(f"{c['value']:g}: {c['active']:.2f} ({c['share']:.0%})" for c in fixed[kind])
            + (" (rising)" if rising else " (falling)" if ordered[-1] else " (not monotone)")
        )
    moved = [
        max(c["active"] for c in curve) > 1.1 * min(c["active"] for c in curve) for curve in fixed.values()
    ]
    return _claim(
        "Varying f affects how many instances in a positive bag the model labels as positive.",
        "Expected active instances per positive bag given its label: " + "; ".join(words) + ".",
        verdict(all(moved) and all(ordered), DIFFERS if any(moved) else "not reproduced"),
        "With sigma or epsilon and the penalty fixed in the middle of their grids; both curves must be "
        "monotone and "
        "move by more than a tenth.",
    )
