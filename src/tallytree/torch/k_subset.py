"""`KSubset`: choose k of n inside a network, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import checks
from ..errors import ParameterError
from . import functions
from .distributions import ConditionalBernoulli
from .potentials import exactly
from .tensors import anywhere, as_logits, as_tensor, common_shape, masked, require_enough


class KSubset(nn.Module):
    """Layer that chooses exactly k of the n scores on the last axis: they become 1, the others 0.

    In training the output is an exact sample from ``p(y) ~ exp(scores . y)`` over all subsets of size k, and its
    gradient is that of the exact marginals (straight-through). In evaluation it is the mode: the k largest scores.

    Parameters
    ----------
    k : int or integer tensor, optional
        How many to choose: one number, or one per row. It can also be given with every call.
    n_samples : int, optional
        Number of subsets drawn in training, on a new first axis; default one, without an axis.
    temperature : float
        Scores are divided by it; lower temperatures make the largest scores more probable.
    fraction : float, optional
        In place of `k`: the share of the unmasked scores of every row to be chosen, rounded up to a whole number.

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

    Half of the tokens of padded sequences, rounded up:

    >>> mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    >>> ttt.KSubset(fraction=0.5).eval()(torch.tensor([0.1, 3.0, 2.0, 9.0]), mask=mask)
    tensor([[0., 1., 1., 0.],
            [0., 1., 0., 0.]])
    """

    def __init__(
        self,
        k: Any = None,
        n_samples: int | None = None,
        temperature: float = 1.0,
        *,
        fraction: float | None = None,
    ) -> None:
        super().__init__()
        self.fraction = _share(k, fraction)
        _refuse_share(k)
        if k is not None:
            exactly(k)  # refuses what are no integers
        if isinstance(k, Tensor):
            self.register_buffer("k", k)
        else:
            self.k = checks.integer("k", k, 0) if k is not None and np.ndim(k) == 0 else k
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
        chosen = f"k={self.k}" if self.fraction is None else f"fraction={self.fraction}"
        return f"{chosen}, n_samples={self.n_samples}, temperature={self.temperature}"

    def marginals(
        self, scores: Tensor, k: Any = None, mask: Tensor | None = None, *, fraction: float | None = None
    ) -> Tensor:
        """Probability that each score is chosen, (..., n), differentiable.

        Parameters
        ----------
        scores : tensor, (..., n)
            Scores.
        k : int or integer tensor, optional
            How many to choose; default what the layer was made with.
        mask : bool tensor, optional
            Which scores may be chosen.
        fraction : float, optional
            In place of `k`: the share of the unmasked scores of every row.

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
        logits, number = self._read(scores, k, mask, fraction)
        return functions.marginals(logits, exactly(number))

    def entropy(
        self, scores: Tensor, k: Any = None, mask: Tensor | None = None, *, fraction: float | None = None
    ) -> Tensor:
        """Entropy of the random subset in nats, (...), differentiable; as a regulariser it keeps choices open.

        Parameters
        ----------
        scores : tensor, (..., n)
            Scores.
        k : int or integer tensor, optional
            How many to choose; default what the layer was made with.
        mask : bool tensor, optional
            Which scores may be chosen.
        fraction : float, optional
            In place of `k`: the share of the unmasked scores of every row.

        Returns
        -------
        Tensor, (...)
            One number per row; at most the logarithm of the number of subsets.

        Raises
        ------
        ParameterError
            If ``mask`` does not fit the scores, or leaves fewer than k of them.

        See Also
        --------
        forward, marginals

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> ttt.KSubset(2).entropy(torch.zeros(4)).exp().round()
        tensor(6.)
        """
        logits, number = self._read(scores, k, mask, fraction)
        return ConditionalBernoulli(number, logits).entropy()

    def forward(
        self,
        scores: Tensor,
        k: Any = None,
        mask: Tensor | None = None,
        generator: torch.Generator | None = None,
        *,
        fraction: float | None = None,
    ) -> Tensor:
        """Choose a subset of the scores.

        Parameters
        ----------
        scores : Tensor, (..., n)
            Scores: the log-odds of the elements before their number is fixed.
        k : int or integer tensor, optional
            How many to choose, one number or one per row; default what the layer was made with.
        mask : Tensor of bool, (..., n), optional
            Which scores may be chosen; rows of different lengths are padded and masked.
        generator : torch.Generator, optional
            Source of randomness in training.
        fraction : float, optional
            In place of `k`: the share of the unmasked scores of every row, rounded up.

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
        marginals, entropy

        Examples
        --------
        >>> import torch, tallytree.torch as ttt
        >>> layer = ttt.KSubset()
        >>> scores = torch.tensor([0.1, 3.0, 2.0, -1.0])
        >>> layer.eval()(scores, 2)
        tensor([0., 1., 1., 0.])
        """
        logits, number = self._read(scores, k, mask, fraction)
        if not self.training:
            return self._largest(logits, number)
        potential = exactly(number)
        marginals = functions.marginals(logits, potential)
        lead = () if self.n_samples is None else (self.n_samples,)
        drawn = functions.sample(logits.detach(), potential, lead, generator)
        return drawn + (marginals - marginals.detach())

    def _read(self, scores: Any, k: Any, mask: Any, fraction: Any) -> tuple[Tensor, Tensor]:
        """Log-odds, -inf where masked, and how many of them."""
        if (fraction := _share(k, fraction)) is None and k is None:
            fraction = self.fraction
        logits = as_logits(scores) / self.temperature
        if mask is not None:
            logits = masked(logits, mask)
        if fraction is not None:
            # A share of 0.07 of 100 is 7, though its product in floating point is more.
            share = fraction * (logits > -torch.inf).sum(-1, dtype=torch.float64)
            return logits, torch.ceil(share - 1e-9).long()
        given = self.k if k is None else k
        if given is None:
            raise ParameterError(
                "`k` says how many scores to choose; none arrived. Pass it to the layer, KSubset(2), to the call, "
                "layer(scores, k), or a share of the scores, layer(scores, fraction=0.15)."
            )
        _refuse_share(given)
        number = as_tensor("k", given).to(logits.device)
        if number.dtype == torch.bool:
            raise ParameterError(
                "`k` must hold integers; truth values arrived. Pass a mask by its name: layer(scores, mask=mask)."
            )
        number = exactly(number).numbers[0]
        common_shape("`k` and the rows of scores", number.shape, logits.shape[:-1])
        require_enough(logits, number)
        return logits, number

    def _largest(self, logits: Tensor, k: Tensor) -> Tensor:
        """Of equal scores the first ones are taken."""
        if anywhere(torch.isnan(logits)):
            raise ParameterError(
                "`scores` must not contain NaN. Use a mask for scores that must not be chosen."
            )
        if torch.onnx.is_in_onnx_export():  # where every sort is stable, and none is called so
            order = torch.sort(logits, dim=-1, descending=True).indices
        else:
            order = torch.sort(logits, stable=True, dim=-1, descending=True).indices
        rank = order.argsort(-1)
        return (rank < k.unsqueeze(-1)).to(logits.dtype)


def _share(k: Any, fraction: Any) -> float | None:
    """The fraction, if it came instead of `k`."""
    if k is not None and fraction is not None:
        raise ParameterError("`KSubset` needs `k` or `fraction`; both arrived. Leave one of them out.")
    return None if fraction is None else checks.real("fraction", fraction, 0.0, 1.0)


def _refuse_share(k: Any) -> None:
    if isinstance(k, float):
        raise ParameterError(
            f"`k` must be an integer or a tensor of integers; {k!r} arrived. A share of the scores is a fraction: "
            "KSubset(fraction=0.15)."
        )
