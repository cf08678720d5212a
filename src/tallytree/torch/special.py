"""The two special cases by their usual names: k of n with given odds, and the number of successes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints, register_kl
from torch.nn.functional import softplus

from .. import checks
from ..errors import ParameterError
from . import functions
from .distributions import CountDistribution
from .groups import as_logits
from .mapping import readable
from .potentials import exactly


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

    def __init__(self, total_count: Any, logits: Any, validate_args: bool | None = None) -> None:
        n = as_logits(logits).shape[-1]
        if not isinstance(total_count, Tensor):
            checks.count("total_count", total_count, n, "the number of variables")
        self.total_count = torch.as_tensor(total_count)
        super().__init__(logits, exactly(self.total_count), validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> ConditionalBernoulli:
        """The same models over more batch axes.

        Parameters
        ----------
        batch_shape : sequence of int
            The new batch shape.

        Returns
        -------
        ConditionalBernoulli
            Its parameters share memory with these.

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
        new.total_count = self.total_count.expand(batch_shape)
        super().expand(batch_shape, new)
        return new  # type: ignore[no-any-return]


class PoissonBinomial(Distribution):
    """Number of successes among independent trials with probabilities of their own.

    Parameters
    ----------
    logits, probs : tensor, (..., n)
        One of the two; the last axis holds the trials, leading axes are the batch shape, an event is a number.
    validate_args : bool, optional
        As in :class:`torch.distributions.Distribution`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.PoissonBinomial
    tallytree.torch.CountDistribution

    Notes
    -----
    ``log_prob`` is accurate into the far tails, and so are its gradients, which are differences of conditional and
    unconditional expectations.

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5, 0.5]))
    >>> d.log_prob(torch.arange(4)).exp()
    tensor([0.1250, 0.3750, 0.3750, 0.1250])
    """

    arg_constraints = {"logits": constraints.real_vector, "probs": constraints.unit_interval}  # noqa: RUF012
    has_enumerate_support = True

    def __init__(self, logits: Any = None, probs: Any = None, validate_args: bool | None = None) -> None:
        if (logits is None) == (probs is None):
            raise ParameterError("`PoissonBinomial` needs either `logits` or `probs`; give one of the two.")
        if logits is None:
            probs = torch.as_tensor(probs)
            if readable(probs) and not bool(((probs >= 0) & (probs <= 1)).all()):
                raise ParameterError("`probs` must be between 0 and 1, but other values arrived.")
            logits = torch.log(probs) - torch.log1p(-probs)
        self.logits = as_logits(logits)
        if readable(self.logits) and bool(torch.isnan(self.logits.detach()).any()):
            raise ParameterError("`logits` must not contain NaN. Use -inf for a trial that always fails.")
        super().__init__(self.logits.shape[:-1], validate_args=False)

    @property
    def total_count(self) -> int:
        """Number of trials."""
        return self.logits.shape[-1]

    @property
    def probs(self) -> Tensor:
        """Probabilities of success, (..., n).

        See Also
        --------
        mean

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.probs
        tensor([0.5000, 0.5000])
        """
        return torch.sigmoid(self.logits)

    @constraints.dependent_property(is_discrete=True, event_dim=0)  # type: ignore[no-untyped-call]
    def support(self) -> Any:
        """0 to n."""
        return constraints.integer_interval(0, self.total_count)

    def expand(self, batch_shape: Any, _instance: Any = None) -> PoissonBinomial:
        """The same laws over more batch axes.

        Parameters
        ----------
        batch_shape : sequence of int
            The new batch shape.

        Returns
        -------
        PoissonBinomial
            Its parameters share memory with these.

        See Also
        --------
        log_prob, sample

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.expand((3,)).mean
        tensor([1., 1., 1.])
        """
        new = self._get_checked_instance(PoissonBinomial, _instance)
        new.logits = self.logits.expand(*batch_shape, self.total_count)
        super(PoissonBinomial, new).__init__(torch.Size(batch_shape), validate_args=False)
        return new  # type: ignore[no-any-return]

    @property
    def mean(self) -> Tensor:
        """Expected number of successes.

        See Also
        --------
        variance

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.mean
        tensor(1.)
        """
        return self.probs.sum(-1)

    @property
    def variance(self) -> Tensor:
        """Sum of p (1 - p).

        See Also
        --------
        mean

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.variance
        tensor(0.5000)
        """
        return (self.probs * torch.sigmoid(-self.logits)).sum(-1)

    def count_log_probs(self) -> Tensor:
        """Log-probabilities of 0..n, (..., n + 1).

        Returns
        -------
        Tensor, (..., n + 1)
            Logarithms, differentiable.

        See Also
        --------
        log_prob, cdf

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.count_log_probs().exp()
        tensor([0.2500, 0.5000, 0.2500])
        """
        return functions.count_log_probs(self.logits)

    def log_prob(self, value: Tensor) -> Tensor:
        """Log-probability of numbers of successes; -inf outside 0..n.

        Parameters
        ----------
        value : tensor
            Where to evaluate.

        Returns
        -------
        Tensor, (sample..., ...)
            Logarithms, differentiable.

        See Also
        --------
        count_log_probs, cdf

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.log_prob(torch.arange(3)).exp()
        tensor([0.2500, 0.5000, 0.2500])
        """
        count = value.round().long() if value.is_floating_point() else value.long()
        inside = (count >= 0) & (count <= self.total_count) & (count == value)
        count = torch.where(inside, count, 0)
        shape = torch.broadcast_shapes(count.shape, self.batch_shape)
        if math.prod(shape) <= max(1, math.prod(self.batch_shape)):
            found = exact_log_prob(self.logits, count.expand(shape))
        else:
            log_probs = self.count_log_probs().expand(*shape, self.total_count + 1)
            found = log_probs.gather(-1, count.expand(shape).unsqueeze(-1)).squeeze(-1)
        return torch.where(inside, found, -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        """P(X <= value).

        Parameters
        ----------
        value : tensor
            Where to evaluate.

        Returns
        -------
        Tensor, (sample..., ...)
            Probabilities.

        See Also
        --------
        log_prob, count_log_probs

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.cdf(torch.arange(3))
        tensor([0.2500, 0.7500, 1.0000])
        """
        totals = torch.nn.functional.pad(self.count_log_probs().double().exp().cumsum(-1), (1, 0))
        place = (torch.floor(torch.as_tensor(value)).long() + 1).clamp(0, self.total_count + 1)
        shape = torch.broadcast_shapes(place.shape, self.batch_shape)
        found = (
            totals.expand(*shape, totals.shape[-1]).gather(-1, place.expand(shape).unsqueeze(-1)).squeeze(-1)
        )
        return found.clamp(max=1.0).to(self.logits.dtype)

    def entropy(self) -> Tensor:
        """Entropy in nats.

        Returns
        -------
        Tensor, (...)
            Differentiable.

        See Also
        --------
        log_prob

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.entropy()
        tensor(1.0397)
        """
        log_probs = self.count_log_probs()
        possible = torch.isfinite(log_probs)
        return -torch.where(possible, log_probs.exp() * torch.where(possible, log_probs, 0.0), 0.0).sum(-1)

    def sample(self, sample_shape: Any = torch.Size()) -> Tensor:  # noqa: B008 - PyTorch's own signature
        """Numbers of successes of independent trials.

        Parameters
        ----------
        sample_shape : sequence of int
            Leading axes of the draws.

        Returns
        -------
        Tensor, (sample_shape..., ...)
            Counts.

        See Also
        --------
        log_prob

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.sample((5,)).shape
        torch.Size([5])
        """
        with torch.no_grad():
            shape = torch.Size(sample_shape) + self.logits.shape
            return torch.bernoulli(self.probs.expand(shape)).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """0..n on a new first axis.

        Parameters
        ----------
        expand : bool
            Whether to expand over the batch.

        Returns
        -------
        Tensor, (n + 1, ...)
            Counts.

        See Also
        --------
        support, count_log_probs

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> d = ttt.PoissonBinomial(probs=torch.tensor([0.5, 0.5]))
        >>> d.enumerate_support()
        tensor([0., 1., 2.])
        """
        values = torch.arange(self.total_count + 1, dtype=self.logits.dtype, device=self.logits.device)
        values = values.reshape(-1, *[1] * len(self.batch_shape))
        return values.expand(-1, *self.batch_shape) if expand else values


def exact_log_prob(logits: Tensor, count: Tensor) -> Tensor:
    """Log P(X = count), one count per model: log Z given the count less log Z without, right however small."""
    wide = logits.double()
    given = functions.log_partition(wide.expand(*count.shape, wide.shape[-1]), exactly(count))
    return (given - log_free(wide)).to(logits.dtype)


def log_free(logits: Tensor) -> Tensor:
    """Log Z of independent variables; a forced one weighs one."""
    forced = torch.isposinf(logits)
    return torch.where(forced, 0.0, softplus(torch.where(forced, 0.0, logits))).sum(-1)


@register_kl(PoissonBinomial, PoissonBinomial)
def _kl(p: PoissonBinomial, q: PoissonBinomial) -> Tensor:
    """KL(p || q) = sum_c P(c) (log P(c) - log Q(c)); infinite where p has a count that q excludes."""
    if p.total_count != q.total_count:
        raise ParameterError(
            "The Kullback-Leibler divergence needs laws of the same number of trials; "
            f"{p.total_count} and {q.total_count} arrived."
        )
    first, second = torch.broadcast_tensors(p.count_log_probs().double(), q.count_log_probs().double())
    possible = first > -math.inf
    gap = torch.where(possible, first, 0.0) - torch.where(possible, second, 0.0)
    return (torch.where(possible, first, -math.inf).exp() * gap).sum(-1).to(p.logits.dtype)
