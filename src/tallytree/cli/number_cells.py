"""Cells of text as numbers, and what is wrong with one that is none."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ..arrays import Float64
from .problems import InputProblem
from .tables import InputTable, place

_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)


def numbers_of(table: InputTable, name: str, text: Sequence[str]) -> Float64:
    """A column of text as numbers; refuses cells that are none."""
    try:
        values = np.fromiter(map(float, text), np.float64, len(text))
    except ValueError:
        row = next(i for i, cell in enumerate(text) if not is_number(cell))
    else:
        # float() also takes 1_000, which no other program reads as a thousand
        row = next((i for i, cell in enumerate(text) if "_" in cell), -1)
        if row < 0 and np.isnan(values).any():
            row = int(np.argmax(np.isnan(values)))
        if row < 0:
            return values
    raise InputProblem(f"{place(table, row)}: column `{name}` {_complaint(text[row])}")


def is_number(cell: str) -> bool:
    """Whether Python reads the text as a number."""
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _complaint(cell: str) -> str:
    if not cell.strip():
        return "is empty. Every row needs a number."
    if cell.strip().lower().lstrip("+-") == "nan":
        return "is NaN. Every row needs a number; use 0 log-odds or probability 0.5 where nothing is known."
    shown = cell if len(cell) <= 40 else cell[:39] + "…"
    if _NUMBER.fullmatch(cell.replace(",", ".")):
        return f"must hold numbers with a decimal point; {shown!r} arrived."
    return f"must hold numbers; {shown!r} arrived."
