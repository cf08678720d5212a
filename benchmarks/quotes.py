"""Figures that pages quote from the tables of the stored run: what they are, and where they stand.

``python benchmarks/run.py --write`` writes them anew with the tables; `tests/test_numbers_in_prose.py` compares them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pages import seconds

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_FIGURE = r"[\d.]+(?:\s+(?:us|ms|s)\b)?"
_COLUMNS = {"tallytree": 1, "tallytree, 1 thread": 2, "FFT tree of the paper": 3, "NumPy FFT tree": 4}
_GROWN_TO = "2^19"  # the size that rows and growth share


class Quote(NamedTuple):
    """A figure in the prose of a page: the words around it, ``{}`` in its place, and how the tables give it."""

    page: str
    words: str
    figure: Callable[[str], str]

    def pattern(self) -> str:
        """The words and any figure, whatever the line breaks; three groups."""
        before, after = (r"\s+".join(map(re.escape, part.split())) for part in self.words.split("{}"))
        gaps = [r"\s+" if edge else "" for edge in (self.words.find(" {}") >= 0, self.words.find("{} ") >= 0)]
        return f"({before}{gaps[0]})({_FIGURE})({gaps[1]}{after})"


def cells(tables: str, start: str) -> list[str]:
    """The cells of the row of that name or beginning; of several the last."""
    rows = [line for line in tables.splitlines() if line.startswith(f"| {start}")]
    if not rows:
        raise LookupError(start)
    return [cell.strip() for cell in rows[-1].strip("|").split("|")]


def in_seconds(cell: str) -> float:
    """A time of the tables, with the name of a peer before it or without."""
    number, unit = cell.rpartition(": ")[2].split()
    return float(number) * _UNITS[unit]


def _own(start: str) -> Callable[[str], str]:
    return lambda tables: cells(tables, start)[1]


def _apart(tables: str) -> float:
    """The largest difference between rows and growth, in percent: they are measured one after the other."""
    sizes = cells(tables, "method | 2^")
    if _GROWN_TO not in sizes:
        raise LookupError(_GROWN_TO)
    at = sizes.index(_GROWN_TO)
    row = cells(tables, f"one random potential, D = {_GROWN_TO}")
    ratios = [in_seconds(row[i]) / in_seconds(cells(tables, f"{name} |")[at]) for name, i in _COLUMNS.items()]
    return 100 * max(abs(ratio - 1) for ratio in ratios)


def _paper(tables: str) -> float:
    """How many times longer than tallytree the paper's method takes."""
    row = cells(tables, _MILLION)
    return in_seconds(row[3]) / in_seconds(row[1])


_MILLION = "one random potential, D = 2^20"
_CERTIFICATE = "docs/theory/certificate.md"
QUOTES = (
    Quote(_CERTIFICATE, "all answers take {} by FFT", _own("Ward tree, a potential of sd 1 ")),
    Quote(_CERTIFICATE, "for each number, {} (50)", _own("Ward tree, a potential of sd 50 ")),
    Quote(_CERTIFICATE, "{} (1000)", _own("Ward tree, a potential of sd 1000 ")),
    Quote("docs/guide/speed.md", "1000 models of 100 variables take {}.", _own("1000 models of 100 variables")),
    Quote("docs/index.md", "2^20 variables under one potential: {}, where", _own(_MILLION)),
    Quote("docs/index.md", "where an FFT tree in NumPy takes {}.", lambda t: cells(t, "one potential, 2^20")[2]),
    Quote("docs/index.md", "{} for a million variables",
          lambda t: seconds(float(f"{in_seconds(cells(t, _MILLION)[1]):.1g}"))),
    Quote("README.md", "takes {} times as long as tallytree at 2^20", lambda t: f"{_paper(t):.0f}"),
    Quote("docs/benchmarks.md", "their times differ by up to {} %.", lambda t: f"{_apart(t):.0f}"),
)  # fmt: skip


def write(tables: str, root: Path) -> list[Path]:
    """Put the figures of the tables into the prose of all pages; the pages that changed."""
    changed = {}
    for quote in QUOTES:
        page = root / quote.page
        try:
            figure = quote.figure(tables)
        except LookupError:
            continue  # a run of a few rows
        text = page.read_text(encoding="utf-8")
        found, times = re.subn(quote.pattern(), lambda m, figure=figure: m[1] + figure + m[3], text)
        if times != 1:
            raise ValueError(f"{quote.page} must have {quote.words!r} once; it stands there {times} times.")
        if found != text:
            page.write_text(found, encoding="utf-8")
            changed[page] = True
    return list(changed)
