"""scikit-learn estimators on exact count models."""

from __future__ import annotations

try:
    import sklearn  # noqa: F401
except ImportError:
    raise ImportError(
        "tallytree.estimators needs scikit-learn. Install it with `pip install tallytree[sklearn]`."
    ) from None

from ._bags import CollinearityWarning, MissingGroupsWarning
from .bag_classifier import BagClassifier
from .conditional_logit import ConditionalLogit
from .count_density import CountDensity
from .label_proportions import LabelProportions
from .max_entropy import HorvitzThompson, MaxEntropySampler

__all__ = [
    "BagClassifier",
    "CollinearityWarning",
    "ConditionalLogit",
    "CountDensity",
    "HorvitzThompson",
    "LabelProportions",
    "MaxEntropySampler",
    "MissingGroupsWarning",
]
