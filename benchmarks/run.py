"""Tallytree against its peers, the paper's methods and the machine, side by side in one run.

    python benchmarks/run.py                       everything: about a quarter of an hour on a quiet machine
    python benchmarks/run.py --quick               a few minutes
    python benchmarks/run.py --only flat ward      rows whose names begin so; --list shows the names
    python benchmarks/run.py --json out.json --plot out.png
    python benchmarks/run.py --write               and the tables of docs/ and README, and the plot, from this run
    python benchmarks/run.py --instructions        instruction counts instead of times (needs valgrind)

Other numerical libraries get one thread; tallytree uses the number of cores unless a row says otherwise.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import machine


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
        "--write", action="store_true", help="write the tables of docs/ and README, and the plot"
    )
    parser.add_argument(
        "--clock",
        choices=("wall", "processor"),
        default="wall",
        help="what is measured; `processor` on a busy machine",
    )
    parser.add_argument("--list", action="store_true", help="names of the rows")
    parser.add_argument("--instructions", action="store_true", help="count instructions with valgrind")
    options = parser.parse_args(arguments)
    options.repeats = options.repeats or (3 if options.quick else 15)
    options.cap = options.cap or (2.0 if options.quick else 20.0)
    return options


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    machine.pin()  # before anything imports NumPy
    machine.choose_clock(options.clock)
    if options.instructions:
        import instructions

        return instructions.main(options.json)
    import table

    return table.run(options)


if __name__ == "__main__":
    sys.exit(main())
