"""The ladder on a device: the quick kernels for all rows, the next rung for those that are not certified.

Flat models start with :mod:`.rows` or, if they are long, :mod:`.series` or :mod:`.long`, trees with :mod:`.nested`;
what the former refuse goes to the tree under a tilt, and what plain numbers cannot hold, and a few short rows at once,
to :mod:`.logarithms`. One look at the bounds per rung decides which rows go on; no row waits for another.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import InfeasibleError, ParameterError
from ...potentials.constraints import Interval
from .. import log_tree, plain
from ..structure import Structure
from . import logarithms, long, nested, rows, series

TOLERANCE = 1e-9  # what the accuracy contract grants to log-odds
TANGENT_TOLERANCE = 1e-10  # absolute, per unit of direction
_FEW = 64  # short rows that go to the last rung at once: there the host has least to launch
_STORED = 1 << 28  # doubles that the messages of one batch may take


class Sums(NamedTuple):
    """Log Z (B,), marginals (B, D) and packed count probabilities of the groups (B, T)."""

    log_z: Tensor
    marginals: Tensor
    counts: Tensor


def sums(structure: Structure, logits: Tensor, tables: Tensor | None, *, counts: bool) -> Sums:
    """Answers for log-odds (B, D) and packed tables (1 or B, T), or None for an interval of counts."""
    answer, bound = _first(structure, logits, tables, counts)
    failed = uncertified(bound, TOLERANCE)
    if failed is None:
        return answer
    packed = _explicit(structure, logits, tables)
    refuse_nan(logits, packed)
    x, t = logits[failed], own_tables(packed, failed)
    few = len(failed) <= _FEW and logits.shape[-1] <= rows.LONGEST
    if is_flat(structure) and not few:
        again, bound = _by_tree(structure, *tilted(x, t), counts)
        answer = _patched(answer, again, failed)
        still = uncertified(bound, TOLERANCE)
        if still is None:
            return answer
        failed, x, t = failed[still], x[still], t[still]
    return _patched(answer, _by_logarithms(structure, x, t, counts), failed)


def _first(structure: Structure, logits: Tensor, tables: Tensor | None, counts: bool) -> tuple[Sums, Tensor]:
    """The quickest rung for models of this shape, and what it certifies."""
    n = logits.shape[-1]
    if is_flat(structure) and (n <= rows.LONGEST or not counts):
        if n <= rows.LONGEST:
            found = rows.marginals(logits, _explicit(structure, logits, tables), counts=counts)
        else:
            possible = _counts(structure, logits, tables)
            found = series.marginals(logits, possible) or long.marginals(logits, possible)
        return Sums(found.log_z, found.values, found.counts), found.bound
    return _by_tree(structure, logits, _explicit(structure, logits, tables), counts)


def tangent(
    structure: Structure,
    logits: Tensor,
    tables: Tensor | None,
    v: Tensor,
    push: Tensor | None,
    *,
    counts: bool,
) -> tuple[Tensor, Tensor]:
    """Motion of marginals (B, D) and count probabilities (B, T) along v (B, D) and push (1 or B, T)."""
    moved, probs, bound = _first_motion(structure, logits, tables, v, push, counts)
    failed = uncertified(bound, TANGENT_TOLERANCE)
    if failed is None:
        return moved, probs
    packed = _explicit(structure, logits, tables)
    refuse_nan(logits, packed)
    x, t, w = logits[failed], own_tables(packed, failed), v[failed]
    h = None if push is None else own_tables(push, failed)
    if is_flat(structure):
        a, b, bound = _moved_by_tree(structure, *tilted(x, t), w, h, counts)
        moved, probs = moved.index_copy(0, failed, a), probs.index_copy(0, failed, b)
        still = uncertified(bound, TANGENT_TOLERANCE)
        if still is None:
            return moved, probs
        failed, x, t, w = failed[still], x[still], t[still], w[still]
        h = None if h is None else h[still]
    a, b = plain.tangent(structure, x, t, (w, torch.zeros_like(t) if h is None else h))
    moved = moved.index_copy(0, failed, a)
    return moved, probs.index_copy(0, failed, b) if counts else probs


def _first_motion(
    structure: Structure, logits: Tensor, tables: Tensor | None, v: Tensor, push: Tensor | None, counts: bool
) -> tuple[Tensor, Tensor, Tensor]:
    n = logits.shape[-1]
    if is_flat(structure) and (n <= rows.LONGEST or not (counts or push is not None)):
        if n <= rows.LONGEST:
            found = rows.covariances(logits, _explicit(structure, logits, tables), v, push, counts=counts)
        else:
            found = long.covariances(logits, _counts(structure, logits, tables), v)
        return found.values, found.counts, found.bound
    return _moved_by_tree(structure, logits, _explicit(structure, logits, tables), v, push, counts)


def _explicit(structure: Structure, logits: Tensor, tables: Tensor | None) -> Tensor:
    """Tables with all their entries."""
    return structure.packed_on(logits.device)[None] if tables is None else tables


def _counts(structure: Structure, logits: Tensor, tables: Tensor | None) -> long.Counts:
    """What a long model needs to know of its table; an interval needs no entries."""
    potential = structure.potentials[0] if structure.potentials else None
    if tables is None and (potential is None or isinstance(potential, Interval)):
        n = logits.shape[-1]
        low, high = (0, n) if potential is None else potential.support(n)
        return long.interval(int(low), int(high), logits)
    return long.counts_of(_explicit(structure, logits, tables), len(logits))


def count_log_probs(structure: Structure, logits: Tensor, tables: Tensor | None, group: int) -> Tensor:
    """Log-probabilities of the counts of one group (B, n + 1), with right tails: in logarithms."""
    packed = _explicit(structure, logits, tables)
    refuse_nan(logits, packed)
    found = logarithms.solve(structure, logits, packed)
    refuse_impossible(found.log_z)
    family = structure.tree.family
    s = int(family.set_of_group[group])
    if s >= 0:
        return found.log_beliefs[:, int(family.set_offset[s]) : int(family.set_offset[s + 1])]
    odds = found.odds[:, int(family.variable_of_group[group])]
    return -torch.nn.functional.softplus(torch.stack([odds, -odds], -1))


def is_flat(structure: Structure) -> bool:
    """Whether there is one table over all variables and nothing else."""
    family = structure.tree.family
    return (
        family.n_sets == 1
        and family.n_groups == 1
        and structure.tree.group_size(0) == structure.n_variables > 1
    )


# -- rungs ---------------------------------------------------------------------------------------------------------


def _by_tree(structure: Structure, logits: Tensor, tables: Tensor, counts: bool) -> tuple[Sums, Tensor]:
    parts = []
    for x, t in stretches(structure, logits, tables):
        found = nested.solve(structure, x, log_tree.set_tables(structure, t), None, t)
        probs = pack(structure, found.beliefs, found.marginals) if counts else x.new_empty(len(x), 0)
        parts.append((found.log_z, found.marginals, probs, found.bound))
    log_z, marginals, probs, bound = (torch.cat(p) for p in zip(*parts))
    return Sums(log_z, marginals, probs), bound


def _moved_by_tree(
    structure: Structure, logits: Tensor, tables: Tensor, v: Tensor, push: Tensor | None, counts: bool
) -> tuple[Tensor, Tensor, Tensor]:
    parts = []
    start = 0
    pushed = tables.new_zeros(1, tables.shape[-1]) if push is None else _finite(push)
    pushed = torch.where(torch.isfinite(tables), pushed, 0.0)
    for x, t in stretches(structure, logits, tables):
        w = torch.where(torch.isfinite(x), v[start : start + len(x)], 0.0)
        h = pushed if len(pushed) == 1 else pushed[start : start + len(x)]
        start += len(x)
        moves = nested.Moves(_leaf_moves(structure, w, h), log_tree.set_tables(structure, h).contiguous())
        found = nested.solve(structure, x, log_tree.set_tables(structure, t), moves, t)
        assert found.moved is not None
        probs = x.new_empty(len(x), 0)
        if counts:
            probs = pack(structure, found.moved.beliefs, found.moved.marginals, motion=True)
        parts.append((found.moved.marginals, probs, found.bound))
    moved, probs, bound = (torch.cat(p) for p in zip(*parts))
    return moved, probs, bound


def _by_logarithms(structure: Structure, logits: Tensor, tables: Tensor, counts: bool) -> Sums:
    found = logarithms.solve(structure, logits, tables)
    refuse_impossible(found.log_z)
    marginals = torch.sigmoid(found.odds)
    probs = logits.new_empty(len(logits), 0)
    if counts:
        probs = pack(structure, found.log_beliefs.exp(), marginals)
    return Sums(found.log_z, marginals, probs)


def tilted(logits: Tensor, tables: Tensor) -> tuple[Tensor, Tensor]:
    """The same models with log-odds and tables tilted to where the posterior is."""
    if logits.shape[-1] <= rows.LONGEST:
        s = rows.tilts(logits, tables)[:, None]
    else:
        s = long.tilts(logits, long.counts_of(tables, len(logits)))[:, None]
    counts = torch.arange(tables.shape[-1], dtype=tables.dtype, device=tables.device)
    forced = torch.isposinf(logits).sum(-1, keepdim=True)  # their weight is one whatever the tilt
    return logits + s, tables - s * (counts - forced)


def pack(structure: Structure, beliefs: Tensor, marginals: Tensor, *, motion: bool = False) -> Tensor:
    """Probabilities of the counts of all groups (B, T), from those of the sets and of single variables."""
    family = structure.tree.family
    parts = []
    for g, s in enumerate(family.set_of_group.tolist()):
        if s >= 0:
            parts.append(beliefs[:, int(family.set_offset[s]) : int(family.set_offset[s + 1])])
        else:
            on = marginals[:, int(family.variable_of_group[g])]
            parts.append(torch.stack([-on if motion else 1.0 - on, on], -1))
    return torch.cat(parts, -1) if parts else beliefs.new_empty(len(beliefs), 0)


def _leaf_moves(structure: Structure, v: Tensor, h: Tensor) -> Tensor:
    """Motion of the log-weights of both states (B, D, 2), tables of single variables included."""
    moves = torch.stack([torch.zeros_like(v), v], -1)
    family = structure.tree.family
    for g in structure.tree.singleton_groups.tolist():
        start, variable = int(family.group_offset[g]), int(family.variable_of_group[g])
        moves[:, variable] += h[:, start : start + 2]
    return moves


# -- rows ----------------------------------------------------------------------------------------------------------


def stretches(structure: Structure, logits: Tensor, tables: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Rows that fit into memory together, with their tables."""
    schedule = structure.schedule
    size = max(1, _STORED // max(1, schedule.up_length + 2 * schedule.down_length))
    if len(tables) == 1:
        return [(logits[i : i + size], tables) for i in range(0, len(logits), size)]
    return [(logits[i : i + size], tables[i : i + size]) for i in range(0, len(logits), size)]


def uncertified(bound: Tensor, tolerance: float) -> Tensor | None:
    """Numbers of the rows that are not certified; the one place where the host waits for the device.

    One number decides; a bound that is NaN is the largest.
    """
    return None if float(bound.amax()) <= tolerance else torch.nonzero(~(bound <= tolerance)).squeeze(-1)


def own_tables(tables: Tensor, failed: Tensor) -> Tensor:
    return tables.expand(len(failed), -1) if len(tables) == 1 else tables[failed]


def _patched(answer: Sums, part: Sums, places: Tensor) -> Sums:
    return Sums(*(whole.index_copy(0, places, piece) for whole, piece in zip(answer, part)))


def _finite(direction: Tensor) -> Tensor:
    return torch.where(torch.isfinite(direction), direction, 0.0)


def refuse_nan(logits: Tensor, tables: Tensor) -> None:
    if bool(torch.isnan(logits).any()):
        raise ParameterError("`logits` must not contain NaN. Use -inf to exclude a variable.")
    if bool((torch.isnan(tables) | (tables == math.inf)).any()):
        raise ParameterError(
            "Log-tables must be finite or -inf, but NaN or inf arrived. Use -inf to forbid a count."
        )


def refuse_impossible(log_z: Tensor) -> None:
    if bool((log_z == -math.inf).any()):
        raise InfeasibleError(
            "A model of the batch gives probability zero to every configuration. Relax a potential or an infinite "
            "logit."
        )
