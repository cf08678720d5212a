"""Named potentials whose numbers are tensors: one entry per model, and gradients where they are real numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import ParameterError
from .mapping import readable

Rule = Callable[..., Tensor]


@dataclass(frozen=True, eq=False)
class TensorPotential:
    """A potential with a number per model: ``log_table(n)`` has the batch axes of its numbers in front.

    Made by :func:`exactly`, :func:`at_least`, :func:`at_most`, :func:`between`, :func:`geometric`, :func:`gaussian`,
    :func:`poisson` and :func:`quadratic` of :mod:`tallytree.torch`.
    """

    name: str
    rule: Rule
    numbers: tuple[Tensor, ...]

    def log_table(self, n: int, device: Any = None) -> Tensor:
        """Logarithms ``log f(0), ..., log f(n)``, (..., n + 1), in float64."""
        where = self.numbers[0].device if device is None else device
        counts = torch.arange(n + 1, dtype=torch.float64, device=where)
        numbers = [number.to(device=where, dtype=torch.float64).unsqueeze(-1) for number in self.numbers]
        return self.rule(n, counts, *numbers)

    def __repr__(self) -> str:
        shown = ", ".join(f"tensor of shape {tuple(number.shape)}" for number in self.numbers)
        return f"{self.name}({shown})"


def exactly(k: Any) -> TensorPotential:
    """Potential that allows exactly ``k`` active variables, one ``k`` per model.

    Parameters
    ----------
    k : integer tensor, (...)
        Batch axes as those of the logits.

    Returns
    -------
    TensorPotential
        For ``groups`` of the functions of :mod:`tallytree.torch`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.exactly
    tallytree.torch.between
    tallytree.torch.KSubset

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> ttt.marginals(torch.zeros(2, 4), ttt.exactly(torch.tensor([1, 2])))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500],
            [0.5000, 0.5000, 0.5000, 0.5000]])
    """
    return TensorPotential("exactly", _exactly, (_counts("k", k),))


def at_least(k: Any) -> TensorPotential:
    """Potential that allows ``k`` active variables or more, one ``k`` per model.

    Parameters
    ----------
    k : int or integer tensor
        One number, or one per model.

    Returns
    -------
    TensorPotential
        For ``groups`` of the functions of :mod:`tallytree.torch`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.at_least
    tallytree.torch.at_most

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> ttt.log_partition(torch.zeros(2, 3), ttt.at_least(torch.tensor([3, 0]))).exp().round()
    tensor([1., 8.])
    """
    return TensorPotential("at_least", _at_least, (_counts("k", k),))


def at_most(k: Any) -> TensorPotential:
    """Potential that allows ``k`` active variables or fewer, one ``k`` per model.

    Parameters
    ----------
    k : int or integer tensor
        One number, or one per model.

    Returns
    -------
    TensorPotential
        For ``groups`` of the functions of :mod:`tallytree.torch`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.at_most
    tallytree.torch.at_least

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> ttt.log_partition(torch.zeros(2, 3), ttt.at_most(torch.tensor([0, 3]))).exp().round()
    tensor([1., 8.])
    """
    return TensorPotential("at_most", _at_most, (_counts("k", k),))


def between(lo: Any, hi: Any) -> TensorPotential:
    """Potential that allows ``lo`` to ``hi`` active variables, one pair per model.

    Parameters
    ----------
    lo, hi : int or integer tensor
        Both ends, included; one pair, or one per model.

    Returns
    -------
    TensorPotential
        For ``groups`` of the functions of :mod:`tallytree.torch`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.between
    tallytree.torch.exactly

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> ttt.log_partition(torch.zeros(1, 3), ttt.between(1, torch.tensor([2]))).exp().round()
    tensor([6.])
    """
    return TensorPotential("between", _between, (_counts("lo", lo), _counts("hi", hi)))


def geometric(ratio: Any) -> TensorPotential:
    """``f(c) = ratio**c`` with a positive ratio per model, differentiable in it.

    Parameters
    ----------
    ratio : float or tensor
        Positive; one number, or one per model.

    Returns
    -------
    TensorPotential
        For ``groups`` of the functions of :mod:`tallytree.torch`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.geometric

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> ttt.marginals(torch.zeros(2), ttt.geometric(3.0))
    tensor([0.7500, 0.7500])
    """
    return TensorPotential("geometric", _geometric, (_reals("ratio", _double(ratio), positive=True),))


def gaussian(mean: Any, sd: Any) -> TensorPotential:
    """``f(c) = exp(-(c - mean)^2 / (2 sd^2))``, differentiable in both numbers of every model.

    Parameters
    ----------
    mean, sd : float or tensor
        One pair, or one per model.

    Returns
    -------
    TensorPotential
        For ``groups`` of the functions of :mod:`tallytree.torch`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.gaussian
    tallytree.torch.quadratic

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> ttt.marginals(torch.zeros(4), ttt.gaussian(2.0, 1.0))
    tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    return TensorPotential(
        "gaussian", _gaussian, (_reals("mean", _double(mean)), _reals("sd", _double(sd), positive=True))
    )


def poisson(mean: Any) -> TensorPotential:
    """``f(c) = mean^c e^-mean / c!`` with a positive mean per model, differentiable in it.

    Parameters
    ----------
    mean : float or tensor
        Positive; one number, or one per model.

    Returns
    -------
    TensorPotential
        For ``groups`` of the functions of :mod:`tallytree.torch`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.poisson

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> bool(ttt.marginals(torch.zeros(20), ttt.poisson(3.0)).sum() < 10)
    True
    """
    return TensorPotential("poisson", _poisson, (_reals("mean", _double(mean), positive=True),))


def quadratic(curvature: Any, center: Any = None) -> TensorPotential:
    """``f(c) = exp(curvature (c - center)^2 / 2)``, differentiable in both.

    Parameters
    ----------
    curvature : float or tensor
        One number, or one per model; negative where counts near ``center`` are preferred.
    center : float or tensor, optional
        One number, or one per model; default half the group, ``n / 2``.

    Returns
    -------
    TensorPotential
        For ``groups`` of the functions of :mod:`tallytree.torch`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.quadratic
    tallytree.torch.gaussian

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> ttt.marginals(torch.zeros(4), ttt.quadratic(-1.0, 2.0))
    tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """
    bend = _reals("curvature", _double(curvature))
    numbers = (bend,) if center is None else (bend, _reals("center", _double(center)))
    return TensorPotential("quadratic", _quadratic, numbers)


# -- log-tables ----------------------------------------------------------------------------------------------------


def _allowed(n: int, wanted: Tensor, *limits: Tensor) -> Tensor:
    for limit in limits:
        outside = (limit < 0) | (limit > n)
        if readable(outside) and bool(outside.any()):
            raise ParameterError(
                f"Counts of a potential on {n} variables must be between 0 and {n}; "
                f"{int(limit[outside][0])} arrived. Check the counts and the sizes of the groups."
            )
    return torch.zeros_like(wanted, dtype=torch.float64).masked_fill(~wanted, -math.inf)


def _exactly(n: int, c: Tensor, k: Tensor) -> Tensor:
    return _allowed(n, c == k, k)


def _at_least(n: int, c: Tensor, k: Tensor) -> Tensor:
    return _allowed(n, c >= k, k)


def _at_most(n: int, c: Tensor, k: Tensor) -> Tensor:
    return _allowed(n, c <= k, k)


def _between(n: int, c: Tensor, lo: Tensor, hi: Tensor) -> Tensor:
    return _allowed(n, (c >= lo) & (c <= hi), lo, hi)


def _geometric(n: int, c: Tensor, ratio: Tensor) -> Tensor:
    return c * ratio.log()


def _gaussian(n: int, c: Tensor, mean: Tensor, sd: Tensor) -> Tensor:
    return -0.5 * ((c - mean) / sd) ** 2


def _poisson(n: int, c: Tensor, mean: Tensor) -> Tensor:
    return c * mean.log() - mean - torch.lgamma(c + 1.0)


def _quadratic(n: int, c: Tensor, curvature: Tensor, center: Tensor | None = None) -> Tensor:
    return 0.5 * curvature * (c - (0.5 * n if center is None else center)) ** 2


# -- checks --------------------------------------------------------------------------------------------------------


def _counts(name: str, value: Any) -> Tensor:
    tensor = torch.as_tensor(value)
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool:
        raise ParameterError(
            f"`{name}` must be an integer or a tensor of integers, one per model; dtype {tensor.dtype} arrived. "
            "Convert it with .long()."
        )
    return tensor


def _reals(name: str, value: Any, *, positive: bool = False) -> Tensor:
    tensor = torch.as_tensor(value)
    if tensor.dtype.is_complex or tensor.dtype == torch.bool:
        raise ParameterError(
            f"`{name}` must be a real number or a tensor of them; dtype {tensor.dtype} arrived."
        )
    if readable(tensor):
        bad = ~torch.isfinite(tensor) | (
            (tensor <= 0) if positive else torch.zeros_like(tensor, dtype=torch.bool)
        )
        if bool(bad.any()):
            what = "positive and finite" if positive else "finite"
            raise ParameterError(f"`{name}` must be {what}; {float(tensor[bad][0])} arrived.")
    return tensor


def _double(value: Any) -> Any:
    """Python's numbers in double precision, whatever the default of PyTorch; all else as it is."""
    real = isinstance(value, float) or (
        isinstance(value, (list, tuple)) and all(isinstance(number, (int, float)) for number in value)
    )
    return torch.tensor(value, dtype=torch.float64) if real else value
