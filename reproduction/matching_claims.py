"""The statements of section 6.2 about generalised bipartite matching."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from . import matching
from .claim import DIFFERS, UNDECIDED, Claim, seconds, standard_error, verdict

_LOW = 0.02  # mean absolute error of marginals that is called low
_SHORT = 0.1  # seconds that are called short
_IGNORED = 0.1  # error up to which ignoring the constraints does little harm
_BIASED = 0.05  # error from which a bias is called significant
_QUICK = (100, 10.0)  # sweeps and seconds up to which convergence is called quick
_MEASURABLE = 3e-3  # seconds below which times are noise
SHAPES = ("3x6", "20x40")
_claim = partial(Claim, "matching")


def matching_claims(found: Mapping[str, Any]) -> list[Claim]:
    """Section 6.2."""
    table = {(s, m): matching.means(found["rows"], s, m) for s in SHAPES for m in matching.NAMES}
    return [
        _low_bias(found, table),
        _small_problems(table),
        *_linear_program(found, table),
        *_larger(found),
        _not_ergodic(found["stuck"]),
    ]


def _low_bias(found: Mapping[str, Any], table: Mapping[tuple[str, str], Any]) -> Claim:
    noise = [r["truth_error"] for r in found["rows"] if r["shape"] == "20x40" and "truth_error" in r]
    errors = {s: table[s, "lbp"][0] for s in SHAPES}
    times = {s: table[s, "lbp"][1] for s in SHAPES}
    gibbs = table["20x40", "gibbs"]
    return _claim(
        "LBP achieves a low bias in a relatively short amount of time.",
        "; ".join(f"{s}: error {errors[s]:.4f} in {seconds(times[s])}" for s in SHAPES)
        + f". On 20x40 the longest run of 2x2 Gibbs has {gibbs[0]:.4f} after {seconds(gibbs[1])}.",
        verdict(max(errors.values()) <= _LOW and max(times.values()) <= _SHORT),
        f"Low: a mean absolute error of marginals of at most {_LOW}; short: at most {_SHORT:g} s."
        + (
            f" The truth on 20x40 is sampled, with a standard error of {np.mean(noise):.4f}; LBP's error "
            f"{'cannot be told from it' if errors['20x40'] < 2 * np.mean(noise) else 'is beyond it'}."
            if noise
            else ""
        ),
    )


def _small_problems(table: Mapping[tuple[str, str], Any]) -> Claim:
    easy, hard = table["3x6", "node"][2], table["20x40", "node"][2]
    low = sum(e <= _IGNORED for e in easy)
    return _claim(
        "On small problems the constraints do not always matter: the naive approach has a low bias in some runs. They "
        "clearly influence the larger problems.",
        f"Node Marginals' error: 3x6 from {min(easy):.3f} to {max(easy):.3f}, {low} of {len(easy)} runs at most "
        f"{_IGNORED}; 20x40 from {min(hard):.3f} to {max(hard):.3f}.",
        verdict(low > 0 and min(hard) > _IGNORED, DIFFERS),
        f"Low: at most {_IGNORED}. Some runs on 3x6 must be below, none on 20x40.",
    )


def _linear_program(found: Mapping[str, Any], table: Mapping[tuple[str, str], Any]) -> list[Claim]:
    times = {s: (table[s, "lp"][1], table[s, "lbp"][1]) for s in SHAPES}
    times |= {g["shape"]: (g["lp_seconds"], g["seconds"]) for g in found["large"]}
    clear = {s: lp / lbp for s, (lp, lbp) in times.items() if max(lp, lbp) >= _MEASURABLE}
    shown = ", ".join(
        f"{lp / lbp:.2f} on {s}" + ("" if s in clear else " (noise)") for s, (lp, lbp) in times.items()
    )
    slower = sum(r > 1.0 for r in clear.values())
    ratios = list(clear.values())
    bias = {s: (table[s, "lp"][0], table[s, "lbp"][0], standard_error(table[s, "lp"][2])) for s in SHAPES}
    return [
        _claim(
            "The LP method tends to be slower than LBP.",
            f"Time of LP over LBP: {shown}.",
            UNDECIDED if not clear else verdict(slower > len(clear) / 2, DIFFERS),
            f"Judged where one of the two takes at least {_MEASURABLE * 1e3:g} ms: LP is slower on {slower} of "
            f"{len(clear)} such sizes. Times are the least of several repetitions, with a present-day LP code.",
        ),
        _claim(
            "LP becomes relatively slower on larger problems.",
            f"Time of LP over LBP: {shown}.",
            UNDECIDED if len(ratios) < 2 else verdict(ratios[-1] > ratios[0], DIFFERS),
            "Judged by the smallest and the largest size whose times are not noise.",
        ),
        _claim(
            "LP exhibits significant bias.",
            "; ".join(
                f"{s}: error of LP {b[0]:.3f} +- {b[2]:.3f}, of LBP {b[1]:.4f}" for s, b in bias.items()
            )
            + ".",
            verdict(all(b[0] - 2 * b[2] > _BIASED for b in bias.values())),
            f"Significant: more than {_BIASED} by two standard errors over runs, on both grids.",
        ),
    ]


def _larger(found: Mapping[str, Any]) -> list[Claim]:
    if not found["large"]:
        return []
    out = []
    for variant, grids in ((False, found["large"][:1]), (True, found["large"][1:])):
        if not grids:
            continue
        good = all(g["converged"] and g["sweeps"] <= _QUICK[0] and g["seconds"] <= _QUICK[1] for g in grids)
        out.append(
            _claim(
                "LBP converges quickly even on 100x100 problems."
                if not variant
                else "The same on larger problems.",
                "; ".join(
                    f"{g['shape']}: {g['sweeps']} sweeps, {seconds(g['seconds'])}"
                    + ("" if g["converged"] else ", not converged")
                    for g in grids
                )
                + ".",
                verdict(good),
                f"Quickly: at most {_QUICK[0]} sweeps and {_QUICK[1]:g} s.",
                variant,
            )
        )
    return out


def _not_ergodic(stuck: Mapping[str, Any]) -> Claim:
    return _claim(
        "The 2x2 Gibbs sampler is not ergodic for disjoint cardinality constraints.",
        f"4x4 grid whose rows and columns hold 0 or 4, affinities 0: every marginal is 0.5; the sampler gives "
        f"{stuck['low']:.3f} to {stuck['high']:.3f} after {stuck['sweeps']} sweeps.",
        verdict(max(abs(stuck["low"] - 0.5), abs(stuck["high"] - 0.5)) > 0.49),
        "All on and all off are the two possible states; four variables cannot lead from one to the other.",
    )
