"""Runs the chosen rows and puts the results together."""

from __future__ import annotations

import argparse
import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

import growth
import machine
import memory
import peers
import report
from cases import ROWS, SLOW
from timing import measure

EXTRA = ("memory", "growth")


def chosen(options: argparse.Namespace) -> list[str]:
    names = [*ROWS, *EXTRA]
    if options.only:
        found = [n for n in names if any(n.startswith(prefix) for prefix in options.only)]
        if not found:
            sys.exit(f"No row begins with {' or '.join(options.only)}. There are: {', '.join(names)}")
        return found
    return [n for n in names if not (options.quick and n in SLOW)]


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run_rows(names: list[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    results = []
    for name in names:
        if name not in ROWS:
            continue
        row = ROWS[name]()
        found = measure({c.label: c.prepare for c in row.contenders}, options.repeats, options.cap)
        results.append(report.result(name, row, found))
        say(report.row_text(results[-1]))
    return results


def run_memory(options: argparse.Namespace) -> list[dict[str, Any]]:
    if not Path("/proc/self/status").exists():
        say("\npeak memory: — (needs /proc)")
        return []
    found = [memory.peak(method, 2**18 if options.quick else 2**22) for method in memory.METHODS]
    say(report.memory_text(found))
    return found


def run_growth(options: argparse.Namespace) -> dict[str, Any]:
    sizes: list[int] = []
    table: dict[str, dict[int, float]] = {label: {} for label in growth.METHODS}
    least: dict[str, dict[int, float]] = {label: {} for label in growth.METHODS}
    reasons: dict[str, str] = {}
    for n, found in growth.sweep(max(3, options.repeats // 3), options.cap, options.quick):
        sizes.append(n)
        for label, timing in found.items():
            if timing.times:
                table[label][n], least[label][n] = timing.median, timing.least
            elif table[label]:
                reasons.setdefault(label, timing.reason)
    say(report.growth_text(sizes, table))
    for label, reason in reasons.items():
        say(f"  {label} stops: {reason}")
    return {"sizes": sizes, "median": table, "min": least, "kind": growth.kinds(), "stopped": reasons}


def run(options: argparse.Namespace) -> int:
    if options.list:
        say("\n".join([*ROWS, *EXTRA]))
        return 0
    names = chosen(options)
    about = machine.describe()
    say(machine.in_words(about))
    say("peers: " + ", ".join(f"{name} {version}" for name, version in peers.versions().items()))
    results = run_rows(names, options)
    used = run_memory(options) if "memory" in names else []
    grown = run_growth(options) if "growth" in names else None
    if results or used:
        say("\n" + report.summary(results, used))
    out = {
        "date": date.today().strftime("%d %B %Y").lstrip("0"),
        "machine": about,
        "peers": peers.versions(),
        "options": {
            "quick": options.quick,
            "repeats": options.repeats,
            "cap": options.cap,
            "clock": options.clock,
        },
        "rows": results,
        "memory": used,
        "growth": grown,
    }
    if options.json:
        options.json.write_text(json.dumps(out, indent=1) + "\n")
    if options.write:
        import pages

        say("\nwritten: " + ", ".join(str(path) for path in pages.write(out)))
    if options.plot and grown is None:
        say("Nothing to draw: the plot needs the row 'growth'.")
        return 1
    if options.plot:
        import plots

        plots.draw(out, options.plot)
    return 0
