"""What benchmarks write into the pages of the site: times in words, tables, and where and when they were measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"


def seconds(value: float | None) -> str:
    """Three digits and a unit; a dash where there is no figure."""
    if value is None or math.isnan(value):
        return "—"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale or unit == "us":
            return f"{value / scale:.3g} {unit}"
    raise AssertionError


def times(value: float) -> str:
    if math.isnan(value):
        return "—"
    return f"{value:.3g}x" if 0.01 <= value < 1e4 else f"{value:.0e}x"


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def today() -> str:
    return date.today().strftime("%d %B %Y").lstrip("0")


def place(about: dict[str, Any]) -> str:
    """The machine that `machine.describe` saw."""
    return f"{about['cores']} cores ({about['processor']}, {about['system']})"


def engine(about: dict[str, Any]) -> str:
    return f"C++ engine at level {about['level']}" if about["level"] else "array engine"


def busy(about: dict[str, Any]) -> str:
    """A sentence about a machine that was not quiet, or nothing."""
    load = about["load"]
    quiet = load is None or load <= 0.5
    return "" if quiet else f" The load average of the machine at the start was {load}."


def measured(about: dict[str, Any]) -> str:
    """When, where and of what the figures of a table are."""
    what = f"tallytree {about['tallytree']}, {engine(about)}"
    return f"Measured on {today()} on {place(about)}, {what}.{busy(about)}"


def write(name: str, parts: Iterable[str]) -> Path:
    """A file of ``docs/`` that a page includes."""
    path = DOCS / name
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path
