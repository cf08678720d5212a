"""Exactly k of n variables with given odds, by its usual name."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .. import checks
from .distributions import CountDistribution
from .potentials import exactly
from .tensors import as_logits, as_tensor


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
        self.total_count = as_tensor("total_count", total_count)
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
