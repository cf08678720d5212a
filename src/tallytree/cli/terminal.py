"""Text for a terminal: bars and tables that fit its width and its character set."""

from __future__ import annotations

import math
import shutil
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

import numpy as np

from ..arrays import Float64

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_MARKS = _EIGHTHS + "─…●"
_NARROWEST, _WIDEST = 40, 100


@dataclass(frozen=True)
class Terminal:
    """Where text goes, how wide it is, and whether it shows block characters."""

    stream: TextIO
    width: int = 80
    unicode: bool = True

    @classmethod
    def of(cls, stream: TextIO) -> Terminal:
        """What is known about a stream."""
        width = shutil.get_terminal_size((80, 24)).columns
        try:
            _MARKS.encode(stream.encoding or "ascii")
            blocks = True
        except (UnicodeEncodeError, LookupError):
            blocks = False
        return cls(stream, min(max(width, _NARROWEST), _WIDEST), blocks)

    def say(self, *lines: str) -> None:
        """Print lines; a character that the terminal does not have becomes a question mark."""
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        for line in lines:
            self.stream.write(line.rstrip().encode(encoding, "replace").decode(encoding) + "\n")

    def paragraph(self, text: str, indent: str = "  ", first: str | None = None) -> list[str]:
        """Text broken into lines that fit."""
        start = indent if first is None else first
        return textwrap.wrap(text, self.width, initial_indent=start, subsequent_indent=indent)

    @property
    def ellipsis(self) -> str:
        return "…" if self.unicode else "~"

    @property
    def dot(self) -> str:
        """Marks a chosen row."""
        return "●" if self.unicode else "*"

    def bar(self, fraction: float, cells: int) -> str:
        """A bar that fills ``fraction`` of ``cells`` characters, to an eighth of one where possible."""
        fraction = min(max(fraction, 0.0), 1.0)
        if not self.unicode:
            return "#" * round(fraction * cells)
        eighths = round(fraction * cells * 8)
        if eighths == 0 and fraction > 0:
            eighths = 1  # present, however small
        full, rest = divmod(eighths, 8)
        return "█" * full + (_EIGHTHS[rest] if rest else "")

    def heading(self, text: str) -> str:
        """A title with a rule that fills the line."""
        return f"{text} " + ("─" if self.unicode else "-") * max(self.width - width_of(text) - 1, 0)

    def table(self, columns: Sequence[Column]) -> list[str]:
        """Lines of a table with two spaces between columns; text columns shrink until it fits."""
        widths = [max(width_of(cell) for cell in (c.title, *c.cells)) for c in columns]
        spare = self.width - 2 - (sum(widths) + 2 * (len(columns) - 1))
        while spare < 0:
            widest = max(
                (i for i, c in enumerate(columns) if c.shrinks), key=lambda i: widths[i], default=None
            )
            if widest is None or widths[widest] <= 4:
                break
            widths[widest] -= 1
            spare += 1
        rows = zip(*((c.title, *c.cells) for c in columns))
        return [
            "  "
            + "  ".join(self._fitted(cell, w, c.right) for cell, w, c in zip(row, widths, columns)).rstrip()
            for row in rows
        ]

    def _fitted(self, cell: str, width: int, right: bool) -> str:
        if width_of(cell) > width:
            while width_of(cell) > width - 1:
                cell = cell[:-1]
            cell += self.ellipsis
        pad = " " * (width - width_of(cell))
        return pad + cell if right else cell + pad


@dataclass(frozen=True)
class Column:
    """One column of a printed table."""

    title: str
    cells: Sequence[str]
    right: bool = False
    shrinks: bool = False


def probability_columns(
    terminal: Terminal, title: str, values: Float64, cells: int, top: float = 1.0
) -> list[Column]:
    """Probabilities as numbers and as bars, of which the longest stands for `top`."""
    listed = values.tolist()
    numbers = Column(title, [probability(p) for p in listed], right=True)
    return [numbers, Column("", [terminal.bar(p / top, cells) for p in listed])]


def width_of(text: str) -> int:
    """Terminal cells that a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def printable(text: str) -> str:
    """A cell of a file without line breaks or control sequences."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def probability(p: float) -> str:
    """Four digits, and never 0 or 1 for what is neither."""
    if p in (0.0, 1.0):
        return str(int(p))
    if p < 0.00005:
        return "<.0001"
    if p >= 0.99995:
        return ">.9999"
    return f"{p:.4f}"


def seconds(elapsed: float) -> str:
    """A duration in a readable unit."""
    if elapsed < 0.0995:
        return f"{elapsed * 1e3:.1f} ms"
    return f"{elapsed:.2f} s" if elapsed < 9.95 else f"{elapsed:.0f} s"


def quantity(value: float) -> str:
    """A count or an expectation with three digits after the point where they matter."""
    if math.isfinite(value) and abs(value - round(value)) < 5e-7:
        return f"{round(value):,}"
    return f"{value:,.3f}" if abs(value) < 1e5 else f"{value:,.1f}"


# -- the distribution of a count, however many counts there are

_TAIL = 5e-4  # left out on either side
_MOST_ROWS = 16


def quantiles(probs: Float64, least: int = 0) -> str:
    """``median 9, half in 8-11, 90% in 5-13``, of the probabilities of the counts from `least` on."""
    cumulative = np.cumsum(probs)
    low, first, middle, third, high = (
        least + _quantile(cumulative, q) for q in (0.05, 0.25, 0.5, 0.75, 0.95)
    )
    return f"median {middle:,}, half in {first:,}-{third:,}, 90% in {low:,}-{high:,}"


def _quantile(cumulative: Float64, level: float) -> int:
    # Rounding must not push a quantile past a count that reaches the level exactly.
    return int(np.searchsorted(cumulative, level * cumulative[-1] * (1 - 1e-12)))


def count_table(terminal: Terminal, distributions: dict[str, Float64]) -> list[str]:
    """Rows for the counts, or ranges of them, that hold all but a thousandth of the probability."""
    cumulative = [np.cumsum(p) for p in distributions.values()]
    low = min(_quantile(c, _TAIL) for c in cumulative)
    high = max(_quantile(c, 1 - _TAIL) for c in cumulative)
    step = _round_step((high - low + 1) / _MOST_ROWS)
    start = low - low % step
    edges = np.arange(start, high + 1, step)
    size = len(next(iter(distributions.values())))
    names = [f"{a:,}" if step == 1 else f"{a:,}-{min(a + step, size) - 1:,}" for a in edges.tolist()]
    columns = [Column("count", names, right=True)]
    numbers_width = 10 * len(distributions)
    room = terminal.width - 4 - max(len(n) for n in [*names, "count"]) - numbers_width
    cells = max(room // len(distributions) - 2, 5)
    sums = [np.add.reduceat(p[: high + step], edges) for p in distributions.values()]
    top = max(float(s.max()) for s in sums)
    for title, probs in zip(distributions, sums):
        columns += probability_columns(terminal, title, np.minimum(probs, 1.0), cells, top)
    return terminal.table(columns)


def _round_step(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, ... that is not below ``least``."""
    steps = (int(m * 10.0**power) for power in range(19) for m in (1, 2, 5))
    return next(step for step in steps if step >= least)
