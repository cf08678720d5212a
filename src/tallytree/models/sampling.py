"""What a model answers when samples are asked for: the part of `CountModel` that draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from .. import checks
from ..arrays import Ints, States
from ..engine.auto import Problem
from ..engine.sample.sampler import Sampler
from ..errors import ParameterError
from .base import ModelCore

Size = int | tuple[int, ...] | None


@dataclass(frozen=True, eq=False)
class SparseSamples:
    """Samples as the variables that are on, row after row.

    Attributes
    ----------
    indices : (total,) int64
        Variables that are on, increasing in every sample.
    indptr : (rows + 1,) int64
        Sample i is ``indices[indptr[i]:indptr[i + 1]]``; samples are counted in C order over the leading axes.
    shape : tuple of int
        Shape of the dense samples, (size..., batch..., D).

    Examples
    --------
    >>> model = tt.CountModel([np.inf, -np.inf, np.inf], tt.exactly(2))
    >>> drawn = model.sample(2, rng=0, sparse=True)
    >>> drawn.indices, drawn.indptr
    (array([0, 2, 0, 2]), array([0, 2, 4]))
    """

    indices: Ints
    indptr: Ints
    shape: tuple[int, ...]

    @classmethod
    def from_dense(cls, samples: States) -> SparseSamples:
        """The same samples from an array of 0 and 1, (size..., batch..., D)."""
        rows = samples.reshape(math.prod(samples.shape[:-1]), samples.shape[-1])
        counts = rows.sum(-1, dtype=np.int64)
        indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        return cls(np.nonzero(rows)[1].astype(np.int64), indptr, samples.shape)

    def to_scipy(self) -> Any:
        """The samples as a :class:`scipy.sparse.csr_array` of uint8, one row per sample."""
        from scipy.sparse import csr_array  # needed only here

        ones = np.ones(len(self.indices), np.uint8)
        return csr_array((ones, self.indices, self.indptr), shape=(len(self.indptr) - 1, self.shape[-1]))

    def to_dense(self) -> States:
        """The samples as an array of 0 and 1, (size..., batch..., D)."""
        out = np.zeros((len(self.indptr) - 1, self.shape[-1]), np.uint8)
        out[np.repeat(np.arange(len(out)), np.diff(self.indptr)), self.indices] = 1
        return out.reshape(self.shape)


class Sampling(ModelCore):
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
        rng : numpy.random.Generator, int or None
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
        InfeasibleError
            If a model gives probability zero to every configuration.

        Notes
        -----
        Cost: once per model an upward pass, near-linear for one potential and O(D^2) at most for arbitrary tables in
        nested groups; then O(D) per sample. Many samples at once are much cheaper than one at a time. ``sparse`` never
        holds more than about 128 MB of dense samples.

        Accuracy: messages have relative accuracy in every entry that can be drawn, so the law is exact up to rounding:
        every decision has its probability to about 1e-13 (relative to table entries of size 1e5, 1e-10). States of
        probability zero are never drawn. The same seed gives the same samples whatever the number of threads; the
        compiled and the array engine use different streams.

        Examples
        --------
        >>> model = tt.CountModel([0.5, -1.0, 2.0, 0.0], tt.exactly(2))
        >>> y = model.sample(1000, rng=1)
        >>> y.shape, y.dtype
        ((1000, 4), dtype('uint8'))
        >>> bool(np.all(y.sum(-1) == 2))
        True
        """
        lead = shape_of_size(size)
        generator = checks.generator(rng)
        if not isinstance(sparse, (bool, np.bool_)):
            raise ParameterError(f"`sparse` must be True or False; {checks.describe(sparse)} arrived.")
        sampler = self._cached("sampler", self._sampler)
        shape = (*lead, *self._params.batch_shape, self._tree.n_variables)
        if sparse:
            indices, indptr = sampler.draw_active(math.prod(lead), generator)
            return SparseSamples(indices, indptr, shape)
        return sampler.draw(math.prod(lead), generator).reshape(shape)

    def _sampler(self) -> Sampler:
        params = self._params
        found = Sampler(Problem(self._tree, params.nu, params.packed, {}))
        log_mean = np.where(found.impossible, -math.inf, 0.0)
        if found.impossible.any() or np.isneginf(params.constant).any():
            self._refuse_impossible(log_mean)
        return found


def shape_of_size(size: Any) -> tuple[int, ...]:
    """The axes that `size` asks for."""
    if size is None:
        return ()
    entries = size if isinstance(size, (tuple, list)) else (size,)
    found = tuple(checks.integer("size", entry) for entry in entries)
    if min(found, default=0) < 0:
        raise ParameterError(
            "`size` must be a number of samples, a tuple of such numbers or None, none of them negative; "
            f"{checks.describe(size)} arrived."
        )
    return found
