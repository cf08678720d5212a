"""Model formulas with ``strata(...)``, ``offset(...)``, ``cluster(...)`` and ``Surv(...)``, read by formulaic.

All parts of a formula are one specification of formulaic: what it learned from the table of the fit (means of
``scale``, knots of ``bs``, levels of factors) stays with the model and is used again for new tables.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ParameterError
from ._formula_terms import (
    CLUSTER,
    COVARIATES,
    OFFSET,
    RESPONSE,
    STRATA,
    SURVIVAL,
    parts_of,
    said,
    transforms,
)


@dataclass(frozen=True, eq=False)
class Specification:
    """A formula and what formulaic learned from the table of the fit."""

    formula: str
    specs: dict[str, Any]  # formulaic's ModelSpec of every part

    def has(self, part: str) -> bool:
        """Whether the formula has strata, clusters, an offset, a survival time."""
        return part in self.specs

    def labels(self) -> list[Any]:
        """Labels of the response in the table of the fit."""
        state = self.specs[RESPONSE].transform_state
        return next(part["labels"] for part in state.values() if "labels" in part)


@dataclass(frozen=True, eq=False)
class Design:
    """What a formula picks out of a table, on the rows where nothing is missing."""

    x: NDArray[np.float64]
    names: tuple[str, ...]
    groups: NDArray[np.int64] | None
    clusters: NDArray[np.int64] | None
    offset: NDArray[np.float64] | None
    response: NDArray[Any] | None
    survival: dict[str, NDArray[np.float64]]  # time, event and, for delayed entry, entry
    rows: NDArray[np.int64]  # numbers of the rows kept
    n_missing: int
    specification: Specification


def is_table(data: Any) -> bool:
    """Whether data have named columns, as a formula needs them."""
    named = hasattr(data, "columns") and (hasattr(data, "iloc") or hasattr(data, "to_pandas"))
    return isinstance(data, Mapping) or named


def table_of(data: Any) -> Any:
    """Data as a DataFrame with its rows numbered."""
    _, pd = _packages()
    frame = data.to_pandas() if hasattr(data, "to_pandas") else data  # tables of Arrow and Polars
    return pd.DataFrame(frame).reset_index(drop=True)


def read_formula(formula: Any, table: Any, complete: tuple[str, ...] = ()) -> Design:
    """Covariates, strata, offset and response of a formula; rows with anything missing are left out.

    Factors are coded by treatment contrasts against their first level, as if an intercept were there, and the
    intercept is dropped: it cancels within every stratum. Columns named in `complete` must be present too.
    """
    formulaic, pd = _packages()
    parts = parts_of(formulaic, formula)
    absent = set(np.flatnonzero(pd.isna(table[list(complete)]).any(axis=1)).tolist()) if complete else set()
    spec = formulaic.ModelSpec.from_spec(formulaic.Formula(**parts), na_action="drop")
    found = _computed(spec, table, f"`data` must hold the columns of the formula {formula!r}", absent)
    rows = np.asarray(found[COVARIATES].index, np.int64)
    specification = Specification(formula, {part: found[part].model_spec for part in parts})
    x, names = _columns(found[COVARIATES])
    return Design(
        x,
        names,
        _codes(found[STRATA]) if specification.has(STRATA) else None,
        _codes(found[CLUSTER]) if specification.has(CLUSTER) else None,
        _sum(found[OFFSET]) if specification.has(OFFSET) else None,
        _labelled(specification, found[RESPONSE]) if specification.has(RESPONSE) else None,
        _survival(found[SURVIVAL]) if specification.has(SURVIVAL) else {},
        rows,
        len(table) - len(rows),
        specification,
    )


def new_covariates(specification: Specification, data: Any) -> tuple[Any, NDArray[np.float64] | None]:
    """Design matrix of new data as a DataFrame, and the offset; rows with missing values are refused."""
    with_offset = specification.has(OFFSET)
    found = _new(specification, data, (COVARIATES, OFFSET) if with_offset else (COVARIATES,))
    x, names = _columns(found[COVARIATES])
    table = _packages()[1].DataFrame(x, columns=list(names))
    return table, _sum(found[OFFSET]) if with_offset else None


def new_groups(specification: Specification, data: Any) -> NDArray[np.int64] | None:
    """Strata of new data, or None where the formula has none."""
    return _codes(_new(specification, data, (STRATA,))[STRATA]) if specification.has(STRATA) else None


def new_response(specification: Specification, data: Any) -> NDArray[Any]:
    """Response of new data."""
    if not specification.has(RESPONSE):
        raise ParameterError(
            "Formulas with `Surv` have no `log_likelihood` of new data; pass `y` and `groups`."
        )
    return _labelled(specification, _new(specification, data, (RESPONSE,))[RESPONSE])


def _new(specification: Specification, data: Any, parts: tuple[str, ...]) -> Any:
    """Parts of the formula for new data, by what was learned from the data of the fit."""
    formulaic, _ = _packages()
    table = table_of(data)
    specs = formulaic.ModelSpecs(**{part: specification.specs[part] for part in parts})
    found = _computed(
        specs, table, f"`X` must hold the columns of the formula {specification.formula!r}", set()
    )
    absent = np.ones(len(table), bool)
    absent[np.asarray(found[parts[0]].index)] = False
    if absent.any():
        raise ParameterError(
            f"`X` must not have missing values in the columns of the formula, but row {np.flatnonzero(absent)[0]} "
            "has. Drop or fill such rows."
        )
    return found


def _computed(spec: Any, table: Any, required: str, dropped: set[int]) -> Any:
    """Matrices of a specification; whatever formulaic objects to, a level that the fit has not seen too, is refused."""
    from formulaic.errors import DataMismatchWarning

    with warnings.catch_warnings():
        warnings.simplefilter("error", DataMismatchWarning)
        try:
            return spec.get_model_matrix(table, context=transforms(), drop_rows=dropped)
        except ParameterError:
            raise
        except DataMismatchWarning as error:
            levels = str(error).partition(": {")[2].partition("}")[0]
            raise ParameterError(f"{required}, with its known levels only; {levels} arrived.") from None
        except Exception as error:
            if isinstance(error.__cause__, ParameterError):
                raise error.__cause__ from None
            raise ParameterError(f"{required}; this failed: {said(error)}") from None


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


def _sum(matrix: Any) -> NDArray[np.float64]:
    """Offsets add up."""
    return np.asarray(matrix.to_numpy(np.float64).sum(axis=1))


def _codes(matrix: Any) -> NDArray[np.int64]:
    """Numbers of strata, from one term or the combinations of several."""
    return np.unique(matrix.to_numpy(np.float64), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _labelled(specification: Specification, matrix: Any) -> NDArray[Any]:
    labels = np.asarray(specification.labels())
    return np.asarray(labels[matrix.to_numpy(np.float64)[:, 0].astype(np.int64)])


def _survival(matrix: Any) -> dict[str, NDArray[np.float64]]:
    """Time, event and, for delayed entry, the start of being at risk."""
    roles = ("time", "event") if matrix.shape[1] == 2 else ("entry", "time", "event")
    return dict(zip(roles, matrix.to_numpy(np.float64).T))
