"""Model formulas with ``strata(...)``, ``offset(...)``, ``cluster(...)`` and ``Surv(...)``, read by formulaic.

All parts of a formula are one specification of formulaic: what it learned from the table of the fit (means of
``scale``, knots of ``bs``, levels of factors) stays with the model and is used again for new tables. The parts are
columns of numbers to formulaic, as ``scale(x)`` is: they may hold any expression of columns and transforms, and a row
where one of them is missing is left out.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import checks
from ..errors import ParameterError

COVARIATES, RESPONSE, SURVIVAL = "covariates", "response", "survival"
STRATA, OFFSET, CLUSTER = "strata", "offset", "cluster"

_CALL = re.compile(r"(strata|offset|cluster|Surv)\s*\(")
_OWN = "tallytree_"  # before the names of the transforms here: a column may be called `strata` or `offset`


@dataclass(frozen=True, eq=False)
class Specification:
    """A formula, what formulaic learned from the table of the fit, and what the formula took from its caller."""

    formula: str
    specs: dict[str, Any]  # formulaic's ModelSpec of every part
    context: dict[str, Any]

    def has(self, part: str) -> bool:
        """Whether the formula has strata, clusters, an offset, a survival time."""
        return part in self.specs

    @property
    def terms(self) -> dict[str, list[str]]:
        """Columns of the covariates by the names of their terms, and of variables that are terms by themselves."""
        spec = self.specs[COVARIATES]
        names = list(spec.column_names)
        terms = {str(term): [names[i] for i in places] for term, places in spec.term_indices.items()}
        for term, places in spec.term_indices.items():
            variables = {
                str(v)
                for v in spec.term_variables.get(term, ())
                if any(role.value == "value" for role in v.roles)
            }
            if len(term.factors) == 1 and len(variables) == 1:
                terms.setdefault(variables.pop(), [names[i] for i in places])
        return {name: columns for name, columns in terms.items() if columns != ["Intercept"]}

    def new(self, data: Any, *parts: str) -> list[Any]:
        """Parts of the formula for new data, None for one that it does not have; missing values are refused."""
        table, known = table_of(data), {part: self.specs[part] for part in parts if self.has(part)}
        if not known:
            return [None] * len(parts)
        specs = _packages()[0].ModelSpecs(**known)
        required = f"`X` must hold the columns of the formula {self.formula!r}"
        found = _computed(specs, table, required, set(), self.context)
        absent = np.ones(len(table), bool)
        absent[np.asarray(found[next(iter(known))].index)] = False
        if absent.any():
            raise ParameterError(
                f"`X` must not have missing values in the columns of the formula, but row {np.flatnonzero(absent)[0]} "
                "has. Drop or fill such rows."
            )
        return [self.values(part, found[part]) if part in known else None for part in parts]

    def values(self, part: str, matrix: Any) -> Any:
        """What a matrix of formulaic means: a table of covariates, labels, codes, a sum, or times by their roles."""
        if part == COVARIATES:
            names = [name for name in matrix.columns if name != "Intercept"]
            return _packages()[1].DataFrame(matrix[names].to_numpy(np.float64), columns=names)
        numbers = matrix.to_numpy(np.float64)
        if part == RESPONSE:
            states = self.specs[RESPONSE].transform_state.values()
            labels = next(state["labels"] for state in states if "labels" in state)
            return np.asarray(labels)[numbers[:, 0].astype(np.int64)]
        if part == OFFSET:
            return numbers.sum(axis=1)  # offsets add up
        if part == SURVIVAL:
            return dict(zip(("entry", "time", "event")[-numbers.shape[1] :], numbers.T))
        # Strata and clusters: of one term, or of the combinations of several.
        return np.unique(numbers, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def is_table(data: Any) -> bool:
    """Whether data have named columns, as a formula needs them."""
    named = hasattr(data, "columns") and (hasattr(data, "iloc") or hasattr(data, "to_pandas"))
    return isinstance(data, Mapping) or named


def table_of(data: Any) -> Any:
    """Data as a DataFrame with its rows numbered."""
    _, pd = _packages()
    frame = data.to_pandas() if hasattr(data, "to_pandas") else data  # tables of Arrow and Polars
    try:
        return pd.DataFrame(frame).reset_index(drop=True)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"`data` must be a table with named columns; {checks.describe(data)} arrived."
        ) from error


def caller_names(context: Any, frames: int) -> Mapping[str, Any]:
    """The names that a formula may use beside columns: a mapping, or those in scope some frames above."""
    if context is None or isinstance(context, Mapping):
        return context or {}
    depth = checks.integer("context", context, 0) + frames + 1
    try:
        names: Mapping[str, Any] | None = _packages()[0].utils.context.capture_context(depth)
    except (ValueError, OverflowError) as error:
        raise ParameterError(
            f"`context` must be a number of frames above the call; {context} arrived."
        ) from error
    return names or {}


def read_formula(
    formula: Any,
    table: Any,
    complete: tuple[str, ...],
    context: Mapping[str, Any],
    named: Mapping[str, Sequence[str]],
) -> tuple[Specification, dict[str, Any], NDArray[np.int64]]:
    """The specification, the values of every part of the formula, and the rows where nothing is missing.

    Factors are coded by treatment contrasts against their first level, as if an intercept were there, and the
    intercept is dropped: it cancels within every stratum. Columns named in `complete` must be present too.
    Names that are no columns are looked up in `context`, then among formulaic's own. `named` has columns of strata and
    clusters that are not in the formula.
    """
    formulaic, pd = _packages()
    parts = parts_of(formulaic, formula)
    for part, columns in named.items():
        if columns and part in parts:
            raise ParameterError(
                f"Give the columns of `{part}(...)` once: {', '.join(map(repr, columns))} as an argument and a term of "
                f"the formula {formula!r} arrived."
            )
        if columns:
            parts[part] = [_own(part, ", ".join(f"`{column}`" for column in columns) + ")")]
    absent = set(np.flatnonzero(pd.isna(table[list(complete)]).any(axis=1)).tolist()) if complete else set()
    spec = formulaic.ModelSpec.from_spec(formulaic.Formula(**parts), na_action="drop")
    required = f"`data` must hold the columns of the formula {formula!r}"
    found = _computed(spec, table, required, absent, context)
    rows = np.asarray(found[COVARIATES].index, np.int64)
    if not len(rows):
        raise ParameterError(f"`data` must have complete rows for {formula!r}; no row of {len(table)} is.")
    specs = {part: found[part].model_spec for part in parts}
    used = {
        str(v).partition(".")[0] for s in specs.values() for v in s.variables_by_source.get("context", ())
    }
    own = formulaic.transforms.TRANSFORMS
    taken = {name: context[name] for name in used & set(context) if context[name] is not own.get(name)}
    specification = Specification(formula, specs, taken)
    return specification, {part: specification.values(part, found[part]) for part in parts}, rows


def _computed(spec: Any, table: Any, required: str, dropped: set[int], context: Mapping[str, Any]) -> Any:
    """Matrices of a specification; whatever formulaic objects to, a level that the fit has not seen too, is refused."""
    from formulaic.errors import DataMismatchWarning

    with warnings.catch_warnings():
        warnings.simplefilter("error", DataMismatchWarning)
        try:
            return spec.get_model_matrix(table, context={**context, **transforms()}, drop_rows=dropped)
        except ParameterError:
            raise
        except DataMismatchWarning as error:
            levels = str(error).partition(": {")[2].partition("}")[0]
            raise ParameterError(f"{required}, with its known levels only; {levels} arrived.") from None
        except Exception as error:
            if isinstance(error.__cause__, ParameterError):
                raise error.__cause__ from None
            raise ParameterError(f"{required}; this failed: {said(error).rstrip('.')}.") from None


def _packages() -> tuple[Any, Any]:
    try:
        import formulaic
        import pandas as pd
    except ImportError:
        raise ParameterError(
            "Formulas need formulaic and pandas: `pip install tallytree[sklearn]`."
        ) from None
    return formulaic, pd


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
    own = {_OWN + name: transform for name, transform in known.items()}
    return {**own, "factor": factor, "relevel": relevel}


def factor(values: Any, levels: Any = None, ref: Any = None) -> Any:
    """A column of categories, as ``factor`` of R: its levels in order, or with another one as the reference."""
    import pandas as pd
    from formulaic.transforms import C
    from formulaic.transforms.contrasts import TreatmentContrasts

    column = pd.Series(values)
    known = list(levels) if levels is not None else pd.Categorical(column).categories.tolist()
    if ref is None:
        return C(values, levels=levels)
    if ref not in known:
        raise ParameterError(
            f"`ref` must be one of the levels of the column, {known[:12]}; {ref!r} arrived. It is the level that the "
            "others are compared with."
        )
    return C(values, TreatmentContrasts(base=ref), levels=levels)


def relevel(values: Any, ref: Any) -> Any:
    """A column of categories with another reference level, as ``relevel`` of R."""
    return factor(values, ref=ref)


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
