"""Multiple-instance classification with latent instance labels and a potential on their count."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted, check_random_state

from .. import checks
from ..arrays import Float64
from ._bag_model import LEARNED, BagLikelihood, BagModel, BagPotential, RateLikelihood, start_values
from ._bags import Bags, bag_answers, bag_shares, binary_labels, make_bags, refuse_without_groups


@dataclass(eq=False, repr=False)
class BagClassifier(BagModel):
    """Multiple-instance classifier: learns from labels of bags, while the labels of the instances are hidden.

    ``p(t, y | x) ~ f^(t)(sum_d y_d) exp(sum_d y_d (x_d . w + b))`` (Tarlow et al. 2012, Eq. 9): the potential f^(t)
    says how many instances are active in a bag with label t. Training maximises the exact probability of the labels
    of the bags.

    Parameters
    ----------
    potential : {"at-least-one", "noisy-or", "normal", "free"}
        How the label of a bag depends on its active instances. "at-least-one": positive bags have an active instance,
        negative ones have none. "noisy-or": each active instance makes the bag positive with probability `rate`, and
        without any it is positive with probability `leak`. "normal": ``f^(0) = exp(-(c/n)^2 / 2 sigma^2)`` and
        ``f^(1) = exp(-(mu - c/n)^2 / 2 sigma^2)`` of the active fraction c/n. "free": two tables are learned, linear
        between `n_knots` knots of the fraction.
    rate, leak : float
        Probabilities of "noisy-or". With ``rate="learned"`` every instance has a rate of its own,
        ``1 / (1 + exp(-x_d . v - c))`` (Tarlow et al. 2012, section 4.2.1), whose weights v, c are learned as well.
    mu, sigma : float
        Mean and width of "normal".
    n_knots : int
        Number of knots of "free".
    l1, l2 : float
        Penalties ``l1 |w|_1 + l2 / 2 |w|^2`` beside the mean loss per bag.
    table_l2 : float
        Penalty on the learned tables of "free".
    fit_intercept : bool
        Whether b is learned.
    n_init : int
        Number of starts: the first at zero, the others at random. The best result is kept; the likelihood may have
        several maxima.
    tol, max_iter : float, int
        Tolerance on the gradient and limit on steps of the optimiser, L-BFGS.
    random_state : int, RandomState or None
        Seed of the random starts.
    progress : bool or callable
        True shows the steps of the fit. A function is called after each of them with ``log_likelihood`` and the norm
        ``gradient``.

    Attributes
    ----------
    coef_ : (n_features,) array
        Coefficients w.
    intercept_ : float
        Intercept b.
    rate_coef_, rate_intercept_ : (n_features,) array, float
        Weights v and c of the rates, if these are learned.
    knots_ : (2, n_knots) array
        Learned log-tables of "free" for negative and positive bags.
    classes_ : (2,) array
        The two labels of bags.
    loss_ : float
        Mean negative log-likelihood per bag with penalties.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.estimators.LabelProportions
    tallytree.torch.losses.mil_nll

    Notes
    -----
    Cost: two inferences per bag and step, batched over bags of similar size.

    Bags are given by `groups`, the label of the bag of every row; results per bag come in the order of the sorted group
    labels. A fit without `groups` makes every row a bag of its own and warns (:class:`MissingGroupsWarning`); a model
    that was fitted with groups needs them for predictions too. In cross-validation `groups` must be routed::

        sklearn.set_config(enable_metadata_routing=True)
        cross_val_score(BagClassifier(), X, y, params={"groups": groups}, cv=GroupKFold())

    Examples
    --------
    >>> from tallytree.estimators import BagClassifier
    >>> X = np.array([[0.0], [2.0], [0.1], [0.2], [0.1], [1.9], [0.0], [0.3]])
    >>> bags = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    >>> model = BagClassifier(l2=0.01).fit(X, [1, 0, 1, 0], groups=bags)
    >>> model.predict(X, groups=bags)
    array([1, 0, 1, 0])
    >>> model.instance_probabilities(X, groups=bags).round(1)[:4]
    array([0., 1., 0., 0.])
    """

    __metadata_request__fit: ClassVar = {"groups": True}
    __metadata_request__score: ClassVar = {"groups": True}

    potential: str = "at-least-one"
    rate: Any = 0.9
    leak: float = 0.01
    mu: float = 0.5
    sigma: float = 0.2
    n_knots: int = 5
    l1: float = 0.0
    l2: float = 1e-3
    table_l2: float = 1e-2
    fit_intercept: bool = True
    n_init: int = 1
    tol: float = 1e-6
    max_iter: int = 500
    random_state: Any = None
    progress: Any = False

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> BagClassifier:
        """Fit to labelled bags.

        Parameters
        ----------
        X : (n_instances, n_features) array or sparse matrix
            Instances.
        y : (n_instances,) or (n_bags,) array
            Labels of the bags, in the order of the sorted group labels, or repeated for every instance.
        groups : (n_instances,) array, optional
            Bag of every instance.
        sample_weight : (n_bags,) array, optional
            How often each bag was observed, not negative; one per instance is taken if it is the same within every bag.

        Returns
        -------
        BagClassifier
            The estimator itself.

        Raises
        ------
        ParameterError
            If a setting or a shape is wrong, or only one class of bags arrived.

        See Also
        --------
        predict, instance_probabilities

        Examples
        --------
        >>> X = np.array([[0.0], [2.0], [0.1], [0.2], [0.1], [1.9], [0.0], [0.3]])
        >>> bags = np.array([0, 0, 1, 1, 2, 2, 3, 3])
        >>> model = BagClassifier(l2=0.01).fit(X, [1, 0, 1, 0], groups=bags)
        >>> model.classes_
        array([0, 1])
        """
        x = self._covariates(X, reset=True)
        potential = self._potential()
        self._check_settings()
        checks.real("table_l2", self.table_l2, 0.0)
        checks.integer("n_init", self.n_init, 1)
        bags = self._bags_of_fit(groups, x.shape[0])
        shares = bag_shares(sample_weight, bags)
        self.classes_, positive = binary_labels(bag_answers(y, bags), shares > 0)
        likelihood = self._likelihood(bags, potential, x)
        more, penalty = start_values(potential), np.full(1, self.table_l2)
        if self.rate == LEARNED:
            # Rates begin near 0.9: from one start, the weights of instances and of their rates would move together.
            p = x.shape[1]
            more, penalty = np.append(np.zeros(p), 2.2), np.append(np.full(p, self.l2), 0.0)
        rng = check_random_state(self.random_state)
        loss, found = partial(likelihood.loss, positive=positive, observed=shares), []
        for attempt in range(self.n_init):
            scale = 0.0 if attempt == 0 else 1.0 / np.sqrt(x.shape[1])
            weights = scale * rng.standard_normal(x.shape[1])
            found.append(self._minimised(x, loss, weights, more, penalty))
        learned = self._accept(min(found, key=lambda fit: fit.fun), shares)
        if self.rate == LEARNED:
            self.rate_coef_, self.rate_intercept_ = learned[:-1], float(learned[-1])
        else:
            self.knots_ = learned.reshape(2, -1)
        self.has_groups_ = groups is not None
        return self

    def _likelihood(self, bags: Bags, potential: BagPotential, x: Any) -> Any:
        # Without a leak P(positive) can underflow where its logarithm does not: tables of counts keep it.
        if potential.kind == "noisy-or" and (self.leak > 0.0 or self.rate == LEARNED):
            return RateLikelihood(bags, self.leak, x, self.rate)
        return BagLikelihood(bags, potential)

    @property
    def _learned(self) -> Float64:
        """What was learned beside weights and intercept."""
        if self.rate == LEARNED:
            return np.append(self.rate_coef_, self.rate_intercept_)
        return np.asarray(self.knots_.reshape(-1))

    def _potential(self) -> BagPotential:
        return BagPotential(self.potential, self.rate, self.leak, self.mu, self.sigma, self.n_knots)

    def _scores(self, X: Any, groups: ArrayLike | None, method: str) -> tuple[Float64, Any]:
        check_is_fitted(self)
        if groups is None and self.has_groups_:
            refuse_without_groups(type(self).__name__, method)
        x = self._covariates(X)
        bags = make_bags(groups, x.shape[0], alone=True)
        return self._linear_scores(x), self._likelihood(bags, self._potential(), x)

    def decision_function(self, X: Any, groups: ArrayLike | None = None) -> Float64:
        """Log-odds of the second class for every bag, (n_bags,).

        Parameters
        ----------
        X : (n_instances, n_features) array or sparse matrix
            Instances.
        groups : (n_instances,) array_like
            Bag of every instance; required if the fit had bags.

        Returns
        -------
        ndarray, (n_bags,)
            In the order of the sorted group labels.

        Raises
        ------
        ParameterError
            If the arguments do not fit each other; the message says what was required.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        predict, predict_proba

        Examples
        --------
        >>> X = np.array([[0.0], [2.0], [0.1], [0.2], [0.1], [1.9], [0.0], [0.3]])
        >>> bags = np.array([0, 0, 1, 1, 2, 2, 3, 3])
        >>> model = BagClassifier(l2=0.01).fit(X, [1, 0, 1, 0], groups=bags)
        >>> model.decision_function(X, groups=bags) > 0
        array([ True, False,  True, False])
        """
        return self._log_odds(X, groups, "decision_function")[0]

    def _log_odds(self, X: Any, groups: ArrayLike | None, method: str) -> tuple[Float64, Bags]:
        theta, likelihood = self._scores(X, groups, method)
        return likelihood.log_odds(theta, self._learned), likelihood.bags

    def predict_proba(self, X: Any, groups: ArrayLike | None = None) -> Float64:
        """Probabilities of both classes for every bag, (n_bags, 2).

        Parameters
        ----------
        X : (n_instances, n_features) array or sparse matrix
            Instances.
        groups : (n_instances,) array_like
            Bag of every instance; required if the fit had bags.

        Returns
        -------
        ndarray, (n_bags, 2)
            In the order of the sorted group labels; columns as ``classes_``.

        Raises
        ------
        ParameterError
            If the arguments do not fit each other; the message says what was required.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        predict, decision_function

        Examples
        --------
        >>> X = np.array([[0.0], [2.0], [0.1], [0.2], [0.1], [1.9], [0.0], [0.3]])
        >>> bags = np.array([0, 0, 1, 1, 2, 2, 3, 3])
        >>> model = BagClassifier(l2=0.01).fit(X, [1, 0, 1, 0], groups=bags)
        >>> model.predict_proba(X, groups=bags).shape
        (4, 2)
        """
        return self._both(self._log_odds(X, groups, "predict_proba")[0])

    def predict(self, X: Any, groups: ArrayLike | None = None) -> NDArray[Any]:
        """Labels of the bags, (n_bags,).

        Parameters
        ----------
        X : (n_instances, n_features) array or sparse matrix
            Instances.
        groups : (n_instances,) array_like
            Bag of every instance; required if the fit had bags.

        Returns
        -------
        ndarray, (n_bags,)
            In the order of the sorted group labels.

        Raises
        ------
        ParameterError
            If the arguments do not fit each other; the message says what was required.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        predict_proba, score

        Examples
        --------
        >>> X = np.array([[0.0], [2.0], [0.1], [0.2], [0.1], [1.9], [0.0], [0.3]])
        >>> bags = np.array([0, 0, 1, 1, 2, 2, 3, 3])
        >>> model = BagClassifier(l2=0.01).fit(X, [1, 0, 1, 0], groups=bags)
        >>> model.predict(X, groups=bags)
        array([1, 0, 1, 0])
        """
        return self._labels(self._log_odds(X, groups, "predict")[0])

    def score(
        self,
        X: Any,
        y: ArrayLike,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Fraction of bags whose label is predicted correctly.

        Parameters
        ----------
        X : (n_instances, n_features) array or sparse matrix
            Instances.
        y : (n_bags,) array_like
            Labels of the bags.
        groups : (n_instances,) array_like
            Bag of every instance; required if the fit had bags.
        sample_weight : (n_bags,) array_like, optional
            Weights of the bags; one per row is taken if it is the same within every bag.

        Returns
        -------
        float
            Between 0 and 1.

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
        >>> X = np.array([[0.0], [2.0], [0.1], [0.2], [0.1], [1.9], [0.0], [0.3]])
        >>> bags = np.array([0, 0, 1, 1, 2, 2, 3, 3])
        >>> model = BagClassifier(l2=0.01).fit(X, [1, 0, 1, 0], groups=bags)
        >>> model.score(X, [1, 0, 1, 0], groups=bags)
        1.0
        """
        odds, bags = self._log_odds(X, groups, "score")
        right = self._labels(odds) == bag_answers(y, bags)
        return float(np.average(right, weights=bag_shares(sample_weight, bags)))

    def instance_probabilities(
        self, X: Any, groups: ArrayLike | None = None, y: ArrayLike | None = None
    ) -> Float64:
        """P(instance is active), (n_instances,), given the labels of the bags if they are known.

        Without `y` the probabilities are averaged over both labels.

        Parameters
        ----------
        X : (n_instances, n_features) array or sparse matrix
            Instances.
        groups : (n_instances,) array, optional
            Bag of every instance.
        y : (n_bags,) or (n_instances,) array, optional
            Known labels of the bags.

        Returns
        -------
        ndarray, (n_instances,)
            Probabilities.

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
        >>> X = np.array([[0.0], [2.0], [0.1], [0.2], [0.1], [1.9], [0.0], [0.3]])
        >>> bags = np.array([0, 0, 1, 1, 2, 2, 3, 3])
        >>> model = BagClassifier(l2=0.01).fit(X, [1, 0, 1, 0], groups=bags)
        >>> model.instance_probabilities(X, bags, [1, 0, 1, 0]).round(1)[:2]
        array([0., 1.])
        """
        theta, likelihood = self._scores(X, groups, "instance_probabilities")
        more = self._learned
        odds = likelihood.log_odds(theta, more)
        share = expit(odds)
        if y is not None:
            share = (bag_answers(y, likelihood.bags) == self.classes_[1]).astype(np.float64)
        return np.asarray(likelihood.active(theta, more, share))
