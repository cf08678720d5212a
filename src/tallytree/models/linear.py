"""`LinearModel`: binary variables with a function of a real-valued linear combination of them, on a grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from .. import checks, display
from ..arrays import Float64, Ints, Size, States
from ..checks import configurations
from ..checks.sums import read_only
from ..engine.count.moments import weight_of_logits
from ..engine.log_sums import log_sum, softplus
from ..engine.pmf.weighted import GridWalk, Lattice, inclusion_evidence, to_lattice, weighted_log_pmf
from ..errors import InfeasibleError, ParameterError
from ..memo import cached
from .base import ArgumentModel, place_in_batch, rows_of

_LARGEST = 1 << 24  # points of the grid


class LinearModel(ArgumentModel):
    """Binary variables with a function of a linear combination of them, whose real weights are rounded to a grid.

    ``p(y) = exp(logits . y) f(weights . y) / Z``: the potentials of Potetz and Lee (2008). Where all weights are equal
    it is a count, and :class:`~tallytree.CountModel` answers in near-linear time without a grid.

    Parameters
    ----------
    logits : array_like, (..., D)
        Log-odds.
    weights : array_like, (D,)
        Real weights w.
    log_f : callable or array_like
        ``log f`` as a function of an array of values of ``w . y``; or its values (..., M) at ``values``.
    step : float
        Distance of two points of the grid. Every weight is replaced by the nearest multiple of it.

    Attributes
    ----------
    values : (M,) array
        The grid.
    grid_error : float
        How far the linear combination may be from its value on the grid.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape or value; the message says what was required.
    InfeasibleError
        When an answer is asked of a model that allows no configuration.

    See Also
    --------
    tallytree.CountModel
    tallytree.PoissonBinomial

    Notes
    -----
    Cost: O(D M) for M points of the grid.

    Accuracy: exact for the rounded weights, ``posterior_logits`` to 1e-9 absolute or 1e-10 relative.

    References
    ----------
    Potetz and Lee, "Efficient belief propagation for higher-order cliques using linear constraint nodes", 2008.

    Examples
    --------
    >>> model = LinearModel(np.zeros(3), [0.5, 1.0, -1.5], lambda x: -((x - 1.0) ** 2), step=0.25)
    >>> model.values
    array([-1.5 , -1.25, -1.  , -0.75, -0.5 , -0.25,  0.  ,  0.25,  0.5 ,
            0.75,  1.  ,  1.25,  1.5 ])
    >>> model.marginals.round(4)
    array([0.5685, 0.6587, 0.1443])
    >>> float(model.log_partition.round(6))
    1.22935
    """

    def __init__(
        self,
        logits: ArrayLike,
        weights: ArrayLike,
        log_f: Callable[[Float64], ArrayLike] | ArrayLike,
        *,
        step: float,
    ) -> None:
        nu, self._dtype = checks.logits(logits)
        self.step = checks.real("step", step, 0.0, strict=True)
        self.logits: Float64 = np.array(nu, np.float64)
        self.weights = _weights(weights, nu.shape[-1])
        self._units = _units(self.weights, self.step)
        reach = int(np.abs(self._units).sum())
        low = int(self._units[self._units < 0].sum())
        self.values: Float64 = self.step * np.arange(low, low + reach + 1, dtype=np.float64)
        self.log_f = _log_f(log_f, self.values)
        checks.broadcast(nu.shape[:-1], [("`log_f`", self.log_f.shape[:-1])])
        read_only(self.logits, self.weights, self.values, self.log_f)

    @cached
    def batch_shape(self) -> tuple[int, ...]:
        """Leading axes of every answer."""
        return np.broadcast_shapes(self.logits.shape[:-1], self.log_f.shape[:-1])

    @property
    def grid_error(self) -> float:
        """How far the linear combination may be from its value on the grid.

        See Also
        --------
        sum_log_probs

        Examples
        --------
        >>> model = tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: np.where(s >= 2, 0.0, -np.inf), step=1.0)
        >>> model.grid_error
        0.0
        """
        off = self.weights - self.step * self._units
        return float(max(off[off > 0].sum(), -off[off < 0].sum()))

    # -- answers -----------------------------------------------------------------------------------------------

    @property
    def log_partition(self) -> Any:
        """Log Z, (...,); infinite logits weigh 1.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        log_prob

        Examples
        --------
        >>> model = tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: np.where(s >= 2, 0.0, -np.inf), step=1.0)
        >>> np.exp(model.log_partition).round(6)
        np.float64(2.0)
        """
        return (self._constant + self._log_mean).reshape(self.batch_shape)[()]

    @cached
    def entropy(self) -> Any:
        """Entropy in nats, (...,).

        ``log Z - sum_d logits_d P(y_d = 1) - E[log f]``, every term from exact sums.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        log_partition, log_prob

        Examples
        --------
        >>> model = tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: np.where(s >= 2, 0.0, -np.inf), step=1.0)
        >>> round(float(model.entropy), 4)  # log(2)
        0.6931
        """
        score = np.where(np.isfinite(self._nu), self._nu, 0.0) * expit(self._odds)
        law, (_, log_f) = self._law, self._lattice
        inside = law > -math.inf
        table = np.where(inside, np.exp(law) * np.where(inside, log_f, 0.0), 0.0).sum(-1)
        out = (self._constant + self._log_mean - score.sum(-1) - table).reshape(self.batch_shape)
        out.flags.writeable = False
        return out[()]

    @cached
    def _odds(self) -> Float64:
        """(B, D)."""
        lattice, log_f = self._lattice
        self._log_mean  # noqa: B018 - raises for an impossible model
        out = np.array(self._nu)
        counted = self._units != 0
        if counted.any():
            evidence = inclusion_evidence(lattice.nu, lattice.weights, log_f)
            flipped = np.where(np.isinf(lattice.nu), lattice.nu, lattice.nu + evidence)
            out[:, counted] = np.where(self._units[counted] < 0, -flipped, flipped)
        return out

    @cached
    def sum_log_probs(self) -> Float64:
        """Log-probabilities of the values of the grid, (..., M).

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        marginals, log_prob

        Examples
        --------
        >>> model = tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: np.where(s >= 2, 0.0, -np.inf), step=1.0)
        >>> np.exp(model.sum_log_probs).round(6)
        array([0. , 0. , 0.5, 0.5])
        """
        return self._on_grid(self._law)

    @property
    def _prior_log_probs(self) -> Float64:
        """The same without f."""
        return self._on_grid(self._log_prior)

    def _on_grid(self, rows: Float64) -> Float64:
        out = np.full((len(self._nu), len(self.values)), -math.inf)
        out[:, :: self._lattice[0].step] = rows
        return self._vector(out)

    def sample(self, size: Size = None, rng: Any = None) -> States:
        """Exact joint samples, ``(*size, ..., D)`` of 0 and 1.

        Parameters
        ----------
        size : int or tuple of int, optional
            How many; default one, without an axis.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Generator or seed.

        Returns
        -------
        ndarray of uint8, (size..., ..., D)
            Zeros and ones.

        Raises
        ------
        ParameterError
            If ``size`` or ``rng`` cannot be used.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        mode, marginals

        Notes
        -----
        Cost: O(D M) for the tables of all partial sums, made twice, and O(D) per sample.

        Examples
        --------
        >>> model = tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: np.where(s == 2, 0.0, -np.inf), step=1.0)
        >>> model.sample(3, rng=0)
        array([[0, 1],
               [0, 1],
               [0, 1]], dtype=uint8)
        """
        shape, generator = checks.shape("size", size), checks.generator(rng)
        self._log_mean  # noqa: B018 - raises for an impossible model
        count = math.prod(shape)
        lattice, log_f = self._lattice
        drawn = GridWalk(lattice.nu, lattice.weights, log_f, maxima=False).draw(count, generator)
        states = (generator.random((count, *self._nu.shape)) < expit(self._nu)).astype(np.uint8)
        return self._counted(states, drawn).reshape(*shape, *self.batch_shape, self.n_variables)

    def mode(self) -> States:
        """A most probable configuration, (..., D) of 0 and 1.

        Returns
        -------
        ndarray of uint8, (..., D)
            Zeros and ones.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        sample, log_prob

        Notes
        -----
        Cost: O(D M), (max, +) over the grid.

        Examples
        --------
        >>> tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: -((s - 2.0) ** 2), step=1.0).mode()
        array([0, 1], dtype=uint8)
        """
        self._log_mean  # noqa: B018 - raises for an impossible model
        lattice, log_f = self._lattice
        found = GridWalk(lattice.nu, lattice.weights, log_f, maxima=True).best()
        return self._counted((self._nu > 0).astype(np.uint8), found).reshape(
            *self.batch_shape, self.n_variables
        )

    def log_prob(self, y: ArrayLike) -> Any:
        """Log-probability of configurations (..., D) of 0 and 1.

        Parameters
        ----------
        y : (..., D) array
            Configurations.

        Returns
        -------
        float or ndarray, (...)
            Logarithms; ``-inf`` for impossible configurations.

        Raises
        ------
        ParameterError
            If ``y`` does not consist of 0 and 1 with D of them on the last axis.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        log_partition, sum_log_probs

        Examples
        --------
        >>> tt.LinearModel(np.zeros(2), [1.0, 2.0], lambda s: np.where(s >= 2, 0.0, -np.inf), step=1.0).log_prob([0, 1])
        np.float64(-0.6931471805599453)
        """
        states = configurations.states(y, self.n_variables, self.batch_shape)
        at = states @ self._units - int(self._units[self._units < 0].sum())
        shape = np.broadcast_shapes(states.shape[:-1], self.batch_shape)
        table = np.broadcast_to(self.log_f, (*shape, len(self.values)))
        value = np.take_along_axis(table, np.broadcast_to(at, shape)[..., None], -1)[..., 0]
        return (weight_of_logits(self.logits, states) + value - self.log_partition)[()]

    # -- how it is done ----------------------------------------------------------------------------------------

    def _arguments(self) -> dict[str, Any]:
        logits = self.logits.astype(self._dtype, copy=False)
        return {
            "logits": logits, "weights": self.weights, "log_f": self.log_f, "step": self.step,
        }  # fmt: skip

    def _counted(self, states: States, found: States) -> States:
        """States (..., D) with those of the lattice put in: complements where a weight is negative."""
        counted = self._units != 0
        states[..., counted] = found ^ (self._units[counted] < 0)
        return states

    @cached
    def _law(self) -> Float64:
        """Log-probabilities of the sums on the lattice, (B, W + 1)."""
        return self._log_prior + self._lattice[1] - self._log_mean[:, None]

    @cached
    def _nu(self) -> Float64:
        return rows_of(self.logits, self.batch_shape)

    @property
    def _constant(self) -> Float64:
        """Log Z without f, (B,); infinite logits weigh 1."""
        return np.asarray(softplus(np.where(np.isfinite(self._nu), self._nu, -math.inf)).sum(-1))

    @cached
    def _lattice(self) -> tuple[Lattice, Float64]:
        """Positive coprime weights, and log f at the sums that they reach, (B, W + 1)."""
        lattice = to_lattice(self._nu, self._units)
        return lattice, rows_of(self.log_f, self.batch_shape)[:, :: lattice.step]

    @cached
    def _log_prior(self) -> Float64:
        """Log-probabilities of the sums without f, (B, W + 1)."""
        lattice, _ = self._lattice
        if not len(lattice.weights):
            return np.zeros((len(lattice.nu), 1))
        return weighted_log_pmf(lattice.nu, lattice.weights)

    @cached
    def _log_mean(self) -> Float64:
        """Log E[f], (B,)."""
        found = log_sum(self._log_prior + self._lattice[1])
        dead = np.flatnonzero(np.isneginf(found))
        if len(dead):
            raise InfeasibleError(
                f"The model{place_in_batch(dead[0], self.batch_shape)} gives probability zero to every configuration: "
                "no value that `log_f` allows can be reached. Relax it, or an infinite logit."
            )
        return found

    def __repr__(self) -> str:
        batch = f", batch_shape={self.batch_shape}" if self.batch_shape else ""
        return f"LinearModel(n_variables={self.n_variables}, grid={len(self.values)}{batch})"

    def _repr_html_(self) -> str:
        return display.linear_page(self)


def _weights(weights: ArrayLike, n: int) -> Float64:
    return checks.array("weights", weights, (n,), checks.REALS, hint=" Give one per variable.", copy=True)


def _units(weights: Float64, step: float) -> Ints:
    """Weights in steps of the grid, which must be small enough."""
    with np.errstate(over="ignore"):
        units = np.rint(weights / step)
        reach = float(np.abs(units).sum())  # infinite before it is an integer that overflows
    if reach >= _LARGEST:
        raise ParameterError(
            f"`step` must leave a grid of less than {_LARGEST} points; {step:g} makes {reach + 1:.0f}. Take a "
            "larger one."
        )
    return units.astype(np.int64)


def _log_f(log_f: Any, values: Float64) -> Float64:
    given = log_f(values) if callable(log_f) else log_f
    hint = " A function gets the array `values`."
    return checks.array("log_f", given, (..., len(values)), checks.LOGS, hint=hint, copy=True)
