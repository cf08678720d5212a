"""Random factor graphs of all kinds of factors against enumeration.

    python tools/fuzz_graphs.py --graphs 10000 --seed 0

Half of the graphs are trees, where belief propagation must be exact. Every failure is printed with the seed and the
number that make it again (``--first N --graphs 1``); the exit status is 1 if there is any.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from graph_checks import check
from oracle_graphs import random_case


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    failures = 0
    for index in range(given.first, given.first + given.graphs):
        case = random_case(np.random.default_rng([given.seed, index]), tree=index % 2 == 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a warning of NumPy is a number that left its range
            try:
                wrong = check(case)
            except Exception as error:
                wrong = [f"{type(error).__name__}: {error}"]
        if wrong:
            failures += 1
            print(f"seed {given.seed} graph {index}: " + "; ".join(wrong)[:600], flush=True)
    print(f"{given.graphs} graphs, {failures} with failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
