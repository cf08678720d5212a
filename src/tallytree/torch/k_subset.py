"""`KSubset`: choose k of n inside a network, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import checks
from ..errors import ParameterError
from . import functions
from .potentials import exactly
from .tensors import anywhere, as_logits, as_mask, as_tensor, common_shape


class KSubset(nn.Module):
    """Exactly k of the n scores on the last axis become 1, the others 0.

    In training the output is an exact sample from the law ``p(y) ~ exp(scores . y)`` on subsets of size k, and the
    gradient is that of the exact marginals (straight-through). In evaluation it is the mode: the k largest scores.

    Parameters
    ----------
    k : int or integer tensor
        One number, or one per row.
    n_samples : int, optional
        Draw this many subsets in training, on a new first axis.
    temperature : float
        Scores are divided by it.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.torch.marginals
    tallytree.torch.ConditionalBernoulli

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> layer = ttt.KSubset(2).eval()
    >>> layer(torch.tensor([[0.1, 3.0, 2.0, -1.0]]))
    tensor([[0., 1., 1., 0.]])
    """

    def __init__(self, k: Any, n_samples: int | None = None, temperature: float = 1.0) -> None:
        super().__init__()
        exactly(k)  # refuses what are no integers
        if isinstance(k, Tensor):
            self.register_buffer("k", k)
        else:
            self.k = checks.integer("k", k, 0) if np.ndim(k) == 0 else k
        self.temperature = checks.real("temperature", temperature, 0.0, strict=True)
        self.n_samples = None if n_samples is None else checks.integer("n_samples", n_samples, 0)

    def extra_repr(self) -> str:
        """The parameters, for printing.

        Returns
        -------
        str
            What stands between the brackets of ``repr``.

        See Also
        --------
        forward

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> ttt.KSubset(2)
        KSubset(k=2, n_samples=None, temperature=1.0)
        """
        return f"k={self.k}, n_samples={self.n_samples}, temperature={self.temperature}"

    def marginals(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """Probability of every score to be chosen, differentiable, (..., n).

        Parameters
        ----------
        scores : tensor, (..., n)
            Scores.
        mask : bool tensor, optional
            Which scores may be chosen.

        Returns
        -------
        Tensor, (..., n)
            Probabilities; their sum is k.

        Raises
        ------
        ParameterError
            If ``mask`` does not fit the scores, or leaves fewer than k of them.

        See Also
        --------
        forward

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> layer = ttt.KSubset(2)
        >>> scores = torch.tensor([0.1, 3.0, 2.0, -1.0])
        >>> layer.marginals(scores)
        tensor([0.1626, 0.9404, 0.8415, 0.0555])
        """
        logits = self._logits(scores, mask)
        return functions.marginals(logits, self._potential(logits))

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, generator: torch.Generator | None = None
    ) -> Tensor:
        """Subsets of the scores.

        Parameters
        ----------
        scores : Tensor, (..., n)
            Log-odds before the number is known.
        mask : Tensor of bool, (..., n), optional
            Which scores may be chosen; rows of different lengths are padded and masked.
        generator : torch.Generator, optional
            Source of randomness in training.

        Returns
        -------
        Tensor, (..., n), or (n_samples, ..., n) in training if `n_samples` is given
            Zeros and ones: in training an exact draw whose gradient is that of the marginals, in evaluation the k
            largest.

        Raises
        ------
        ParameterError
            If ``mask`` does not fit the scores, or leaves fewer than k of them.

        See Also
        --------
        marginals

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> layer = ttt.KSubset(2)
        >>> scores = torch.tensor([0.1, 3.0, 2.0, -1.0])
        >>> layer.eval()(scores)
        tensor([0., 1., 1., 0.])
        """
        logits = self._logits(scores, mask)
        if not self.training:
            return self._largest(logits)
        potential = self._potential(logits)
        marginals = functions.marginals(logits, potential)
        lead = () if self.n_samples is None else (self.n_samples,)
        drawn = functions.sample(logits.detach(), potential, lead, generator)
        return drawn + (marginals - marginals.detach())

    def _potential(self, scores: Tensor) -> Any:
        return exactly(as_tensor("k", self.k).to(scores.device))

    def _logits(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        logits = as_logits(scores) / self.temperature
        if mask is None:
            return logits
        allowed = as_mask("mask", mask, logits.device)
        shape = common_shape("`mask` and the scores", allowed.shape, logits.shape)
        return logits.expand(shape).masked_fill(~allowed, -torch.inf)

    def _largest(self, logits: Tensor) -> Tensor:
        """Of equal scores the first ones are taken."""
        if anywhere(torch.isnan(logits)):
            raise ParameterError(
                "`scores` must not contain NaN. Use a mask for scores that must not be chosen."
            )
        rank = torch.sort(logits, dim=-1, descending=True, stable=True).indices.argsort(-1)
        k = as_tensor("k", self.k).to(logits.device).unsqueeze(-1)
        possible = (logits > -torch.inf).sum(-1, keepdim=True)
        common_shape("`k` and the rows of scores", k.shape, possible.shape)
        if anywhere((k > possible) | (k < 0)):
            raise ParameterError(
                "`k` must be between 0 and the number of scores that the mask leaves in every row."
            )
        return (rank < k).to(logits.dtype)
