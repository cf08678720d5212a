"""Named potentials whose numbers are tensors: one entry per model, and gradients where they are real numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import ParameterError
from ..potentials import formulas
from .tensors import anywhere, as_double, as_tensor, common_shape


@dataclass(frozen=True, eq=False)
class TensorPotential:
    """A potential with a number per model: ``log_table(n)`` has the batch axes of its numbers in front.

    Made by :func:`exactly`, :func:`at_least`, :func:`at_most`, :func:`between`, :func:`geometric`, :func:`gaussian`,
    :func:`poisson` and :func:`quadratic` of :mod:`tallytree.torch`.
    """

    name: str
    numbers: tuple[Tensor, ...]

    def log_table(self, n: int, device: Any = None) -> Tensor:
        """Logarithms ``log f(0), ..., log f(n)``, (..., n + 1), in float64."""
        where = self.numbers[0].device if device is None else device
        common_shape(f"The numbers of `{self.name}`", *(number.shape for number in self.numbers))
        counts = torch.arange(n + 1, dtype=torch.float64, device=where)
        numbers = [number.to(device=where, dtype=torch.float64).unsqueeze(-1) for number in self.numbers]
        self._require(n)
        table: Tensor = getattr(formulas, self.name)(torch, counts, n, *numbers)
        return table

    def _require(self, n: int) -> None:
        """Refuse counts that a group of ``n`` variables cannot have, and ends in the wrong order."""
        if self.name not in formulas.REACHED:
            return
        if self.name == "between" and anywhere(self.numbers[0] > self.numbers[1]):
            raise ParameterError(
                "`lo` must not exceed `hi` in any model, or no count is allowed there; exchange them, or check the "
                "counts."
            )
        outside = formulas.out_of_reach(self.name, n, self.numbers[0])
        if anywhere(outside):
            raise formulas.reach_error(self.name, n, int(self.numbers[0][outside][0]))

    def __repr__(self) -> str:
        shown = ", ".join(f"tensor of shape {tuple(number.shape)}" for number in self.numbers)
        return f"{self.name}({shown})"


def exactly(k: Any) -> TensorPotential:
    """Potential that allows exactly ``k`` active variables, one ``k`` per model.

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
    return TensorPotential("exactly", (_counts("k", k),))


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
    return TensorPotential("at_least", (_counts("k", k),))


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
    return TensorPotential("at_most", (_counts("k", k),))


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
    return TensorPotential("between", (_counts("lo", lo), _counts("hi", hi)))


def geometric(ratio: Any) -> TensorPotential:
    """Potential ``ratio^c`` with a positive ratio, differentiable in it.

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
    return TensorPotential("geometric", (_reals("ratio", ratio, positive=True),))


def gaussian(mean: Any, sd: Any) -> TensorPotential:
    """Bell curve ``exp(-(c - mean)^2 / (2 sd^2))`` of the count c, differentiable in ``mean`` and ``sd``.

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
    return TensorPotential("gaussian", (_reals("mean", mean), _reals("sd", sd, positive=True)))


def poisson(mean: Any) -> TensorPotential:
    """Poisson weights ``mean^c exp(-mean) / c!`` with a positive mean, differentiable in it.

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
    return TensorPotential("poisson", (_reals("mean", mean, positive=True),))


def quadratic(curvature: Any, center: Any = None) -> TensorPotential:
    """Parabola ``exp(curvature (c - center)^2 / 2)``, differentiable in ``curvature`` and ``center``.

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
    bend = _reals("curvature", curvature)
    numbers = (bend,) if center is None else (bend, _reals("center", center))
    return TensorPotential("quadratic", numbers)


# -- checks --------------------------------------------------------------------------------------------------------


def _counts(name: str, value: Any) -> Tensor:
    tensor = as_tensor(name, value)
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex or tensor.dtype == torch.bool:
        raise ParameterError(
            f"`{name}` must be an integer or a tensor of integers, one per model; dtype {tensor.dtype} arrived. "
            "Convert it with .long()."
        )
    return tensor


def _reals(name: str, value: Any, *, positive: bool = False) -> Tensor:
    tensor = as_double(name, value)
    bad = ~torch.isfinite(tensor) | ((tensor <= 0) & positive)
    if anywhere(bad):
        what = "positive and finite" if positive else "finite"
        raise ParameterError(f"`{name}` must be {what}; {float(tensor[bad][0])} arrived.")
    return tensor
