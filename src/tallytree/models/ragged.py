"""Many standard models of different sizes at once: equal sizes are solved together as one batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks, display
from ..arrays import FloatArray, Size, States, frozen
from ..checks import states
from ..errors import InfeasibleError, ParameterError
from ..memo import cached
from ..potentials import Potential, as_potential
from ..potentials.columns import naming
from .base import Value
from .count import CountModel
from .results import ExpectedStatistics


class RaggedBatch(Value, Sequence[CountModel]):
    """Several models of different sizes, each with one potential on its count (bags, strata, sentences).

    Parameters
    ----------
    logits : array_like, (N,), or sequence of 1-D arrays
        Log-odds of all N variables one after the other (then `sizes` is needed), or one array per model.
    potentials : potential or sequence, optional
        One potential for all models, or a list with one potential or log-table per model; default none.
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
    Cost: one batched inference per distinct size. Accuracy: as :class:`CountModel`. ``batch[i]`` is a
    :class:`CountModel` by itself, with all its answers.

    Examples
    --------
    >>> bags = tt.RaggedBatch([[0.0, 0.0], [0.0, 0.0, 0.0], [1.0, -1.0]], tt.exactly(1))
    >>> bags.log_partition.round(4)
    array([0.6931, 1.0986, 1.1269])
    >>> [m.round(3).tolist() for m in bags.marginals]
    [[0.5, 0.5], [0.333, 0.333, 0.333], [0.881, 0.119]]
    """

    def __init__(self, logits: Any, potentials: Any = None, sizes: ArrayLike | None = None) -> None:
        self._logits, self._offsets, self._dtype = flattened(logits, sizes)
        frozen(self._logits)
        self._potentials = potential_of_each(potentials, self.sizes)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of variables of every model, (n_models,).

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

    @cached
    def _buckets(self) -> list[tuple[NDArray[np.int64], CountModel]]:
        """Models of equal size, stacked: which ones, and the batch."""
        found = []
        for n in np.unique(self.sizes).tolist():
            which = np.flatnonzero(self.sizes == n)
            try:
                found.append((which, self._stacked(which, n)))
            except ParameterError:
                self._blame(which)
                raise
        return found

    def _stacked(self, which: NDArray[np.int64], n: int) -> CountModel:
        rows = self._logits[self._offsets[which][:, None] + np.arange(n)]
        first = self._potentials[which[0]]
        if all(self._potentials[i] is first for i in which[1:]):
            return CountModel(rows, first)
        return CountModel(rows, np.stack([self._table(i, n) for i in which.tolist()]))

    def _each(self, ask: Callable[[CountModel], Any]) -> Iterator[tuple[NDArray[np.int64], Any]]:
        """What every stack of models answers, with the numbers of its models."""
        for which, stack in self._buckets:
            yield which, self._of(which, partial(ask, stack))

    def _of(self, which: NDArray[np.int64], ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except InfeasibleError:
            self._blame(which)
            raise

    def _numbers(self, ask: Callable[[CountModel], Any]) -> NDArray[np.float64]:
        out = np.empty(len(self))
        for which, answer in self._each(ask):
            out[which] = answer
        return frozen(out)

    def _rows(self, ask: Callable[[CountModel], Any]) -> list[Any]:
        rows: list[Any] = [None] * len(self)
        for which, answer in self._each(ask):
            for i, row in zip(which.tolist(), answer):
                rows[i] = row
        return rows

    def _blame(self, which: NDArray[np.int64]) -> None:
        """Raise the error of a stack with the number of the model that it is about, which has another in its stack."""
        for i in which.tolist():
            try:
                _ = self[i].log_partition
            except InfeasibleError as own:
                text = str(own).replace("The model", f"Model {i}", 1)
                raise InfeasibleError(text, groups=own.groups) from None
            except ParameterError as own:
                raise ParameterError(f"Model {i}: {own}") from None

    def _table(self, i: int, n: int) -> NDArray[np.float64]:
        potential = self._potentials[i]
        if isinstance(potential, np.ndarray):
            return potential
        return as_potential(potential).log_table(n)

    @cached
    def log_partition(self) -> NDArray[np.float64]:
        """Log Z of every model, (n_models,).

        Raises
        ------
        InfeasibleError
            If a model gives probability zero to every configuration.

        See Also
        --------
        log_prob, CountModel.log_partition

        Examples
        --------
        >>> np.exp(tt.RaggedBatch([[0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], tt.exactly(1)).log_partition).round(6)
        array([2., 4.])
        """
        return self._numbers(lambda stack: stack.log_partition)

    @cached
    def entropy(self) -> NDArray[np.float64]:
        """Entropy of every model in nats, (n_models,).

        Raises
        ------
        InfeasibleError
            If a model gives probability zero to every configuration.

        See Also
        --------
        CountModel.entropy

        Examples
        --------
        >>> tt.RaggedBatch([[0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], tt.exactly(1)).entropy.round(4)  # log(2), log(4)
        array([0.6931, 1.3863])
        """
        return self._numbers(lambda stack: stack.entropy)

    @cached
    def error_bound(self) -> NDArray[np.float64]:
        """Certified bound on the absolute error of every posterior log-odds of every model, (n_models,).

        Raises
        ------
        InfeasibleError
            If a model gives probability zero to every configuration.

        See Also
        --------
        posterior_logits, CountModel.error_bound

        Examples
        --------
        >>> tt.RaggedBatch([[0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], tt.exactly(1)).error_bound < 1e-10
        array([ True,  True])
        """
        return self._numbers(lambda stack: stack.error_bound)

    def log_prob(self, y: Any) -> NDArray[np.float64]:
        """Log-probability of one configuration of every model, (n_models,).

        Parameters
        ----------
        y : sequence of arrays of 0 and 1, or one array with all of them one after the other
            A configuration of every model.

        Returns
        -------
        ndarray, (n_models,)
            Logarithms; ``-inf`` for impossible configurations.

        Raises
        ------
        ParameterError
            If ``y`` does not have the sizes of the models, or other values than 0 and 1.
        InfeasibleError
            If a model gives probability zero to every configuration.

        See Also
        --------
        sample, mode

        Examples
        --------
        >>> batch = tt.RaggedBatch([[0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], tt.exactly(1))
        >>> np.exp(batch.log_prob([[0, 1], [0, 1, 0, 0]])).round(6)
        array([0.5 , 0.25])
        """
        flat = one_of_each("y", y, self.sizes, partial(states, lead=False))
        out = np.empty(len(self))
        for which, stack in self._buckets:
            rows = flat[self._offsets[which][:, None] + np.arange(stack.n_variables)]
            out[which] = self._of(which, partial(stack.log_prob, rows))
        return out

    def mode(self) -> list[States]:
        """A most probable configuration of every model, one array of zeros and ones each.

        Returns
        -------
        list of ndarray
            In the order of the models.

        Raises
        ------
        InfeasibleError
            If a model gives probability zero to every configuration.

        See Also
        --------
        sample, CountModel.mode

        Examples
        --------
        >>> batch = tt.RaggedBatch([[0.3, 0.0], [0.0, 1.0, 0.0, 0.0]], tt.exactly(1))
        >>> [row.tolist() for row in batch.mode()]
        [[1, 0], [0, 1, 0, 0]]
        """
        return self._rows(lambda stack: stack.mode())

    def sample(self, size: Size = None, rng: Any = None) -> list[States]:
        """Independent exact draws from every model.

        Parameters
        ----------
        size : int, tuple of int or None
            Number of samples of every model; None draws one, without an axis for it.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Generator or seed.

        Returns
        -------
        list of arrays of uint8, (size..., n)
            In the order of the models.

        Raises
        ------
        ParameterError
            If ``size`` or ``rng`` cannot be used.
        InfeasibleError
            If a model gives probability zero to every configuration.

        See Also
        --------
        mode, CountModel.sample

        Examples
        --------
        >>> batch = tt.RaggedBatch([[0.3, 0.0], [0.0, 1.0, 0.0, 0.0]], tt.exactly(1))
        >>> [row.sum(axis=-1).tolist() for row in batch.sample(3, rng=0)]
        [[1, 1, 1], [1, 1, 1]]
        """
        checks.shape("size", size)
        generator = checks.generator(rng)
        return self._rows(lambda stack: np.moveaxis(stack.sample(size, rng=generator), -2, 0))

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
        return self._rows(lambda stack: stack.count_log_probs())

    def hessian_vector_product(
        self, logits: Any = None, tables: Any = None, *, counts: bool = True
    ) -> list[ExpectedStatistics]:
        """Derivatives of the expectations of every model along a direction: its Hessian of log Z times a vector.

        Parameters
        ----------
        logits : array_like, (N,), or sequence of 1-D arrays, optional
            Direction in the log-odds: one number per variable, all models one after the other, or one array per model.
        tables : sequence, optional
            Direction in the log-tables, one array (n + 1,), or None, per model.
        counts : bool
            Whether the derivatives of the count distributions are wanted; without them ``tables`` is empty.

        Returns
        -------
        list of ExpectedStatistics
            One per model: ``logits`` (n,) and, in ``tables``, the derivatives of P(count), (n + 1,).

        Raises
        ------
        ParameterError
            If the direction does not have the shape of the parameters, or is not finite where they are.
        InfeasibleError
            If every configuration of a model has probability zero.

        See Also
        --------
        CountModel.hessian_vector_product, covariance, marginals

        Notes
        -----
        Cost: one batched product per distinct size, two to four inferences. Accuracy: see
        :meth:`CountModel.hessian_vector_product`.

        Examples
        --------
        >>> bags = tt.RaggedBatch([[0.0, 0.0], [0.0, 0.0, 0.0]], tt.exactly(1))
        >>> [found.logits.round(4).tolist() for found in bags.hessian_vector_product([[1.0, 0.0], [1.0, 0.0, 0.0]])]
        [[0.25, -0.25], [0.2222, -0.1111, -0.1111]]
        """
        counts = checks.flag("counts", counts)
        v = None if logits is None else one_of_each("logits", logits, self.sizes, _vector)
        h = [None] * len(self)
        if tables is not None:
            h = checks.listed(
                tables, len(self), f"`tables` must be a list of {len(self)} arrays or None, one per model"
            )
        found: list[Any] = [None] * len(self)
        for which, batch in self._buckets:
            n = batch.n_variables
            if n == 0:
                for i in which.tolist():  # one count, which is certain
                    found[i] = ExpectedStatistics(
                        np.zeros(0, self._dtype), (np.zeros(1, self._dtype),) if counts else ()
                    )
                continue
            rows = None if v is None else v[self._offsets[which][:, None] + np.arange(n)]
            move = (
                None if tables is None else [np.stack([_table_or_zeros(h[i], n, i) for i in which.tolist()])]
            )
            moved = self._of(which, partial(batch.hessian_vector_product, rows, move, counts=counts))
            for place, i in enumerate(which.tolist()):
                found[i] = ExpectedStatistics(
                    moved.logits[place], tuple(table[place] for table in moved.tables)
                )
        return found

    def covariance(self) -> list[FloatArray]:
        """Covariance matrices of the variables, (n, n), one per model.

        Returns
        -------
        list of ndarray
            One matrix per model.

        Raises
        ------
        InfeasibleError
            If every configuration of a model has probability zero.

        See Also
        --------
        CountModel.covariance, hessian_vector_product

        Notes
        -----
        Cost: two to four inferences per row, batched. Accuracy: 1e-12 absolute.

        Examples
        --------
        >>> tt.RaggedBatch([[0.0], [0.0, 0.0]], tt.exactly(1)).covariance()[1]
        array([[ 0.25, -0.25],
               [-0.25,  0.25]])
        """
        return self._rows(lambda stack: stack.covariance())

    def _vectors(self, name: str) -> list[FloatArray]:
        flat = np.empty(len(self._logits), self._dtype)
        for which, answer in self._each(lambda stack: getattr(stack, name)):
            flat[self._offsets[which][:, None] + np.arange(answer.shape[-1])] = answer
        return np.split(frozen(flat), self._offsets[1:-1])

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        i = range(len(self))[index]
        return CountModel(self._logits[self._offsets[i] : self._offsets[i + 1]], self._potentials[i])

    def __repr__(self) -> str:
        return f"RaggedBatch({len(self)} models, {len(self._logits)} variables)"

    _repr_html_ = display.ragged_page

    def _parts(self) -> tuple[Any, ...]:
        return self._offsets, self._logits, tuple(self._potentials)


def _vector(value: Any, n: int) -> Any:
    return checks.array("logits", value, (n,), checks.NUMBERS)


def _table_or_zeros(entry: Any, n: int, i: int) -> Any:
    with naming((i,)):
        return np.zeros(n + 1) if entry is None else checks.array("tables", entry, (n + 1,), checks.LOGS)


def potential_of_each(potentials: Any, sizes: NDArray[np.int64]) -> list[Any]:
    """One potential or log-table per model; a potential with one parameter per model is taken apart."""
    count = len(sizes)
    wanted = f"`potentials` must be one potential for all models or a list of {count}, one per model"
    if isinstance(potentials, Potential) or potentials is None or callable(potentials):
        potential = as_potential(potentials)
        shape = potential.batch_shape
        checks.broadcast((count,), [("`potentials`", shape)], grow=False)
        return [potential._member((i,)) for i in range(count)] if shape else [potential] * count
    whole = isinstance(potentials, (int, np.integer))
    hint = f" For a fixed count use exactly({potentials})." if whole else ""
    given = checks.listed(potentials, count, wanted, hint)
    for i, (n, potential) in enumerate(zip(sizes.tolist(), given)):
        if not isinstance(potential, Potential) and potential is not None and not callable(potential):
            given[i] = checks.log_table(potential, n, name=f"The table of model {i}")
    return given


def flattened(logits: Any, sizes: ArrayLike | None) -> tuple[FloatArray, NDArray[np.int64], np.dtype[Any]]:
    """Log-odds of all models, where each begins, and the dtype of answers."""
    if sizes is None:
        entries = checks.listed(
            logits,
            None,
            "`logits` must be a list with one 1-D array per model, or one array together with `sizes`",
        )
        parts = []
        for i, entry in enumerate(entries):
            if np.ndim(entry) == 0:
                raise ParameterError(
                    "`logits` must be a list with one 1-D array per model, or one array together with `sizes`; single "
                    "numbers arrived. Pass sizes=, the number of variables of every model."
                )
            part, kind = checks.logits(entry)
            parts.append((checks.array(f"The log-odds of model {i}", part, ("n",), checks.NUMBERS), kind))
        lengths = np.array([len(part) for part, _ in parts], np.int64)
        single = bool(parts) and all(kind == np.float32 for _, kind in parts)
        dtype = np.dtype(np.float32 if single else np.float64)
        values = np.concatenate([np.empty(0), *[part for part, _ in parts]])
    else:
        given, dtype = checks.logits(logits)
        lengths = checks.array("sizes", sizes, ("N",), checks.WHOLE)
        hint = " `sizes` add up to so many numbers, one per variable."
        values = checks.array("logits", given, (int(lengths.sum()),), checks.NUMBERS, hint=hint)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return values.astype(dtype), offsets, dtype  # a copy: what users change later is not ours


def one_of_each(name: str, value: Any, sizes: NDArray[np.int64], read: Callable[[Any, int], Any]) -> Any:
    """A vector of every model, one after the other, given so or one by one."""
    total = int(sizes.sum())
    if isinstance(value, (list, tuple)) and value and np.ndim(value[0]) == 0:
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and value.dtype != object and value.ndim == 1:
        return read(value, total)
    wanted = (
        f"`{name}` must hold one vector for each of the {len(sizes)} models, or one array of {total} entries"
    )
    rows = []
    for i, (entry, n) in enumerate(zip(checks.listed(value, len(sizes), wanted), sizes.tolist())):
        with naming((i,)):
            rows.append(read(entry, n))
    return np.concatenate([read(np.zeros(0), 0), *rows])
