"""The ladder on a device: the quick kernels for all rows, the next rung for those that are not certified.

Flat models start with :mod:`.flat` or, if they are long, :mod:`.series` or :mod:`.long`, trees with :mod:`.tree`.
What the former refuse is looked at again where :mod:`.peaks` sees the posterior, then goes to the tree under a tilt,
and what plain numbers cannot hold, and a few short rows at once, to :mod:`.logarithms`. Both merge messages term by
term; flat models that are too long for that, and a few variables, for which many launches take longer than the way
there and back, go to the engine of the host instead. One look at the bounds per rung decides which rows go on; no row
waits for another.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ...potentials.constraints import Interval
from .. import host, log_tree
from ..structure import Structure
from ..tensors import refuse_impossible, refuse_nan
from . import flat, logarithms, long, peaks, series, tree
from .flat import Solved

TOLERANCE = 1e-9  # what the accuracy contract grants to log-odds
TANGENT_TOLERANCE = 1e-10  # absolute, per unit of direction
LONGEST_MERGED = 1 << 14  # variables of a flat model that the device merges term by term, in quadratic time
_FEW = 64  # short rows that go to the last rung at once: there the host has least to launch
ON_HOST = 1 << 14  # variables of flat models in all for which the host takes less time than the launches


class Asked(NamedTuple):
    """Log-odds (B, D), packed tables (1 or B, T) or None for an interval of counts; and the direction of a motion.

    Log-odds move along v (B, D), tables along push (1 or B, T), if they move.
    """

    logits: Tensor
    tables: Tensor | None
    v: Tensor | None = None
    push: Tensor | None = None

    def take(self, places: Tensor) -> Asked:
        """Some of the rows, with tables of their own."""
        tables, push = (None if t is None else own_tables(t, places) for t in (self.tables, self.push))
        return Asked(self.logits[places], tables, None if self.v is None else self.v[places], push)


def solve(structure: Structure, asked: Asked, counts: bool) -> Solved:
    """Log Z (B,), marginals (B, D) and packed count probabilities of the groups (B, T); or how the latter two move."""
    tolerance = TOLERANCE if asked.v is None else TANGENT_TOLERANCE
    answer = _first(structure, asked, counts)
    failed = uncertified(answer.bound, tolerance)
    if failed is None:
        return answer
    packed = explicit(structure, asked.logits, asked.tables)
    refuse_nan(asked.logits, packed)
    left = asked._replace(tables=packed).take(failed)
    if is_flat(structure) and left.logits.numel() <= ON_HOST:
        return _patched(answer, failed, **_by_host(structure, left, counts))
    if _has_kernels(structure, asked, counts):
        near = peaks.nearest(left.logits, own_tables(packed, failed))
        again = _flat(structure, left._replace(tables=near.tables), counts, near.start)
        answer = _patched(answer, failed, log_z=again.log_z, values=again.values, counts=again.counts)
        still = uncertified(peaks.bound(near, again, left.v), tolerance)
        if still is None:
            return answer
        failed, left = failed[still], left.take(still)
    if is_long(structure):
        return _patched(answer, failed, **_by_host(structure, left, counts))
    few = asked.v is None and len(failed) <= _FEW and asked.logits.shape[-1] <= flat.LONGEST
    if is_flat(structure) and not few:
        x, t = tilted(left.logits, own_tables(packed, failed))
        again = _by_tree(structure, left._replace(logits=x, tables=t), counts)
        answer = _patched(answer, failed, log_z=again.log_z, values=again.values, counts=again.counts)
        still = uncertified(again.bound, tolerance)
        if still is None:
            return answer
        failed, left = failed[still], left.take(still)
        if asked.v is not None:  # derivatives in logarithms keep all pairs of counts
            return _patched(answer, failed, **_by_host(structure, left, counts))
    return _patched(answer, failed, **_last(structure, left, counts))


def _first(structure: Structure, asked: Asked, counts: bool) -> Solved:
    """The quickest rung for models of this shape, and what it certifies."""
    x, tables = asked.logits, asked.tables
    if is_long(structure) and (counts or asked.push is not None):
        found = _by_host(structure, asked._replace(tables=explicit(structure, x, tables)), counts)
        return Solved(bound=x.new_zeros(len(x)), **{"log_z": x.new_empty(len(x)), **found})
    if not _has_kernels(structure, asked, counts):
        return _by_tree(structure, asked._replace(tables=explicit(structure, x, tables)), counts)
    return _flat(structure, asked, counts)


def _has_kernels(structure: Structure, asked: Asked, counts: bool) -> bool:
    """Whether the sums over frequencies answer: all about flat models, and of longer ones how log-odds move."""
    short = structure.n_variables <= flat.LONGEST
    return is_flat(structure) and (short or not (counts or asked.push is not None))


def _flat(structure: Structure, asked: Asked, counts: bool, start: Tensor | None = None) -> Solved:
    """Flat models by sums over frequencies, under tilts that are looked for from `start` on."""
    x, tables, v, push = asked
    if x.shape[-1] <= flat.LONGEST:
        return flat.solve(x, explicit(structure, x, tables), v, push, counts=counts, start=start)
    possible = _counts(structure, x, tables)
    if v is not None:
        return long.covariances(x, possible, v, start)
    return series.marginals(x, possible) or long.marginals(x, possible, start)


def explicit(structure: Structure, logits: Tensor, tables: Tensor | None) -> Tensor:
    """Tables with all their entries."""
    return structure.packed_on(logits.device)[None] if tables is None else tables


def _counts(structure: Structure, logits: Tensor, tables: Tensor | None) -> long.Counts:
    """What a long model needs to know of its table; an interval needs no entries."""
    potential = structure.potentials[0] if structure.potentials else None
    if tables is None and (potential is None or isinstance(potential, Interval)):
        n = logits.shape[-1]
        low, high = (0, n) if potential is None else potential.support(n)
        return long.interval(int(low), int(high), logits)
    return long.counts_of(explicit(structure, logits, tables), len(logits))


def count_log_probs(structure: Structure, logits: Tensor, tables: Tensor | None, group: int) -> Tensor:
    """Log-probabilities of the counts of one group (B, n + 1), with right tails: in logarithms."""
    packed = explicit(structure, logits, tables)
    refuse_nan(logits, packed)
    if is_long(structure):
        return host.from_afar("count_log_probs", structure, logits, shared(packed), group)
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


def is_long(structure: Structure) -> bool:
    """Whether this is one table over more variables than the device merges."""
    return is_flat(structure) and structure.n_variables > LONGEST_MERGED


# -- rungs ---------------------------------------------------------------------------------------------------------


def _by_tree(structure: Structure, asked: Asked, counts: bool) -> Solved:
    """Both passes in plain numbers, as many rows at a time as memory allows."""
    parts = []
    for x, t, v, push in tree.stretches(structure, *asked):
        moves = None if v is None else _moves(structure, x, t, v, push)
        found = tree.solve(structure, x, t, moves)
        law = found.moved or found
        probs = x.new_empty(len(x), 0)
        if counts:
            probs = pack(structure, law.beliefs, law.marginals, motion=moves is not None)
        parts.append((found.log_z, law.marginals, probs, found.bound))
    return Solved(*(torch.cat(part) for part in zip(*parts)))


def _moves(structure: Structure, x: Tensor, tables: Tensor, v: Tensor, push: Tensor | None) -> tree.Moves:
    """The direction, without what is infinite: of both states of the leaves, tables of single variables included."""
    own = torch.where(torch.isfinite(x), v, 0.0)
    h = torch.zeros_like(tables[:1]) if push is None else torch.where(torch.isfinite(push), push, 0.0)
    h = torch.where(torch.isfinite(tables), h, 0.0)
    leaves = torch.stack([torch.zeros_like(own), own], -1)
    family = structure.tree.family
    for g in structure.tree.singleton_groups.tolist():
        start, variable = int(family.group_offset[g]), int(family.variable_of_group[g])
        leaves[:, variable] += h[:, start : start + 2]
    return tree.Moves(leaves, log_tree.set_tables(structure, h).contiguous())


def _last(structure: Structure, asked: Asked, counts: bool) -> dict[str, Tensor]:
    """In logarithms, which are always right."""
    x, tables, v, push = asked
    assert tables is not None
    empty = x.new_empty(len(x), 0)
    if v is not None:
        pushed = torch.zeros_like(tables) if push is None else push
        moved, probs = log_tree.derivative(structure, x, tables, (v, pushed))
        return {"values": moved, "counts": probs if counts else empty}
    found = logarithms.solve(structure, x, tables)
    refuse_impossible(found.log_z)
    marginals = torch.sigmoid(found.odds)
    probs = pack(structure, found.log_beliefs.exp(), marginals) if counts else empty
    return {"log_z": found.log_z, "values": marginals, "counts": probs}


def _by_host(structure: Structure, asked: Asked, counts: bool) -> dict[str, Tensor]:
    """By the engine of the host, whose rungs take near-linear time."""
    x, tables, v, push = asked
    given = structure, x, shared(tables)
    if v is None:
        log_z, values, probs = host.from_afar("sums", *given, True, counts)
        return {"log_z": log_z, "values": values, "counts": probs}
    values, probs = host.from_afar("tangent", *given, v, shared(push), counts)
    return {"values": values, "counts": probs}


def shared(tables: Tensor | None) -> Tensor | None:
    """Tables for the host: what all rows share has no batch axis."""
    return tables[0] if tables is not None and len(tables) == 1 else tables


def tilted(logits: Tensor, tables: Tensor) -> tuple[Tensor, Tensor]:
    """The same models with log-odds and tables tilted to where the posterior is."""
    if logits.shape[-1] <= flat.LONGEST:
        s = flat.tilts(logits, tables)[:, None]
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


# -- rows ----------------------------------------------------------------------------------------------------------


def uncertified(bound: Tensor, tolerance: float) -> Tensor | None:
    """Numbers of the rows that are not certified; the one place where the host waits for the device.

    One number decides; a bound that is NaN is the largest.
    """
    worst = bound if len(bound) == 1 else bound.amax()
    return None if float(worst) <= tolerance else torch.nonzero(~(bound <= tolerance)).squeeze(-1)


def own_tables(tables: Tensor, failed: Tensor) -> Tensor:
    return tables.expand(len(failed), -1) if len(tables) == 1 else tables[failed]


def _patched(answer: Solved, places: Tensor, **parts: Tensor) -> Solved:
    return answer._replace(
        **{name: getattr(answer, name).index_copy(0, places, part) for name, part in parts.items()}
    )
