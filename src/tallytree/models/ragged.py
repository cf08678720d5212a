"""Many standard models of different sizes at once: equal sizes are solved together as one batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _display, checks
from ..arrays import FloatArray
from ..errors import ParameterError
from ..memo import lazy
from ..potentials import Potential, as_potential
from .count import CountModel


class RaggedBatch(Sequence[CountModel]):
    """A sequence of models with one potential each, whose sizes differ (bags, strata, sentences).

    Parameters
    ----------
    logits : array_like, (N,), or sequence of 1-D arrays
        Log-odds of all variables one after the other (then `sizes` is needed), or one array per model.
    potentials : potential or sequence
        One potential for all models, or one potential or log-table per model.
    sizes : array_like of int, optional
        Number of variables of each model.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.
    InfeasibleError
        When an answer is asked for and no configuration is possible.

    See Also
    --------
    tallytree.CountModel
    tallytree.learn.fixed_counts

    Notes
    -----
    Cost: one batched inference per distinct size. Accuracy: as :class:`CountModel`.

    Examples
    --------
    >>> bags = tt.RaggedBatch([[0.0, 0.0], [0.0, 0.0, 0.0], [1.0, -1.0]], tt.exactly(1))
    >>> bags.log_partition.round(4)
    array([0.6931, 1.0986, 1.1269])
    >>> [m.round(3).tolist() for m in bags.marginals]
    [[0.5, 0.5], [0.333, 0.333, 0.333], [0.881, 0.119]]
    """

    def __init__(self, logits: Any, potentials: Any = None, sizes: ArrayLike | None = None) -> None:
        self._logits, self._offsets, self._dtype = _flatten(logits, sizes)
        count = len(self._offsets) - 1
        if isinstance(potentials, Potential) or potentials is None or callable(potentials):
            self._potentials: list[Any] = _one_each(as_potential(potentials), count)
        else:
            single = isinstance(potentials, (str, bytes)) or getattr(potentials, "ndim", 1) == 0
            if single or not isinstance(potentials, Iterable):
                raise ParameterError(
                    f"`potentials` must be one potential for all models or a list of {count}, one per model; "
                    f"{checks.describe(potentials)} arrived."
                )
            self._potentials = list(potentials)
            if len(self._potentials) != count:
                raise ParameterError(
                    f"`potentials` must be one potential for all models or a list of {count}, one per model; "
                    f"{len(self._potentials)} arrived."
                )
        self._check_tables()

    def _check_tables(self) -> None:
        for i, (n, potential) in enumerate(zip(self.sizes.tolist(), self._potentials)):
            if not isinstance(potential, Potential) and potential is not None and not callable(potential):
                self._potentials[i] = checks.log_table(potential, n, name=f"The table of model {i}")

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of variables of every model, (N,).

        See Also
        --------
        marginals

        Examples
        --------
        >>> batch = tt.RaggedBatch([[0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], tt.exactly(1))
        >>> batch.sizes
        array([2, 4])
        """
        return np.diff(self._offsets)

    @lazy
    def _buckets(self) -> list[tuple[NDArray[np.int64], CountModel]]:
        """Models of equal size, stacked: which ones, and the batch."""
        found = []
        for n in np.unique(self.sizes).tolist():
            which = np.flatnonzero(self.sizes == n)
            rows = self._logits[self._offsets[which][:, None] + np.arange(n)]
            first = self._potentials[which[0]]
            if all(self._potentials[i] is first for i in which[1:]):
                found.append((which, CountModel(rows, first)))
            else:
                tables = np.stack([self._table(i, n) for i in which.tolist()])
                found.append((which, CountModel(rows, tables)))
        return found

    def _table(self, i: int, n: int) -> NDArray[np.float64]:
        potential = self._potentials[i]
        if isinstance(potential, np.ndarray):
            return potential
        return as_potential(potential).log_table(n)

    @lazy
    def log_partition(self) -> NDArray[np.float64]:
        """Log Z of every model, (N,)."""
        out = np.empty(len(self))
        for which, batch in self._buckets:
            out[which] = batch.log_partition
        return out

    @lazy
    def error_bound(self) -> NDArray[np.float64]:
        """Certified error bound of every model, (N,)."""
        out = np.empty(len(self))
        for which, batch in self._buckets:
            out[which] = batch.error_bound
        return out

    @property
    def marginals(self) -> list[FloatArray]:
        """P(y = 1), one array per model.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        posterior_logits, count_log_probs

        Examples
        --------
        >>> batch = tt.RaggedBatch([[0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], tt.exactly(1))
        >>> [row.tolist() for row in batch.marginals]
        [[0.5, 0.5], [0.25, 0.25, 0.25, 0.25]]
        """
        return self._vectors("marginals")

    @property
    def posterior_logits(self) -> list[FloatArray]:
        """Log-odds of the marginals, one array per model.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        marginals

        Examples
        --------
        >>> batch = tt.RaggedBatch([[0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], tt.exactly(1))
        >>> batch.posterior_logits[1].round(4)
        array([-1.0986, -1.0986, -1.0986, -1.0986])
        """
        return self._vectors("posterior_logits")

    @property
    def count_log_probs(self) -> list[FloatArray]:
        """Log-probabilities of the counts, one array per model.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        marginals

        Examples
        --------
        >>> batch = tt.RaggedBatch([[0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], tt.exactly(1))
        >>> [row.tolist() for row in batch.count_log_probs]
        [[-inf, 0.0, -inf], [-inf, 0.0, -inf, -inf, -inf]]
        """
        rows: list[Any] = [None] * len(self)
        for which, batch in self._buckets:
            for i, row in zip(which.tolist(), batch.count_log_probs()):
                rows[i] = row
        return rows

    def _vectors(self, name: str) -> list[FloatArray]:
        flat = np.empty(len(self._logits), self._dtype)
        for which, batch in self._buckets:
            flat[self._offsets[which][:, None] + np.arange(batch.n_variables)] = getattr(batch, name)
        return np.split(flat, self._offsets[1:-1])

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        i = range(len(self))[index]
        return CountModel(self._logits[self._offsets[i] : self._offsets[i + 1]], self._potentials[i])

    def __iter__(self) -> Iterator[CountModel]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"RaggedBatch({len(self)} models, {len(self._logits)} variables)"

    def _repr_html_(self) -> str:
        return _display.ragged_page(self)


def _one_each(potential: Potential, count: int) -> list[Any]:
    """The potential of every model: the same object, or its own where there is one parameter per model."""
    if potential.batch_shape not in ((), (1,), (count,)):
        raise ParameterError(
            f"`potentials` must have one parameter for all models or one for each of the {count}; parameters of shape "
            f"{potential.batch_shape} arrived."
        )
    if not potential.batch_shape:
        return [potential] * count
    return [potential._member((i,)) for i in range(count)]


def _flatten(logits: Any, sizes: ArrayLike | None) -> tuple[FloatArray, NDArray[np.int64], np.dtype[Any]]:
    if sizes is None:
        if not isinstance(logits, Iterable) or (isinstance(logits, np.ndarray) and logits.ndim == 0):
            raise ParameterError(
                "`logits` must be a list with one 1-D array per model, or one array together with `sizes`; "
                f"{checks.describe(logits)} arrived."
            )
        parts = [checks.logits(part) for part in logits]
        bad = [i for i, (part, _) in enumerate(parts) if part.ndim != 1]
        if bad:
            raise ParameterError(
                f"`logits` must hold one 1-D array per model; model {bad[0]} has shape {parts[bad[0]][0].shape}."
            )
        lengths = np.array([len(part) for part, _ in parts], np.int64)
        single = bool(parts) and all(dtype == np.float32 for _, dtype in parts)
        dtype = np.dtype(np.float32 if single else np.float64)
        values = np.concatenate([np.empty(0), *[part for part, _ in parts]])
    else:
        values, dtype = checks.logits(logits)
        lengths = checks.rectangular("sizes", sizes, "a list of non-negative integers")
        if values.ndim != 1 or lengths.ndim != 1 or lengths.dtype.kind not in "iu" or np.any(lengths < 0):
            raise ParameterError(
                "`logits` must be one-dimensional and `sizes` a list of non-negative integers."
            )
        if int(lengths.sum()) != len(values):
            raise ParameterError(f"`sizes` add up to {int(lengths.sum())}, but {len(values)} logits arrived.")
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return values.astype(dtype, copy=False), offsets, dtype
