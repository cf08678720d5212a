"""Classifiers of two classes, of which log-odds are known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin

from ..arrays import Float64


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
