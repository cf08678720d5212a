"""The tables of the site and the README, and the plot, from one run: ``run.py --write``.

``python benchmarks/pages.py RESULTS.json`` writes them again from what a run wrote.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import plots
from report import WRONG, seconds, times

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
    "batch-1000x100": "1000 models of 100 variables",
    "batch-nested": "1000 nested models, 4 groups of 25",
    "two-level": "1000 groups of 1000 variables, a potential on each and on the total",
    "ward-50": "4095 nested groups over 4096 variables, potentials of sd 50",
}
CLOCKS = {
    "wall": "Times are wall-clock times",
    "processor": "Times are processor times of all threads together, which other work on the machine hardly disturbs",
}


def write(results: dict[str, Any], root: Path = ROOT) -> list[Path]:
    """Write the tables, the plot and the table of the README; the files written."""
    tables, readme = root / TABLES, root / "README.md"
    parts = [in_words(results), short_table(results), "## Every row", row_table(results)]
    if results["memory"]:
        parts += ["## Memory", memory_table(results)]
    if results["growth"] is not None:
        parts += ["## Time against the number of variables", growth_table(results)]
    tables.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    written = [tables]
    if results["growth"] is not None:
        plots.draw(results, root / PLOT)
        written.append(root / PLOT)
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    middle = f"{BEGIN}\n{in_words(results)}\n\n{short_table(results)}\n{END}"
    readme.write_text(before + middle + after, encoding="utf-8")
    return [*written, readme]


def in_words(results: dict[str, Any]) -> str:
    """When, where and how the figures were measured."""
    about, options = results["machine"], results["options"]
    engine = f"C++ engine at level {about['level']}" if about["level"] else "array engine"
    others = {"NumPy": about["numpy"], "SciPy": about["scipy"], **results["peers"]}
    peers = ", ".join(f"{name} {version}" for name, version in others.items() if version and name != "scipy")
    text = (
        f"Measured on {results['date']} on {about['cores']} cores ({about['processor']}, {about['system']}): tallytree "
        f"{about['tallytree']}, {engine}, {about['threads']} threads; Python {about['python']}; "
        f"{peers}, one thread each. {CLOCKS[options['clock']]}, the "
        f"least of {options['repeats']} interleaved rounds."
    )
    busy = about["load"] is not None and about["load"] > 0.5
    return text + (f" The load average of the machine at the start was {about['load']}." if busy else "")


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
                _best([c for c in peers if SUM_ONLY not in c["label"]]),
                _best([c for c in peers if SUM_ONLY in c["label"]]),
                "—" if error is None else f"{max(error['log_odds'], error['log_partition']):.0e}",
                "—" if error is None else f"{error['certified']:.0e}",
            ]
        )
    head = ["work", "tallytree", "one thread", "FFT tree of the paper", "best peer", "best for the sum alone"]
    return table([*head, "error", "certified"], body)


def _best(peers: list[dict[str, Any]]) -> str:
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
            body.append([plots.NAMES.get(label, label), *(seconds(found.get(n)) for n in sizes)])
    return table(["method", *(f"2^{n.bit_length() - 1}" for n in sizes)], body)


def contender(row: dict[str, Any], label: str) -> dict[str, Any] | None:
    return next((c for c in row["contenders"] if c["label"] == label), None)


def _wrong(found: dict[str, Any]) -> bool:
    return found["marginal_error"] is not None and not found["marginal_error"] < WRONG


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
