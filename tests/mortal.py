"""Runs that write files and are killed at given points, until one lives to the end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

_DYING = """
import os, signal, sys
from tallytree.chunked import journal, sink
signal.signal(signal.SIGINT, signal.default_int_handler)
left, how, log = int(os.environ["LEFT"]), int(os.environ["HOW"]), os.environ["LOG"]

def mortal(kind, name, what):
    method = getattr(kind, name)
    def call(self, *given):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), how)
        with open(log, "a") as file:
            file.write(what + "\\n")
        return method(self, *given)
    setattr(kind, name, call)

mortal(sink.IntoFile, "write", "chunk")
mortal(sink.IntoZarr, "write", "chunk")
mortal(journal.Growing, "append", "chunk")
mortal(journal.Growing, "_mark", "written")  # but not noted
mortal(journal.Journal, "add", "noted")
"""


def run_until_it_lives(
    script: str, words: Sequence[str], points: Iterable[int], folder: Path
) -> Counter[str]:
    """Run a script that dies at a point, then again up to the next one; how often it did what, in all runs."""
    log = folder / "log"
    hows = (signal.SIGKILL, signal.SIGINT)
    for number, left in enumerate([*points, 0]):
        how = hows[number % 2]
        run = subprocess.run(
            [sys.executable, "-c", _DYING + script, *words],
            env=os.environ
            | {"LEFT": str(left), "HOW": str(int(how)), "LOG": str(log), "TALLYTREE_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (run.returncode == 0) == (left == 0), run.stderr
    seen = Counter(log.read_text().split())
    log.unlink()
    return seen
