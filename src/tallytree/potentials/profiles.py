"""Smooth preferences on counts: gaussian, poisson, quadratic, and the all-or-none potentials of vision."""

from __future__ import annotations

import itertools
import math
from typing import Any, ClassVar

import numpy.typing as npt

from tallytree.checks import NON_NEGATIVE, POSITIVE, REALS, Entries
from tallytree.potentials.base import Potential
from tallytree.potentials.envelope import Convexity, Stretch
from tallytree.potentials.expansions import Expansion, expansion
from tallytree.potentials.named import Named, factory

Numbers = float | npt.ArrayLike


@factory(mean=REALS, sd=POSITIVE, fraction=None)
def gaussian(mean: Numbers, sd: Numbers, *, fraction: bool = False) -> Potential:
    """Bell curve on the count, or on the fraction of active variables.

    ``log f(c) = -(c - mean)**2 / (2 sd**2)``, with ``c / n`` in place of ``c`` if ``fraction``.

    With ``fraction=True`` it is the "Normal" potential of Tarlow et al. (UAI 2012, section 6.3), where the square is
    missing in the printed formula.

    Parameters
    ----------
    mean : float or array of floats
        Preferred count (or fraction).
    sd : float or array of floats
        Width in counts (or as a fraction), above 0.
    fraction : bool
        Measure ``mean`` and ``sd`` in fractions of the group. An empty group has fraction 0.

    Returns
    -------
    Potential
        To be passed to :class:`~tallytree.CountModel` or in a :class:`~tallytree.Group`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.poisson
    tallytree.quadratic
    tallytree.CountModel

    Notes
    -----
    Cost: O(n) for the table.
    Accuracy: relative 1e-13 in ``log f`` for a mean of moderate size.

    Examples
    --------
    >>> tt.gaussian(1, 0.5).log_table(3)
    array([-2.,  0., -2., -8.])
    >>> tt.gaussian(0.5, 0.25, fraction=True).log_table(4)
    array([-2. , -0.5,  0. , -0.5, -2. ])
    """
    return Gaussian(mean, sd, fraction)


@factory(mean=NON_NEGATIVE)
def poisson(mean: Numbers) -> Potential:
    """Poisson probability of the count.

    ``f(c) = mean**c exp(-mean) / c!``, not renormalised to the counts ``0..n``.

    Parameters
    ----------
    mean : float or array of floats
        Expected count, at least 0 and finite.

    Returns
    -------
    Potential
        To be passed to :class:`~tallytree.CountModel` or in a :class:`~tallytree.Group`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.gaussian
    tallytree.geometric
    tallytree.CountModel

    Notes
    -----
    Cost: O(n) for the table.
    Accuracy: ``log f`` within ``1e-13 (1 + |log f|)`` also for large means, by Loader's saddle-point form;
    the textbook difference ``c log(mean) - lgamma(c + 1) - mean`` loses nine digits at a mean of a million.

    References
    ----------
    C. Loader, "Fast and accurate computation of binomial probabilities", 2000.

    Examples
    --------
    >>> tt.poisson(2.0).log_table(3).round(4)
    array([-2.    , -1.3069, -1.3069, -1.7123])
    """
    return Poisson(mean)


@factory(curvature=REALS, center=REALS)
def quadratic(curvature: Numbers, center: Numbers | None = None) -> Potential:
    """Parabola in the count: smoothness if convex, competition if concave.

    ``log f(c) = curvature / 2 * (c - center)**2``.

    Parameters
    ----------
    curvature : float or array of floats
        Positive (convex): variables like to be on together or off together. Negative (concave): they
        compete, and counts near ``center`` are preferred.
    center : float or array of floats, optional
        Lowest (or highest) point, in counts. Half the group, ``n / 2``, if not given.

    Returns
    -------
    Potential
        To be passed to :class:`~tallytree.CountModel` or in a :class:`~tallytree.Group`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.gaussian
    tallytree.all_or_none
    tallytree.CountModel

    Notes
    -----
    Cost: O(n) for the table.
    Accuracy: relative 1e-13 in ``log f`` for a center of moderate size.

    Examples
    --------
    >>> tt.quadratic(1.0).log_table(4)
    array([2. , 0.5, 0. , 0.5, 2. ])
    >>> tt.quadratic(-2.0, center=1).log_table(3)
    array([-1.,  0., -1., -4.])
    """
    return Quadratic(curvature, center)


@factory(strength=Entries("numbers of at least 0", 0.0, math.inf), truncation=POSITIVE)
def all_or_none(strength: Numbers, truncation: Numbers | None = None) -> Potential:
    """Preference for groups that agree: the P^n potential, and its robust form.

    P^n: ``log f(c) = 0`` if ``c`` is 0 or ``n``, else ``-strength``.
    Robust P^n: ``log f(c) = -strength * min(min(c, n - c) / truncation, 1)``.

    Parameters
    ----------
    strength : float or array of floats
        Largest penalty, at least 0. ``np.inf`` makes agreement compulsory.
    truncation : float or array of floats, optional
        Number of dissenting variables, above 0, at which the penalty of the robust form stops growing.

    Returns
    -------
    Potential
        To be passed to :class:`~tallytree.CountModel` or in a :class:`~tallytree.Group`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.quadratic
    tallytree.spike_and_slab
    tallytree.CountModel

    Notes
    -----
    Cost: O(n) for the table.
    Accuracy: relative 1e-13 in ``log f``.

    References
    ----------
    Kohli, Ladicky and Torr, "Robust higher order potentials for enforcing label consistency", IJCV 2009.

    Examples
    --------
    >>> tt.all_or_none(2.0).log_table(4)
    array([ 0., -2., -2., -2.,  0.])
    >>> tt.all_or_none(2.0, truncation=2).log_table(4)
    array([ 0., -1., -2., -1.,  0.])
    """
    return AllOrNone(strength, truncation)


class Gaussian(Named):
    """See :func:`gaussian`."""

    mean: Any
    sd: Any
    fraction: Any = False
    convexity: ClassVar[Convexity] = "concave"


class Poisson(Named):
    """See :func:`poisson`."""

    mean: Any
    convexity: ClassVar[Convexity] = "concave"

    def _support(self, n: int) -> tuple[int, int]:
        return 0, n if self.mean > 0.0 else 0

    def _expansion(self, n: int) -> Expansion | None:
        return expansion([1.0], [0.0]) if self.mean == 0.0 else None


class Quadratic(Named):
    """See :func:`quadratic`."""

    curvature: Any
    center: Any = None

    def _stretches(self, n: int) -> list[Stretch]:
        return [Stretch(0, n, "convex" if self.curvature > 0.0 else "concave")]


class AllOrNone(Named):
    """See :func:`all_or_none`."""

    strength: Any
    truncation: Any = None

    def _expansion(self, n: int) -> Expansion | None:
        return expansion([1.0], [1.0]) if self.strength == 0.0 or n <= 1 else None

    def _stretches(self, n: int) -> list[Stretch]:
        # Straight up to the count at which the penalty stops growing, and so is the mirror image.
        reach = 0 if self.truncation is None else int(min(self.truncation, 0.5 * n))
        cuts = [0, reach + 1, max(n - reach, reach + 1), n + 1]
        return [Stretch(first, end - 1, "straight") for first, end in itertools.pairwise(cuts)]
