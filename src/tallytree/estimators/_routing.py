"""What to say when rows arrive without the groups they belong to."""

from __future__ import annotations

import warnings

from ..errors import ParameterError


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


def warn_without_groups(
    estimator: str, taken: str, instead: str, *, score: bool, stacklevel: int = 3
) -> None:
    """Warn that a fit has no groups; `taken` says how rows are read then, `instead` how to say that it is meant."""
    warnings.warn(
        f"{estimator}.fit got no `groups`: {taken}. Pass `groups`, one label per row; {instead} if this is meant. "
        + _recipe(estimator, score=score),
        MissingGroupsWarning,
        stacklevel=stacklevel,
    )


def refuse_without_groups(estimator: str, method: str, *, score: bool) -> None:
    """Raise because a model fitted with groups is asked about rows without them."""
    raise ParameterError(
        f"{estimator}.{method} needs `groups`, one label per row, because the model was fitted with groups; none "
        "arrived. " + _recipe(estimator, score=score)
    )


def _recipe(estimator: str, *, score: bool) -> str:
    requests = ".set_fit_request(groups=True)" + (".set_score_request(groups=True)" if score else "")
    return (
        "Cross-validation hands `groups` to the splitter only, unless it is routed: "
        "sklearn.set_config(enable_metadata_routing=True), then "
        f"cross_val_score({estimator}(){requests}, X, y, params={{'groups': groups}}, cv=GroupKFold()) or "
        f"GridSearchCV({estimator}(){requests}, grid, cv=GroupKFold()).fit(X, y, groups=groups)."
    )
