"""``tallytree reproduce``: the experiments of the paper, as a folder with a report."""

from __future__ import annotations

import argparse
import os
import sys
import warnings

from .terminal import Terminal


def run(arguments: argparse.Namespace) -> None:
    """Run the parts asked for and print the verdicts."""
    from ..experiments import PARTS, reproduce
    from ..experiments.claim import tally
    from ..experiments.sizes import SIZES

    parts = PARTS if arguments.part == "all" else (arguments.part,)
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
    if arguments.quiet:
        return
    terminal = Terminal.of(sys.stdout)
    for part in PARTS:
        mine = [c for c in found if c.part == part]
        if part in parts:
            terminal.say("", terminal.heading(part))
        if part == "densities" and part in parts:
            terminal.say("  a table in the report, no statement of the paper")
        elif part in parts and not mine:
            terminal.say(
                *terminal.paragraph("left out: no data; the report says how to get it", "    ", "  ")
            )
        for claim in mine:
            if not claim.variant:
                terminal.say(
                    *terminal.paragraph(f"{claim.verdict}: {claim.paper} {claim.found}", "    ", "  ")
                )
        variants = sum(c.variant for c in mine)
        if variants:
            terminal.say(f"  and {variants} under settings of our own, in the report")
    if found:
        terminal.say("", *terminal.paragraph(tally(found) + ".", "    ", "  "))
    terminal.say("", f"report: {os.path.join(arguments.out, 'report.html')}")
