"""Single configurations of a model: exact samples, and the most probable ones."""

from __future__ import annotations

import math
from typing import Any, Literal, overload

import numpy as np

from .. import checks
from ..arrays import Float64, FloatArray, Size, States, frozen
from ..errors import ParameterError
from ..memo import answer, cached, once
from .binary import BinaryModel
from .results import Modes, SparseSamples


class Configurations(BinaryModel):
    """Samples and best configurations; a base class of :class:`~tallytree.CountModel`, not used on its own."""

    @overload
    def sample(self, size: Size = None, rng: Any = None, *, sparse: Literal[False] = False) -> States: ...
    @overload
    def sample(self, size: Size = None, rng: Any = None, *, sparse: Literal[True]) -> SparseSamples: ...
    def sample(self, size: Size = None, rng: Any = None, *, sparse: bool = False) -> States | SparseSamples:
        """Independent exact draws from the model.

        The counts of groups are drawn from the largest group down to small blocks, each given the count of the group
        that contains it; then the variables of every block, one after the other, given how many of them are still to
        come (Tarlow et al., 2012, section 5.3).

        Parameters
        ----------
        size : int, tuple of int or None
            Number of samples of every model; None draws one, without an axis for it.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Generator or seed. A generator is advanced by 128 bits, whatever the number of samples.
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
        Cost: one upward pass per model, near-linear for one potential and O(D^2) at most for arbitrary tables in
        nested groups; then O(D) per sample. Many samples at once are much cheaper than one at a time. If only a few
        samples are drawn from each small model of a batch, or from one potential over many variables, each costs
        about one inference. With ``sparse`` never more than about 128 MB of dense samples are in memory.

        Accuracy: the distribution of the samples is exact up to rounding. Every single decision has its probability to
        about 1e-13 (1e-10 if table entries are as large as 1e5), the total of a large group to 1e-12. States of
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

    # -- the best ones -----------------------------------------------------------------------------------------

    def mode(self) -> States:
        """A most probable configuration (MAP), (..., D) of 0 and 1.

        ``argmax_y  sum_d logits_d y_d + sum_i log f_i(sum_{d in group i} y_d)``

        ``log_prob(model.mode())`` is its log-probability, :attr:`max_log_weight` its unnormalised log-weight (which
        needs no sum over configurations).

        Returns
        -------
        ndarray of uint8, (..., D)
            Read-only.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        mode_k, max_log_weight, sample

        Notes
        -----
        Ties: of all most probable configurations one with the fewest variables on is returned, in each maximal group
        and in total; so variables in no group are off at log-odds zero. Among variables that belong to the same
        groups those with larger log-odds are on (tables of single variables included), among equals those with lower
        index. Other ties (between groups that could share a count in several ways) are decided the same way every
        time, whatever else is in the batch, but not by a documented rule. Two log-weights tie if their computed sums
        are equal: exactly so for integers, up to rounding otherwise. With edges and a group of more than 2000
        variables, which of several modes is returned follows no rule.

        Cost: one potential: a sort, O(D log D) (Gupta, Diwan and Sarawagi, 2007). Nested groups whose log-tables are
        concave (most named potentials; constraints on an interval of counts): near-linear in D plus the size of the
        tables. Edges and one group with a concave log-table: near-linear too, by bounds; a large gap of the bound
        (strong couplings that move many variables at once) costs time up to O(D^2), as arbitrary tables do, compiled
        where there is an engine.

        Accuracy: the log-weight of the result is within 1e-12 times the sum of the absolute values of all finite
        logits and largest table entries of the best.

        Examples
        --------
        >>> tt.CountModel([0.3, -0.2, 1.0, 0.1], tt.exactly(2)).mode()
        array([1, 0, 1, 0], dtype=uint8)
        """
        return self._best[0]

    @property
    def max_log_weight(self) -> Any:
        """Largest unnormalised log-weight of any configuration, (...,): that of :meth:`mode`.

        On the scale of ``log_partition``: ``max_log_weight - log_partition`` is the log-probability of the mode.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        mode, log_partition

        Examples
        --------
        >>> float(tt.CountModel([0.5, -0.25, 1.0], tt.exactly(2)).max_log_weight)
        1.5
        """
        return self._best[1]

    @answer
    def max_marginals(self) -> FloatArray:
        """Largest unnormalised log-weight with each variable off and on, (..., D, 2).

        ``max_marginals[..., d, v] = max_{y: y_d = v}  log weight of y``, on the scale of ``log_partition``; ``-inf``
        where no possible configuration has ``y_d = v``. The larger of the two is :attr:`max_log_weight` for every d,
        and their difference is what the best configuration loses when y_d is flipped.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        max_count_values, mode

        Notes
        -----
        Cost: as :meth:`mode`, times about three. Accuracy: as :meth:`mode`.

        Examples
        --------
        >>> tt.CountModel([0.5, -0.25, 1.0], tt.exactly(2)).max_marginals
        array([[0.75, 1.5 ],
               [1.5 , 0.75],
               [0.25, 1.5 ]])
        """
        values = self._solver.max_marginals()
        self._check_weights(values[:, 0].max(-1) if values.shape[1] else np.zeros(len(values)))
        return self._vector(values + np.reshape(self._constant, (-1, 1, 1)))

    def max_count_values(self, group: int | None = None) -> FloatArray:
        """Largest unnormalised log-weight for every count 0..n of a group, (..., n + 1).

        ``max_{y: count of the group is c}  log weight of y``, on the scale of ``log_partition``; ``-inf`` for
        impossible counts.

        Parameters
        ----------
        group : int, optional
            Number of the group in the order given; default the count of all variables.

        Returns
        -------
        ndarray, (..., n + 1)
            Log-weights. Read-only.

        Raises
        ------
        ParameterError
            If there is no group of this number.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        max_marginals, mode, count_log_probs

        Notes
        -----
        Cost and accuracy: as :attr:`max_marginals`.

        Examples
        --------
        >>> tt.CountModel([0.5, -0.25, 1.0], tt.at_least(1)).max_count_values()
        array([-inf, 1.  , 1.5 , 1.25])
        """
        index = None if group is None else self._group(group)
        return once(self, ("max counts", index), lambda: self._vector(self._max_counts(index)))

    def mode_k(self, k: int) -> Modes:
        """The k most probable configurations, all different, best first.

        Parameters
        ----------
        k : int
            How many, at least 1.

        Returns
        -------
        Modes
            ``configurations`` (..., k', D) of uint8 and ``log_weights`` (..., k'), not increasing; a tuple of the two.
            k' is the smaller of k and the number of possible configurations. In a batch it is that of the model
            with the most, and rows of models with fewer end in log-weights ``-inf`` and zeros.

        Raises
        ------
        ParameterError
            If ``k`` is not at least 1, or the model has edges.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        mode, Modes

        Notes
        -----
        The first configuration is :meth:`mode`. The order of configurations with equal log-weights is deterministic.

        Cost: that of :meth:`mode`, then about O(log k) for every node of the tree that the next configuration
        changes (lazy enumeration, Huang and Chiang, 2005); k = 1000 of D = 1000 takes a fraction of a second.

        Examples
        --------
        >>> best = tt.CountModel([0.5, -0.25, 1.0], tt.exactly(2)).mode_k(2)
        >>> best.configurations
        array([[1, 0, 1],
               [0, 1, 1]], dtype=uint8)
        >>> best.log_weights
        array([1.5 , 0.75])
        """
        number = checks.integer("k", k, 1)
        if "ranked" not in self._solver.can:
            raise ParameterError(
                "`mode_k` is not available for a model with edges; `mode` gives the best configuration."
            )
        states, values = self._solver.ranked(number)
        # A model without any configuration has no values, or only padding.
        self._check_weights(values[:, 0] if values.shape[1] else np.full(len(values), -np.inf))
        shape = (*self.batch_shape, values.shape[1])
        log_weights = (values + _column(self._constant)).reshape(shape)
        return Modes(states.reshape(*shape, states.shape[-1]), log_weights)

    # -- how it is done ----------------------------------------------------------------------------------------

    @answer
    def _best(self) -> tuple[States, Any]:
        states, values = self._solver.best()
        self._check_weights(values)
        states = states.reshape(*self.batch_shape, states.shape[-1])
        return frozen(states), self._scalar(values + self._constant)

    def _max_counts(self, group: int | None) -> Float64:
        """(B, n + 1), constants included."""
        if group is None and self.n_variables == 0:
            nothing = np.zeros((len(self._params.nu), 1))
            self._check_weights(nothing[:, 0])
            return np.asarray(nothing + _column(self._constant))
        group = self._whole() if group is None else group
        if group is None:
            whole = self._with_total
            best: Float64 = whole._max_counts(whole.n_groups - 1)
            return best
        family = self._tree.family
        set_id, variable = int(family.set_of_group[group]), int(family.variable_of_group[group])
        values = self._solver.max_counts(set_id) if set_id >= 0 else self._solver.max_marginals()[:, variable]
        self._check_weights(values.max(-1))
        return np.asarray(values + _column(self._constant))


def _column(constant: Any) -> Any:
    return np.reshape(constant, (-1, 1))
