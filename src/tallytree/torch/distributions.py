"""Count models as distributions of PyTorch over configurations: `CountDistribution`, `ConditionalBernoulli`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl

from .. import checks
from ..errors import ParameterError
from . import functions, ops
from . import structure as structures
from .arguments import Posed, pose
from .autograd import answer
from .edges import EdgedStructure, edge_weight
from .potentials import exactly
from .structure import Structure, structure_of
from .tensors import anywhere, as_batch_shape, as_logits, as_real, as_tensor, common_shape


class OfCounts(Distribution):
    """A law whose draws are whole numbers."""

    def rsample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008 - PyTorch's own signature
        """Not available: samples of zeros and ones have no gradient.

        Parameters
        ----------
        sample_shape : sequence of int
            Leading axes of the draws.

        Returns
        -------
        Tensor
            Nothing; the method always raises.

        Raises
        ------
        NotImplementedError
            Always; the message says what to use instead.

        See Also
        --------
        sample, log_prob, tallytree.torch.KSubset

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> ttt.CountDistribution(torch.zeros(4), tt.exactly(1)).has_rsample
        False
        """
        raise NotImplementedError(
            "Draws of zeros and ones do not move with the parameters, so there is no `rsample`. Use "
            "tallytree.torch.KSubset (exact draws with the gradient of the exact marginals), differentiate `marginals` "
            "or `log_prob` themselves, or weigh `log_prob(sample)` by a reward."
        )


class CountDistribution(OfCounts):
    """Binary vectors with log-odds and potentials on counts, as a PyTorch distribution.

    Parameters
    ----------
    logits : Tensor, (..., D)
        Log-odds without any potential; leading axes are the batch shape, the event shape is (D,).
    groups : potential or sequence of Group, optional
        Potentials on counts, as in :func:`tallytree.torch.log_partition`; default none.
    validate_args : bool, optional
        As in :class:`torch.distributions.Distribution`.
    mask : bool tensor, (..., D), optional
        True for variables that take part; the others are never on.
    edges : Forest, optional
        Pairwise tables on a forest, as in :func:`tallytree.torch.log_partition`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.CountModel
    tallytree.torch.ConditionalBernoulli
    tallytree.torch.PoissonBinomial

    Notes
    -----
    ``log_prob``, ``mean``, ``variance``, ``entropy`` and the Kullback-Leibler divergence are exact and differentiable;
    samples are exact. In Pyro: ``class Subsets(ttt.CountDistribution, TorchDistributionMixin): pass``.

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> d = ttt.CountDistribution(torch.zeros(4), tt.exactly(2))
    >>> d.mean, d.entropy()
    (tensor([0.5000, 0.5000, 0.5000, 0.5000]), tensor(1.7918))
    >>> d.log_prob(torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]]))
    tensor([-1.7918,    -inf])
    """

    arg_constraints = {"logits": constraints.real_vector}  # noqa: RUF012 - the name and form that PyTorch expects
    has_enumerate_support = False

    def __init__(
        self,
        logits: Any,
        groups: Any = None,
        validate_args: bool | None = None,
        *,
        mask: Any = None,
        edges: Any = None,
    ) -> None:
        self._posed = pose(logits, groups, edges, mask)
        shape = self._posed.logits.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=False)
        self._validate = (
            Distribution._validate_args
            if validate_args is None
            else checks.flag("validate_args", validate_args)
        )

    @property
    def logits(self) -> Tensor:
        """Log-odds without any potential, (..., D)."""
        return self._posed.logits.to(self._posed.dtype)

    @constraints.dependent_property(is_discrete=True, event_dim=1)  # type: ignore[no-untyped-call]
    def support(self) -> Any:
        """Vectors of zeros and ones, some of which the potentials may exclude."""
        return constraints.independent(constraints.boolean, 1)

    def expand(self, batch_shape: Any, _instance: Any = None) -> CountDistribution:
        """The same models over more batch axes.

        Parameters
        ----------
        batch_shape : sequence of int
            The new batch shape.

        Returns
        -------
        CountDistribution
            An object whose parameters share memory with those of this one.

        Raises
        ------
        ParameterError
            If ``batch_shape`` does not keep the batch axes.

        See Also
        --------
        log_prob, sample

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.CountDistribution(torch.zeros(4), tt.exactly(1))
        >>> d.expand((3,)).mean.shape
        torch.Size([3, 4])
        """
        new = self._get_checked_instance(CountDistribution, _instance)
        shape = as_batch_shape(batch_shape, self.batch_shape)
        new._posed = self._posed.expand(shape)
        new._validate = self._validate
        super(CountDistribution, new).__init__(shape, self.event_shape, validate_args=False)
        return new

    def __repr__(self) -> str:
        groups = len(structures.group_sizes(self._posed.structure.key, self.event_shape[0]))
        shown = f"n_variables={self.event_shape[0]}, n_groups={groups}, batch_shape={tuple(self.batch_shape)}"
        return f"{type(self).__name__}({shown})"

    # -- answers ---------------------------------------------------------------------------------------------------

    @property
    def log_partition(self) -> Tensor:
        """Log Z, (...,).

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        log_prob

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.CountDistribution(torch.zeros(4), tt.exactly(1))
        >>> d.log_partition
        tensor(1.3863)
        """
        return functions.log_partition_of(self._posed)

    @property
    def marginals(self) -> Tensor:
        """P(y_d = 1), (..., D).

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        mean, count_log_probs

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.CountDistribution(torch.zeros(4), tt.exactly(1))
        >>> d.marginals
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
        """
        return functions.marginals_of(self._posed)

    @property
    def mean(self) -> Tensor:
        """P(y_d = 1), (..., D).

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        marginals, variance

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.CountDistribution(torch.zeros(4), tt.exactly(1))
        >>> d.mean
        tensor([0.2500, 0.2500, 0.2500, 0.2500])
        """
        return self.marginals

    @property
    def variance(self) -> Tensor:
        """Variances of the variables, (..., D).

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        mean

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.CountDistribution(torch.zeros(4), tt.exactly(1))
        >>> d.variance
        tensor([0.1875, 0.1875, 0.1875, 0.1875])
        """
        marginals = self.marginals
        return marginals * (1.0 - marginals)

    @property
    def mode(self) -> Tensor:
        """A most probable configuration, (..., D).

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        sample

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> ttt.CountDistribution(torch.tensor([0.5, -1.0, 2.0]), tt.exactly(1)).mode
        tensor([0., 0., 1.])
        """
        posed = self._posed.detach()
        return answer(ops.mode, posed.logits, posed.tables, posed.structure.key).to(posed.dtype)

    def count_log_probs(self, group: int | None = None) -> Tensor:
        """Log-probabilities of the counts of a group (None: of all variables), (..., n + 1).

        Parameters
        ----------
        group : int, optional
            Number of the group; default all variables.

        Returns
        -------
        Tensor, (..., n + 1)
            Logarithms, differentiable; ``-inf`` for impossible counts.

        Raises
        ------
        ParameterError
            If there is no group of this number.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        marginals, log_prob

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.CountDistribution(torch.zeros(4), tt.exactly(1))
        >>> d.count_log_probs().exp()
        tensor([0., 1., 0., 0., 0.])
        """
        return functions.count_log_probs_of(self._posed, group)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-probability of configurations, (sample..., ...).

        Parameters
        ----------
        value : tensor of 0 and 1, (..., D)
            Configurations; leading axes broadcast against the batch.

        Returns
        -------
        Tensor, (sample..., ...)
            Logarithms, differentiable in the parameters.

        Raises
        ------
        ParameterError
            If ``value`` has another last axis, or, with ``validate_args``, holds anything but 0 and 1.
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        sample, entropy

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.CountDistribution(torch.zeros(4), tt.exactly(1))
        >>> d.log_prob(torch.tensor([0.0, 1.0, 0.0, 0.0]))
        tensor(-1.3863)
        """
        on = _states(value, self.event_shape[0], self._posed.logits.device, self._validate)
        common_shape("`value` and the batch", on.shape[:-1], self.batch_shape)
        score = log_weight(self._posed, on) - functions.log_partition_of(self._posed.wide())
        return score.to(self._posed.dtype)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008 - PyTorch's own signature
        """Exact draws of zeros and ones, (sample_shape..., ..., D).

        Parameters
        ----------
        sample_shape : sequence of int
            Leading axes of the draws.

        Returns
        -------
        Tensor, (sample_shape..., ..., D)
            Zeros and ones, without gradients.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        log_prob, mode

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.CountDistribution(torch.zeros(4), tt.exactly(1))
        >>> d.sample((5,)).sum(-1)
        tensor([1., 1., 1., 1., 1.])
        """
        return functions.sample_of(self._posed, sample_shape, None)

    def entropy(self) -> Tensor:
        """Entropy in nats, (...,), accurate even if it is tiny.

        Returns
        -------
        Tensor, (...)
            Differentiable.

        Raises
        ------
        InfeasibleError
            If every configuration has probability zero.

        See Also
        --------
        log_prob, log_partition

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.CountDistribution(torch.zeros(4), tt.exactly(1))
        >>> d.entropy()
        tensor(1.3863)
        """
        posed = self._posed
        return answer(ops.entropy, posed.logits, posed.tables, posed.structure.key).to(posed.dtype)


class ConditionalBernoulli(CountDistribution):
    """Independent Bernoulli variables given that exactly ``total_count`` of them are on.

    Parameters
    ----------
    total_count : int or Tensor of int
        One number, or one per model of the batch.
    logits : Tensor, (..., D)
        Log-odds before the number is known; leading axes are the batch shape.
    validate_args : bool, optional
        As in :class:`torch.distributions.Distribution`.
    mask : bool tensor, (..., D), optional
        True for variables that take part; the others are never on.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.torch.CountDistribution
    tallytree.torch.KSubset

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> ttt.ConditionalBernoulli(1, torch.tensor([0.0, 0.0, 0.6931])).mean
    tensor([0.2500, 0.2500, 0.5000])
    """

    arg_constraints = {  # noqa: RUF012 - the name and form that PyTorch expects
        "total_count": constraints.nonnegative_integer,
        "logits": constraints.real_vector,
    }

    def __init__(
        self, total_count: Any, logits: Any, validate_args: bool | None = None, *, mask: Any = None
    ) -> None:
        n = as_logits(logits).shape[-1]
        if not isinstance(total_count, Tensor):
            checks.integer("total_count", total_count, 0, n, "the number of variables")
        self.total_count = as_tensor("total_count", total_count)
        super().__init__(logits, exactly(self.total_count), validate_args, mask=mask)

    def expand(self, batch_shape: Any, _instance: Any = None) -> ConditionalBernoulli:
        """The same models over more batch axes.

        Parameters
        ----------
        batch_shape : sequence of int
            The new batch shape.

        Returns
        -------
        ConditionalBernoulli
            An object whose parameters share memory with those of this one.

        See Also
        --------
        log_prob, sample

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.ConditionalBernoulli(1, torch.zeros(4))
        >>> d.expand((3,)).mean.shape
        torch.Size([3, 4])
        """
        new = self._get_checked_instance(ConditionalBernoulli, _instance)
        super().expand(batch_shape, new)
        new.total_count = self.total_count.expand(new.batch_shape)
        return new  # type: ignore[no-any-return]


# -- weights of configurations -------------------------------------------------------------------------------------


def _states(value: Any, n: int, device: torch.device, validate: bool) -> Tensor:
    value = as_real("value", value, device)
    if value.dim() == 0 or value.shape[-1] != n:
        raise ParameterError(
            f"`value` must have {n} entries on the last axis, one per variable; shape {tuple(value.shape)} arrived."
        )
    on = value != 0
    if validate and anywhere(on != (value == 1)):
        raise ParameterError("`value` must contain only 0 and 1, but other values arrived.")
    return on


def log_weight(posed: Posed, on: Tensor) -> Tensor:
    """Log of the unnormalised weight of configurations (..., D) of truth values; a forced variable weighs one."""
    logits, structure = posed.logits, posed.structure
    on = on.expand(torch.broadcast_shapes(on.shape, logits.shape))
    forced = logits == math.inf
    weight_on, weight_off = torch.where(forced, 0.0, logits), torch.where(forced, -math.inf, 0.0)
    score = torch.where(on, weight_on, weight_off).sum(-1)
    tables = posed.packed()
    start = 0
    for g, size in enumerate(structures.group_sizes(structure.key, logits.shape[-1])):
        some = on if structure.key < 0 else on[..., structures.group_members(structure.key, g).to(on.device)]
        count = some.sum(-1, keepdim=True)
        table = tables[..., start : start + size + 1].expand(*count.shape[:-1], size + 1)
        score = score + table.gather(-1, count).squeeze(-1)
        start += size + 1
    if isinstance(structure, EdgedStructure):
        score = score + edge_weight(structure.frame, tables[..., structure.n_group_cells :], on)
    return score


def expected_weight(marginals: Tensor, probs: Tensor, weights: Posed) -> Tensor:
    """E[log weight] of a model's weights under a law with these marginals and count probabilities, (*b,)."""
    logits = torch.where(torch.isposinf(weights.logits), 0.0, weights.logits)
    total = torch.where(marginals > 0.0, marginals * torch.where(marginals > 0.0, logits, 0.0), 0.0).sum(-1)
    off = torch.where(torch.isposinf(weights.logits) & (marginals < 1.0), -math.inf, 0.0).sum(-1)
    tables = weights.packed()
    possible = probs > 0.0
    return total + off + torch.where(possible, probs * torch.where(possible, tables, 0.0), 0.0).sum(-1)


# -- the Kullback-Leibler divergence -------------------------------------------------------------------------------


@register_kl(CountDistribution, CountDistribution)
def _kl(p: CountDistribution, q: CountDistribution) -> Tensor:
    """KL(p || q) = E_p[log weight_p - log weight_q] - log Z_p + log Z_q on the groups of both."""
    checks.comparable("variables", p.event_shape[0], q.event_shape[0])
    first, second = _together(p._posed.wide(), q._posed.wide())
    log_z, marginals, probs = functions.statistics(first)
    gap = functions.log_partition_of(second) - log_z
    own, other = (expected_weight(marginals, probs, weights) for weights in (first, second))
    found = own - other + gap
    return found.to(p._posed.dtype)


def _together(p: Posed, q: Posed) -> tuple[Posed, Posed]:
    """Both models on the groups of both, with one batch shape."""
    shape = torch.broadcast_shapes(p.logits.shape, q.logits.shape)
    keys = p.structure.key, q.structure.key, len(range(shape[-1]))
    structure = _joint(*keys)
    both, (cells, *layout) = [], _layout(structure.key, *keys)
    for posed, end, first, last in zip((p, q), *layout):
        own = posed.packed()
        groups = torch.nn.functional.pad(own[..., :end], (first, last))
        edges = torch.nn.functional.pad(own[..., end:], (0, cells - groups.shape[-1] - own.shape[-1] + end))
        tables = torch.cat([groups, edges], dim=-1).expand(*shape[:-1], cells)
        both.append(posed._replace(logits=posed.logits.expand(shape), tables=tables, structure=structure))
    return both[0], both[1]


@structures.made
def _joint(first: int, second: int, n: int) -> Structure:
    """The groups and edges of two structures, with tables that arrive with every call."""
    p, q = structure_of(first, n), structure_of(second, n)
    tree = p.tree if p.tree == q.tree else p.tree.with_groups(list(q.tree.groups))
    frames = [side.frame.pairs for side in (p, q) if isinstance(side, EdgedStructure)]
    if len(frames) == 2 and not np.array_equal(frames[0], frames[1]):
        raise ParameterError(
            "The Kullback-Leibler divergence needs models with the same edges, or one without; different pairs arrived."
        )
    return (p if isinstance(p, EdgedStructure) else q).on(tree, None)


@torch.compiler.assume_constant_result
def _layout(joint: int, first: int, second: int, n: int) -> tuple[Any, ...]:
    """Cells of both models together, and of either: where the tables of its groups end, what precedes and follows."""
    cells, p, q = structure_of(joint, n).n_cells, structure_of(first, n).tree, structure_of(second, n).tree
    ends = int(p.family.group_offset[-1]), int(q.family.group_offset[-1])
    return (cells, ends, (0, 0), (0, 0)) if p == q else (cells, ends, (0, ends[0]), (ends[1], 0))
