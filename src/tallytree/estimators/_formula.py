"""Model formulas with ``strata(...)`` and ``Surv(time, event)``, read with formulaic."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ParameterError

_STRATA = re.compile(r"\+?\s*strata\(([^()]*)\)")
_SURV = re.compile(r"^\s*Surv\((.*)\)\s*$", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Design:
    """What a formula picks out of a table, on the rows where nothing is missing."""

    x: NDArray[np.float64]
    names: tuple[str, ...]
    groups: NDArray[np.int64] | None
    response: NDArray[Any] | None
    time: NDArray[np.float64] | None
    event: NDArray[np.bool_] | None
    spec: Any


def read_formula(formula: str, data: Any) -> Design:
    """Split a formula into covariates, strata and response.

    Factors are coded by treatment contrasts against their first level, as if an intercept were there, and the
    intercept is dropped: it cancels within every stratum.
    """
    try:
        import formulaic
        import pandas as pd
    except ImportError:
        raise ParameterError(
            "Formulas need formulaic and pandas: `pip install tallytree[sklearn]`."
        ) from None
    if not isinstance(formula, str) or formula.count("~") != 1:
        raise ParameterError(
            "`formula` must be text of the form 'case ~ a + b + strata(set)' or 'Surv(time, event) ~ a + b'; "
            f"{formula!r} arrived."
        )
    left, right = formula.split("~")
    table = pd.DataFrame(data).reset_index(drop=True)
    named = [name.strip().strip("`") for inside in _STRATA.findall(right) for name in inside.split(",")]
    unknown = [name for name in named if name not in table.columns]
    if unknown:
        raise ParameterError(f"`strata(...)` must name columns of `data`; {unknown[0]!r} is not one of them.")
    terms = _STRATA.sub("", right).strip().lstrip("+").strip() or "0"
    matrix = formulaic.model_matrix("1 + " + terms, table, na_action="drop")
    columns = [name for name in matrix.columns if name != "Intercept"]
    surv = _SURV.match(left)
    answers = [_column(part, table) for part in (_arguments(surv.group(1)) if surv else [left])]
    if surv and len(answers) != 2:
        raise ParameterError(
            f"`Surv` takes a time and an event, as in 'Surv(time, event)'; {left.strip()!r} arrived."
        )
    keep = table.index.isin(matrix.index)
    for column in [*answers, *(table[name] for name in named)]:
        keep &= np.asarray(pd.notna(column))
    rows = np.flatnonzero(keep)
    x = matrix.loc[rows, columns].to_numpy(np.float64)
    groups = None
    if named:
        groups = table.loc[rows, named].groupby(named, sort=True, observed=True).ngroup().to_numpy(np.int64)
    picked = [np.asarray(column)[rows] for column in answers]
    if surv:
        event = _event(picked[1])
        return Design(x, tuple(columns), groups, None, picked[0].astype(np.float64), event, matrix.model_spec)
    return Design(x, tuple(columns), groups, picked[0], None, None, matrix.model_spec)


def _arguments(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _column(expression: str, table: Any) -> Any:
    name = expression.strip().strip("`")
    if name in table.columns:
        return table[name]
    try:
        return table.eval(expression.strip())
    except Exception as error:
        raise ParameterError(
            f"The response {expression.strip()!r} must be a column of `data` or an expression of "
            f"columns ({error})."
        ) from None


def _event(values: NDArray[Any]) -> NDArray[np.bool_]:
    found = set(np.unique(values).tolist())
    if not found <= {0, 1}:
        raise ParameterError(
            f"The event in `Surv(time, event)` must be 0/1 or true/false; values {sorted(found)[:5]} "
            "arrived. "
            "Write the comparison, as in Surv(time, status == 2)."
        )
    return np.asarray(values != 0)
