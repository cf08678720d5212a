"""`KSubset`: choose k of n inside a network, exactly."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ParameterError
from . import functions
from .groups import as_logits
from .mapping import readable
from .potentials import exactly


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
        if isinstance(k, Tensor):
            self.register_buffer("k", k)
        else:
            self.k = k
        if not temperature > 0.0:
            raise ParameterError(f"`temperature` must be positive; {temperature} arrived.")
        self.n_samples, self.temperature = n_samples, temperature

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
        return functions.marginals(self._logits(scores, mask), self._potential(scores))

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
        potential = self._potential(scores)
        marginals = functions.marginals(logits, potential)
        lead = () if self.n_samples is None else (self.n_samples,)
        drawn = functions.sample(logits.detach(), potential, lead, generator)
        return drawn + (marginals - marginals.detach())

    def _potential(self, scores: Tensor) -> Any:
        return exactly(torch.as_tensor(self.k, device=scores.device))

    def _logits(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        logits = as_logits(scores) / self.temperature
        return logits if mask is None else logits.masked_fill(~mask.to(torch.bool), -torch.inf)

    def _largest(self, logits: Tensor) -> Tensor:
        """Of equal scores the first ones are taken."""
        rank = torch.sort(logits, dim=-1, descending=True, stable=True).indices.argsort(-1)
        k = torch.as_tensor(self.k, device=logits.device).unsqueeze(-1)
        possible = (logits > -torch.inf).sum(-1, keepdim=True)
        outside = (k > possible) | (k < 0)
        if readable(outside) and bool(outside.any()):
            raise ParameterError(
                "`k` must be between 0 and the number of scores that the mask leaves in every row."
            )
        return (rank < k).to(logits.dtype)
