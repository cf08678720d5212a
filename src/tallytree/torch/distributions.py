"""`CountDistribution`: a count model as a `torch.distributions.Distribution` over configurations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from ..errors import ParameterError
from . import functions, ops
from .autograd import differentiable
from .groups import Posed, pose
from .mapping import readable
from .tensors import as_real, as_shape, common_shape
from .weights import expected_weight, log_weight


class CountDistribution(Distribution):
    """Binary vectors with log-odds and potentials on counts, as a PyTorch distribution.

    Parameters
    ----------
    logits : Tensor, (..., D)
        Log-odds without any potential; leading axes are the batch shape, the event shape is (D,).
    groups : potential or sequence of Group, optional
        As in :func:`tallytree.torch.log_partition`.
    validate_args : bool, optional
        As in :class:`torch.distributions.Distribution`.
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
        self, logits: Any, groups: Any = None, validate_args: bool | None = None, *, edges: Any = None
    ) -> None:
        self._posed = pose(logits, groups, edges)
        shape = self._posed.logits.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=False)
        self._validate = Distribution._validate_args if validate_args is None else validate_args

    @property
    def logits(self) -> Tensor:
        """Log-odds without any potential, (..., D)."""
        return self._posed.logits.to(self._posed.dtype)

    @property
    def support(self) -> Any:
        """Vectors of zeros and ones; which of them are possible, the potentials say."""
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
            Its parameters share memory with these.

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
        shape = torch.Size(as_shape("batch_shape", batch_shape))
        if common_shape("`batch_shape` and that of the models", shape, self.batch_shape) != shape:
            raise ParameterError(
                f"`batch_shape` must keep the batch axes of the models, {tuple(self.batch_shape)}, with more in front "
                f"or in place of ones; {tuple(shape)} arrived."
            )
        posed = self._posed
        tables = posed.tables
        if tables is not None and tables.dim() > 1:
            tables = tables.expand(*shape, tables.shape[-1])
        new._posed = posed._replace(logits=posed.logits.expand(*shape, posed.logits.shape[-1]), tables=tables)
        new._validate = self._validate
        super(CountDistribution, new).__init__(shape, self.event_shape, validate_args=False)
        return new

    def __repr__(self) -> str:
        groups = self._posed.structure.tree.family.n_groups
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
        posed = detached(self._posed)
        return ops.mode(posed.logits, posed.tables, posed.structure.key).to(posed.dtype)

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
        value : tensor
            Where to evaluate.

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
        """Entropy in nats, (...,), accurate also where it is tiny.

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
        posed = self._posed.wide()
        exact = detached(posed)
        value = ops.entropy(exact.logits, exact.tables, exact.structure.key)
        if not differentiable(posed.logits, posed.tables):
            return value.to(self._posed.dtype)
        log_z, marginals, probs = functions.statistics(posed)
        formula = log_z - expected_weight(marginals, probs, posed)
        # The formula cancels where the entropy is small; its derivatives do not.
        return (value + (formula - formula.detach())).to(self._posed.dtype)


def detached(posed: Posed) -> Posed:
    return posed._replace(
        logits=posed.logits.detach(), tables=None if posed.tables is None else posed.tables.detach()
    )


def _states(value: Any, n: int, device: torch.device, validate: bool) -> Tensor:
    value = as_real("value", value, device)
    if value.dim() == 0 or value.shape[-1] != n:
        raise ParameterError(
            f"`value` must have {n} entries on the last axis, one per variable; shape {tuple(value.shape)} arrived."
        )
    on = value != 0
    if validate and readable(on) and not bool((on == (value == 1)).all()):
        raise ParameterError("`value` must contain only 0 and 1, but other values arrived.")
    return on
