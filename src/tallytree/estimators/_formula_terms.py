"""The terms of a formula: which part each belongs to, and the transforms that formulaic calls for them.

``Surv``, ``strata``, ``offset``, ``cluster`` and the response are columns of numbers to formulaic, as ``scale(x)`` is:
they may hold any expression of columns and transforms, and a row where one of them is missing is left out.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from ..errors import ParameterError

COVARIATES, RESPONSE, SURVIVAL = "covariates", "response", "survival"
STRATA, OFFSET, CLUSTER = "strata", "offset", "cluster"

_CALL = re.compile(r"(strata|offset|cluster|Surv)\s*\(")
_OWN = "tallytree_"  # before the names of the transforms here: a column may be called `strata` or `offset`


def parts_of(formulaic: Any, formula: Any) -> dict[str, list[Any]]:
    """The terms of a formula by part; strata, offset and clusters only where it has them."""
    if not isinstance(formula, str) or formula.count("~") != 1:
        raise ParameterError(
            "`formula` must be text of the form 'case ~ a + b + strata(set)' or 'Surv(time, event) ~ a + b'; "
            f"{formula!r} arrived."
        )
    left, right = (side.strip() for side in formula.split("~"))
    if not left:
        raise ParameterError(f"`formula` must have a response before '~'; {formula!r} arrived.")
    if re.search(r"(^|[\s+*:-])\.($|[\s+*:-])", right):
        raise ParameterError(
            f"`formula` must name its covariates; {formula!r} arrived, where '.' names all columns."
        )
    try:
        terms = list(formulaic.Formula(right or "1"))
    except Exception as error:
        raise ParameterError(
            f"`formula` must be in formulaic's syntax; {formula!r} arrived. {said(error)}"
        ) from None
    parts: dict[str, list[Any]] = {COVARIATES: ["1"]}
    # The left side is one expression, as in R: `status == 2` compares.
    call = _CALL.match(left)
    if call and call.group(1) == "Surv":
        parts[SURVIVAL] = [_own(SURVIVAL, left[call.end() :])]
    else:
        parts[RESPONSE] = [_own(RESPONSE, f"{left})")]
    for term in terms:
        kind = _kind(term)
        if kind != COVARIATES:
            expression = term.factors[0].expr
            parts.setdefault(kind, []).append(_own(kind, expression.partition("(")[2]))
        elif str(term) != "1":
            parts[COVARIATES].append(term)
    return parts


def said(error: Exception) -> str:
    """The words of formulaic on one line, with the names that users wrote."""
    words = " ".join(str(error).replace(_OWN + SURVIVAL, "Surv").replace(_OWN, "").split())
    return re.sub("\x1b?\\[[0-9;]*m|[⧛⧚]", "", words)


def _own(name: str, rest: str) -> Any:
    """A term that calls a transform of this module; `rest` is what follows the opening parenthesis."""
    from formulaic.parser.types import Factor, Term

    return Term([Factor(f"{_OWN}{name}({rest}", eval_method="python")])


def _kind(term: Any) -> str:
    """Which part a term of the right side belongs to."""
    calls = [match.group(1) for factor in term.factors if (match := _CALL.match(factor.expr))]
    if not calls:
        return COVARIATES
    if "Surv" in calls:
        raise ParameterError(
            f"`Surv(...)` must stand before '~' in a formula; {str(term)!r} arrived after it."
        )
    if len(term.factors) > 1:
        raise ParameterError(
            f"`{calls[0]}(...)` must be a term of its own in a formula; {str(term)!r} arrived. "
            "Write an interaction with the column itself, as in a:C(set)."
        )
    return calls[0]


def transforms() -> dict[str, Any]:
    """What formulas know beside formulaic's own transforms."""
    from formulaic.transforms import stateful_transform

    known = {STRATA: strata, CLUSTER: strata, OFFSET: offset, SURVIVAL: survival}
    known[RESPONSE] = stateful_transform(response)
    return {_OWN + name: transform for name, transform in known.items()}


def _numbers(values: Any) -> Any:
    from formulaic.materializers.types import FactorValues

    return FactorValues(values, kind="numerical")


def strata(*columns: Any) -> Any:
    """The stratum, or cluster, of every row: equal numbers where all columns agree, NaN where one is missing."""
    import pandas as pd

    table = pd.concat(
        [pd.Series(column).reset_index(drop=True) for column in columns], axis=1, keys=range(len(columns))
    )
    codes = table.groupby(list(table.columns), sort=True, observed=True, dropna=True).ngroup()
    return _numbers(codes.astype(np.float64).where(codes >= 0))


def offset(values: Any) -> Any:
    """A known part of the linear predictor."""
    return _numbers(_real(values, "`offset(...)`"))


def survival(*columns: Any) -> Any:
    """``Surv(time, event)`` or, for delayed entry, ``Surv(entry, time, event)``."""
    if len(columns) not in (2, 3):
        raise ParameterError(
            "`Surv` takes a time and an event, as in 'Surv(time, event)', or entry, time and event; "
            f"{len(columns)} arguments arrived."
        )
    event = _real(columns[-1], "The event in `Surv(time, event)`")
    found = sorted(set(event.dropna().unique().tolist()))
    if not set(found) <= {0.0, 1.0}:
        raise ParameterError(
            f"The event in `Surv(time, event)` must be 0/1 or true/false; values {found[:5]} arrived. "
            "Write the comparison, as in Surv(time, status == 2)."
        )
    times = [_real(column, "The times in `Surv(...)`") for column in columns[:-1]]
    roles = ("time", "event") if len(columns) == 2 else ("entry", "time", "event")
    return _numbers(dict(zip(roles, [*times, event])))


def response(values: Any, _state: Any = None) -> Any:
    """The number of every row's label among the sorted labels, which stay with the fit."""
    import pandas as pd

    column = pd.Series(values).reset_index(drop=True)
    known = _state is not None and "labels" in _state
    if not known:
        _state["labels"] = sorted(column.dropna().unique().tolist())
    place = {label: float(i) for i, label in enumerate(_state["labels"])}
    codes = column.map(place).astype(np.float64)
    strange = column[codes.isna() & column.notna()]
    if len(strange):
        raise ParameterError(
            f"The response must be one of the labels of the fit, {_state['labels']}; {strange.iloc[0]!r} arrived."
        )
    return _numbers(codes)


def _real(values: Any, what: str) -> Any:
    """A column of real numbers; missing ones stay missing."""
    import pandas as pd

    column = pd.Series(values).reset_index(drop=True)
    try:
        return column.astype(np.float64)
    except (TypeError, ValueError):
        raise ParameterError(f"{what} must hold numbers; a column of {column.dtype} arrived.") from None
