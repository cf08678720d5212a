"""What a model answers when samples are asked for: the part of `CountModel` that draws."""

from __future__ import annotations

import math
from typing import Any, Literal, overload

import numpy as np

from .. import checks
from ..arrays import States
from ..memo import cached
from .binary import BinaryModel
from .results import SparseSamples

Size = int | tuple[int, ...] | None


class Sampling(BinaryModel):
    """Exact joint samples; a base class of :class:`~tallytree.CountModel`, not used on its own."""

    @overload
    def sample(self, size: Size = None, rng: Any = None, *, sparse: Literal[False] = False) -> States: ...
    @overload
    def sample(self, size: Size = None, rng: Any = None, *, sparse: Literal[True]) -> SparseSamples: ...
    def sample(self, size: Size = None, rng: Any = None, *, sparse: bool = False) -> States | SparseSamples:
        """Independent exact draws from the model.

        Counts are drawn from the root down, ``P(z_l = i | z_p) = up_l(i) up_r(z_p - i) / (up_l * up_r)(z_p)``, then
        the variables of small blocks one after the other given how many are still to come (Tarlow et al., 2012,
        section 5.3).

        Parameters
        ----------
        size : int, tuple of int or None
            Number of samples of every model; None draws one, without an axis for it.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Generator or seed. A generator moves on by 128 bits, whatever the number of samples.
        sparse : bool
            Return the variables that are on instead of an array of zeros and ones.

        Returns
        -------
        array of uint8, (size..., batch..., D), or SparseSamples
            Axes of ``size`` lead, as in :mod:`scipy.stats` and :mod:`torch.distributions`: ``sample(5)[i]`` is one draw
            from every model of the batch.

        Raises
        ------
        ParameterError
            If ``size``, ``rng`` or ``sparse`` cannot be used.
        InfeasibleError
            If a model gives probability zero to every configuration.

        See Also
        --------
        mode, log_prob, SparseSamples

        Notes
        -----
        Cost: once per model an upward pass, near-linear for one potential and O(D^2) at most for arbitrary tables in
        nested groups; then O(D) per sample. Many samples at once are much cheaper than one at a time. A few samples of
        every model of a batch of small models, or of one potential over many variables, cost about as many inferences.
        ``sparse`` never holds more than about 128 MB of dense samples.

        Accuracy: messages have relative accuracy in every entry that can be drawn, so the law is exact up to rounding:
        every decision has its probability to about 1e-13 (relative to table entries of size 1e5, 1e-10), and the total
        of a large group to 1e-12. States of probability zero are never drawn. The same seed gives the same samples
        whatever the number of threads; the compiled and the array engine use different streams.

        Examples
        --------
        >>> model = tt.CountModel([0.5, -1.0, 2.0, 0.0], tt.exactly(2))
        >>> y = model.sample(1000, rng=1)
        >>> y.shape, y.dtype
        ((1000, 4), dtype('uint8'))
        >>> bool(np.all(y.sum(-1) == 2))
        True
        """
        lead = checks.shape("size", size)
        generator = checks.generator(rng)
        sparse = checks.flag("sparse", sparse)
        solver = self._solved if self._forest is not None else self._drawable
        shape = (*lead, *self._params.batch_shape, self._tree.n_variables)
        if sparse:
            indices, indptr = solver.draw_active(math.prod(lead), generator)
            return SparseSamples(indices, indptr, shape)
        drawn: States = solver.draw(math.prod(lead), generator)
        return drawn.reshape(shape)

    @cached
    def _drawable(self) -> Any:
        """The solver of a possible model; that it is possible is seen on the way up, without the way down."""
        solver = self._solver
        # With the constant of the model, which is -inf where a group of one variable excludes both values.
        self._check_weights(np.where(solver.sampler.impossible, -math.inf, 0.0))
        return solver
