"""Coefficient tables: estimates, standard errors, tests and intervals."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from scipy import stats

from ..arrays import Float64
from ._answers_html import rows_of

_HEAD = ["term", "coef", "exp(coef)", "se", "z", "p"]


@dataclass(frozen=True, eq=False)
class CoefficientTable:
    """Result of a fit by maximum likelihood.

    ``str(table)`` prints it; ``table.to_frame()`` gives a pandas DataFrame. Aliased terms have coefficient
    NaN and standard error 0.
    """

    title: str
    names: tuple[str, ...]
    coef: Float64
    standard_errors: Float64
    level: float
    facts: tuple[tuple[str, str], ...]

    @property
    def z(self) -> Float64:
        """Coefficients over standard errors."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.coef / self.standard_errors)

    @property
    def p_values(self) -> Float64:
        """Two-sided Wald tests."""
        return np.asarray(2.0 * stats.norm.sf(np.abs(self.z)))

    @property
    def intervals(self) -> Float64:
        """Wald intervals, (p, 2)."""
        half = stats.norm.ppf(0.5 + 0.5 * self.level) * self.standard_errors
        return np.column_stack([self.coef - half, self.coef + half])

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame, one row per term."""
        import pandas as pd

        low, high = self.intervals.T
        columns = {
            "coef": self.coef,
            "exp(coef)": np.exp(self.coef),
            "se": self.standard_errors,
            "z": self.z,
            "p": self.p_values,
            "low": low,
            "high": high,
        }
        return pd.DataFrame(columns, index=list(self.names))

    def _cells(self) -> list[list[str]]:
        """The table as text, one row per term."""
        low, high = self.intervals.T
        before, after = (self.coef, np.exp(self.coef), self.standard_errors, self.z), (low, high)
        return [
            [
                name,
                *(_number(c[j]) for c in before),
                p_text(self.p_values[j]),
                *(_number(c[j]) for c in after),
            ]
            for j, name in enumerate(self.names)
        ]

    def _repr_html_(self) -> str:
        table = rows_of([*_HEAD, "low", "high"], self._cells())
        facts = "".join(f"<li>{escape(what)}: {escape(value)}</li>" for what, value in self.facts)
        return f"<div><p>{escape(self.title)}</p>{table}<ul>{facts}</ul></div>"

    def __str__(self) -> str:
        ends = [f"[{50 - 50 * self.level:g}%", f"{50 + 50 * self.level:g}%]"]
        rows = [[*_HEAD, *ends], *self._cells()]
        widths = [max(map(len, column)) for column in zip(*rows)]
        lines = [
            " ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:]))])
            for row in rows
        ]
        rule = "-" * len(lines[0])
        facts = [f"{key}: {value}" for key, value in self.facts]
        return "\n".join([self.title, rule, *lines, rule, *facts])

    __repr__ = __str__


def _number(value: float) -> str:
    return (
        "NA"
        if np.isnan(value)
        else f"{value:.4f}"
        if 1e-3 <= abs(value) < 1e5 or value == 0
        else f"{value:.3g}"
    )


def p_text(value: float) -> str:
    """A p-value in three digits; only those too small for a normal double are given as a bound."""
    return "NA" if np.isnan(value) else "<1e-300" if value < 1e-300 else f"{value:.3g}"
