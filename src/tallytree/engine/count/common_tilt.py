"""Tilting a nested model whose variables all lie in one group, by passes that know of tilts.

As in :mod:`~tallytree.engine.count.retilt`, with one tilt per model. The messages of the model that keeps only the
table of the outermost group are nearly the same for all variables, and that is the first tilt: it costs one flat model.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.special import expit

from ...arrays import Float64
from ...structure.nested.tree import TreeProgram
from .. import native
from ..answer import Answer, posterior
from ..ladder import improve
from ..problem import Rows
from ..tilt import tilt_to_mean

_ROUNDS = 4
_SAMPLE = 1 << 12  # variables by which tilts are judged: messages change little from one variable to the next

_FAR = 12.0  # standard deviations: the mass beyond is e^-72, which no pass sees


class TiltedPass(Protocol):
    """A pass that returns the answer of the model without the tilt."""

    def __call__(self, nu: Float64, tables: Float64, *, tilt: Float64, centre: Float64) -> Answer: ...


def serves(program: TreeProgram) -> bool:
    """Whether one group holds all variables."""
    return len(program.roots) == 1 and int(program.size[program.roots[0]]) == program.n_leaves


def needed(program: TreeProgram, nu: Float64, tables: Float64) -> bool:
    """Whether no model can do without a tilt: all counts that the outermost table allows are far from the prior mean.

    Judged by a sample of the variables, with room for its errors.
    """
    if not serves(program):
        return False
    n, seen, share = _sampled(program)
    outermost = _outermost(program, tables)
    for b, row in enumerate(nu[:, seen]):
        likely = expit(row)
        mean, spread = share * likely.sum(), np.sqrt(share * np.sum(likely * (1.0 - likely)))
        reach = _FAR * spread + 4.0 * share * np.sqrt(len(row)) * likely.std() + 1.0
        near = slice(max(0, int(mean - reach)), min(n, int(mean + reach)) + 1)
        if np.any(outermost[b if len(outermost) > 1 else 0, near] > -np.inf):
            return False
    return True


def climb_to_posterior_mean(
    program: TreeProgram, nu: Float64, tables: Float64, run: TiltedPass, *, least: float = 0.0
) -> Answer:
    """Run under better and better tilts until every model is certified, at most a few rounds.

    Where no first guess moves a mean by more than about `least` standard deviations there is nothing to gain, and no
    answer: the bounds are infinite.
    """
    n, seen, share = _sampled(program)
    simpler = native.flat(Rows(nu, np.ascontiguousarray(_outermost(program, tables))), False)
    tilt, mean = _tilt_of(nu[:, seen], simpler.messages[:, seen])
    if least > 0 and np.all(np.abs(tilt) * np.sqrt(0.25 * n) < least):
        return Answer.none(nu.shape)

    def under(guess: tuple[Float64, Float64]) -> Answer:
        return run(nu, tables, tilt=guess[0], centre=np.round(share * guess[1]))

    return improve(under, (tilt, mean), lambda found: _tilt_of(nu[:, seen], found.messages[:, seen]), _ROUNDS)


def _sampled(program: TreeProgram) -> tuple[int, slice, float]:
    """The number of variables, those that are looked at, and how many each of these stands for."""
    n = program.n_leaves
    seen = slice(None, None, max(1, n // _SAMPLE))
    return n, seen, n / len(range(n)[seen])


def _outermost(program: TreeProgram, tables: Float64) -> Float64:
    """The table of the group that holds all variables, (1 or B, n + 1)."""
    offset = int(program.table_offset[int(program.roots[0]) - program.n_leaves])
    return tables[:, offset : offset + program.n_leaves + 1]


def _tilt_of(nu: Float64, messages: Float64) -> tuple[Float64, Float64]:
    """The tilts (B,) that give independent variables the mean count that the messages give them, and these means."""
    likely = expit(posterior(nu, messages))
    free = np.isfinite(nu) & np.isfinite(likely)
    wanted = np.sum(np.where(free, likely, 0.0), axis=1)
    number = free.sum(axis=1)
    means = np.sum(np.where(np.isnan(likely), 0.0, likely), axis=1)
    hidden = np.where(free, nu, -np.inf)  # counts nothing under any tilt
    return tilt_to_mean(hidden, np.clip(wanted, 0.05, np.maximum(number - 0.05, 0.05)), near=1e-6), means
