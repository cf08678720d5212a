"""What a sweep for cliffs left behind: a file that grows run by run, and the table of the site made from it.

``python benchmarks/cliffs.py --store FILE`` puts every verb of a kind, home and size into the file when it is done, in
the place of what an earlier run had there; ``python benchmarks/cliffs.py --store FILE --write`` writes the table.
"""

from __future__ import annotations

import fcntl
import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from machine import describe

TABLE = Path(__file__).resolve().parents[1] / "docs" / "cliff_table.md"
SAME = ("home", "kind", "verb", "size")  # what a part of the sweep is
ABOVE, GROWTH = 10.0, 1.15


class Reason(NamedTuple):
    """Why cells are above ten: homes, kinds, verbs and inputs whose names begin so; nothing is everything."""

    why: str
    homes: tuple[str, ...] = ("",)
    kinds: tuple[str, ...] = ("",)
    verbs: tuple[str, ...] = ("",)
    inputs: tuple[str, ...] = ("",)  # parts of the names of log-odds and potentials
    largest: float = math.inf  # variables

    def holds(self, part: dict[str, Any], cell: dict[str, Any]) -> bool:
        names = (part["home"], self.homes), (part["kind"], self.kinds), (part["verb"], self.verbs)
        named = all(any(name.startswith(w) for w in wanted) for name, wanted in names)
        return named and part["size"] <= self.largest and any(w in cell["input"] for w in self.inputs)


FLAT = ("flat", "batch", "rows of 300", "ragged", "thinned")
NESTED = ("nested", "blocks", "all-or-none blocks")
EDGES = ("path", "star", "broom", "random tree", "coupled", "chain", "left to right", "sequences")
FAR = ("sd 1e6", "cauchy", "wide", "mask", "10 far", "half forced")

# The first that holds is named. What says "not mended" is a fault of the library, not of the models.
REASONS: tuple[Reason, ...] = (
    Reason(
        "an integral of half a dozen products or more, each of them a mixture of models with one of both counts; where "
        "neither is likely enough for plain numbers, logarithms in quadratic time, announced from 3 s on",
        kinds=EDGES,
        verbs=("kl near",),
        inputs=("1 or n-2", "convex"),
    ),
    Reason(
        "the law of the count, with digits in its tails, costs a dozen inferences and more where a table says "
        "something of every count; then there is an integral of three to five products",
        kinds=FLAT,
        verbs=("kl near",),
        inputs=("convex", "at least 1"),
    ),
    Reason(
        "an integral of half a dozen products under far log-odds, which plain numbers do not certify: logarithms for "
        "each, in quadratic time, announced from 3 s on; not mended",
        kinds=EDGES,
        verbs=("kl near",),
        inputs=("sd 1e6", "wide", "cauchy"),
    ),
    Reason(
        "the unit is the price of a far divergence, a difference of two inferences; models as near as these take an "
        "integral of half a dozen products or more",
        verbs=("kl near", "kl itself"),
    ),
    Reason(
        "log-weights are so large that their expectations lose their digits: one more inference, and its distribution "
        "of counts, under the tilt of the posterior",
        kinds=FLAT,
        verbs=("entropy",),
    ),
    Reason(
        "log-weights are so large that their expectations lose their digits: distributions of counts or sums around "
        "the mode, a dozen to thirty inferences",
        kinds=NESTED,
        verbs=("entropy",),
    ),
    Reason(
        "log-weights are so large that their expectations lose their digits: numbers that carry an entropy",
        kinds=EDGES,
        verbs=("entropy",),
    ),
    Reason(
        "the difference of two inferences keeps no digits: an integral of a dozen to thirty products between the "
        "variables that are not decided",
        kinds=FLAT,
        verbs=("kl far",),
    ),
    Reason(
        "the difference of two inferences keeps no digits: entropies around the mode or an integral of half a dozen "
        "products or more",
        kinds=NESTED,
        verbs=("kl far",),
    ),
    Reason(
        "one to three milliseconds: several quick methods that cannot certify, and a tree with an exponent for each "
        "count or the few undecided variables, where the usual answer takes a tenth of one",
        kinds=FLAT,
        inputs=(*FAR, "1 or n-2", "cauchy"),
        largest=4096,
    ),
    Reason(
        "rows whose far log-odds leave few variables undecided are solved one by one",
        kinds=("batch", "rows of 300", "ragged"),
        inputs=FAR,
    ),
    Reason(
        "the likely counts are at an end of a convex table, where sums over frequencies certify no product: a tree "
        "under the tilt of the posterior for every row",
        kinds=("batch", "rows of 300", "ragged"),
        verbs=("product", "covariance"),
        inputs=("convex",),
    ),
    Reason(
        "two stretches of possible counts: an inference for each, after the methods for one stretch have failed",
        kinds=FLAT,
        inputs=("1 or n-2",),
    ),
    Reason(
        "the few variables that are undecided are looked for before they are solved, which takes several passes over "
        "all of them",
        kinds=FLAT,
        inputs=("sd 1e6", "1000 cauchy", "wide"),
    ),
    Reason(
        "a high table over far log-odds: transforms certify no product, and a tree over all pairs of counts takes "
        "quadratic time, announced from 3 s on; not mended",
        kinds=("flat", "thinned"),
        verbs=("product", "covariance", "gradient"),
        inputs=("cauchy, convex", "cauchy, sd 1e4", "cauchy, spike"),
    ),
    Reason(
        "log-odds of blocks are so far from one another that no pass certifies a product: logarithms take quadratic "
        "time, announced from 3 s on; not mended",
        kinds=("blocks", "all-or-none blocks"),
        verbs=("product", "covariance"),
    ),
    Reason(
        "the usual sample takes a fifth of an inference; this one takes all of one and more",
        kinds=NESTED,
        verbs=("sample",),
    ),
    Reason(
        "the usual difference of two inferences cancels, and the chain rule by logarithms in array code takes "
        "quadratic time, announced from 3 s on; not mended",
        kinds=EDGES,
        verbs=("kl far",),
        inputs=(*FAR, "convex"),
    ),
    Reason(
        "a table with several likely stretches of counts: a product is a mixture of those with one stretch each, and "
        "where that is not certified logarithms take quadratic time, announced from 3 s on",
        kinds=EDGES,
        verbs=("product", "covariance"),
        inputs=("convex", "spike", "sd 1e4", "1 or n-2"),
    ),
    Reason(
        "far log-odds of which all are on: one configuration, whose weight cancels, and the motion of it is looked for "
        "in logarithms, in quadratic time, announced from 3 s on; not mended",
        kinds=EDGES,
        verbs=("product", "covariance"),
        inputs=("wide",),
    ),
    Reason(
        "a search for the stretches of a table that one tilt serves, or transforms that cannot certify an answer and "
        "then a pass with an exponent for every count, which grows about as D^1.3",
        kinds=EDGES,
        inputs=("cauchy", "sd 1e6", "1 or n-2"),
    ),
)
UNKNOWN = "not looked into"


class Store:
    """The parts of a sweep that have been run, in one file that several processes may share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def parts(self) -> list[dict[str, Any]]:
        return json.loads(self.path.read_text()) if self.path.exists() else []

    def has(self, part: dict[str, Any]) -> bool:
        return any(all(p[name] == part[name] for name in SAME) for p in self.parts)

    def put(self, part: dict[str, Any], cells: Iterable[tuple[str, Any, float]]) -> None:
        """One verb of one kind, home and size: inputs with their prices and growths."""
        rows = [
            {
                "input": name,
                "ratio": round(price.ratio, 1),
                "exact": price.exact,
                "growth": round(max(growth, 0.0), 2),
            }
            for name, price, growth in cells
        ]
        kept = [r for r in rows if r["ratio"] > ABOVE or r["growth"] > GROWTH]
        about = describe()
        part = {
            **part,
            "cells": len(rows),
            "tallytree": about["tallytree"],
            "load": about["load"],
            "above": kept,
        }
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            parts = [p for p in self.parts if any(p[name] != part[name] for name in SAME)] + [part]
            text = ",\n".join(json.dumps(p) for p in sorted(parts, key=lambda p: [str(p[s]) for s in SAME]))
            unfinished = self.path.with_suffix(".new")
            unfinished.write_text(f"[\n{text}\n]\n")
            unfinished.replace(self.path)  # a reader sees the old file or the new one


def write(parts: list[dict[str, Any]], path: Path = TABLE) -> None:
    """The table of what is above ten times the usual price, and what was run."""
    path.write_text("\n\n".join([_in_words(parts), _table(parts), _growth(parts)]) + "\n", encoding="utf-8")


def _above(parts: list[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [(p, c) for p in parts for c in p["above"] if c["ratio"] > ABOVE]


def _in_words(parts: list[dict[str, Any]]) -> str:
    about, above = describe(), _above(parts)
    dates, versions = sorted({p["date"] for p in parts}), sorted({p["tallytree"] for p in parts})
    cells = sum(p["cells"] for p in parts)
    worst = max(above, key=lambda pc: float(pc[1]["ratio"]), default=None)
    sizes = Counter[tuple[str, int, int]]()
    for p in parts:
        sizes[p["home"], p["size"], p["inputs"]] += p["cells"]
    kinds = ", ".join(dict.fromkeys(p["kind"] for p in parts))
    which = "; ".join(
        f"{home}, {size:,} variables, {inputs} inputs: {number:,} cells"
        for (home, size, inputs), number in sorted(sizes.items())
    )
    text = (
        f"Measured from {dates[0]} to {dates[-1]} on {about['cores']} cores ({about['processor']}, {about['system']}) "
        f"with tallytree {', '.join(versions)}; load averages were {min(p['load'] for p in parts)} to "
        f"{max(p['load'] for p in parts)}, and the prices are processor times. {cells:,} cells "
        f"of {kinds} were priced: {which}. "
        f"{len(above)} of them are above ten times the usual price."
    )
    if worst is None:
        return text
    p, c = worst
    return (
        f"{text} The worst is {_times(c)}: {p['verb']} of {p['kind']}, {p['size']:,} variables, {c['input']}."
    )


def _times(cell: dict[str, Any]) -> str:
    if math.isinf(cell["ratio"]):
        return "no answer, the process died"
    return f"{'' if cell['exact'] else 'more than '}{cell['ratio']:.3g} times"


def reason_of(part: dict[str, Any], cell: dict[str, Any]) -> str:
    """The first reason that holds."""
    return next((r.why for r in REASONS if r.holds(part, cell)), UNKNOWN)


def _table(parts: list[dict[str, Any]]) -> str:
    groups: dict[tuple[str, str, str, str], list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for p, c in _above(parts):
        groups.setdefault((reason_of(p, c), p["home"], p["kind"], ""), []).append((p, c))
    lines = ["| model | answers | cells | worst | where | why |", "| --- | --- | --- | --- | --- | --- |"]
    ordered = sorted(groups.items(), key=lambda kv: -max(c["ratio"] for _, c in kv[1]))
    for (why, home, kind, _), found in ordered:
        p, c = max(found, key=lambda pc: float(pc[1]["ratio"]))
        verbs = ", ".join(dict.fromkeys(q["verb"] for q, _ in found))
        where = f"{p['verb']}, {p['size']:,} variables, {c['input']}"
        model = kind if home == "numpy" else f"{kind} ({home})"
        lines.append(f"| {model} | {verbs} | {len(found)} | {_times(c)} | {where} | {why} |")
    return "\n".join(lines)


def _growth(parts: list[dict[str, Any]]) -> str:
    grown = [(p, c) for p in parts for c in p["above"] if c["growth"] > GROWTH]
    if not grown:
        return f"No price grows faster than D^{GROWTH}."
    hidden = [pc for pc in grown if pc[1]["ratio"] <= ABOVE]
    p, c = max(grown, key=lambda pc: float(pc[1]["growth"]))
    by_kind = Counter(f"{q['kind']} ({q['verb']})" for q, _ in hidden)
    most = ", ".join(f"{name} {number}" for name, number in by_kind.most_common(12))
    return (
        f"{len(grown)} cells that take longer than 5 ms grow faster than D^{GROWTH} from one size to the next, "
        f"{len(hidden)} of them below ten times the usual price (most of these: {most}). The fastest is "
        f"D^{c['growth']}: {p['verb']} of {p['kind']}, {p['size']:,} variables, {c['input']}."
    )
