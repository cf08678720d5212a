"""What estimators share: groups of rows with their answers and weights, two classes, warnings, views in notebooks."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, column_or_1d

from .. import checks
from ..arrays import Float64, Ints
from ..checks.groups import label_column, labels
from ..errors import ParameterError
from ..errors import warn as warn
from ..learn.statistics import row_weights
from ..structure import bags as structure


@dataclass(frozen=True, eq=False)
class Bags:
    """Bags of rows.

    Attributes
    ----------
    labels : (n_bags,) array
        The distinct group labels, sorted; results per bag come in this order.
    codes : (n_rows,) int
        Bag number of every row.
    rows : structure.bags.Bags
        The rows of every bag.
    """

    labels: NDArray[Any]
    codes: Ints
    rows: structure.Bags

    @property
    def sizes(self) -> Ints:
        """Rows per bag, (n_bags,)."""
        return np.asarray(self.rows.sizes)

    @property
    def n_bags(self) -> int:
        """Number of bags."""
        return len(self.labels)

    def batches(self, chosen: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Bags of similar size together: bag numbers (B,), and rows (B, width), the number of rows where padded.

        A bag is padded by half of its size or 8 rows at most, so one large bag costs the small ones nothing.
        """
        for members, rows, there in self.rows.batches(lambda n: max(8, n // 2), chosen):
            yield members, np.where(there, rows, len(self.codes))


def make_bags(groups: Any, n_rows: int, *, alone: bool, name: str = "groups") -> Bags:
    """Bags from a group vector; without one, every row alone or all rows together."""
    if groups is None:
        codes = np.arange(n_rows) if alone else np.zeros(n_rows, np.int64)
        count = n_rows if alone else 1
        return Bags(np.arange(count), codes, structure.bags_of(np, codes, count))
    array = label_column(f"`{name}`", groups)
    if array.ndim != 1 or len(array) != n_rows:
        raise ParameterError(
            f"`{name}` must have one entry per row of `X`, {n_rows} in all; an array of shape "
            f"{array.shape} arrived."
        )
    found, codes = np.unique(labels(name, array), return_inverse=True)
    codes = codes.astype(np.int64)
    return Bags(found, codes, structure.bags_of(np, codes, len(found)))


def columns_by_name(X: Any, **given: Any) -> tuple[Any, ...]:
    """A table without the columns that arguments name, and the arguments with these columns in place of names."""
    if isinstance(X, str):
        raise ParameterError(
            f"`X` must be a table of numbers, one row per observation; the text {X!r} arrived. Formulas are read by "
            "ConditionalLogit.from_formula(formula, data)."
        )
    named = {name: value for name, value in given.items() if isinstance(value, str)}
    for name, value in named.items():
        if not hasattr(X, "columns") or value not in X.columns:
            had = f"the columns {list(X.columns)}" if hasattr(X, "columns") else checks.describe(X)
            raise ParameterError(
                f"`{name}` must have one entry per row, or name a column of the table `X`; {value!r} and {had} arrived."
            )
    values = [X[value] if name in named else value for name, value in given.items()]
    return (X.drop(columns=list(set(named.values()))) if named else X, *values)


def target_vector(y: Any) -> NDArray[Any]:
    """The target as a vector; a column is flattened with scikit-learn's warning."""
    if y is None:
        raise ParameterError("The estimator requires y to be passed, but the target y is None.")
    values = check_array(y, ensure_2d=False, dtype=None, input_name="y")
    return np.asarray(column_or_1d(values, warn=True))


def binary_labels(y: Any, counted: Any = True) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The two classes, sorted, and which entries belong to the second; both must be among the `counted` entries."""
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) > 2:
        raise ParameterError(
            f"Only binary classification is supported: `y` must hold two values; {len(classes)} arrived. "
            "Unknown label type for anything else: code the classes of interest as 0 and 1."
        )
    if len(np.unique(codes[np.broadcast_to(counted, codes.shape)])) < 2:
        raise ParameterError("`y` must hold two classes; only one class arrived, or has weights above 0.")
    return classes, codes.astype(np.int64) == 1


def bag_answers(y: ArrayLike, bags: Bags, name: str = "y") -> NDArray[Any]:
    """One answer per bag from answers per bag or per instance."""
    answers = target_vector(y)
    if answers.shape == (bags.n_bags,):
        return np.asarray(answers)
    if answers.shape != (len(bags.codes),):
        raise ParameterError(
            f"`{name}` must have one entry per bag ({bags.n_bags}) or per instance ({len(bags.codes)}); an "
            f"array of shape {answers.shape} arrived."
        )
    rows = bags.rows.order[bags.rows.starts]  # the first of every bag
    stray = np.flatnonzero(answers[rows][bags.codes] != answers)
    if len(stray):
        raise ParameterError(
            f"`{name}` must be constant within every group of `groups`, but row {stray[0]} differs from the first of "
            "its group. Pass one value per group, in the order of the sorted labels, or one per row."
        )
    return np.asarray(answers[rows])


def bag_shares(sample_weight: ArrayLike | None, bags: Bags) -> Float64:
    """Weights of the bags with sum 1; one per instance is taken if it is the same within every bag."""
    given = None if sample_weight is None else bag_answers(sample_weight, bags, "sample_weight")
    weights = row_weights(given, bags.n_bags, name="sample_weight")
    shares = np.ones(bags.n_bags) if weights is None else weights / weights.max()
    return np.asarray(shares / shares.sum())


class MissingGroupsWarning(UserWarning):
    """An estimator that learns from groups of rows was fitted without `groups`.

    See Also
    --------
    tallytree.estimators.ConditionalLogit
    tallytree.estimators.BagClassifier

    Examples
    --------
    >>> issubclass(tt.estimators.MissingGroupsWarning, UserWarning)
    True
    """


class CollinearityWarning(UserWarning):
    """Columns that are linear combinations of earlier ones within strata were left out of a fit.

    See Also
    --------
    tallytree.estimators.ConditionalLogit

    Examples
    --------
    >>> issubclass(tt.estimators.CollinearityWarning, UserWarning)
    True
    """


def confidence_level(level: Any, alpha: Any = None, default: Any = 0.95) -> float:
    """Read a confidence level: a number between 0 and 1, as `level` or, as statsmodels has it, ``1 - alpha``."""
    if level is not None and alpha is not None:
        raise ParameterError("Give `level` or `alpha`, which is 1 - level; both arrived.")
    name, given = ("level", default if level is None else level) if alpha is None else ("alpha", alpha)
    found = checks.real(name, given, 0.0, math.nextafter(1.0, 0.0), strict=True)
    return found if alpha is None else 1.0 - found


def warn_without_groups(estimator: str, taken: str, instead: str) -> None:
    """Warn that a fit has no groups; `taken` says how rows are read then, `instead` how to say that it is meant."""
    warn(
        f"{estimator}.fit got no `groups`: {taken}. Pass `groups`, one label per row; {instead} if this is meant. "
        + _recipe(estimator),
        MissingGroupsWarning,
    )


def refuse_without_groups(estimator: str, method: str) -> None:
    """Raise because a model fitted with groups is asked about rows without them."""
    raise ParameterError(
        f"{estimator}.{method} needs `groups`, one label per row, because the model was fitted with groups; none "
        "arrived. " + _recipe(estimator)
    )


def _recipe(estimator: str) -> str:
    return (
        "Cross-validation hands `groups` to the splitter only, unless it is routed: "
        "sklearn.set_config(enable_metadata_routing=True), then "
        f"cross_val_score({estimator}(), X, y, params={{'groups': groups}}, cv=GroupKFold()) or "
        f"GridSearchCV({estimator}(), grid, cv=GroupKFold()).fit(X, y, groups=groups)."
    )


_CELL = '<td style="text-align:right;padding:0 0.6em">{}</td>'


class ShowsAnswers:
    """Mixin, before BaseEstimator: scikit-learn's HTML, and what :meth:`_answers_html` adds once fitted.

    The setters of scikit-learn's metadata routing (``set_fit_request`` and so on) work on every estimator, but are no
    attributes of the class: they would be the first thing that ``help`` shows.
    """

    _setters: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        found = {name: value for name, value in vars(cls).items() if re.fullmatch("set_.*_request", name)}
        cls._setters = cls._setters | found
        for name in found:
            delattr(cls, name)

    def __getattr__(self, name: str) -> Any:
        if name in type(self)._setters:
            return type(self)._setters[name].__get__(self, type(self))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _html_repr(self) -> str:
        plain: str = super()._html_repr()  # type: ignore[misc]
        fitted = any(name.endswith("_") and not name.startswith("_") for name in vars(self))
        return plain + self._answers_html() if fitted else plain

    def _answers_html(self) -> str:
        raise NotImplementedError


def rows_of(head: list[str], rows: list[list[str]]) -> str:
    """A plain table; colours are those of the page."""
    top = "".join(f'<th style="text-align:right;padding:0 0.6em">{escape(cell)}</th>' for cell in head)
    body = "".join("<tr>" + "".join(_CELL.format(escape(cell)) for cell in row) + "</tr>" for row in rows)
    return f'<table style="font-size:smaller"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def coefficients(names: Any, values: Any) -> str:
    """The largest coefficients, at most twelve."""
    values = np.asarray(values, np.float64).ravel()
    order = np.argsort(-np.abs(values), kind="stable")[:12]
    labels = [str(names[i]) if names is not None else f"x{i}" for i in order.tolist()]
    more = f"<p>largest 12 of {len(values)}</p>" if len(values) > 12 else ""
    return (
        rows_of(["feature", "coefficient"], [[a, f"{v:.4g}"] for a, v in zip(labels, values[order].tolist())])
        + more
    )


class TwoClasses(ClassifierMixin):  # type: ignore[misc]
    """Mixin: labels and probabilities of ``classes_`` from log-odds of the second."""

    classes_: NDArray[Any]

    def _labels(self, odds: Float64) -> NDArray[Any]:
        return np.asarray(self.classes_[(odds > 0).astype(np.int64)])

    @staticmethod
    def _both(odds: Float64) -> Float64:
        return np.column_stack([expit(-odds), expit(odds)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
