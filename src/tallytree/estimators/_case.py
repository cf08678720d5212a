"""Which of two labels is the case."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets

from ..errors import ParameterError
from ._bags import binary_labels

# Words that say which side they are on; the order of the alphabet is then no guide.
_CASE = {
    "case",
    "cases",
    "yes",
    "y",
    "true",
    "t",
    "event",
    "dead",
    "died",
    "death",
    "positive",
    "pos",
    "disease",
}
_CASE |= {"diseased", "affected", "exposed", "failure", "failed", "chosen", "ill", "sick", "infected", "+"}
_CONTROL = {
    "control",
    "controls",
    "ctrl",
    "no",
    "n",
    "false",
    "f",
    "none",
    "alive",
    "censored",
    "negative",
    "neg",
}
_CONTROL |= {
    "healthy",
    "unaffected",
    "unexposed",
    "success",
    "not chosen",
    "well",
    "uninfected",
    "normal",
    "-",
}


def control_and_case(y: NDArray[Any], case: Any) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The labels of control and case, and which entries are cases.

    Numbers and truth values: the larger is the case. Text: `case` says it; without it, labels whose meaning
    goes against the alphabet are refused, and others give a warning that names the label taken.
    """
    check_classification_targets(y)
    classes, second = binary_labels(y)
    if len(classes) < 2:
        raise ParameterError("`y` must hold two classes, controls and cases; only one class arrived.")
    if case is not None:
        chosen = np.flatnonzero([label == case for label in classes.tolist()])
        if len(chosen) != 1:
            raise ParameterError(
                f"`case` must be one of the labels in `y`, {classes[0]!r} or {classes[1]!r}; {case!r} arrived."
            )
        return (classes, second) if chosen[0] == 1 else (classes[::-1], ~second)
    if classes.dtype.kind in "OUS" and all(isinstance(label, (str, bytes)) for label in classes.tolist()):
        _consider_words(str(classes[0]), str(classes[1]))
    return classes, second


def _consider_words(first: str, second: str) -> None:
    low, high = first.strip().lower(), second.strip().lower()
    if low in _CONTROL or high in _CASE:
        if low not in _CASE and high not in _CONTROL:
            return
    elif low not in _CASE and high not in _CONTROL:
        warnings.warn(
            f"`y` holds the labels {first!r} and {second!r}; {second!r}, the second in alphabetical order, is "
            f"taken as the case. Say which one is: ConditionalLogit(case={second!r}) or case={first!r}.",
            UserWarning,
            stacklevel=5,
        )
        return
    raise ParameterError(
        f"`y` holds the labels {first!r} and {second!r}, and which of them is the case is ambiguous: the second in "
        f"alphabetical order would be {second!r}. Say which one is: ConditionalLogit(case={first!r}) or "
        f"case={second!r}."
    )
