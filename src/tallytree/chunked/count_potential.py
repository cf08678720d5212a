"""The potential of a model over many variables: evaluated on windows, and never as a table of all counts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..arrays import Float64, Ints
from ..engine import masks
from ..errors import InfeasibleError, ParameterError
from ..memo import cached
from ..potentials import Potential, as_potential, uniform
from ..potentials.base import Product
from ..potentials.constraints import AtLeast, AtMost, Interval, Modulo, Parity
from ..potentials.envelope import Envelope
from ..potentials.exponentials import ExponentialMixture, Geometric, NoisyAnd, NoisyOr, SpikeAndSlab, Uniform

_BLOCK = 1 << 20  # counts looked at at a time
_SHORT = (NoisyOr, NoisyAnd, Geometric, SpikeAndSlab, ExponentialMixture, Parity, Modulo, AtLeast, AtMost)


class CountPotential:
    """A potential on the count of ``n`` variables.

    Numbers below ``-MASK`` are -inf, as in every model; see :mod:`~tallytree.engine.masks`.
    """

    def __init__(self, given: Any, n: int) -> None:
        potential = uniform() if given is None else as_potential(given)
        if potential.batch_shape:
            raise ParameterError(
                f"`potential` must be a single potential; a batch of shape {potential.batch_shape} arrived. "
                "Make one model for each."
            )
        potential._require(n)
        self.potential: Potential = potential
        self.n = n

    def __str__(self) -> str:
        return repr(self.potential)

    @property
    def is_interval(self) -> bool:
        """Whether log f is zero on an interval and -inf elsewhere."""
        return isinstance(self.potential, (Interval, Uniform))

    @property
    def is_uniform(self) -> bool:
        return isinstance(self.potential, Uniform)

    def window(self, first: int, last: int) -> Float64:
        """Log f(first), ..., log f(last)."""
        log_f = np.asarray(self.potential._log_window(self.n, first, last), np.float64)
        return log_f if self.is_interval else np.where(log_f < -masks.MASK, -math.inf, log_f)

    def at(self, k: int) -> float:
        """Log f(k)."""
        return float(self.window(k, k)[0])

    def blocks(self, first: int, last: int) -> Iterator[tuple[Ints, Float64]]:
        """Counts from `first` to `last` and their log f, a stretch of them at a time."""
        for start in range(first, last + 1, _BLOCK):
            stop = min(last, start + _BLOCK - 1)
            yield np.arange(start, stop + 1), self.window(start, stop)

    def mixture(self) -> Any:
        """The potential as a short sum of powers, if it is one; see :meth:`~tallytree.Potential.mixture`."""
        return self.potential.mixture(self.n) if isinstance(self.potential, _SHORT) else None

    def largest(self, first: int, last: int, slope: float) -> float:
        """The largest ``log f(k) - slope (k - first)`` for ``first <= k <= last``, -inf if none is possible."""
        return self._bends.largest(first, last, slope)

    @cached
    def _bends(self) -> Envelope:
        return Envelope(self.potential, self.n, self.window)

    def support_within(self, least: int, most: int) -> tuple[int, int]:
        """First and last possible count between `least` and `most`; the first exceeds the last if there is none."""
        try:
            low, high = self._support()
        except InfeasibleError:
            return 1, 0
        low, high = max(low, least), min(high, most)
        return self._first(low, high, 1), self._first(low, high, -1)

    def _support(self) -> tuple[int, int]:
        """An interval that holds every possible count."""
        if isinstance(self.potential, Product):
            parts = [CountPotential(factor, self.n)._support() for factor in self.potential.factors]
            return max(low for low, _ in parts), min(high for _, high in parts)
        if type(self.potential)._support is Potential._support:
            return 0, self.n  # a table or a function: it has to be looked at
        low, high = self.potential.support(self.n)
        return int(low), int(high)

    def _first(self, low: int, high: int, step: int) -> int:
        """The first possible count from `low` up, or from `high` down; `low - 1` or `high + 1` on the other side."""
        blocks = range(low, high + 1, _BLOCK)
        for first in blocks if step > 0 else reversed(blocks):
            possible = np.flatnonzero(self.window(first, min(high, first + _BLOCK - 1)) > -math.inf)
            if len(possible):
                return first + int(possible[0 if step > 0 else -1])
        return max(low, high + 1) if step > 0 else min(high, low - 1)
