"""``python -m reproduction``: the experiments of the paper, as a folder with a report."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Sequence

from tallytree import TallyTreeError

from .claim import Claim, tally
from .run import reproduce
from .sizes import PARTS, SIZES
from .statements import STATEMENTS

_ABOUT = """\
Experiments of Tarlow et al., Fast Exact Inference for Recursive Cardinality
Models (UAI 2012): figures, tables and report.html in DIR, and a verdict on each
of the paper's empirical statements, computed from the numbers of five seeds. An
interrupted run continues where it was. Needs the extra `reproduction`.
"""


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    top = argparse.ArgumentParser(
        prog="python -m reproduction",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument(
        "part",
        nargs="?",
        default="all",
        choices=(*PARTS, "all"),
        metavar="PART",
        help=f"{', '.join(PARTS)} or all (default: all)",
    )
    top.add_argument(
        "--out",
        metavar="DIR",
        default="reproduction-results",
        help="folder for the results, made if it is not there (default: reproduction-results)",
    )
    size = top.add_mutually_exclusive_group()
    choose = {"dest": "size", "action": "store_const"}
    size.add_argument("--quick", const="quick", default="quick", help="a few minutes (default)", **choose)  # type: ignore[arg-type]
    size.add_argument("--full", const="full", help="the sizes of the paper", **choose)  # type: ignore[arg-type]
    size.add_argument("--tiny", const="tiny", help=argparse.SUPPRESS, **choose)  # type: ignore[arg-type]
    top.add_argument("--seed", metavar="N", type=int, default=0, help="of random numbers (default: 0)")
    top.add_argument("--jobs", metavar="N", type=int, default=1, help="processes (default: 1)")
    top.add_argument(
        "--data", metavar="FOLDER", help="folder with the data sets (default: that named by TALLYTREE_DATA)"
    )
    top.add_argument("--quiet", action="store_true", help="print nothing")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts asked for and print the verdicts; the result is the exit code."""
    arguments = parser().parse_args(argv)
    parts = PARTS if arguments.part == "all" else (arguments.part,)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = reproduce(
                parts,
                arguments.out,
                sizes=SIZES[arguments.size],
                seed=arguments.seed,
                jobs=arguments.jobs,
                data=arguments.data,
                progress=not arguments.quiet,
            )
    except TallyTreeError as error:
        print(f"reproduction: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("reproduction: interrupted.", file=sys.stderr)
        return 130
    if not arguments.quiet:
        for part in parts:
            _say_part(part, [c for c in found if STATEMENTS[c.key].part == part])
        if found:
            print()
            _say(tally(found) + ".")
        print(f"\nreport: {os.path.join(arguments.out, 'report.html')}")
    return 0


def _say_part(part: str, claims: Sequence[Claim]) -> None:
    print(f"\n{part}")
    if not claims:
        _say("left out: no data; the report says how to get it")
    for claim in claims:
        choice = f" ({claim.choice})" if claim.choice else ""
        _say(f"{claim.verdict}{choice}: {STATEMENTS[claim.key].text} {claim.found}")


def _say(text: str) -> None:
    width = min(shutil.get_terminal_size().columns, 100)
    print(textwrap.fill(text, width, initial_indent="  ", subsequent_indent="    "))


if __name__ == "__main__":
    sys.exit(main())
