"""`FactorGraph`: binary variables with any number of overlapping count factors, and pairwise factors."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import checks, display
from .._progress import Report, check_progress
from ..arrays import Float64, Ints
from ..checks import states
from ..checks.groups import all_members
from ..engine import masks
from ..engine.count import moments
from ..engine.masks import MASK, absent, resolve_table
from ..errors import InfeasibleError, ParameterError, StructureError
from ..memo import Caching, cached
from ..models.base import Value
from ..models.count import CountModel
from ..models.group import Group
from ..potentials import Potential, as_potential
from ..structure.forest.structure import pairs_of_variables

if TYPE_CHECKING:
    from .blocks import GraphSamples
    from .exact import ExactResult
    from .propagation import LoopyResult

Factor = tuple[Any, Float64 | None, CountModel | None]  # as given; its log-table, or the model that it is


class _Structure:
    """What follows from the factors alone, found once for all graphs that differ in log-odds."""


class FactorGraph(Caching, Value):
    """Binary variables with potentials on counts of groups that may overlap in any way.

    ``p(y) = exp(sum_d logits_d y_d) prod_a f_a(y_a) / Z``, where the factor ``f_a`` is a potential on the count of its
    group, a whole :class:`CountModel` over its group, or a table over a pair.

    Exact answers are out of reach in general (with "exactly one" in every row and column of a matrix, Z is a
    permanent). :meth:`infer` gives them where they are cheap, and :meth:`exact` up to a price that you allow;
    :attr:`width` tells the price beforehand. Approximations and bounds come from :func:`loopy_bp`,
    :func:`~tallytree.loopy.holder_bound` and :func:`~tallytree.loopy.dual_decomposition`. If the groups are nested, use
    :class:`CountModel`.

    Parameters
    ----------
    logits : array_like, (D,)
        Log-odds of the variables; ``-inf`` excludes a variable, ``inf`` forces it on with weight one.
    groups : sequence of Group
        The count factors. The potential of a :class:`Group` is whatever :class:`CountModel` accepts, or a
        :class:`CountModel` over as many variables as the group has members, in their order, with or without edges; the
        logits of such a model add to those of the variables.
    edges : (pairs, log_tables), optional
        Pairwise factors: ``pairs`` (m, 2) integers and ``log_tables`` (m, 2, 2) or (2, 2), where
        ``log_tables[e, a, b]`` belongs to ``y_i = a, y_j = b`` for ``pairs[e] = (i, j)``. An object with attributes
        ``pairs`` and ``log_tables`` serves too.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.loopy_bp
    tallytree.CountModel
    tallytree.assignment

    Notes
    -----
    Cost: linear in the total size of the groups. The graph is frozen and keeps copies of its parameters.

    Finite numbers that stand for ``-inf``, such as masks of -1e20, are treated as ``-inf``: log-odds below -1e12, and
    table entries more than 1e12 below the largest of their table.

    Examples
    --------
    Two overlapping groups of three variables, exactly one on in each:

    >>> graph = tt.FactorGraph(np.zeros(5), [tt.Group([0, 1, 2], tt.exactly(1)), tt.Group([2, 3, 4], tt.exactly(1))])
    >>> graph
    FactorGraph(n_variables=5, n_groups=2, n_edges=0)
    >>> tt.loopy_bp(graph).marginals.round(3)
    array([0.4, 0.4, 0.2, 0.4, 0.4])
    """

    def __init__(self, logits: ArrayLike, groups: Iterable[Group] = (), *, edges: Any = None) -> None:
        values, _ = checks.logits(logits)
        if values.ndim != 1:
            raise ParameterError(
                f"`logits` of a FactorGraph must be one-dimensional, one entry per variable; shape {values.shape} "
                "arrived. Make one graph per model, or ravel a matrix of variables."
            )
        listed = groups_of(groups)
        members, offsets = all_members([g.members for g in listed], len(values))
        sizes, cache = np.diff(offsets).tolist(), dict[Any, Float64]()
        factors = tuple(factor(g.potential, n, i, cache) for i, (g, n) in enumerate(zip(listed, sizes)))
        self._setup(values.copy(), members, offsets, factors, *pairwise(edges, len(values)))

    _logits: Float64
    _pair_tables: Float64
    _members: Ints
    _pairs: Ints
    _factors: tuple[Factor, ...]

    def _setup(self, *given: Any) -> None:
        for part in given:
            if isinstance(part, np.ndarray):
                part.flags.writeable = False
        self._given, self._structure = given, _Structure()
        self._logits, self._members, self._offsets, self._factors, self._pairs, self._pair_tables = given

    @classmethod
    def _made(cls, *given: Any) -> FactorGraph:
        new = cls.__new__(cls)
        new._setup(*given)
        return new

    # -- what it is made of ------------------------------------------------------------------------------------

    @property
    def n_variables(self) -> int:
        """Number of variables D."""
        return len(self._logits)

    @property
    def n_groups(self) -> int:
        """Number of count factors; pairwise factors are numbered after them."""
        return len(self._factors)

    @property
    def n_edges(self) -> int:
        """Number of pairwise factors."""
        return len(self._pairs)

    @property
    def logits(self) -> Float64:
        """Log-odds as given, (D,), read-only."""
        return self._logits

    @property
    def groups(self) -> tuple[Group, ...]:
        """Members and potential of every count factor.

        See Also
        --------
        members, tables

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_most(1)), tt.Group([1, 2], tt.at_most(1))])
        >>> len(graph.groups)
        2
        """
        return tuple(Group(self.members(i), given) for i, (given, _, _) in enumerate(self._factors))

    @property
    def tables(self) -> tuple[Float64 | None, ...]:
        """Log-table of every count factor, (n + 1,); None where the factor is a CountModel.

        See Also
        --------
        groups, models

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_most(1)), tt.Group([1, 2], tt.at_most(1))])
        >>> graph.tables[0]
        array([  0.,   0., -inf])
        """
        return tuple(table for _, table, _ in self._factors)

    @property
    def models(self) -> tuple[CountModel | None, ...]:
        """The :class:`CountModel` of every count factor that is a whole model, None for the others."""
        return tuple(model for _, _, model in self._factors)

    @property
    def pairs(self) -> Ints:
        """Variables of the pairwise factors, (m, 2)."""
        return self._pairs

    @property
    def pair_tables(self) -> Float64:
        """Log-tables of the pairwise factors, (m, 2, 2)."""
        return self._pair_tables

    def members(self, group: int) -> Ints:
        """Variables of one count factor.

        Parameters
        ----------
        group : int
            Number of the factor.

        Returns
        -------
        ndarray of int
            Variables, in the order in which they were given.

        Raises
        ------
        ParameterError
            If there is no factor of this number.

        See Also
        --------
        groups, n_groups

        Examples
        --------
        >>> tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.exactly(1)), tt.Group([1, 2], tt.exactly(1))]).members(1)
        array([1, 2])
        """
        number = checks.group_number(group, self.n_groups)
        return self._members[self._offsets[number] : self._offsets[number + 1]]

    @property
    def total_logits(self) -> Float64:
        """Log-odds of the variables plus those of the factors that are whole models, (D,).

        An infinite log-odds outweighs finite ones.

        See Also
        --------
        logits

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_most(1)), tt.Group([1, 2], tt.at_most(1))])
        >>> graph.total_logits
        array([0., 0., 0.])
        """
        return self._totals[0]

    @property
    def forced_log_weight(self) -> float:
        """Constant that variables which are forced on add to the log-weight of every configuration.

        A variable that one infinite log-odds forces on may have finite log-odds elsewhere, in a factor that is a
        model or in the graph. These are added up here.

        See Also
        --------
        log_weight, total_logits

        Examples
        --------
        >>> first_is_on = tt.CountModel([np.inf, 0.0])
        >>> tt.FactorGraph([1.5, 0.0], [tt.Group([0, 1], first_is_on)]).forced_log_weight
        1.5
        """
        return self._totals[1]

    @cached
    def _totals(self) -> tuple[Float64, float]:
        own, constant = masks.resolve_logits(self._logits)
        finite = np.where(np.isfinite(own), own, 0.0)
        excluded, forced = own == -math.inf, own == math.inf
        for i, model in enumerate(self.models):
            if model is None:
                continue
            (logits, added), at = masks.resolve_logits(np.asarray(model.logits, np.float64)), self.members(i)
            constant = constant + added
            finite[at] += np.where(np.isfinite(logits), logits, 0.0)
            excluded[at] |= logits == -math.inf
            forced[at] |= logits == math.inf
            clash = at[excluded[at] & forced[at]]
            if len(clash):
                raise InfeasibleError(
                    f"Variable {int(clash[0])} is forced on by one infinite logit and excluded by another (group {i}). "
                    "Remove one of them."
                )
        total, added = masks.resolve_logits(np.where(excluded, -math.inf, np.where(forced, math.inf, finite)))
        total.flags.writeable = False
        return total, float(finite[forced].sum() + constant + added)

    def replace(self, *, logits: ArrayLike) -> FactorGraph:
        """Return a graph with the same factors and other log-odds.

        Parameters
        ----------
        logits : array_like, (D,)
            New log-odds.

        Returns
        -------
        FactorGraph
            A new graph; this one stays as it is.

        Raises
        ------
        ParameterError
            If ``logits`` does not have the shape of the old.

        See Also
        --------
        logits, loopy_bp

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(2), [tt.Group([0, 1], tt.exactly(1))])
        >>> tt.loopy_bp(graph.replace(logits=[0.0, np.log(3.0)])).marginals
        array([0.25, 0.75])
        """
        hint = " For another number of variables make a new FactorGraph."
        values = checks.array("logits", logits, self._logits.shape, checks.NUMBERS, hint=hint)
        new = self._made(values.copy(), *self._given[1:])
        new._structure = self._structure
        return new

    def _decided(self, variable: int, value: int) -> FactorGraph:
        """The graph given that a variable is off or on, which weighs one."""
        logits = np.array(self._logits)
        logits[variable] = math.inf if value else -math.inf
        return self.replace(logits=logits)

    def log_weight(self, y: ArrayLike) -> Any:
        """Logarithm of the unnormalised weight of configurations (..., D).

        Parameters
        ----------
        y : array_like, (..., D)
            Configurations of zeros and ones.

        Returns
        -------
        float or ndarray, (...)
            Log-weights; ``-inf`` for impossible configurations.

        Raises
        ------
        ParameterError
            If ``y`` does not consist of 0 and 1 with D of them on the last axis.

        See Also
        --------
        forced_log_weight, loopy_bp

        Examples
        --------
        >>> graph = tt.FactorGraph([1.0, 2.0, 4.0], [tt.Group([0, 1], tt.at_most(1)), tt.Group([1, 2], tt.at_most(1))])
        >>> graph.log_weight([[1, 0, 1], [1, 1, 0]])
        array([  5., -inf])
        """
        on = states(y, self.n_variables)
        total = moments.weight_of_logits(logits_without_masks(self._logits), on)
        for i, (_, table, model) in enumerate(self._factors):
            part = on[..., self.members(i)]
            if model is not None:
                total = total + _model_weight(model, part)
            elif table is not None:
                total = total + table[part.sum(-1)]
        if self.n_edges:
            a, b = on[..., self._pairs[:, 0]].astype(np.intp), on[..., self._pairs[:, 1]].astype(np.intp)
            total = total + self._pair_tables[np.arange(self.n_edges), a, b].sum(-1)
        return np.asarray(total)[()]

    # -- answers -----------------------------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Price of exact answers: the largest number of joint states of counts that must be kept at once.

        It is 1 if the groups are nested.

        See Also
        --------
        exact, infer

        Notes
        -----
        Variables are summed out one after the other; meanwhile the counts so far of all groups that are begun and not
        finished must be remembered. The width is the number of their joint states where it is largest.

        Cost: a search for a good order, well below a second for hundreds of variables. Exact answers take time and
        memory in proportion to the number of variables times the width.

        Examples
        --------
        >>> tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.parity())]).width
        4
        """
        from .exact import ExactResult

        return ExactResult(self, math.inf).width

    def exact(self, limit: float | None = None) -> ExactResult:
        """Exact answers: log Z, marginals, counts, samples, modes.

        Parameters
        ----------
        limit : float, optional
            Largest :attr:`width` for which answers are computed; default 2^22, which takes seconds and less than a
            gigabyte.

        Returns
        -------
        ExactResult
            The answers, computed when they are asked for.

        Raises
        ------
        StructureError
            If :attr:`width` is above the limit; the message says how large it is.
        InfeasibleError
            If no configuration has positive weight.
        ParameterError
            If ``limit`` is not a positive number.

        See Also
        --------
        width, infer, tallytree.loopy_bp

        Notes
        -----
        Cost: variables times :attr:`width`. Accuracy: 1e-12; see :attr:`tallytree.loopy.ExactResult.error_bound`.

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))])
        >>> graph.exact().marginals
        array([0.6, 0.8, 0.6])
        """
        from .exact import LIMIT, ExactResult

        return ExactResult(self, LIMIT if limit is None else checks.real("limit", limit, 1.0))

    def infer(self, limit: float | None = None, **options: Any) -> ExactResult | LoopyResult:
        """Exact answers where they are cheap, otherwise belief propagation; ``method`` of the result says which it was.

        Parameters
        ----------
        limit : float, optional
            Largest :attr:`width` for which answers are exact; default 2^22.
        **options
            Passed to :func:`loopy_bp` where that is used.

        Returns
        -------
        ExactResult or LoopyResult
            Both have ``method``, ``marginals``, ``log_odds`` and ``count_log_probs``.

        Raises
        ------
        InfeasibleError
            If no configuration has positive weight.
        ParameterError
            If an argument has the wrong type or value.

        Warns
        -----
        UserWarning
            If belief propagation was used and its marginals differ from exact ones on parts of the graph.

        See Also
        --------
        exact, tallytree.loopy_bp, tallytree.loopy.LoopyResult.deviation

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.at_least(1)), tt.Group([1, 2], tt.at_least(1))])
        >>> graph.infer().method
        'exact'
        """
        from .exact import LIMIT
        from .propagation import loopy_bp

        most = LIMIT if limit is None else checks.real("limit", limit, 0.0)
        if self.width <= most:
            return self.exact(most)
        result = loopy_bp(self, **options)
        if not result.reliable:
            warnings.warn(result.caution, stacklevel=2)
        return result

    def sample(
        self,
        size: Any = None,
        rng: Any = None,
        *,
        limit: float | None = None,
        chains: int = 4,
        warm_up: int = 50,
        progress: bool | Report = False,
    ) -> GraphSamples:
        """Joint draws: independent and exact where that is cheap, otherwise from several Gibbs chains.

        Each step of a chain redraws a block of variables, as large as exact inference allows, given all others.

        Parameters
        ----------
        size : int or tuple of int, optional
            How many; default one, without an axis.
        rng : int, numpy.random.Generator, RandomState, SeedSequence, BitGenerator or None
            Source of randomness.
        limit : float, optional
            Largest :attr:`width` for which draws are exact; default 2^22.
        chains : int
            Number of chains, at least 2; their draws are interleaved.
        warm_up : int
            Sweeps over all blocks before the first draw of a chain; each later draw is one sweep further on.
        progress : bool or callable
            True shows the sweeps. A function is called after each of them.

        Returns
        -------
        GraphSamples
            ``draws`` of zeros and ones, ``(*size, D)``, the ``method``, and for chains ``rhat`` and ``effective_size``
            of every variable. ``numpy.asarray`` gives the draws.

        Raises
        ------
        InfeasibleError
            If no configuration has positive weight, or none is found to start a chain from.
        ParameterError
            If an argument has the wrong type or value.

        See Also
        --------
        exact, tallytree.loopy.GraphSamples

        Notes
        -----
        Hard constraints may leave a chain no way between two sets of configurations; ``rhat`` is then above 1 if chains
        began in different ones.

        Examples
        --------
        >>> graph = tt.FactorGraph(np.zeros(3), [tt.Group([0, 1], tt.exactly(1)), tt.Group([1, 2], tt.exactly(1))])
        >>> samples = graph.sample(2, rng=0)
        >>> samples.method
        'exact'
        """
        from .blocks import GraphSamples, gibbs_draws
        from .exact import LIMIT

        shape, generator = checks.shape("size", size), checks.generator(rng)
        most, told = LIMIT if limit is None else checks.real("limit", limit, 0.0), check_progress(progress)
        number, n = math.prod(shape), self.n_variables
        if self.width <= most:
            draws = self.exact(most).sample(number, generator)
            found = GraphSamples(draws, "exact", 0, np.ones(n), np.full(n, float(number)))
        else:
            chains, warm_up = checks.integer("chains", chains, 2), checks.integer("warm_up", warm_up, 0)
            found = gibbs_draws(self, number, chains, warm_up, generator, told)
        return replace(found, draws=found.draws.reshape(*shape, n))

    # -- as a Python object ------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return (
            f"FactorGraph(n_variables={self.n_variables}, n_groups={self.n_groups}, n_edges={self.n_edges})"
        )

    _repr_html_ = display.graph_page

    def _parts(self) -> tuple[Any, ...]:
        return *self._given[:3], self.tables, self.models, *self._given[4:]

    def __reduce__(self) -> Any:
        return self._made, self._given


def _model_weight(model: CountModel, on: NDArray[np.bool_]) -> Float64:
    """Log of the unnormalised weight under a model, (...,); in double precision whatever the model answers in."""
    return moments.log_weight(model._tree, model._params, on, model._edge_weights(on))


def without_masks(logs: Float64) -> Float64:
    """A log-table with ``-inf`` for entries that are finite but stand for it, such as -1e20; largest entry apart."""
    if not logs.size or absent(logs):
        return logs
    with np.errstate(over="ignore"):
        return np.where(resolve_table(logs.reshape(-1))[0].reshape(logs.shape) == -math.inf, -math.inf, logs)


def logits_without_masks(logits: Float64) -> Float64:
    """Log-odds with ``-inf`` for entries that are finite but stand for it."""
    masked = logits < -MASK
    return np.where(masked, -math.inf, logits) if masked.any() else logits


def groups_of(groups: Any) -> Sequence[Group]:
    """The groups as a list."""
    if isinstance(groups, Group):
        return [groups]
    single = not isinstance(groups, Iterable) or getattr(groups, "ndim", 1) == 0
    listed = [groups] if single else list(groups)
    for g in listed:
        if not isinstance(g, Group):
            raise ParameterError(
                f"`groups` must be a list of Group objects, but it holds {checks.describe(g)}. Wrap every entry: "
                "Group(members, potential)."
            )
    return listed


def factor(
    value: Any, size: int, number: int, cache: dict[Any, Float64]
) -> tuple[Any, Float64 | None, CountModel | None]:
    """A factor's potential as given, its log-table unless it is a model, and that model, masks taken for -inf."""
    if isinstance(value, CountModel):
        return value, None, _model(value, size, number)
    if isinstance(value, Potential) or value is None or callable(value):
        potential = as_potential(value)
        try:
            known = cache.get((potential, size))
        except TypeError:  # a potential written by the user may not be hashable
            return potential, _checked(potential.log_table(size), size, number), None
        if known is None:
            known = cache[(potential, size)] = _checked(potential.log_table(size), size, number)
        return potential, known, None
    if not isinstance(value, (np.ndarray, list, tuple)):
        hint = " A chain with two labels is CountModel(logits, edges=Forest(...))."
        if isinstance(value, (int, np.integer)):
            hint = f" For a fixed count use exactly({value})."
        raise ParameterError(
            f"The potential of group {number} must be a potential, an array of log-values, a function of the count, "
            f"a CountModel or None; {checks.describe(value)} arrived.{hint}"
        )
    if not (isinstance(value, np.ndarray) and value.dtype == np.float64 and not value.flags.writeable):
        called = f"The table of group {number}"
        value = checks.real_array(called, value, "counts")[0].copy()
    table = _checked(value, size, number)
    return table, table, None


def _model(model: CountModel, size: int, number: int) -> CountModel:
    if model.n_variables != size or model.batch_shape:
        what = f"batch shape {model.batch_shape}" if model.batch_shape else f"{model.n_variables} variables"
        raise StructureError(
            f"The model of group {number} must be a single CountModel over {size} variables, one per member; one "
            f"with {what} arrived. Use one group per model, with as many members as the model has variables."
        )
    given = np.asarray(model.logits, np.float64)
    logits, tables = logits_without_masks(given), [without_masks(t) for t in model.tables]
    same = logits is given and all(a is b for a, b in zip(tables, model.tables))
    edges = None if model.edges is None else model.edges.log_tables
    if edges is not None:
        cleaned = np.array([without_masks(t) for t in edges]).reshape(edges.shape)
        same, edges = same and np.array_equal(edges, cleaned), cleaned
    return model if same else model.replace(logits=logits, tables=tables, edges=edges)


def _checked(table: Any, size: int, number: int) -> Float64:
    checked = checks.log_table(table, size, name=f"The table of group {number}")
    if checked.ndim != 1:
        raise ParameterError(
            f"The table of group {number} must be one-dimensional; shape {checked.shape} arrived. Make one graph "
            f"per model."
        )
    checked = without_masks(checked)
    checked.flags.writeable = False
    return checked


def pairwise(edges: Any, n: int) -> tuple[Ints, Float64]:
    """Pairs (m, 2) and log-tables (m, 2, 2) of the pairwise factors."""
    if edges is None:
        return np.empty((0, 2), np.int64), np.empty((0, 2, 2))
    if hasattr(edges, "pairs") and hasattr(edges, "log_tables"):
        edges = (edges.pairs, edges.log_tables)
    if not (isinstance(edges, (tuple, list)) and len(edges) == 2):
        raise ParameterError(
            "`edges` must be a tuple (pairs, log_tables) with shapes (m, 2) and (m, 2, 2); "
            f"{checks.describe(edges)} arrived."
        )
    pairs = pairs_of_variables(edges[0], n)
    if len(pairs) == 0:
        return pairs, np.empty((0, 2, 2))
    tables = checks.array("log_tables", edges[1], (..., 2, 2), checks.LOGS)
    if tables.shape not in ((2, 2), (len(pairs), 2, 2)):
        raise ParameterError(
            f"`log_tables` must have shape (2, 2) or ({len(pairs)}, 2, 2), one table per edge; shape "
            f"{tables.shape} arrived."
        )
    each = np.broadcast_to(tables, (len(pairs), 2, 2))
    return pairs, np.array([without_masks(t) for t in each])
