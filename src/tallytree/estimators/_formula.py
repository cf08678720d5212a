"""Model formulas with ``strata(...)``, ``offset(...)`` and ``Surv(time, event)``, read with formulaic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ParameterError

_STRATA = re.compile(r"\+?\s*strata\(([^()]*)\)")
_OFFSET = re.compile(r"\+?\s*offset\(([^()]*)\)")
_SURV = re.compile(r"^\s*Surv\((.*)\)\s*$", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Terms:
    """A formula taken apart: covariates, and the expressions of response, strata and offset."""

    formula: str
    covariates: str
    response: tuple[str, ...]  # one expression, or time and event
    strata: tuple[str, ...]
    offsets: tuple[str, ...]

    @property
    def is_survival(self) -> bool:
        """Whether the response is ``Surv(time, event)``."""
        return len(self.response) == 2


@dataclass(frozen=True, eq=False)
class Design:
    """What a formula picks out of a table, on the rows where nothing is missing."""

    x: NDArray[np.float64]
    names: tuple[str, ...]
    groups: NDArray[np.int64] | None
    offset: NDArray[np.float64] | None
    response: NDArray[Any] | None
    time: NDArray[np.float64] | None
    event: NDArray[np.bool_] | None
    rows: NDArray[np.int64]  # numbers of the rows kept
    n_missing: int
    spec: Any
    terms: Terms


def read_terms(formula: Any) -> Terms:
    """Split a formula at ``~``, ``strata(...)`` and ``offset(...)``."""
    if not isinstance(formula, str) or formula.count("~") != 1:
        raise ParameterError(
            "`formula` must be text of the form 'case ~ a + b + strata(set)' or 'Surv(time, event) ~ a + b'; "
            f"{formula!r} arrived."
        )
    left, right = formula.split("~")
    strata = [name.strip().strip("`") for inside in _STRATA.findall(right) for name in inside.split(",")]
    offsets = [inside.strip() for inside in _OFFSET.findall(right)]
    rest = _OFFSET.sub("", _STRATA.sub("", right)).strip().lstrip("+").strip() or "0"
    surv = _SURV.match(left)
    response = _arguments(surv.group(1)) if surv else [left]
    if surv and len(response) != 2:
        raise ParameterError(
            f"`Surv` takes a time and an event, as in 'Surv(time, event)'; {left.strip()!r} arrived."
        )
    return Terms(formula, rest, tuple(response), tuple(strata), tuple(offsets))


def read_formula(formula: str, data: Any, complete: tuple[str, ...] = ()) -> Design:
    """Covariates, strata, offset and response of a formula; rows with anything missing are left out.

    Factors are coded by treatment contrasts against their first level, as if an intercept were there, and the
    intercept is dropped: it cancels within every stratum. Columns named in `complete` must be present too.
    """
    formulaic, pd = _packages()
    terms = read_terms(formula)
    table = pd.DataFrame(data).reset_index(drop=True)
    for name in terms.strata:
        if name not in table.columns:
            raise ParameterError(f"`strata(...)` must name columns of `data`; {name!r} is not one of them.")
    matrix = formulaic.model_matrix("1 + " + terms.covariates, table, na_action="drop")
    answers = [_column(part, table, "response") for part in terms.response]
    offsets = [_column(part, table, "offset") for part in terms.offsets]
    keep = table.index.isin(matrix.index)
    for column in [*answers, *offsets, *(table[name] for name in (*terms.strata, *complete))]:
        keep &= np.asarray(pd.notna(column))
    rows = np.flatnonzero(keep)
    x, names = _columns(matrix.loc[rows])
    picked = [np.asarray(column)[rows] for column in answers]
    survival = terms.is_survival
    return Design(
        x,
        names,
        _groups(table.loc[rows], terms.strata),
        _sum(offsets, rows),
        None if survival else picked[0],
        picked[0].astype(np.float64) if survival else None,
        _event(picked[1]) if survival else None,
        rows,
        len(table) - len(rows),
        matrix.model_spec,
        terms,
    )


def is_table(data: Any) -> bool:
    """Whether data have named columns, as a formula needs them."""
    return isinstance(data, Mapping) or (hasattr(data, "columns") and hasattr(data, "iloc"))


def new_covariates(spec: Any, terms: Terms, data: Any) -> tuple[Any, NDArray[np.float64] | None]:
    """Design matrix of new data as a DataFrame, and the offset; rows with missing values are refused."""
    _, pd = _packages()
    table = pd.DataFrame(data).reset_index(drop=True)
    try:
        matrix = spec.get_model_matrix(table)
    except Exception as error:
        raise ParameterError(
            f"`X` must hold the columns of the formula {terms.formula!r} ({error}). Pass a table like that of the fit."
        ) from None
    x, names = _columns(matrix)
    offset = _sum([_column(part, table, "offset") for part in terms.offsets], np.arange(len(table)))
    absent = np.ones(len(table), bool)
    absent[np.asarray(matrix.index)] = False
    if offset is not None:
        absent |= np.isnan(offset)
    if absent.any():
        raise ParameterError(
            f"`X` must not have missing values in the columns of the formula, but row {np.flatnonzero(absent)[0]} "
            "has. Drop or fill such rows."
        )
    return pd.DataFrame(x, columns=list(names)), offset


def new_groups(terms: Terms, data: Any) -> NDArray[np.int64] | None:
    """Strata of new data, or None where the formula has none."""
    table = _packages()[1].DataFrame(data).reset_index(drop=True)
    for name in terms.strata:
        if name not in table.columns or bool(table[name].isna().any()):
            raise ParameterError(
                f"`X` must hold the column {name!r} of `strata(...)` without missing values."
            )
    return _groups(table, terms.strata)


def new_response(terms: Terms, data: Any) -> NDArray[Any]:
    """Response of new data."""
    if terms.is_survival:
        raise ParameterError(
            "Formulas with `Surv` have no `log_likelihood` of new data; pass `y` and `groups`."
        )
    return np.asarray(_column(terms.response[0], _packages()[1].DataFrame(data), "response"))


def _packages() -> tuple[Any, Any]:
    try:
        import formulaic
        import pandas as pd
    except ImportError:
        raise ParameterError(
            "Formulas need formulaic and pandas: `pip install tallytree[sklearn]`."
        ) from None
    return formulaic, pd


def _columns(matrix: Any) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    names = [name for name in matrix.columns if name != "Intercept"]
    return matrix[names].to_numpy(np.float64), tuple(names)


def _groups(table: Any, strata: tuple[str, ...]) -> NDArray[np.int64] | None:
    if not strata:
        return None
    grouped = table[list(strata)].groupby(list(strata), sort=True, observed=True)
    return np.asarray(grouped.ngroup().to_numpy(np.int64))


def _sum(columns: list[Any], rows: NDArray[np.int64]) -> NDArray[np.float64] | None:
    return sum(np.asarray(c, np.float64)[rows] for c in columns) if columns else None  # type: ignore[return-value]


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


def _column(expression: str, table: Any, role: str) -> Any:
    name = expression.strip().strip("`")
    if name in table.columns:
        return table[name]
    try:
        return table.eval(expression.strip())
    except Exception as error:
        raise ParameterError(
            f"The {role} {expression.strip()!r} must be a column of `data` or an expression of "
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
