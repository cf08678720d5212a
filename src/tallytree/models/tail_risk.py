"""What people ask of losses: value at risk, expected shortfall, who contributes to it, and bounds of all this."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks
from ..arrays import Float64, Ints
from ..checks.sums import real_array
from ..engine.law import LOG_HALF, log_sides
from ..engine.log_sums import log_sum
from ..engine.pmf.events import Weight, floor_to_grid, rounded_outwards
from ..errors import ParameterError
from ..memo import cached
from .frozen_distribution import FrozenDistribution, LawOf

_AT_POINTS = ("cdf", "sf", "logcdf", "logsf")
_MEANS = ("mean", "expected_shortfall")
BRACKETED = (*_AT_POINTS, "ppf", "isf", "median", "value_at_risk", *_MEANS)


class TailRisk(FrozenDistribution):
    """The base of sums of events, also given something, of their mixtures and of the sum of a `LinearModel`."""

    def _contributions(self, cells: Ints, log_edge: Float64) -> Float64:
        """E[value of event i | f] (B, n), f being 1 above the cells (B,) and ``exp(log_edge)`` at them."""
        return self._tail_shares(cells, log_edge)[1]

    def _tail_shares(self, cells: Ints, log_edge: Float64, *, shares: bool = True) -> tuple[Float64, Float64]:
        """Log E[f] (B,) and E[value of event i | f] (B, n), for this f; without `shares` the second is empty."""
        raise NotImplementedError

    def value_at_risk(self, q: ArrayLike) -> Any:
        """The loss that is exceeded with probability at most ``1 - q``: another name of ``ppf``.

        Parameters
        ----------
        q : array_like
            Levels, such as 0.999.

        Returns
        -------
        number or ndarray
            Values, of the shape of ``q`` and the batch broadcast together.

        Raises
        ------
        ParameterError
            If ``q`` is not between 0 and 1.

        See Also
        --------
        ppf, expected_shortfall

        Examples
        --------
        >>> tt.PoissonBinomial([0.1, 0.05, 0.2], weights=[2.5, 10.0, 1.0], step=0.5).value_at_risk(0.9)
        np.float64(2.5)
        """
        return self.ppf(q)

    def expected_shortfall(self, q: ArrayLike) -> Any:
        """The mean loss in the worst ``1 - q`` of all cases.

        The mean of ``ppf(u)`` over u from q to 1. If the loss equals the value at risk with a positive probability,
        only as much of this probability counts as makes the worst cases have probability ``1 - q`` exactly.

        Parameters
        ----------
        q : array_like
            Levels in [0, 1), of the shape of the batch or one for all.

        Returns
        -------
        float or ndarray
            One number per member of the batch.

        Raises
        ------
        ParameterError
            If ``q`` is not in [0, 1), or has axes that the batch does not have.

        See Also
        --------
        contributions, value_at_risk

        Notes
        -----
        Real weights are put on a grid in a way that keeps the mean of every event and adds to its spread, so the
        shortfall is never too small. For both bounds see :meth:`~tallytree.PoissonBinomial.bracket`.

        Examples
        --------
        >>> x = tt.PoissonBinomial([0.1, 0.05, 0.2], weights=[2.5, 10.0, 1.0], step=0.5)
        >>> x.expected_shortfall(0.95).round(4), x.contributions(0.95).round(4)
        (np.float64(10.45), array([ 0.25, 10.  ,  0.2 ]))
        """
        return self.contributions(q).sum(axis=-1)[()]

    def contributions(self, q: ArrayLike) -> Any:
        """The share of every event in the expected shortfall: ``E[w_i y_i]`` in the worst ``1 - q`` of all cases.

        Parameters
        ----------
        q : array_like
            Levels in [0, 1), of the shape of the batch or one for all.

        Returns
        -------
        ndarray, (..., n)
            They add up to ``expected_shortfall(q)``.

        Raises
        ------
        ParameterError
            If ``q`` is not in [0, 1), or has axes that the batch does not have.

        See Also
        --------
        expected_shortfall, value_at_risk

        Notes
        -----
        Cost: one pass up and one pass down the tree of sums, whatever the number of events.

        Examples
        --------
        >>> tt.PoissonBinomial([0.5, 0.5], weights=[1, 3]).contributions(0.5)
        array([0.5, 3. ])
        """
        level = checks.array("q", q, (...,), checks.PROBABILITIES)
        if np.any(level >= 1.0):
            raise ParameterError(
                f"`q` must be below 1: no case is worse than the worst; {q!r} arrived. `support()` has the "
                "largest value."
            )
        checks.broadcast(self.batch_shape, [("`q`", level.shape)], grow=False)
        level = np.broadcast_to(level, self.batch_shape)
        value = np.asarray(self.ppf(np.maximum(level, 1e-300)))
        above, at = np.asarray(self.sf(value)), np.asarray(self.pmf(value))
        with np.errstate(divide="ignore", invalid="ignore"):
            edge = np.log(np.clip(((1.0 - level) - above) / at, 0.0, 1.0))
        cells = np.rint(self._lattice.place(value.astype(np.float64))).astype(np.int64)
        found = self._contributions(cells.reshape(-1), edge.reshape(-1))
        return found.reshape(*self.batch_shape, found.shape[-1])


class BoundedRisk(TailRisk):
    """The base of those whose answers have bounds for the real weights."""

    @property
    def _rounded(self) -> tuple[Any, Any]:
        """The sums with all weights rounded down and up."""
        raise NotImplementedError

    @property
    def _slack(self) -> tuple[Fraction, Fraction]:
        """How far the sum may be below and above those, by weights that are on a cell up to rounding."""
        raise NotImplementedError

    def bracket(self, question: str, *arguments: Any) -> tuple[Any, Any]:
        """Bounds of an answer with the weights as given, before they were put on the grid.

        The question is asked of the sums with all weights rounded down and with all rounded up. Always
        ``X_down <= X <= X_up``, so the two answers enclose the true one.

        Parameters
        ----------
        question : str
            Name of the method: cdf, sf, logcdf, logsf, ppf, isf, median, mean, value_at_risk or expected_shortfall.
        *arguments
            Arguments of that method.

        Returns
        -------
        low : float or ndarray
            Lower bound.
        high : float or ndarray
            Upper bound; equal to the lower one for integer weights.

        Raises
        ------
        ParameterError
            If ``question`` is none of these.

        See Also
        --------
        value_at_risk, expected_shortfall

        Notes
        -----
        Cost: that of asking twice. Accuracy: the bounds hold up to 1e-10 of a probability; a quantile level that is
        reached up to 1e-10 counts as reached. Weights, step and points are compared as the decimals that they print
        as: 0.3 is exactly three steps of 0.1. A weight within 1e-9 of a grid point is moved onto it, which the bounds
        allow for.

        Examples
        --------
        >>> x = tt.PoissonBinomial([0.1, 0.2, 0.3], weights=[1.03, 2.51, 0.77], step=0.1)
        >>> low, high = x.bracket("sf", 1.8)
        >>> float(low.round(3)), float(x.sf(1.8).round(3)), float(high.round(3))
        (0.2, 0.205, 0.224)
        """
        checks.one_of("question", question, BRACKETED)
        step, ends = self._lattice.step, []
        for end, slack, outwards in zip(self._rounded, self._slack, (-1, 1)):
            ask = getattr(end, question)
            if step is None:
                ends.append(np.asarray(ask(*arguments)))
            elif question in _AT_POINTS and arguments:
                x, *rest = arguments
                x = floor_to_grid(real_array("x", x, least_axes=0), -outwards * slack, step)
                ends.append(np.asarray(ask(x, *rest)))
            else:
                found = np.array(ask(*arguments), np.float64)
                grid = None if question in _MEANS else step
                for at in np.ndindex(found.shape):
                    found[at] = rounded_outwards(float(found[at]), outwards * slack, outwards > 0, grid)
                ends.append(found)
        return np.minimum(*ends)[()], np.maximum(*ends)[()]


class BoundingLaw(LawOf, TailRisk):
    """A law that is known by its two tails and bounds another one from one side."""

    _of: TailRisk
    _log_tails: tuple[Float64, Float64]

    def __init__(self, of: TailRisk, log_cdf: Float64, log_sf: Float64) -> None:
        self.__dict__.update(_of=of, _log_tails=(log_cdf, log_sf))

    def _parts(self) -> tuple[Any, ...]:
        return self._of, *self._log_tails

    @cached
    def _log_table(self) -> Float64:
        """Steps of the tail that is below 1/2."""
        below, above = self._log_tails
        before = np.pad(below, ((0, 0), (1, 0)), constant_values=-np.inf)[:, :-1]
        left = np.pad(above, ((0, 0), (1, 0)), constant_values=0.0)[:, :-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            rise, fall = below + np.log1p(-np.exp(before - below)), left + np.log1p(-np.exp(above - left))
        return np.nan_to_num(np.where(below < LOG_HALF, rise, fall), nan=-np.inf, neginf=-np.inf)

    def _contributions(self, cells: Ints, log_edge: Float64) -> Float64:
        """The mean of the sum itself, (B, 1)."""
        size = self._lattice.size
        tail = Weight(cells, np.full(len(cells), size), log_edge).at(np.zeros_like(cells), size)
        log_p = self._log_table + tail
        return np.asarray(np.exp(log_p - log_sum(log_p, keepdims=True)) @ self.values[:, None])


def bounding_laws(of: TailRisk, least: Float64, most: Float64) -> tuple[BoundingLaw, BoundingLaw]:
    """Laws below and above all laws whose weights, up to a factor, have logarithms between `least` and `most` (B, m).

    ``P(X > v) = A / (A + B)`` with A the weight above v and B that up to v: smallest for the least A and the largest B.
    """
    (below_least, above_least), (below_most, above_most) = (log_sides(x) for x in (least, most))
    found = []
    for below, above, nowhere in ((below_most, above_least, 0.0), (below_least, above_most, -np.inf)):
        both = np.logaddexp(below, above)
        with np.errstate(invalid="ignore"):
            log_sf = np.where(both == -np.inf, nowhere, above - both)
            log_cdf = np.where(both == -np.inf, -np.inf if nowhere == 0.0 else 0.0, below - both)
        rising = np.maximum.accumulate(log_cdf, axis=1)  # rounding must not break the order
        falling = np.maximum.accumulate(log_sf[:, ::-1], axis=1)[:, ::-1]
        found.append(BoundingLaw(of, rising, falling))
    return found[0], found[1]
