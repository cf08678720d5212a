"""The functions: log Z, marginals, count distributions and samples of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .. import checks
from . import ops, tensors
from . import structure as structures
from .arguments import Posed, pose
from .autograd import answer, watched


def log_partition(logits: Any, groups: Any = None, *, mask: Any = None, edges: Any = None) -> Tensor:
    """Log Z, (...,), of the models on the last axis of `logits`; differentiable to any order.

    Parameters
    ----------
    logits : tensor, (..., D)
        Log-odds; ``-inf`` excludes a variable (a mask), ``inf`` forces it on. Leading axes are a batch of models.
    groups : potential, tensor, sequence of Group, CountTree, or (CountTree, tables), optional
        What :class:`tallytree.CountModel` takes; log-tables may be tensors, with batch axes and with gradients, and the
        numbers of the potentials in :mod:`tallytree.torch` may be tensors with one entry per model.
    mask : bool tensor, (..., D), optional
        True for variables that take part; the others have log-odds of -inf.
    edges : Forest, optional
        Pairwise tables on a forest, :class:`tallytree.torch.Forest` if they are tensors with gradients, else
        :class:`tallytree.Forest`. Groups must fit the edges.

    Returns
    -------
    Tensor, (...)
        One number per model, in the dtype of `logits`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.
    InfeasibleError
        When an answer is asked for and no configuration is possible.

    See Also
    --------
    tallytree.torch.marginals
    tallytree.CountModel

    Notes
    -----
    Cost: one inference; first derivatives cost no more, products with second derivatives a few inferences. Third and
    higher derivatives are O(D^2) per model. Accuracy: as :class:`tallytree.CountModel`; inside everything is computed
    in float64, whatever the dtype.

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> logits = torch.zeros(4, requires_grad=True)
    >>> ttt.log_partition(logits, tt.exactly(1)).backward()
    >>> logits.grad
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """
    return log_partition_of(pose(logits, groups, edges, mask))


def log_partition_of(posed: Posed) -> Tensor:
    """Log Z of models whose arguments have been read."""
    found = _sums(posed, False)[0]
    return (found if posed.constant is None else found + posed.constant).to(posed.dtype)


def marginals(logits: Any, groups: Any = None, *, mask: Any = None, edges: Any = None) -> Tensor:
    """P(y_d = 1), (..., D), with exact gradients.

    Parameters
    ----------
    logits : tensor, (..., D)
        Log-odds; leading axes are a batch.
    groups : optional
        Potentials on counts, as in :func:`log_partition`; default none.
    mask : bool tensor, (..., D), optional
        True for variables that take part, as in :func:`log_partition`.
    edges : Forest, optional
        Pairwise tables on a forest, as in :func:`log_partition`.

    Returns
    -------
    Tensor, (..., D)
        Probabilities, in the dtype of `logits`.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.
    InfeasibleError
        When an answer is asked for and no configuration is possible.

    See Also
    --------
    tallytree.torch.log_partition
    tallytree.torch.KSubset
    tallytree.CountModel

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> ttt.marginals(torch.zeros(4), tt.exactly(1), mask=torch.tensor([True, True, False, True]))
    tensor([0.3333, 0.3333, 0.0000, 0.3333])
    """
    return marginals_of(pose(logits, groups, edges, mask))


def marginals_of(posed: Posed) -> Tensor:
    """Marginals of models whose arguments have been read."""
    return _sums(posed, True)[1].to(posed.dtype)


def _sums(posed: Posed, marginals: bool) -> Any:
    """With what the derivatives need, where one will be asked for and the solved models are not kept for it."""
    given = posed.logits, posed.tables
    recorded = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in given)
    if torch.compiler.is_compiling() or recorded or (posed.logits.device.type != "cpu" and watched(*given)):
        return statistics(posed, counts=posed.tables is not None and posed.tables.requires_grad)
    return answer(ops.sums, *given, posed.structure.key, marginals, False)


def count_log_probs(
    logits: Any, groups: Any = None, group: int | None = None, *, mask: Any = None, edges: Any = None
) -> Tensor:
    """Log-probabilities of the counts 0..n of a group (None: of all variables), (..., n + 1).

    Gradients are right even for counts whose probability underflows.

    Parameters
    ----------
    logits : tensor, (..., D)
        Log-odds; leading axes are a batch.
    groups : optional
        Potentials on counts, as in :func:`log_partition`; default none.
    group : int, optional
        Number of the group; default all variables.
    mask : bool tensor, (..., D), optional
        True for variables that take part, as in :func:`log_partition`.
    edges : Forest, optional
        Pairwise tables on a forest, as in :func:`log_partition`.

    Returns
    -------
    Tensor, (..., n + 1)
        Logarithms; ``-inf`` for impossible counts.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.torch.marginals
    tallytree.CountModel

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> ttt.count_log_probs(torch.zeros(3), tt.at_least(1)).exp() * 7
    tensor([0., 3., 3., 1.])
    """
    return count_log_probs_of(pose(logits, groups, edges, mask), group)


def count_log_probs_of(posed: Posed, group: int | None) -> Tensor:
    """Count distributions of models whose arguments have been read."""
    posed, index = with_group(posed, group)
    if index is None:
        return posed.logits.new_zeros(*posed.logits.shape[:-1], 1).to(posed.dtype)
    key, tables = posed.structure.key, posed.tables
    if key >= 0 and (torch.compiler.is_compiling() or watched(posed.logits, tables)):
        key, tables = structures.opened(key, posed.logits.shape[-1]).key, posed.packed()
    found = answer(ops.count_log_probs, posed.logits, tables, key, index)
    return found.to(posed.dtype)


def sample(
    logits: Any,
    groups: Any = None,
    sample_shape: Sequence[int] = (),
    generator: torch.Generator | None = None,
    *,
    mask: Any = None,
    edges: Any = None,
) -> Tensor:
    """Exact joint draws of zeros and ones in the dtype of `logits`, (sample_shape..., ..., D); no gradient.

    Parameters
    ----------
    logits : Tensor, (..., D)
        Log-odds; leading axes are a batch.
    groups : optional
        Potentials on counts, as in :func:`log_partition`; default none.
    sample_shape : sequence of int
        Leading axes of independent draws.
    generator : torch.Generator, optional
        Source of randomness; default PyTorch's global one.
    mask : bool tensor, (..., D), optional
        True for variables that take part, as in :func:`log_partition`.
    edges : Forest, optional
        Pairwise tables on a forest, as in :func:`log_partition`.

    Returns
    -------
    Tensor, (sample_shape..., ..., D)
        Zeros and ones.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.
    InfeasibleError
        When an answer is asked for and no configuration is possible.

    See Also
    --------
    tallytree.torch.KSubset
    tallytree.CountModel

    Examples
    --------
    >>> import torch, tallytree.torch as ttt
    >>> draws = ttt.sample(torch.zeros(6), tt.exactly(2), (5,), torch.Generator().manual_seed(0))
    >>> draws.sum(-1)
    tensor([2., 2., 2., 2., 2.])
    """
    return sample_of(pose(logits, groups, edges, mask), sample_shape, generator)


def sample_of(posed: Posed, sample_shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
    """Draws from models whose arguments have been read."""
    shape, generator = tensors.as_shape("sample_shape", sample_shape), tensors.generator(generator)
    with torch.no_grad():
        where = posed.logits.device if generator is None else generator.device
        seed = torch.randint(0, 2**62, (), generator=generator, device=where)
        posed = posed.detach()
        drawn = answer(ops.draw, posed.logits, posed.tables, seed, posed.structure.key, math.prod(shape))
        return drawn.to(posed.dtype).reshape(*shape, *posed.logits.shape)


# -- shared by the distributions -----------------------------------------------------------------------------------


def statistics(posed: Posed, *, counts: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Log Z (*b,), marginals (*b, D) and the packed probabilities of all counts (*b, T), differentiable."""
    found = answer(ops.sums, posed.logits, posed.tables, posed.structure.key, True, counts)
    return found[0], found[1], found[2]


def with_group(posed: Posed, group: int | None) -> tuple[Posed, int | None]:
    """The number of a group, checked; for None that of one with all variables, which is added if there is none."""
    key, n = posed.structure.key, posed.logits.shape[-1]
    sizes = structures.group_sizes(key, n)
    if group is not None:
        return posed, checks.group_number(group, len(sizes), ", or None for all variables")
    if n == 0:
        return posed, None
    if n in sizes:
        return posed, sizes.index(n)
    total = len(sizes)
    if key < 0:  # no groups
        return posed._replace(structure=structures.WHOLE, tables=posed.logits.new_zeros(n + 1)), total
    wider = posed._replace(structure=structures.with_all(key))
    if posed.tables is None:
        return wider, total
    zeros = posed.tables.new_zeros(*posed.tables.shape[:-1], n + 1)
    end = sum(size + 1 for size in sizes)  # what follows belongs to edges
    tables = torch.cat([posed.tables[..., :end], zeros, posed.tables[..., end:]], dim=-1)
    return wider._replace(tables=tables), total
