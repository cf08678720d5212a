"""The statements of section 6.1 about time and memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from . import runtime
from .claim import DIFFERS, NOT_REPRODUCED, REPRODUCED, UNDECIDED, Claim, power_of_two, seconds, verdict

_NEAR_LINEAR = 1.3  # largest exponent that is called near-linear; D log^2 D has about 1.15 at these sizes
_QUADRATIC = (1.7, 2.3)
_VERY_SMALL = 64  # largest D that is called very small
_SLOW = 10.0  # seconds from which a single inference is called quite slow

Rows = Sequence[dict[str, Any]]
Timed = Mapping[tuple[str, int], float]
_claim = partial(Claim, "runtime")


def runtime_claims(rows: Rows) -> list[Claim]:
    """Section 6.1."""
    timed = {(r["method"], r["D"]): r["seconds"] for r in rows if r["seconds"] is not None}
    used = {(r["method"], r["D"]): r["processor"] for r in rows if r.get("processor") is not None}
    further = (
        _half_a_million(timed),
        _tree_against_chain(timed),
        _slow_tree(rows, timed),
        _small(used),
        _memory(rows),
        _cubic(rows, timed),
    )
    return [*_near_linear(rows, timed), *(claim for claim in further if claim is not None)]


def _near_linear(rows: Rows, timed: Timed) -> list[Claim]:
    least = runtime.FITTED_FROM["fft-tree"]
    out = []
    for method, variant in (("fft-tree", False), ("auto", True)):
        slope = runtime.growth(rows, method, "processor", least)[0]
        clock = runtime.growth(rows, method, "seconds", least)[0]
        top = max((d for m, d in timed if m == method), default=0)
        out.append(
            _claim(
                "The FFT Tree grows nearly linearly up through all experiments (to D = 2^19)."
                if not variant
                else "The same of this library's own choice of method.",
                f"Fitted from D = {least} to {power_of_two(top)}: processor time ~ D^{slope:.2f}, "
                f"clock ~ D^{clock:.2f}.",
                UNDECIDED if math.isnan(slope) else verdict(slope <= _NEAR_LINEAR),
                "Too few sizes were measured."
                if math.isnan(slope)
                else f"An exponent of processor time up to {_NEAR_LINEAR} counts as near-linear.",
                variant,
            )
        )
    return out


def _half_a_million(timed: Timed) -> Claim | None:
    half = 2**19
    if ("fft-tree", half) not in timed:
        return None
    t = timed["fft-tree", half]
    return _claim(
        "Half a million variables (2^19) in less than 100 seconds.",
        f"FFT Tree {seconds(t)}, ours {seconds(timed.get(('auto', half)))}.",
        verdict(t < 100),
    )


def _tree_against_chain(timed: Timed) -> Claim | None:
    both = sorted(d for m, d in timed if m == "chain" and ("tree", d) in timed)
    if not both:
        return None
    d = both[-1]
    wins = [x for x in both if all(timed["tree", y] < timed["chain", y] for y in both if y >= x)]
    return _claim(
        "The Tree is faster than the Chain for larger D.",
        f"At {power_of_two(d)}: Tree {seconds(timed['tree', d])}, Chain {seconds(timed['chain', d])}; the Tree is "
        f"ahead from D = {wins[0] if wins else '(never)'} on.",
        verdict(timed["tree", d] < timed["chain", d]),
    )


def _slow_tree(rows: Rows, timed: Timed) -> Claim | None:
    slope = runtime.growth(rows, "tree", "processor", runtime.FITTED_FROM["tree"])[0]
    near = sorted(d for m, d in timed if m == "tree" and d <= 2**17)
    if math.isnan(slope) or not near or ("fft-tree", near[-1]) not in timed:
        return None
    d = near[-1]
    gain = timed["tree", d] / timed["fft-tree", d]
    quadratic = _QUADRATIC[0] < slope < _QUADRATIC[1]
    slow = timed["tree", d] > _SLOW
    return _claim(
        "The Tree's quadratic time makes it quite slow once D nears 100k; the FFT Tree does not share it.",
        f"Tree ~ D^{slope:.2f}; at {power_of_two(d)} {seconds(timed['tree', d])}, {gain:.3g} times the FFT Tree's.",
        UNDECIDED
        if d < 2**16
        else verdict(quadratic and slow, DIFFERS if quadratic and gain > 1 else NOT_REPRODUCED),
        f"Quadratic: an exponent from {_QUADRATIC[0]} to {_QUADRATIC[1]}; quite slow: above {_SLOW:g} s."
        + (" Ours grows so, too, but its compiled loops are not slow yet." if quadratic and not slow else ""),
    )


def _small(used: Timed) -> Claim | None:
    sizes = sorted(d for m, d in used if m == "chain" and d <= _VERY_SMALL and ("fft-tree", d) in used)
    if not sizes:
        return None
    ahead = [d for d in sizes if used["chain", d] < used["fft-tree", d]]
    return _claim(
        "For very small D the Chain is slightly faster.",
        "Processor time of Chain and FFT Tree: "
        + ", ".join(f"D = {d} {seconds(used['chain', d])} and {seconds(used['fft-tree', d])}" for d in sizes)
        + ".",
        verdict(sizes[0] in ahead, DIFFERS),
        f"Judged at the smallest size; at {len(ahead)} of {len(sizes)} sizes up to {_VERY_SMALL} the Chain "
        "is ahead.",
    )


def _memory(rows: Rows) -> Claim | None:
    power, factor = runtime.growth(rows, "chain", "bytes", runtime.FITTED_FROM["chain"])
    if math.isnan(power):
        return None
    reached = (2e9 / factor) ** (1.0 / power)
    ours, _ = runtime.growth(rows, "auto", "bytes", 2**16)
    ends = [r for r in rows if r["method"] == "chain" and r["note"]]
    failed = bool(ends) and "memory" in ends[0]["note"]
    last = max((r["D"] for r in rows if r["method"] == "chain" and r["seconds"] is not None), default=0)
    return _claim(
        "The Chain needs O(D^2) memory and fails after D = 16000.",
        f"Chain memory ~ D^{power:.2f}; under a limit of {runtime.CHAIN_LIMIT / 1e9:g} GB it ran at D = {last}"
        + (f" and at D = {ends[0]['D']}: {ends[0]['note']}." if ends else ".")
        + f" By the fit 2 GB, a usual process limit of the time, are reached at D = {reached:,.0f}. Ours: memory ~ "
        f"D^{ours:.2f}.",
        UNDECIDED
        if not ends
        else verdict(_QUADRATIC[0] < power < _QUADRATIC[1] and failed and 8e3 < last < 32e3, DIFFERS),
        "Run into a real limit on the process's memory; where that limit lies is a matter of the machine, "
        "how memory "
        "grows is not.",
    )


def _cubic(rows: Rows, timed: Timed) -> Claim | None:
    cubic, _ = runtime.growth(rows, "potetz-lee", "processor", 32)
    top = max((d for m, d in timed if m == "potetz-lee"), default=0)
    others = [m for m in ("chain", "tree", "fft-tree", "auto") if not math.isnan(_nearest(timed, m, top))]
    if math.isnan(cubic) or not others:
        return None
    gains = {m: timed["potetz-lee", top] / _nearest(timed, m, top) for m in others}
    paper = [g for m, g in gains.items() if m != "auto"]
    return _claim(
        "Chain, Tree and FFT Tree improve on the algorithm of Potetz and Lee, O(D^3 log D).",
        f"At D = {top} it takes {seconds(timed['potetz-lee', top])} and grows as D^{cubic:.2f}. Times as "
        "fast there: " + ", ".join(f"{runtime.NAMES[m]} {g:.3g}" for m, g in gains.items()) + ".",
        REPRODUCED if min(paper) > 1.0 else NOT_REPRODUCED,
        "All three of the paper's must be ahead; others are timed at the nearest size that is not larger.",
    )


def _nearest(timed: Timed, method: str, d: int) -> float:
    sizes = [x for m, x in timed if m == method and x <= d]
    return timed[method, max(sizes)] if sizes else math.nan
