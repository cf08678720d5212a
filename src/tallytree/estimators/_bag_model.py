"""What the classifiers of rows in bags share: linear scores, fitted under L1 and L2 penalties, and two classes.

The absolute value is smooth on each side of zero: with ``w = a - b``, ``a, b >= 0``, the L1 penalty is ``l1 sum(a +
b)`` and L-BFGS-B handles the bounds, so zeros come out exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from .. import checks
from .._progress import check_progress
from ..arrays import Float64, Ints
from ..errors import ParameterError
from ..learn.descent import MOST_STEPS, minimise
from ..learn.fixed_counts import fixed_counts
from ..learn.noisy_or import effect_losses, silences
from ..models.count import CountModel
from ..models.thinned import noisy_or_model
from ..potentials import noisy_or
from ._bags import Bags, ShowsAnswers, TwoClasses, coefficients, make_bags, warn, warn_without_groups

KINDS = ("at-least-one", "noisy-or", "normal", "free")
LEARNED = "learned"
# (scores, more) -> the loss, its gradient in the scores, its gradient in more
BagLoss = Callable[[Float64, Float64], tuple[float, Float64, Float64]]


class BagModel(ShowsAnswers, TwoClasses, BaseEstimator):  # type: ignore[misc]
    """Base of estimators with the parameters l1, l2, fit_intercept, tol and max_iter."""

    def _answers_html(self) -> str:
        return coefficients(getattr(self, "feature_names_in_", None), self.coef_)

    def _covariates(self, X: Any, *, reset: bool = False) -> Any:
        return validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=reset)

    def _linear_scores(self, x: Any) -> Float64:
        return np.asarray(x @ self.coef_ + self.intercept_)

    def _check_settings(self) -> None:
        for name in ("l1", "l2", "tol"):
            checks.real(name, getattr(self, name), 0.0)
        checks.integer("max_iter", self.max_iter, 1)
        checks.flag("fit_intercept", self.fit_intercept)
        check_progress(self.progress)

    def _bags_of_fit(self, groups: ArrayLike | None, n_rows: int, meaning: str = "") -> Bags:
        """The bags of a fit, with a warning where no groups arrived; `meaning` is what that amounts to."""
        if groups is None:
            taken = f"every row is taken as a bag of its own{meaning}"
            warn_without_groups(type(self).__name__, taken, "groups=np.arange(len(X))")
        return make_bags(groups, n_rows, alone=True)

    def _minimised(self, x: Any, loss: BagLoss, weights: Float64, more: Float64, more_l2: Any) -> Any:
        """Minimise the loss with penalties; the result's `x` holds weights, intercept and the numbers in `more`."""
        p, bias = len(weights), int(self.fit_intercept)
        sides = np.array([[1.0], [-1.0]]) if self.l1 > 0 else np.ones((1, 1))
        n = p * len(sides)
        l2 = np.concatenate([np.full(p, self.l2), np.zeros(bias), np.broadcast_to(more_l2, len(more))])

        def unpack(z: Float64) -> Float64:
            return np.concatenate([(sides * z[:n].reshape(-1, p)).sum(0), z[n:]])

        def evaluate(z: Float64) -> tuple[float, Float64]:
            v = unpack(z)
            theta = x @ v[:p] + v[p : p + bias].sum()
            value, by_theta, by_more = loss(theta, v[p + bias :])
            slope = np.concatenate([x.T @ by_theta, [by_theta.sum()] * bias, by_more]) + l2 * v
            value += 0.5 * float(l2 @ v**2) + self.l1 * float(z[:n].sum())
            return value, np.concatenate([(sides * slope[:p]).reshape(-1) + self.l1, slope[p:]])

        least = np.full(n, 0.0 if self.l1 > 0 else -np.inf)
        start = np.maximum((sides * weights).reshape(-1), least)
        bounds = [(low, None) for low in least.tolist()] + [(None, None)] * (bias + len(more))
        begin = np.concatenate([start, np.zeros(bias), more])
        limit = min(self.max_iter, MOST_STEPS)
        found, _ = minimise(evaluate, begin, self.tol, limit, self.progress, flat=1e-12, bounds=bounds)
        found.x = unpack(found.x)
        return found

    def _accept(self, found: Any, shares: Float64) -> Float64:
        """Keep what a fit has found; the numbers beside weights and intercept come back.

        `shares` are the weights of the bags in the loss. If these cannot be separated, one of them has a loss of
        log 2 at least.
        """
        if not found.success:
            warn(
                f"L-BFGS stopped after {found.nit} steps before it converged; raise `max_iter` or `l2`.",
                ConvergenceWarning,
            )
        elif self.l1 == self.l2 == 0 and found.fun < min(1e-3, math.log(2.0) * shares[shares > 0].min()):
            warn(
                "The covariates separate the bags: the loss falls to 0 while the coefficients grow without end, and "
                "those found say where the search stopped. Set `l2` above 0.",
                ConvergenceWarning,
            )
        p, bias = self.n_features_in_, int(self.fit_intercept)
        self.coef_, self.intercept_ = found.x[:p], float(found.x[p : p + bias].sum())
        self.loss_, self.n_iter_ = float(found.fun), int(found.nit)
        return np.asarray(found.x[p + bias :])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


# -- likelihoods of bags of independent instances


class BagLikelihood:
    """log Z of every bag under both labels, for instance scores theta."""

    def __init__(self, bags: Bags, potential: BagPotential) -> None:
        self.bags, self.potential = bags, potential
        self._batches = list(bags.batches(np.arange(bags.n_bags)))

    def _models(self, theta: Float64, knots: Float64) -> Iterator[tuple[Ints, Ints, CountModel]]:
        """Batches of bags, their rows, and the models of both labels, batch shape (2, B)."""
        extended = np.append(theta, -np.inf)
        for members, index in self._batches:
            tables = self.potential.tables(self.bags.sizes[members], index.shape[1], knots)
            logits = np.broadcast_to(extended[index], (2, *index.shape))
            yield members, index, CountModel(logits, tables)

    def log_odds(self, theta: Float64, knots: Float64) -> Float64:
        """Log Z^(1) - log Z^(0) of every bag, (n_bags,)."""
        odds = np.empty(self.bags.n_bags)
        for members, _, model in self._models(theta, knots):
            odds[members] = model.log_partition[1] - model.log_partition[0]
        return odds

    def active(self, theta: Float64, knots: Float64, share: Float64) -> Float64:
        """P(active) of every instance when the bags are positive with probability `share`."""
        out = np.zeros(len(theta) + 1)
        for members, index, model in self._models(theta, knots):
            s = share[members, None]
            out[index] = s * model.marginals[1] + (1.0 - s) * model.marginals[0]
        return out[:-1]

    def loss(
        self, theta: Float64, knots: Float64, positive: NDArray[np.bool_], observed: Float64
    ) -> tuple[float, Float64, Float64]:
        """Sum of -log P(label) over bags, each as often as it was observed; gradients in theta and in the knots."""
        total = 0.0
        by_theta, by_knots = np.zeros(len(theta) + 1), np.zeros(len(knots))
        for members, index, model in self._models(theta, knots):
            log_z = np.asarray(model.log_partition)
            sign = np.where(positive[members], 1.0, -1.0)
            odds = sign * (log_z[1] - log_z[0])
            total += float((observed[members] * np.logaddexp(0.0, -odds)).sum())
            # Derivative of the loss in log Z^(1), minus that in log Z^(0).
            pull = -sign * expit(-odds) * observed[members]
            gap = model.marginals[1] - model.marginals[0]
            np.add.at(by_theta, index, pull[:, None] * gap)
            if len(knots):
                counts = np.exp(model.count_log_probs())  # (2, B, width + 1)
                basis = self.potential.basis(self.bags.sizes[members], index.shape[1])
                moved = np.einsum("b,tbc,bck->tk", pull, counts, basis, optimize=True)
                by_knots += np.concatenate([-moved[0], moved[1]])
        return total, by_theta[:-1], by_knots


class RateLikelihood:
    """The same for a noisy-OR: with one rate, or rates that are logistic functions of `x`; `more` holds their weights.

    The effect is absent if no cause acts, so every bag has a product over its instances instead of a count.
    """

    def __init__(self, bags: Bags, leak: float, x: Any, rate: Any = LEARNED) -> None:
        self.bags, self._leak, self._x, self._rate = bags, leak, x, rate

    def _rho(self, more: Float64) -> Float64:
        if self._rate == LEARNED:
            return np.asarray(self._x @ more[:-1] + more[-1])
        return np.full(len(self.bags.codes), logit(self._rate))

    def _rates(self, more: Float64) -> Float64:
        learned = self._rate == LEARNED
        return np.asarray(expit(self._rho(more)) if learned else np.full(len(self.bags.codes), self._rate))

    def _log_none(self, silent: Float64) -> Float64:
        return np.asarray(
            math.log1p(-self._leak) + np.bincount(self.bags.codes, silent, self.bags.n_bags), float
        )

    def log_odds(self, theta: Float64, more: Float64) -> Float64:
        """Log-odds of a positive label of every bag, (n_bags,)."""
        log_none = self._log_none(silences(theta, self._rho(more))[0])
        with np.errstate(divide="ignore", over="ignore"):
            return np.where(log_none < -30.0, -log_none, np.log(np.expm1(-np.maximum(log_none, -30.0))))

    def active(self, theta: Float64, more: Float64, share: Float64) -> Float64:
        """P(active) of every instance when the bags are positive with probability `share`."""
        logits, rates = np.append(theta, -np.inf), np.append(self._rates(more), 0.0)
        out = np.zeros(len(logits))
        for members, index in self.bags.batches(np.arange(self.bags.n_bags)):
            s = share[members, None]
            both = [noisy_or_model(logits[index], rates[index], leak=self._leak, t=t) for t in (0, 1)]
            out[index] = s * both[1].marginals + (1.0 - s) * both[0].marginals
        return out[:-1]

    def loss(
        self, theta: Float64, more: Float64, positive: NDArray[np.bool_], observed: Float64
    ) -> tuple[float, Float64, Float64]:
        """Sum of -log P(label) over bags, each as often as it was observed; gradients in theta and in `more`."""
        silent, by_theta, by_rho = silences(theta, self._rho(more))
        losses, slopes = effect_losses(self._log_none(silent), positive)
        pull = (observed * slopes)[self.bags.codes]
        by_rate = pull * by_rho
        by_more = np.append(self._x.T @ by_rate, by_rate.sum()) if len(more) else more
        return float(observed @ losses), pull * by_theta, by_more


class CountLikelihood:
    """log P(count = k) of bags of independent instances, with its gradient."""

    def __init__(self, bags: Bags, k: Ints) -> None:
        self._bags, self._k = bags, k
        inner = np.flatnonzero((k > 0) & (k < bags.sizes))
        self._batches = list(bags.batches(inner))

    def loss(self, theta: Float64, observed: Float64) -> tuple[float, Float64]:
        """Sum of -log P(count) over bags, each as often as it was observed, and its gradient in theta."""
        log_sums, posterior = self._solved(theta)
        of_row = observed[self._bags.codes]
        full = (self._k == self._bags.sizes)[self._bags.codes]
        # sum of log(1 + e^theta), less log e_k; where all are on, e_n is the product of the odds.
        total = float((of_row * np.logaddexp(0.0, theta)).sum()) - float((of_row * theta)[full].sum())
        for members, log_sum in log_sums:
            total -= float((observed[members] * log_sum).sum())
        return total, of_row * (expit(theta) - posterior)

    def posterior(self, theta: Float64) -> Float64:
        """P(positive | counts), (n_instances,)."""
        return self._solved(theta)[1]

    def _solved(self, theta: Float64) -> tuple[list[tuple[Ints, Float64]], Float64]:
        """Log e_k of batches of the bags that are neither empty nor full, and all marginals given k."""
        extended, log_sums = np.append(theta, -np.inf), []
        marginals = np.append(np.where(self._k[self._bags.codes] > 0, 1.0, 0.0), 0.0)
        for members, index in self._batches:
            found = fixed_counts(extended[index], self._k[members])
            log_sums.append((members, found.log_sum))
            marginals[index] = found.marginals
        return log_sums, marginals[:-1]


@dataclass(frozen=True)
class BagPotential:
    """A family of potentials with its settings; `free` ones have values at knots of the active fraction c / n."""

    kind: str
    rate: Any  # a number, or LEARNED
    leak: float
    mu: float
    sigma: float
    n_knots: int

    def __post_init__(self) -> None:
        checks.one_of("potential", self.kind, tuple(KINDS))
        if isinstance(self.rate, str) and self.rate != LEARNED:
            raise ParameterError(f"`rate` must be a number in (0, 1] or {LEARNED!r}; {self.rate!r} arrived.")
        if self.rate != LEARNED:
            checks.real("rate", self.rate, 0.0, 1.0, strict=True)
        elif self.kind != "noisy-or":
            raise ParameterError(
                f"`rate` is learned for potential='noisy-or'; {self.kind!r} arrived, which has none."
            )
        checks.real("leak", self.leak, 0.0, math.nextafter(1.0, 0.0))
        checks.real("mu", self.mu)
        checks.real("sigma", self.sigma, 0.0, strict=True)
        checks.integer("n_knots", self.n_knots, 2)

    def tables(self, sizes: Ints, width: int, values: Float64) -> Float64:
        """Log f^(t)(c), (2, B, width + 1); -inf beyond the bag's size."""
        count = np.arange(width + 1.0)
        fraction = count / sizes[:, None]
        if self.kind == "normal":
            log_f = np.stack([fraction**2, (self.mu - fraction) ** 2]) / (-2.0 * self.sigma**2)
        elif self.kind == "free":
            log_f = np.stack([self.basis(sizes, width) @ v for v in values.reshape(2, self.n_knots)])
        else:
            rate, leak = (1.0, 0.0) if self.kind == "at-least-one" else (self.rate, self.leak)
            both = np.stack([noisy_or(rate, leak, t=t).log_table(width) for t in (0, 1)])
            log_f = np.broadcast_to(both[:, None, :], (2, len(sizes), width + 1))
        return np.where(count <= sizes[:, None], log_f, -math.inf)

    def basis(self, sizes: Ints, width: int) -> Float64:
        """Weights of linear interpolation between the knots at the fractions c / n, (B, width + 1, n_knots)."""
        place = np.minimum(np.arange(width + 1.0) / sizes[:, None], 1.0) * (self.n_knots - 1)
        return np.maximum(0.0, 1.0 - np.abs(place[:, :, None] - np.arange(self.n_knots)))


def start_values(potential: BagPotential) -> Float64:
    """Where learned tables start: active instances speak for the positive label."""
    if potential.kind != "free":
        return np.zeros(0)
    knots = np.linspace(0.0, 1.0, potential.n_knots)
    return np.concatenate([-2.0 * knots, -2.0 * (1.0 - knots)])
