"""Densities of binary vectors: recursive cardinality models, pairwise trees, trees with counts, and mixtures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.cluster import MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from .. import checks, display
from .._progress import Progress, check_progress
from ..arrays import Float64
from ..errors import InfeasibleError, ParameterError
from ..learn.densities import CountTrainer, Density, TreeTrainer, cluster
from ..learn.statistics import row_weights
from ._bags import ShowsAnswers, warn

KINDS = ("counts", "tree", "tree+counts")


@dataclass(eq=False, repr=False)
class CountDensity(ShowsAnswers, DensityMixin, BaseEstimator):  # type: ignore[misc]
    """Density estimate for binary vectors, by exact maximum likelihood.

    Parameters
    ----------
    kind : {"counts", "tree", "tree+counts"}
        "counts": log-odds and a potential on the count of every group of a tree of nested groups. "tree": the
        Chow-Liu tree, which joins pairs of variables. "tree+counts": this tree, and a potential on the count of all
        variables.
    structure : {"adaptive", "anti", "random", "flat"}, CountTree or linkage matrix
        Groups of "counts", found by clustering the columns: "adaptive" groups variables that often agree, "anti" those
        that often differ, "random" any. "flat" is one group of all variables. Or the groups themselves.
    linkage : str
        Method of :func:`scipy.cluster.hierarchy.linkage` for the clustering.
    n_components : int
        Number of components. With more than one the density is a mixture, fitted by EM.
    pseudo_count : float
        Added to the counts of pairs and of single variables. With 0, a combination that no row shows is impossible, and
        rows that have it score -inf.
    l2, smoothness : float
        Penalties on the log-likelihood of all rows together: `l2` on half the sum of squared changes of logits and
        log-tables from independent variables, `smoothness` on squared second differences of log-tables.
    method : {"auto", "newton-cg", "l-bfgs", "cg"}
        Optimiser of "counts", see :func:`~tallytree.learn.fit`.
    tol, max_iter : float, int
        Largest difference between statistics of model and data at which to stop, and limit on steps of the optimiser.
    em_tol, em_iter, em_steps : float, int, int
        EM stops when the mean log-likelihood rises by less than `em_tol`, or after `em_iter` rounds. Each round takes
        `em_steps` steps of the optimiser.
    binarize : float or None
        Values above it count as 1, others as 0. With None the data must be 0 and 1.
    random_state : int, RandomState or None
        Seed of random structures, of the start of a mixture and of :meth:`sample`.
    progress : bool or callable
        True shows the steps of the fit. A function is called after each of them with ``log_likelihood`` and the norm
        ``gradient``; for a mixture, after each round of EM with ``log_likelihood``.

    Attributes
    ----------
    weights_ : (n_components,) array
        Shares of the components.
    components_ : list
        Fitted densities; for "counts" with a :class:`~tallytree.CountModel` in ``.model``.
    log_likelihood_ : float
        Mean log-probability of a training row.
    history_ : list of float
        Mean log-probability of a training row after every round of EM.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.learn.fit
    tallytree.CountModel

    Notes
    -----
    Cost: "counts" one pass over the rows, then one inference per optimiser step; "tree" O(N D^2).

    :meth:`score_samples` and :meth:`marginals` accept missing values (NaN) and sum over them exactly; :meth:`fit` needs
    complete rows.

    Examples
    --------
    >>> from tallytree.estimators import CountDensity
    >>> X = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 0, 1]] * 5)
    >>> density = CountDensity(l2=0.1).fit(X)
    >>> density.score(X) > CountDensity("counts", structure="flat", l2=1e6).fit(X).score(X)
    True
    >>> density.marginals([[1.0, np.nan, np.nan]]).round(1)
    array([[1. , 1. , 0.5]])
    """

    kind: str = "counts"
    structure: Any = "adaptive"
    linkage: str = "average"
    n_components: int = 1
    pseudo_count: float = 1.0
    l2: float = 1.0
    smoothness: float = 0.0
    method: str = "auto"
    tol: float = 1e-4
    max_iter: int = 500
    em_tol: float = 1e-3
    em_iter: int = 100
    em_steps: int = 10
    binarize: float | None = 0.0
    random_state: Any = None
    progress: Any = False

    def _answers_html(self) -> str:
        facts = f"<p>mean log-likelihood of a training row {self.log_likelihood_:.4g}</p>"
        return facts + display.bars_of_variables(self.marginals(), "P(variable is on)")

    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> CountDensity:
        """Fit to complete binary rows.

        Parameters
        ----------
        X : (n_rows, n_variables) array
            Rows.
        y : None
            Ignored.
        sample_weight : (n_rows,) array, optional
            Weights of the rows.

        Returns
        -------
        CountDensity
            The estimator itself.

        Raises
        ------
        ParameterError
            If a setting is wrong, or ``X`` holds NaN or anything but two values.

        See Also
        --------
        score_samples, sample, marginals

        Examples
        --------
        >>> X = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 0, 1]] * 5)
        >>> density = CountDensity(l2=0.1).fit(X)
        >>> len(density.components_)
        1
        """
        checks.one_of("kind", self.kind, tuple(KINDS))
        if self.binarize is not None:
            checks.real("binarize", self.binarize)
        for name in ("l2", "smoothness", "pseudo_count"):
            checks.real(name, getattr(self, name), 0.0)
        for name in ("n_components", "max_iter", "em_iter", "em_steps"):
            checks.integer(name, getattr(self, name), 1)
        check_progress(self.progress)
        rows = self._binary(X, reset=True)
        if np.isnan(rows).any():
            raise ParameterError(
                "`X` must not contain NaN when fitting; missing values are summed over only in `score_samples` and "
                "`marginals`. Drop or impute incomplete rows."
            )
        bits = rows.astype(np.uint8)
        found = row_weights(sample_weight, len(bits), name="sample_weight")
        weight = np.ones(len(bits)) if found is None else found
        rng = check_random_state(self.random_state)
        if self.n_components == 1:
            self._fit_one(bits, weight, rng)
        else:
            self._fit_mixture(bits, weight, rng)
        self._generator = np.random.default_rng(rng.randint(2**31))
        return self

    def _trainer(
        self, bits: NDArray[np.uint8], weights: Float64, rng: np.random.RandomState
    ) -> CountTrainer | TreeTrainer:
        if self.kind != "counts":
            return TreeTrainer(bits, self)
        return CountTrainer(bits, cluster(bits, self.structure, self.linkage, rng, weights), self)

    def _fit_one(self, bits: NDArray[np.uint8], weight: Float64, rng: np.random.RandomState) -> None:
        trainer = self._trainer(bits, weight, rng)
        self.components_: list[Density] = [trainer.fit(weight, self.max_iter, self.progress)]
        self.weights_ = np.ones(1)
        self.log_likelihood_ = float(weight @ trainer.log_prob() / weight.sum())
        self.history_ = [self.log_likelihood_]
        self.n_iter_ = trainer.n_iterations
        if not trainer.converged:
            said = f"The optimiser stopped after {trainer.n_iterations} steps before it converged; "
            warn(said + "raise `max_iter` or `l2`, or loosen `tol`.", ConvergenceWarning)

    def _fit_mixture(self, bits: NDArray[np.uint8], weight: Float64, rng: np.random.RandomState) -> None:
        share = _first_shares(bits, self.n_components, rng)  # (K, N)
        n_components = len(share)
        trainers = [self._trainer(bits, weight * r, rng) for r in share]
        total = weight.sum()
        self.history_ = []
        best = -np.inf
        with Progress("fit", self.em_iter, self.progress, "rounds") as shown:
            for round_ in range(self.em_iter):
                mass = np.array([float(weight @ r) for r in share])
                mixed = (mass + 1e-3) / (total + 1e-3 * n_components)
                steps = self.max_iter if round_ == 0 else self.em_steps
                components = [t.fit(weight * (r + 1e-12), steps) for t, r in zip(trainers, share)]
                joint = np.stack([t.log_prob() for t in trainers]) + np.log(mixed)[:, None]
                row = logsumexp(joint, axis=0)
                with np.errstate(invalid="ignore"):
                    share = np.exp(joint - row)
                used = weight > 0
                share[:, ~used] = 1.0 / n_components  # such a row may be impossible; it says nothing
                self.history_.append(float(weight[used] @ row[used] / total))
                shown.advance(log_likelihood=self.history_[-1])
                # Penalties, pseudo-counts and few optimiser steps let the likelihood fall: the best round is kept.
                if not round_ or self.history_[-1] > best:
                    best, self.weights_, self.components_ = self.history_[-1], mixed, components
                if round_ and self.history_[-1] - self.history_[-2] < self.em_tol:
                    break
        self.log_likelihood_ = best
        self.n_iter_ = len(self.history_)

    def score_samples(self, X: ArrayLike) -> Float64:
        """Log-probability of every row, (n_rows,); NaN entries are summed over.

        Parameters
        ----------
        X : (n_rows, D) array_like
            Rows of 0, 1 and NaN.

        Returns
        -------
        ndarray, (n_rows,)
            In nats.

        Raises
        ------
        ParameterError
            If the arguments do not fit each other; the message says what was required.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        score, marginals

        Examples
        --------
        >>> X = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 0, 1]] * 5)
        >>> density = CountDensity(l2=0.1).fit(X)
        >>> density.score_samples([[np.nan, np.nan, np.nan]]).round(6) + 0.0
        array([0.])
        """
        check_is_fitted(self)
        return self._evidence(self._binary(X, reset=False))[0]

    def score(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> float:
        """Mean log-probability of the rows.

        Parameters
        ----------
        X : (n_rows, D) array_like
            Rows of 0, 1 and NaN.
        y : None
            Not used.
        sample_weight : (n_rows,) array_like, optional
            Weights of the rows.

        Returns
        -------
        float
            In nats.

        Raises
        ------
        ParameterError
            If the arguments do not fit each other; the message says what was required.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        score_samples

        Examples
        --------
        >>> X = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 0, 1]] * 5)
        >>> density = CountDensity(l2=0.1).fit(X)
        >>> bool(density.score(X) > -3 * np.log(2))
        True
        """
        found = self.score_samples(X)
        weights = row_weights(sample_weight, len(found), name="sample_weight")
        seen = slice(None) if weights is None else weights > 0.0  # a row of weight 0 may be impossible
        return float(np.average(found[seen], weights=None if weights is None else weights[seen]))

    def marginals(self, X: ArrayLike | None = None) -> Float64:
        """P(y_d = 1): of the density, (D,), or given what is known in each row, (n_rows, D).

        Parameters
        ----------
        X : (n_rows, D) array with NaN where unknown, optional
            What is known.

        Returns
        -------
        ndarray, (D,) or (n_rows, D)
            Probabilities.

        Raises
        ------
        ParameterError
            If the arguments do not fit each other; the message says what was required.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        score_samples, sample

        Examples
        --------
        >>> X = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 0, 1]] * 5)
        >>> density = CountDensity(l2=0.1).fit(X)
        >>> density.marginals([[1.0, np.nan, np.nan]]).round(1)
        array([[1. , 1. , 0.5]])
        """
        check_is_fitted(self)
        if X is None:
            nothing = np.full((1, self.n_features_in_), np.nan)
            return np.asarray(self._evidence(nothing, marginals=True)[1][0])
        return self._evidence(self._binary(X, reset=False), marginals=True)[1]

    def sample(self, n_samples: int = 1, rng: np.random.Generator | int | None = None) -> NDArray[np.uint8]:
        """Independent rows, (n_samples, D).

        Parameters
        ----------
        n_samples : int
            Number of rows to draw.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Source of randomness. Default: the stream that `random_state` started in :meth:`fit` continues, so that
            every call gives other rows.

        Returns
        -------
        ndarray of uint8, (n_samples, D)
            Rows of 0 and 1.

        Raises
        ------
        ParameterError
            If ``n_samples`` is negative, or ``rng`` cannot be used.
        NotFittedError
            Before :meth:`fit`.

        See Also
        --------
        marginals, fit

        Examples
        --------
        >>> X = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 0, 1]] * 5)
        >>> density = CountDensity(l2=0.1).fit(X)
        >>> density.sample(4, rng=0).shape
        (4, 3)
        """
        check_is_fitted(self)
        size = checks.integer("n_samples", n_samples, 0)
        generator = self._generator if rng is None else checks.generator(rng)
        counts = generator.multinomial(size, self.weights_ / self.weights_.sum())
        rows = [c.sample(int(n), generator) for c, n in zip(self.components_, counts) if n]
        drawn = np.concatenate([np.zeros((0, self.n_features_in_), np.uint8), *rows])
        return np.asarray(drawn[generator.permutation(size)])

    def _evidence(self, rows: Float64, *, marginals: bool = False) -> tuple[Float64, Float64]:
        complete = ~np.isnan(rows).any(1)
        log_joint = np.empty((len(self.components_), len(rows)))
        means = np.broadcast_to(rows, (len(self.components_), *rows.shape)).copy()
        for k, component in enumerate(self.components_):
            if complete.any():
                log_joint[k, complete] = component.log_prob(rows[complete].astype(np.uint8))
            if not complete.all():
                log_joint[k, ~complete], means[k, ~complete] = component.evidence(rows[~complete])
        log_joint += np.log(self.weights_)[:, None]
        total = logsumexp(log_joint, axis=0)
        if not marginals:
            return np.asarray(total), rows
        impossible = np.flatnonzero(total == -np.inf)
        if len(impossible):
            raise InfeasibleError(
                f"`X` must hold what the density allows, but row {impossible[0]} has probability zero, so nothing "
                "follows from it. Fit with `pseudo_count` above 0, or drop such rows."
            )
        return np.asarray(total), np.einsum("kn,knd->nd", np.exp(log_joint - total), means)

    def _binary(self, X: ArrayLike, *, reset: bool) -> Float64:
        x = validate_data(self, X, dtype=np.float64, ensure_all_finite="allow-nan", reset=reset)
        if np.isinf(x).any():
            raise ParameterError("`X` must not contain infinity; NaN marks a missing value.")
        if self.binarize is None:
            if not (np.isnan(x) | (x == 0) | (x == 1)).all():
                raise ParameterError("`X` must hold only 0, 1 and NaN; set `binarize` to cut other values.")
            return np.asarray(x)
        return np.where(np.isnan(x), np.nan, (x > self.binarize).astype(np.float64))


def _first_shares(bits: NDArray[np.uint8], n_components: int, rng: np.random.RandomState) -> Float64:
    """Softened clusters of the rows to start EM from, (K, N)."""
    k = min(n_components, len(bits))
    seed = int(rng.randint(2**31 - 1))
    labels = MiniBatchKMeans(k, n_init=3, random_state=seed, batch_size=2048).fit_predict(
        bits.astype(np.float64)
    )
    share = np.full((k, len(bits)), 0.1 / k)
    share[labels, np.arange(len(bits))] += 0.9
    return share
