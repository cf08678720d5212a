"""Learning from label proportions: instance classifiers from counts per bag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from .. import checks
from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..learn.statistics import row_weights
from ._bag_model import BagModel, CountLikelihood
from ._bags import Bags, bag_answers, bag_shares, binary_labels, make_bags, target_vector
from ._conditional_fit import cases_per_group


@dataclass(eq=False, repr=False)
class LabelProportions(BagModel):
    """Logistic regression trained on how many instances of each bag are positive.

    ``log P(sum_{d in bag} y_d = k) = log e_k(exp theta) - sum_d log(1 + exp theta_d)``, ``theta = X w + b``: the
    exact log-probability that k instances of a bag are positive, where e_k is the sum over all ways to choose k of
    them.

    Parameters
    ----------
    target : {"labels", "counts", "proportions"}
        What `y` holds: labels of instances, of which only the number of positive ones per bag is used; the number of
        positive instances per bag; or their fraction, which is rounded to the nearest count. Values per bag may be
        repeated for every instance.
    l1, l2 : float
        Penalties ``l1 |w|_1 + l2 / 2 |w|^2`` beside the mean loss per bag.
    fit_intercept : bool
        Whether b is learned.
    tol, max_iter : float, int
        Tolerance on the gradient and limit on steps of the optimiser, L-BFGS.
    progress : bool or callable
        True shows the steps of the fit. A function is called after each of them with ``log_likelihood`` and the norm
        ``gradient``.

    Attributes
    ----------
    coef_ : (n_features,) array
        Coefficients w.
    intercept_ : float
        Intercept b.
    classes_ : (2,) array
        Labels of instances; 0 and 1 unless `y` held labels.
    loss_ : float
        Mean negative log-likelihood per bag with penalties.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.estimators.BagClassifier
    tallytree.torch.losses.bag_nll

    Notes
    -----
    Cost: one batched inference per step. Accuracy: as :class:`~tallytree.CountModel`.

    Without `groups` every row is a bag, which is ordinary logistic regression, and a warning says so
    (:class:`MissingGroupsWarning`). In cross-validation `groups` must be routed::

        sklearn.set_config(enable_metadata_routing=True)
        search = GridSearchCV(LabelProportions(target="counts"), {"l2": [1e-3, 1.0]}, cv=GroupKFold())
        search.fit(X, count_of_bag[groups], groups=groups)

    Examples
    --------
    >>> from tallytree.estimators import LabelProportions
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [0.5], [2.5]])
    >>> model = LabelProportions(target="counts", l2=0.1).fit(X, [1, 1, 1], groups=[0, 0, 1, 1, 2, 2])
    >>> LabelProportions(target="proportions").fit(X, [0.0, 1.0, 0.5], groups=[0, 0, 1, 1, 2, 2]).predict(X)
    array([0, 0, 1, 1, 0, 1])
    """

    __metadata_request__fit: ClassVar = {"groups": True}
    __metadata_request__score: ClassVar = {"groups": True}

    target: str = "labels"
    l1: float = 0.0
    l2: float = 1e-3
    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 500
    progress: Any = False

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> LabelProportions:
        """Fit to the number of positive instances of every bag.

        Parameters
        ----------
        X : (n_instances, n_features) array or sparse matrix
            Instances.
        y : (n_instances,) or (n_bags,) array
            What is known, in the form that `target` names: per bag in the order of the sorted group labels, or per
            instance.
        groups : (n_instances,) array, optional
            Bag of every instance.
        sample_weight : (n_bags,) array, optional
            How often each bag was observed, not negative; one per instance is taken if it is the same within every bag.

        Returns
        -------
        LabelProportions
            The estimator itself.

        Raises
        ------
        ParameterError
            If a setting or a shape is wrong, or ``y`` is not what ``target`` says.

        See Also
        --------
        predict, instance_probabilities

        Examples
        --------
        >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [0.5], [2.5]])
        >>> bags = [0, 0, 1, 1, 2, 2]
        >>> model = LabelProportions(target="proportions").fit(X, [0.0, 1.0, 0.5], groups=bags)
        >>> model.coef_.shape
        (1,)
        """
        x = self._covariates(X, reset=True)
        self._check_settings()
        checks.one_of("target", self.target, ("labels", "counts", "proportions"))
        bags = self._bags_of_fit(groups, x.shape[0], ", which is ordinary logistic regression")
        shares = bag_shares(sample_weight, bags)
        self.classes_ = np.array([0, 1])
        if self.target == "labels":
            self.classes_ = binary_labels(instance_labels(y, len(bags.codes)), (shares > 0)[bags.codes])[0]
        likelihood = CountLikelihood(bags, self._counts(y, bags))

        def loss(theta: Float64, nothing: Float64) -> tuple[float, Float64, Float64]:
            return *likelihood.loss(theta, shares), nothing

        start = np.zeros(x.shape[1])
        self._accept(self._minimised(x, loss, start, np.zeros(0), 0.0), shares)
        return self

    def _counts(self, y: ArrayLike, bags: Bags) -> Ints:
        """Positive instances per bag, from `y` as `target` says."""
        if self.target == "labels":
            positive = instance_labels(y, len(bags.codes)) == self.classes_[1]
            return np.bincount(bags.codes, positive, bags.n_bags).astype(np.int64)
        answers = bag_answers(y, bags)
        if self.target == "proportions":
            hint = " Set target='counts' for counts."
            amount = checks.array("y", answers, ("n",), checks.PROBABILITIES, hint=hint)
            return np.rint(amount * bags.sizes).astype(np.int64)
        whole = checks.Entries("whole numbers, at most the sizes of the bags", 0, 2**62, whole=True)
        counts = checks.array("y", answers, ("n",), whole).astype(np.int64)
        return cases_per_group(counts, bags.sizes, "y")

    def decision_function(self, X: Any) -> Float64:
        """Log-odds of every instance.

        Parameters
        ----------
        X : (n_rows, n_features) array_like
            Covariates.

        Returns
        -------
        ndarray, (n_rows,)
            Log-odds of ``classes_[1]``.

        Raises
        ------
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        predict, predict_proba

        Examples
        --------
        >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [0.5], [2.5]])
        >>> bags = [0, 0, 1, 1, 2, 2]
        >>> model = LabelProportions(target="proportions").fit(X, [0.0, 1.0, 0.5], groups=bags)
        >>> model.decision_function(X) > 0
        array([False, False,  True,  True, False,  True])
        """
        check_is_fitted(self)
        return self._linear_scores(self._covariates(X))

    def predict_proba(self, X: Any) -> Float64:
        """Probabilities of both classes for every instance.

        Parameters
        ----------
        X : (n_rows, n_features) array_like
            Covariates.

        Returns
        -------
        ndarray, (n_rows, 2)
            Columns as ``classes_``.

        Raises
        ------
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        predict, instance_probabilities

        Examples
        --------
        >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [0.5], [2.5]])
        >>> bags = [0, 0, 1, 1, 2, 2]
        >>> model = LabelProportions(target="proportions").fit(X, [0.0, 1.0, 0.5], groups=bags)
        >>> model.predict_proba(X).shape
        (6, 2)
        """
        return self._both(self.decision_function(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """Class of every instance.

        Parameters
        ----------
        X : (n_rows, n_features) array_like
            Covariates.

        Returns
        -------
        ndarray, (n_rows,)
            Entries of ``classes_``.

        Raises
        ------
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        predict_proba, score

        Examples
        --------
        >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [0.5], [2.5]])
        >>> bags = [0, 0, 1, 1, 2, 2]
        >>> model = LabelProportions(target="proportions").fit(X, [0.0, 1.0, 0.5], groups=bags)
        >>> model.predict(X)
        array([0, 0, 1, 1, 0, 1])
        """
        return self._labels(self.decision_function(X))

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> float:
        """Accuracy of the predicted labels or, with `groups`, mean log-probability of the counts of the bags.

        Parameters
        ----------
        X : (n_rows, n_features) array_like
            Covariates.
        y : (n_rows,) or (n_bags,) array_like
            Without `groups` the labels of the instances, whatever `target` is; with `groups` what `target` names.
        sample_weight : (n_rows,) or (n_bags,) array_like, optional
            Weights of the instances, or of the bags.
        groups : (n_rows,) array_like, optional
            Bag of every instance; ignored if `target` is "labels".

        Returns
        -------
        float
            A fraction between 0 and 1, or a mean over bags in nats; larger is better.

        Raises
        ------
        ParameterError
            If the arguments do not fit each other; the message says what was required.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        predict

        Examples
        --------
        >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [0.5], [2.5]])
        >>> bags = [0, 0, 1, 1, 2, 2]
        >>> model = LabelProportions(target="proportions").fit(X, [0.0, 1.0, 0.5], groups=bags)
        >>> model.score(X, [0, 0, 1, 1, 0, 1])
        1.0
        >>> model.score(X, [0.0, 1.0, 0.5], groups=bags) > -0.1
        True
        """
        theta = self.decision_function(X)
        if groups is not None and self.target != "labels":
            bags = make_bags(groups, len(theta), alone=True)
            likelihood = CountLikelihood(bags, self._counts(y, bags))
            return -likelihood.loss(theta, bag_shares(sample_weight, bags))[0]
        labels = instance_labels(y, len(theta))
        if self.target != "labels" and not np.isin(labels, self.classes_).all():
            raise ParameterError(
                "`y` must hold the labels 0 and 1; other values arrived. For counts or proportions pass `groups` too."
            )
        weights = row_weights(sample_weight, len(theta), name="sample_weight")
        return float(np.average(self._labels(theta) == labels, weights=weights))

    def instance_probabilities(self, X: Any, y: ArrayLike, groups: ArrayLike) -> Float64:
        """P(instance is positive) given the count of its bag, (n_instances,).

        Parameters
        ----------
        X : (n_rows, n_features) array_like
            Covariates.
        y : array_like
            What is known of the bags, in the form that `target` names.
        groups : (n_rows,) array_like
            Bag of every row.

        Returns
        -------
        ndarray, (n_instances,)
            In every bag they sum to its count.

        Raises
        ------
        ParameterError
            If the arguments do not fit each other; the message says what was required.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        predict_proba, fit

        Examples
        --------
        >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [0.5], [2.5]])
        >>> bags = [0, 0, 1, 1, 2, 2]
        >>> model = LabelProportions(target="proportions").fit(X, [0.0, 1.0, 0.5], groups=bags)
        >>> model.instance_probabilities(X, [0.0, 1.0, 0.5], bags).round(1)
        array([0., 0., 1., 1., 0., 1.])
        """
        theta = self.decision_function(X)
        bags = make_bags(groups, len(theta), alone=True)
        return CountLikelihood(bags, self._counts(y, bags)).posterior(theta)


def instance_labels(y: ArrayLike, n: int) -> NDArray[Any]:
    """Labels of instances."""
    labels = target_vector(y)
    if labels.shape != (n,):
        raise ParameterError(
            f"`y` must hold one label per instance, {n} in all; shape {labels.shape} arrived. For counts or "
            "proportions per bag set `target`, and pass `groups`."
        )
    return labels
