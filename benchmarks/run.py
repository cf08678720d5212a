"""Tallytree against its peers, the paper's methods and the machine, side by side in one run.

    python benchmarks/run.py                       everything: about a quarter of an hour on a quiet machine
    python benchmarks/run.py --quick               a few minutes
    python benchmarks/run.py --only flat ward      rows whose names begin so; --list shows the names
    python benchmarks/run.py --json out.json --plot out.png
    python benchmarks/run.py --write               and the tables, the plot and the quoted figures of docs/ and README

Other numerical libraries get one thread; tallytree uses the number of cores unless a row says otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import machine

machine.pin()  # before anything imports NumPy

import growth  # noqa: E402
import pages  # noqa: E402
import peers  # noqa: E402
import report  # noqa: E402
from cases import ROWS, SLOW  # noqa: E402
from rows import measure  # noqa: E402

EXTRA = ("memory", "growth")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repeats and sizes")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows whose names begin with one of these")
    parser.add_argument("--repeats", type=int, help="rounds of every row (default 15, quick: 3)")
    parser.add_argument("--cap", type=float, help="seconds after which a method is not called again")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw time against D")
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the tables, the plot and the quoted figures of docs/ and README",
    )
    parser.add_argument(
        "--clock",
        choices=("wall", "processor"),
        default="wall",
        help="what is measured; `processor` on a busy machine",
    )
    parser.add_argument("--list", action="store_true", help="names of the rows")
    options = parser.parse_args(arguments)
    options.repeats = options.repeats or (3 if options.quick else 15)
    options.cap = options.cap or (2.0 if options.quick else 20.0)
    return options


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
    found = [machine.peak(method, 2**18 if options.quick else 2**22) for method in machine.METHODS]
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
        "date": pages.today(),
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
        say("\nwritten: " + ", ".join(str(path) for path in report.write(out)))
    if options.plot and grown is None:
        say("Nothing to draw: the plot needs the row 'growth'.")
        return 1
    if options.plot:
        growth.draw(out, options.plot)
    return 0


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    machine.choose_clock(options.clock)
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
