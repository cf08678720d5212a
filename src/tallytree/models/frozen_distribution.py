"""What `scipy.stats` asks of a frozen discrete distribution, answered from a table of log-probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from tallytree import checks
from tallytree.arrays import Float64, Ints
from tallytree.checks import shape as axes
from tallytree.checks.sums import full_shape
from tallytree.display import sum_page

from .base import Value
from .frozen.moments import Moments
from .frozen.probabilities import Probabilities
from .frozen.quantiles import Quantiles

Size = int | tuple[int, ...] | None


class FrozenDistribution(Value, Probabilities, Quantiles, Moments):
    """Distributions of integers ``start + step * (0, 1, ..., m - 1)``, one per member of a batch.

    Methods have the names, arguments and meaning of a frozen `scipy.stats` distribution.
    """

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: make a new one instead of setting {name!r}.")

    def _repr_html_(self) -> str:
        return sum_page(self, self._n_values)

    # -- draws -------------------------------------------------------------------------------------------------

    def rvs(self, size: Size = None, random_state: Any = None) -> Any:
        """Draw values independently, as `scipy.stats` does.

        Parameters
        ----------
        size : int or tuple of int, optional
            Shape of the result; its last axes are the batch. One draw of every member if omitted.
        random_state : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Source of randomness or its seed. None takes fresh randomness and leaves NumPy's global state alone.

        Returns
        -------
        int or ndarray of int64
            Values, of the shape ``size``.

        Raises
        ------
        ParameterError
            If ``size`` does not end in the shape of the batch, or ``random_state`` is none of these.

        See Also
        --------
        sample

        Examples
        --------
        >>> tt.PoissonBinomial([0.0, 1.0, 1.0]).rvs(4, random_state=0)
        array([2, 2, 2, 2])
        """
        shape = full_shape(size, self.batch_shape)
        return self._draw(shape, checks.generator(random_state, "random_state").random)[()]

    def sample(self, size: Size = None, rng: Any = None) -> Any:
        """Draw values independently, as the models of this package do.

        Parameters
        ----------
        size : int or tuple of int, optional
            Leading shape of the draws; one draw if omitted.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Source of randomness, or its seed.

        Returns
        -------
        int or ndarray of int64, (size..., batch...)
            Values.

        Raises
        ------
        ParameterError
            If ``size`` or ``rng`` cannot be used.

        See Also
        --------
        rvs

        Notes
        -----
        Accuracy: exact up to the 53 bits of a uniform number.

        Examples
        --------
        >>> tt.PoissonBinomial([0.0, 1.0, 1.0]).sample(4, rng=0)
        array([2, 2, 2, 2])
        """
        shape = (*axes("size", size), *self.batch_shape)
        return self._draw(shape, checks.generator(rng).random)[()]

    def _draw(self, shape: tuple[int, ...], uniform: Callable[..., Float64]) -> Ints:
        u = uniform(shape)
        # each half of u uses the accurate side of the distribution; u = 0 stands for its cell of width 2^-53
        upper = u >= 0.5
        low = self.ppf(np.where(upper, 0.5, u + 2.0**-54))
        return np.asarray(np.where(upper, self.isf(np.where(upper, 1.0 - u, 0.5)), low))
