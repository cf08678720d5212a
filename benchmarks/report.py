"""Results as text, as JSON, and as the tables of the site and the README.

``python benchmarks/report.py RESULTS.json`` writes these tables and the plot again from what a run wrote.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

import quotes
from growth import NAMES, draw
from pages import busy, engine, place, seconds, table, times
from rows import TALLYTREE, Row, Timing, Truth

WRONG = 1e-6  # marginals further off than this are no answer


def result(name: str, row: Row, found: dict[str, Timing]) -> dict[str, Any]:
    """Everything about one row that can be written as JSON, errors included."""
    own = found[TALLYTREE]
    right = _truth(row)
    marginals = None if right is None else expit(right.posterior_logits)
    contenders = []
    for contender in row.contenders:
        timing = found[contender.label]
        error = None
        if marginals is not None and np.shape(timing.value) == marginals.shape and contender.kind != "base":
            with np.errstate(invalid="ignore"):
                error = float(np.max(np.abs(np.nan_to_num(timing.value, nan=math.inf) - marginals)))
        contenders.append(
            {
                "label": contender.label,
                "kind": contender.kind,
                "median": timing.median if timing.times else None,
                "min": timing.least if timing.times else None,
                "times": timing.times,
                "first": timing.first,
                "calls_per_time": timing.number,
                "reason": timing.reason,
                "marginal_error": error,
            }
        )
    peers = [c for c in contenders if c["kind"] == "peer" and c["median"] is not None]
    best = _best(c for c in peers if "sum only" not in c["label"] and not _wrong(c))
    sums = _best(c for c in peers if "sum only" in c["label"])
    out: dict[str, Any] = {
        "name": name,
        "title": row.title,
        "D": row.size,
        "target": row.target,
        "median": own.median if own.times else None,
        "min": own.least if own.times else None,
        "contenders": contenders,
        "best_peer": best and best["label"],
        "best_peer_ratio": best["median"] / own.median if best and own.times else None,
        "best_sum_only": sums and sums["label"],
        "best_sum_only_ratio": sums["median"] / own.median if sums and own.times else None,
    }
    if row.ratio is not None:
        base, limit = row.ratio
        out["ratio_to"], out["ratio_limit"] = base, limit
        out["ratio"] = own.median / found[base].median if own.times and found[base].times else None
    if right is not None:
        out["error"] = _error(row, right)
    out["met"] = _met(out)
    return out


def _truth(row: Row) -> Truth | None:
    """The right answer; None where the package that gives it is not installed."""
    try:
        return row.truth() if row.truth is not None and row.model is not None else None
    except ImportError:
        return None


def _best(contenders: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    return min(contenders, key=lambda c: c["median"], default=None)


def _wrong(contender: dict[str, Any]) -> bool:
    """Fast and wrong wins no prize."""
    error = contender["marginal_error"]
    return error is not None and not error < WRONG


def _error(row: Row, right: Truth) -> dict[str, Any]:
    """Largest error of log-odds (absolute up to 1, relative beyond) and of log Z (relative to 1 + its size)."""
    model = row.model()  # type: ignore[misc]
    got, want = np.asarray(model.posterior_logits), right.posterior_logits
    with np.errstate(invalid="ignore"):
        off = np.where(got == want, 0.0, np.abs(got - want) / np.maximum(1.0, np.abs(want)))
    log_z = np.abs(np.asarray(model.log_partition) - right.log_partition)
    return {
        "against": right.name,
        "log_odds": float(np.max(off)),  # NaN on either side stays NaN, and is not within any tolerance
        "log_partition": float(np.max(log_z / (1 + np.abs(right.log_partition)))),
        "certified": float(np.max(model.error_bound)),
        "tolerance": row.tolerance,
    }


def _worst(error: dict[str, Any]) -> float:
    return float(np.max([error["log_odds"], error["log_partition"]]))


def _met(out: dict[str, Any]) -> bool | None:
    """Whether every figure is met; None where there is none."""
    tests = []
    if out["target"] is not None and out["median"] is not None:
        tests.append(out["median"] <= out["target"])
    if out.get("ratio") is not None:
        tests.append(out["ratio"] <= out["ratio_limit"])
    if "error" in out:
        tests.append(_worst(out["error"]) <= out["error"]["tolerance"])
    return all(tests) if tests else None


def row_text(out: dict[str, Any]) -> str:
    """All contenders of one row."""
    lines = [
        f"\n{out['name']}: {out['title']}",
        f"  {'':<42}{'median':>10}{'min':>10}{'/ ours':>10}   marginals",
    ]
    own = out["median"] or math.nan
    for c in out["contenders"]:
        if c["median"] is None:
            lines.append(f"  {c['label']:<42}{'—':>10}  {c['reason']}")
            continue
        error = "" if c["marginal_error"] is None else f"   off by {c['marginal_error']:.1e}"
        error += "  WRONG" * _wrong(c)
        lines.append(
            f"  {c['label']:<42}{seconds(c['median']):>10}{seconds(c['min']):>10}{times(c['median'] / own):>10}{error}"
        )
    return "\n".join(lines)


def summary(results: list[dict[str, Any]], memory: list[dict[str, Any]]) -> str:
    """The table of targets, one line per row."""
    head = (
        "work",
        "target",
        "median",
        "min",
        "met",
        "best peer",
        "",
        "best for the sum only",
        "",
        "error",
        "certified",
    )
    body = [_summary_line(out) for out in results]
    for m in memory:
        if m["method"] == TALLYTREE:
            body.append(_memory_line(m))
    widths = [max(len(line[i]) for line in [head, *body]) for i in range(len(head))]
    text = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in [head, *body]]
    return "\n".join([text[0], "-" * len(text[0]), *text[1:]])


def _summary_line(out: dict[str, Any]) -> tuple[str, ...]:
    target = "" if out["target"] is None else f"<= {seconds(out['target'])}"
    if "ratio_limit" in out:
        target = (target + ", " if target else "") + f"<= {out['ratio_limit']:g}x {out['ratio_to']}"
    median = seconds(out["median"])
    if out.get("ratio") is not None:
        median += f" ({out['ratio']:.3g}x)"
    error = out.get("error")
    return (
        out["name"],
        target,
        median,
        seconds(out["min"]),
        {True: "yes", False: "NO", None: ""}[out["met"]],
        out["best_peer"] or "—",
        "" if out["best_peer_ratio"] is None else times(out["best_peer_ratio"]),
        (out["best_sum_only"] or "—").removesuffix(" (sum only)"),
        "" if out["best_sum_only_ratio"] is None else times(out["best_sum_only_ratio"]),
        "" if error is None else f"{_worst(error):.1e}",
        "" if error is None else f"{error['certified']:.1e}",
    )


def _memory_line(m: dict[str, Any]) -> tuple[str, ...]:
    extra = m.get("extra_bytes_per_variable")
    shown = m.get("reason", "") if extra is None else f"{extra:.1f} bytes"
    met = "" if extra is None else "yes" if extra <= 24 else "NO"
    return ("peak memory per variable", "<= 24 bytes extra", shown, "", met, "", "", "", "", "", "")


def memory_text(memory: list[dict[str, Any]]) -> str:
    lines = ["\npeak memory of one call, bytes per variable (with the answer; beyond input and answer)"]
    for m in memory:
        if "reason" in m:
            lines.append(f"  {m['method']:<42}{'—':>10}  {m['reason']}")
        else:
            lines.append(
                f"  {m['method']:<42}{m['peak_bytes_per_variable']:>10.1f}{m['extra_bytes_per_variable']:>10.1f}"
                f"   D = {m['D']}"
            )
    return "\n".join(lines)


def growth_text(sizes: list[int], table: dict[str, dict[int, float]]) -> str:
    """Median times, one line per method, one column per size."""
    lines = ["\ntime against D (median; marginals and log Z, one random potential)"]
    lines.append(f"  {'':<28}" + "".join(f"{'2^' + str(round(math.log2(n))):>9}" for n in sizes))
    for label, row in table.items():
        lines.append(f"  {label:<28}" + "".join(f"{seconds(row.get(n)):>9}" for n in sizes))
    return "\n".join(lines)


ROOT = Path(__file__).resolve().parents[1]
TABLES = Path("docs") / "benchmark_tables.md"
PLOT = Path("docs") / "figures" / "speed.png"
BEGIN, END = "<!-- written by benchmarks/run.py --write -->", "<!-- end -->"

TEXTBOOK = "NumPy FFT tree"
SUM_ONLY = " (sum only)"
SHORT = {
    "single-100": "one potential, 100 variables",
    "flat-2^20": "one potential, 2^20 variables",
    "exactly-tenth": "exactly 10^4 of 10^5 variables",
    "batch-nested": "1000 nested models, 4 groups of 25",
    "two-level": "1000 groups of 1000 variables, a potential on each and on the total",
}
CLOCKS = {
    "wall": "Times are wall-clock times",
    "processor": "Times are processor times of all threads together, which other work on the machine hardly disturbs",
}


def write(results: dict[str, Any], root: Path = ROOT) -> list[Path]:
    """Write the tables, the plot, the table of the README and what pages quote; the files written."""
    tables, readme = root / TABLES, root / "README.md"
    parts = [in_words(results), short_table(results), "## Every row", row_table(results)]
    if results["memory"]:
        parts += ["## Memory", memory_table(results)]
    if results["growth"] is not None:
        parts += ["## Time against the number of variables", growth_table(results)]
    text = "\n\n".join(parts) + "\n"
    tables.write_text(text, encoding="utf-8")
    written = [tables, *quotes.write(text, root)]
    if results["growth"] is not None:
        draw(results, root / PLOT)
        written.append(root / PLOT)
    before, rest = readme.read_text(encoding="utf-8").split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    middle = f"{BEGIN}\n{in_brief(results)}\n\n{short_table(results)}\n{END}"
    readme.write_text(before + middle + after, encoding="utf-8")
    return list(dict.fromkeys([*written, readme]))


def in_brief(results: dict[str, Any]) -> str:
    """When and where the figures were measured, for the README."""
    about, options = results["machine"], results["options"]
    return (
        f"Measured on {results['date']} on {place(about)}. "
        f"{CLOCKS[options['clock']]}, the least of {options['repeats']} interleaved rounds."
    )


def in_words(results: dict[str, Any]) -> str:
    """When, where and how the figures were measured."""
    about, options = results["machine"], results["options"]
    others = {"NumPy": about["numpy"], "SciPy": about["scipy"], **results["peers"]}
    peers = ", ".join(f"{name} {version}" for name, version in others.items() if version and name != "scipy")
    text = (
        f"Measured on {results['date']} on {place(about)}: tallytree "
        f"{about['tallytree']}, {engine(about)}, {about['threads']} threads; Python {about['python']}; "
        f"{peers}, one thread each. {CLOCKS[options['clock']]}, the "
        f"least of {options['repeats']} interleaved rounds."
    )
    return text + busy(about)


def short_table(results: dict[str, Any]) -> str:
    """The rows that the README shows."""
    rows = {row["name"]: row for row in results["rows"]}
    body = []
    for name, title in SHORT.items():
        if name in rows:
            own, other = rows[name]["min"], contender(rows[name], TEXTBOOK)
            body.append(
                [title, seconds(own), "not applicable" if other is None else _time(other), _ratio(other, own)]
            )
    return table(["work", "tallytree", "FFT tree in NumPy", "ratio"], body)


def row_table(results: dict[str, Any]) -> str:
    """All rows, with one thread, the paper's method, the best peers and the largest error."""
    body = []
    for row in results["rows"]:
        peers = [
            c for c in row["contenders"] if c["kind"] == "peer" and c["min"] is not None and not _wrong(c)
        ]
        error = row.get("error")
        body.append(
            [
                row["title"],
                seconds(row["min"]),
                _time(contender(row, "tallytree, 1 thread")),
                _time(contender(row, "method='fft-tree'")),
                _quickest([c for c in peers if SUM_ONLY not in c["label"]]),
                _quickest([c for c in peers if SUM_ONLY in c["label"]]),
                "—" if error is None else f"{max(error['log_odds'], error['log_partition']):.0e}",
                "—" if error is None else f"{error['certified']:.0e}",
            ]
        )
    head = ["work", "tallytree", "one thread", "FFT tree of the paper", "best peer", "best for the sum alone"]
    return table([*head, "error", "certified"], body)


def _quickest(peers: list[dict[str, Any]]) -> str:
    best = min(peers, key=lambda c: c["min"], default=None)
    return "—" if best is None else f"{best['label'].removesuffix(SUM_ONLY)}: {seconds(best['min'])}"


def memory_table(results: dict[str, Any]) -> str:
    body = [
        [
            m["method"],
            f"{m['peak_bytes_per_variable']:.1f}",
            f"{m['extra_bytes_per_variable']:.1f}",
            f"{m['D']}",
        ]
        for m in results["memory"]
        if "reason" not in m
    ]
    return table(["method", "bytes per variable", "beyond input and answer", "variables"], body)


def growth_table(results: dict[str, Any]) -> str:
    """Every third size; a dash where a method would take too long."""
    grown = results["growth"]
    sizes = [int(n) for n in grown["sizes"]][::3]
    body = []
    for label, row in grown["min"].items():
        found = {int(n): value for n, value in row.items()}  # keys of JSON are strings
        if found:
            body.append([NAMES.get(label, label), *(seconds(found.get(n)) for n in sizes)])
    return table(["method", *(f"2^{n.bit_length() - 1}" for n in sizes)], body)


def contender(row: dict[str, Any], label: str) -> dict[str, Any] | None:
    return next((c for c in row["contenders"] if c["label"] == label), None)


def _time(found: dict[str, Any] | None) -> str:
    if found is None or found["min"] is None:
        return "—"
    return "wrong" if _wrong(found) else seconds(found["min"])


def _ratio(found: dict[str, Any] | None, own: float | None) -> str:
    if found is None or found["min"] is None or own is None or _wrong(found):
        return "—"
    return times(found["min"] / own)


if __name__ == "__main__":
    print("\n".join(map(str, write(json.loads(Path(sys.argv[1]).read_text())))))
