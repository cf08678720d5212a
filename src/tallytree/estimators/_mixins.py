"""What estimators share: two classes with log-odds, and a notebook's view of the answers below scikit-learn's box."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin

from ..arrays import Float64

_CELL = '<td style="text-align:right;padding:0 0.6em">{}</td>'


class ShowsAnswers:
    """Mixin, before BaseEstimator: scikit-learn's HTML, and what :meth:`_answers_html` adds once fitted."""

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
