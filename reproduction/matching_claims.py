"""The statements of section 6.2 about generalised bipartite matching; times are processor times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import matching
from .claim import Claim, Measure, Reading, plain

_LOW = 0.02  # mean absolute error of LBP's marginals that is called low
_AHEAD = 5.0  # times by which LBP's error is below that of LP
_FRACTION = 1.0 / 3.0  # of the naive error on large problems, up to which it is called low
_BIASED = 0.05  # error from which a bias is called significant
_QUICK = (50.0, 10.0)  # sweeps and seconds up to which convergence is called quick
_STUCK, _MOVES = 0.49, 0.1  # errors of a sampler that stays where it starts, and of one that moves
_ACCURATE, _FAST = 0.05, 1.0  # error and seconds under all constraints of a kind
SHAPES = ("3x6", "20x40")


def matching_claims(found: Mapping[str, Any]) -> list[Claim]:
    """Section 6.2."""
    rows = found["rows"]
    seeds = sorted({r["seed"] for r in rows})

    def errors(shape: str, method: str) -> tuple[float, ...]:
        return tuple(matching.means(rows, shape, method, s)[0] for s in seeds)

    def ratios(shape: str) -> tuple[float, ...]:
        lp, lbp = ([matching.means(rows, shape, m, s)[1] for s in seeds] for m in ("lp", "lbp"))
        return tuple(a / b for a, b in zip(lp, lbp))

    first = [g for g in found["large"] if g["n"] == found["large"][0]["n"]]
    side = first[0]["shape"]
    larger = tuple(g["lp_seconds"] / g["seconds"] for g in first)
    noise = [r["truth_error"] for r in rows if r["shape"] == "20x40" and "truth_error" in r]
    return [
        plain(
            "lbp-bias",
            [
                *(Measure(f"mean absolute error of LBP on {s}", errors(s, "lbp"), high=_LOW) for s in SHAPES),
                *(
                    Measure(
                        f"time of the shortest Gibbs run that is as good over LBP's, at least, on {s}",
                        tuple(
                            matching.as_good(rows, s, seed) / matching.means(rows, s, "lbp", seed)[1]
                            for seed in seeds
                        ),
                        1.0,
                    )
                    for s in SHAPES
                ),
            ],
            f"The truth on 20x40 is sampled, with a standard error of {np.mean(noise):.4f}. Gibbs, in NumPy, "
            f"{_reached(rows)}.",
        ),
        _naive(rows, seeds),
        plain(
            "lp-slower",
            [Measure(f"time of LP over LBP on {s}", ratios(s), 1.0) for s in SHAPES],
            f"With a present-day LP code. On {side} the ratio is {np.mean(larger):.2g}"
            + "".join(
                f", on {g['shape']} {g['lp_seconds'] / g['seconds']:.2g}"
                for g in found["large"]
                if g["shape"] != side
            )
            + ".",
        ),
        plain(
            "lp-scaling",
            [
                Measure(
                    "ratio LP to LBP on 20x40 over that on 3x6", _over(ratios("20x40"), ratios("3x6")), 1.0
                ),
                Measure(f"ratio on {side} over that on 20x40", _over(larger, ratios("20x40")), 1.0),
            ],
        ),
        plain(
            "lp-bias",
            [
                *(Measure(f"mean absolute error of LP on {s}", errors(s, "lp"), _BIASED) for s in SHAPES),
                *(
                    Measure(
                        f"error of LP over that of LBP on {s}",
                        _over(errors(s, "lp"), errors(s, "lbp")),
                        _AHEAD,
                    )
                    for s in SHAPES
                ),
            ],
        ),
        plain(
            "lbp-larger",
            [
                Measure(f"sweeps on {side}", tuple(float(g["sweeps"]) for g in first), high=_QUICK[0]),
                Measure(f"share that converged on {side}", tuple(float(g["converged"]) for g in first), 1.0),
                Measure(f"seconds on {side}", tuple(g["seconds"] for g in first), high=_QUICK[1]),
            ],
            "Larger grids: "
            + "; ".join(
                f"{g['shape']}, {g['sweeps']} sweeps{'' if g['converged'] else ', not converged'}"
                for g in found["large"]
                if g["shape"] != side
            )
            + ".",
        ),
        plain(
            "gibbs-stuck",
            [
                Measure(
                    "mean error of the sampler where counts are 0 or 4",
                    _each(found["stuck"], "disjoint"),
                    _STUCK,
                ),
                Measure("the same where counts are 1 to 3", _each(found["stuck"], "control"), high=_MOVES),
            ],
            "On a 4x4 grid with affinities 0, where every marginal is 0.5; four cells at a time cannot lead from "
            "all off to all on.",
        ),
        _variety(found["variety"]),
    ]


def _reached(rows: Any) -> str:
    """Whether the Gibbs runs are long enough to be as good as LBP, in words."""
    short = [s for s in SHAPES if matching.means(rows, s, "gibbs")[0] > matching.means(rows, s, "lbp")[0]]
    return (
        f"is still worse after its longest run on {' and '.join(short)}"
        if short
        else "becomes as good on both"
    )


def _each(rows: Any, name: str) -> tuple[float, ...]:
    return tuple(float(r[name]) for r in rows)


def _over(above: tuple[float, ...], below: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(a / b for a, b in zip(above, below))


def _naive(rows: Any, seeds: list[int]) -> Claim:
    small = {s: matching.means(rows, "3x6", "node", s)[2] for s in seeds}
    large = {s: matching.means(rows, "20x40", "node", s)[2] for s in seeds}
    return plain(
        "naive-small",
        [
            Measure(
                "lowest error of Node Marginals on 3x6 over its mean on 20x40",
                tuple(min(small[s]) / float(np.mean(large[s])) for s in seeds),
                high=_FRACTION,
            ),
            Measure(
                "lowest error of Node Marginals on 20x40", tuple(min(large[s]) for s in seeds), 2.0 * _BIASED
            ),
        ],
        f"On 3x6 its errors are {min(map(min, small.values())):.3f} to {max(map(max, small.values())):.3f}, on 20x40 "
        f"{min(map(min, large.values())):.3f} to {max(map(max, large.values())):.3f}.",
    )


def _variety(found: Any) -> Claim:
    def reading(name: str, kinds: Mapping[str, Any]) -> Reading:
        worst = tuple(max(seed[k]["error"] for k in kinds) for seed in found)
        naive = tuple(max(seed[k]["error"] / seed[k]["node"] for k in kinds) for seed in found)
        slowest = tuple(max(seed[k]["seconds"] for k in kinds) for seed in found)
        return Reading(
            name,
            (
                Measure("error of LBP under the worst constraint", worst, high=_ACCURATE),
                Measure("largest ratio of LBP's error to that of Node Marginals", naive, high=1.0),
                Measure("seconds under the slowest", slowest, high=_FAST),
            ),
        )

    return Claim(
        "lbp-variety",
        tuple(reading(name, kinds) for name, kinds in matching.CONSTRAINTS.items()),
        f"On 4x4 grids, the same constraint on rows and columns: "
        f"{', '.join(k for v in matching.CONSTRAINTS.values() for k in v)}. "
        "The paper's sentence follows its remark on disjoint constraints; LBP runs under these and is not accurate.",
    )
