"""`ChainModel`: sequences of labels with potentials on how often labels occur."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .. import checks, display
from ..arrays import FloatArray
from ..errors import ParameterError
from ..memo import cached
from ..potentials import exactly
from .chain_answers import ChainAnswers
from .chain_core import (
    ChainNumbers,
    count_groups,
    count_potential,
    score_table,
    sequence_lengths,
    transition_tables,
    unary_weights,
)
from .results import ChainStatistics


class ChainModel(ChainAnswers):
    """A chain of labels, as in a hidden Markov model or a chain CRF, with potentials on counts.

    ``log p(y) = sum_t unary_t(y_t) + sum_t transitions_t(y_t, y_t+1) + sum_i log f_i(sum_{t in group i} score_t(y_t))``
    up to a constant, log Z.

    Parameters
    ----------
    log_unary : array_like, (..., T, K)
        Log-weight of every label at every position, ``-inf`` where it is impossible. Leading axes are a batch.
    log_transitions : array_like, (K, K), (T - 1, K, K) or (..., T - 1, K, K)
        Log-weight of every pair of neighbouring labels ``[from, to]``; it may change with the position.
    counts : potential or sequence of Group, optional
        One potential on the count of the whole sequence, or :class:`~tallytree.Group` objects whose members are
        positions. A single group may hold any positions; several must be nested or disjoint intervals, or otherwise fit
        the chain as groups of a :class:`CountModel` must fit its edges.
    counted : int or sequence of int, optional
        The label, or the labels, that are counted; default label 1, or label 0 if there is only one.
    scores : array_like of int, (K,) or (T, K), optional
        What each label adds to the counts, not negative; takes the place of `counted`.
    lengths : array_like of int, (...), optional
        Length of every sequence; entries past its end are ignored. Default T.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.
    StructureError
        If groups are not nested or do not fit the edges; the message names those that clash.
    InfeasibleError
        When an answer is asked for and no configuration is possible.

    See Also
    --------
    tallytree.CountModel
    tallytree.Forest

    Notes
    -----
    Cost: O(K^3 T log^2 T), without counts O(K^3 T). ``mode`` takes O(K^3 T^2).

    Accuracy: log-marginals to 1e-9 absolute or 1e-10 relative, ``log_partition`` to 1e-10 (1 + abs(log Z)).

    Past the end of a sequence marginals are 0 and labels are -1. Where sequences of a batch have different lengths, a
    shorter one uses only the first entries of an array of log-values, up to the largest count that it can reach.

    Examples
    --------
    Three positions and two labels; neighbours prefer the same label, and exactly one position has label 1:

    >>> stay = np.log([[0.9, 0.1], [0.1, 0.9]])
    >>> model = tt.ChainModel(np.zeros((3, 2)), stay, tt.exactly(1))
    >>> model
    ChainModel(n_positions=3, n_labels=2, n_groups=1)
    >>> model.marginals[:, 1].round(3)
    array([0.474, 0.053, 0.474])
    """

    def __init__(
        self, log_unary: ArrayLike, log_transitions: ArrayLike, counts: Any = None, *,
        counted: Any = None, scores: ArrayLike | None = None, lengths: ArrayLike | None = None,
    ) -> None:  # fmt: skip
        unary, dtype = unary_weights(log_unary)
        n, k = unary.shape[-2:]
        if n == 0 or k == 0:
            raise ParameterError(
                f"`log_unary` needs at least one position and one label; shape {unary.shape} arrived."
            )
        transitions = transition_tables(log_transitions, n, k)
        added = score_table(counted, scores, n, k)
        tree, potentials = count_groups(counts, n)
        ends = sequence_lengths(lengths, n)
        self._setup(ChainNumbers(tree, tuple(potentials), unary, transitions, added, ends, dtype))

    def replace(
        self,
        *,
        log_unary: ArrayLike | None = None,
        log_transitions: ArrayLike | None = None,
        tables: Any = None,
    ) -> ChainModel:
        """Return a model of the same structure with new numbers; ``tables`` has one potential per group.

        Parameters
        ----------
        log_unary, log_transitions : array_like, optional
            New numbers; default those of the model.
        tables : sequence, optional
            New potentials, one per group.

        Returns
        -------
        ChainModel
            A new model; this one stays as it is.

        Raises
        ------
        ParameterError
            If the new numbers do not have the shape of the old.

        See Also
        --------
        condition

        Examples
        --------
        >>> chain = tt.ChainModel(np.zeros((2, 2)), np.zeros((2, 2)), tt.exactly(1))
        >>> chain.replace(log_unary=[[0.0, 1.0], [0.0, 2.0]]).mode().tolist()
        [0, 1]
        """
        unary, dtype = (self._unary, self._dtype) if log_unary is None else unary_weights(log_unary)
        n, k = self.n_positions, self.n_labels
        if unary.shape[-2:] != (n, k):
            raise ParameterError(f"`log_unary` must keep shape (..., {n}, {k}); shape {unary.shape} arrived.")
        transitions = (
            self._transitions if log_transitions is None else transition_tables(log_transitions, n, k)
        )
        potentials = self._potentials
        if tables is not None:
            wanted = f"`tables` must be a list of {self.n_groups} potentials or log-tables, one per group"
            potentials = tuple(map(count_potential, checks.listed(tables, self.n_groups, wanted)))
        return self._with(potentials=potentials, unary=unary, transitions=transitions, dtype=dtype)

    def _with(self, **changes: Any) -> ChainModel:
        """The same model with other numbers; groups that stay are not analysed again."""
        new = ChainModel.__new__(ChainModel)
        new._setup(self._given._replace(**changes), None if "tree" in changes else self._structure)
        return new

    def _with_group(self, members: Any, potential: Any) -> ChainModel:
        """The same model with one more group at the end of the list."""
        tree = self._tree.with_groups([members])
        return self._with(tree=tree, potentials=(*self._potentials, potential))

    # -- answers -----------------------------------------------------------------------------------------------

    @property
    def log_partition(self) -> Any:
        """Log Z, (...,).

        Raises
        ------
        InfeasibleError
            If every sequence has probability zero.

        See Also
        --------
        log_prob

        Examples
        --------
        >>> chain = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1))
        >>> chain.log_partition.round(4)  # log(3)
        np.float64(1.0986)
        """
        self._check_possible(self._solver.sums.log_mean)
        return self._scalar(self._solver.log_norm(self._made[1]))

    @cached
    def marginals(self) -> FloatArray:
        """Probability of every label at every position, P(y_t = k), (..., T, K).

        Raises
        ------
        InfeasibleError
            If every sequence has probability zero.

        See Also
        --------
        log_marginals, edge_marginals

        Examples
        --------
        >>> chain = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1))
        >>> chain.marginals[:, 1].round(4)
        array([0.3333, 0.3333, 0.3333])
        """
        found = np.exp(self._beliefs)
        found[~self._inside] = 0.0
        return self._vector(found)

    @cached
    def edge_marginals(self) -> FloatArray:
        """Joint probabilities of neighbouring labels, P(y_t = j, y_t+1 = k), (..., T - 1, K, K).

        Raises
        ------
        InfeasibleError
            If every sequence has probability zero.

        See Also
        --------
        marginals, expected_statistics

        Examples
        --------
        >>> chain = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1))
        >>> chain.edge_marginals[0].round(4)
        array([[0.3333, 0.3333],
               [0.3333, 0.    ]])
        """
        pairs = np.exp(self._answer.log_edges)
        pairs[~self._inside[:, 1:]] = 0.0
        return self._vector(pairs)

    @property
    def error_bound(self) -> Any:
        """Certified bound on the absolute error of differences of log-marginals, (...,).

        Raises
        ------
        InfeasibleError
            If every sequence has probability zero.

        See Also
        --------
        log_marginals

        Examples
        --------
        >>> chain = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1))
        >>> bool(chain.error_bound < 1e-10)
        True
        """
        return self._scalar(self._answer.bound)

    def count_log_probs(self, group: int | None = None) -> FloatArray:
        """Log-probabilities of the count of a group, (..., n + 1); default the count of the whole sequence.

        n is the largest count that T positions can reach.

        Parameters
        ----------
        group : int, optional
            Number of the group; default the whole sequence.

        Returns
        -------
        ndarray, (..., n + 1)
            Logarithms; ``-inf`` for impossible counts.

        Raises
        ------
        ParameterError
            If there is no group of this number.
        InfeasibleError
            If every sequence has probability zero.

        See Also
        --------
        condition_count, marginals

        Examples
        --------
        >>> chain = tt.ChainModel(np.zeros((2, 2)), np.zeros((2, 2)))
        >>> np.exp(chain.count_log_probs()).round(4)
        array([0.25, 0.5 , 0.25])
        """
        index = self._whole() if group is None else self._group(group)
        if index is None:
            more = self._with_group(None, count_potential(None))
            return more.count_log_probs(more.n_groups - 1)
        self._answer  # noqa: B018 - raises for an impossible model
        return self._vector(self._count_rows(index))

    @cached
    def expected_statistics(self) -> ChainStatistics:
        """Gradient of ``log_partition``: probabilities of labels, of pairs of neighbouring labels, and of counts.

        Its fields are ``unary`` (..., T, K), ``transitions`` (..., T - 1, K, K) and ``tables``, one array (..., n + 1)
        per group.

        Raises
        ------
        InfeasibleError
            If every sequence has probability zero.

        See Also
        --------
        marginals, edge_marginals, count_log_probs

        Examples
        --------
        >>> chain = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1))
        >>> chain.expected_statistics.unary.shape
        (3, 2)
        """
        self._answer  # noqa: B018 - raises for an impossible model
        counts = tuple(self._vector(np.exp(self._count_rows(g))) for g in range(self.n_groups))
        return ChainStatistics(self.marginals, self.edge_marginals, counts)

    @property
    def entropy(self) -> Any:
        """Entropy in nats, (...,).

        Raises
        ------
        InfeasibleError
            If every sequence has probability zero.

        See Also
        --------
        log_prob, log_partition

        Examples
        --------
        >>> chain = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1))
        >>> chain.entropy.round(4)  # log(3)
        np.float64(1.0986)
        """
        self._answer  # noqa: B018 - raises for an impossible model
        return self._scalar(self._solver.entropy())

    def condition(self, evidence: Mapping[int, int]) -> ChainModel:
        """The model given the labels at some positions, ``{position: label}``.

        Parameters
        ----------
        evidence : mapping of int to int
            Positions and their labels.

        Returns
        -------
        ChainModel
            Sequences that disagree have probability zero; ``log_partition`` is that of the joint event.

        Raises
        ------
        ParameterError
            If ``evidence`` is not a mapping, or names a position or label that does not exist.

        See Also
        --------
        condition_count, log_prob

        Examples
        --------
        >>> chain = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)), tt.exactly(1))
        >>> chain.condition({0: 0}).marginals[:, 1]
        array([0. , 0.5, 0.5])
        """
        positions, tables = checks.evidence(evidence, self.n_positions, self.n_labels)
        unary = np.array(self._unary)
        for t, table in zip(positions.tolist(), tables):
            unary[..., t, :] += table
        return self._with(unary=unary)

    def condition_count(self, group: int | None, count: int) -> ChainModel:
        """The model given the count of a group (None: of the whole sequence).

        Parameters
        ----------
        group : int or None
            Number of the group; None: the whole sequence.
        count : int
            Its count.

        Returns
        -------
        ChainModel
            The model with this count required.

        Raises
        ------
        ParameterError
            If there is no such group, or it cannot reach the count.

        See Also
        --------
        condition, count_log_probs

        Examples
        --------
        >>> chain = tt.ChainModel(np.zeros((3, 2)), np.zeros((2, 2)))
        >>> chain.condition_count(None, 1).marginals[:, 1].round(4)
        array([0.3333, 0.3333, 0.3333])
        """
        members = None if group is None else self._tree.groups[self._group(group)]
        degree = self._scores.max(axis=1)
        largest = int(degree.sum() if members is None else degree[members].sum())
        c = checks.integer("count", count, 0, largest, "the largest count that the group can reach")
        return self._with_group(members, exactly(c))

    # -- as a Python object ------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        batch = f", batch_shape={self._batch_shape}" if self._batch_shape else ""
        return f"ChainModel(n_positions={self.n_positions}, n_labels={self.n_labels}, n_groups={self.n_groups}{batch})"

    def _repr_html_(self) -> str:
        return display.chain_page(self, int(self._scores.max(axis=-1).sum()))

    def _parts(self) -> tuple[Any, ...]:
        problem = self._problem
        numbers = problem.log_leaf, problem.log_edge, problem.tables, self._constant
        return self._tree, self._batch_shape, self._scores, self.lengths, *numbers

    def __getstate__(self) -> dict[str, Any]:
        return self._given._asdict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._setup(ChainNumbers(**state))
