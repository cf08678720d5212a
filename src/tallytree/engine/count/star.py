"""A few large groups and a total over all variables: each group is a flat model, and counts meet in convolutions.

With what the total and the other groups say of its count, D_g(k), group g is a flat model with the table f_g D_g:

    D_g(k) = sum_t f(t) (q_1 * ... without q_g ... * q_m)(t - k),     q_g(k) the law of the count of g alone.

All laws are taken under one tilt e^(sk) that puts the total where its posterior is, so that plain numbers serve and an
FFT loses nothing that matters. A direction moves the laws, the laws move D, and D moves the tables of the groups: two
tangents of flat models for every group, whatever the number of counts.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from scipy import fft
from scipy.special import expit

from ...arrays import Float64, Ints
from ...memo import once
from ...structure.nested.family import NestedFamily
from .. import native
from ..answer import Answer, posterior
from ..arithmetic import UNIT_ROUNDOFF
from ..problem import Problem
from ..tilt import tilt_towards
from .flat import count_law

LARGE = 1 << 15  # variables from which on this is quicker than a tree of convolutions
MOST_GROUPS = 16
_CERTAIN = 1e-11  # error of the laws of all groups
_ACCEPTED = 1e-10  # error of a derivative as a share of the largest entry
_STEPS = 6  # of the search for a tilt
_CLOSE = 2.0  # standard deviations that the mean of the total may be off


class Star(NamedTuple):
    """The structure: variables and cells of every group, and the set of the total."""

    variables: tuple[Ints, ...]
    cells: tuple[slice | None, ...]  # None: the variables that are in no group but the total
    total: slice


class _Laws(NamedTuple):
    """Laws of the counts of all groups on their windows, and what they say of one another."""

    first: tuple[int, ...]
    own: tuple[Float64, ...]  # q_g
    others: tuple[Float64, ...]  # D_g
    weight: Float64  # f(t) e^(-st), at most 1, from the sum of `first` on
    sum: Float64  # q_1 * ... * q_m
    norm: float  # Z
    error: float  # of every probability


def star_of(family: NestedFamily) -> Star | None:
    """The star that a family is, if it is one."""
    parent = family.set_parent
    roots = np.flatnonzero(parent < 0)
    groups = np.flatnonzero(parent >= 0)
    if (
        len(roots) != 1
        or not 0 < len(groups) <= MOST_GROUPS
        or family.set_size[roots[0]] != family.n_variables
    ):
        return None
    if np.any(parent[groups] != roots[0]):
        return None
    offset = family.set_offset.tolist()
    variables = [np.sort(family.order[family.start[g] : family.stop[g]]) for g in groups.tolist()]
    cells: list[slice | None] = [slice(offset[g], offset[g + 1]) for g in groups.tolist()]
    free = np.ones(family.n_variables, bool)
    for members in variables:
        free[members] = False
    if free.any():
        variables.append(np.flatnonzero(free))
        cells.append(None)
    return Star(tuple(variables), tuple(cells), slice(offset[roots[0]], offset[roots[0] + 1]))


def large_star(problem: Problem) -> Star | None:
    """The star of a problem whose groups are large enough to be worth it."""
    if problem.nu.shape[1] < LARGE or not native.present():
        return None
    found: tuple[Star | None] = once(problem.tree, "star", lambda: (star_of(problem.tree.family),))
    return found[0]


class StarModel:
    """One model: log-odds (n,) and packed tables (T,), under the tilt of its posterior."""

    def __init__(self, star: Star, nu: Float64, tables: Float64, solved: Answer, b: int) -> None:
        self.star, self.n = star, len(nu)
        self.nu = [np.ascontiguousarray(nu[v]) for v in star.variables]
        self.tables = [
            np.zeros(len(v) + 1) if c is None else tables[c] for v, c in zip(star.variables, star.cells)
        ]
        self.root = tables[star.total]
        messages = np.asarray(solved.messages)[b]
        means = expit(posterior(nu, messages))
        self.means = [float(means[v].sum()) for v in star.variables]
        finite = messages[np.isfinite(messages)]
        self.tilt = float(finite.mean()) if len(finite) else 0.0
        self.laws: Any = self._find_laws()  # None: there are no answers

    def _tilted(self, g: int) -> Float64:
        """The table of a group under the tilt, which is 1 at the group's mean: large numbers would lose digits."""
        counts = np.arange(len(self.tables[g]))
        return np.asarray(self.tables[g] + self.tilt * (counts - round(self.means[g])))

    def _find_laws(self) -> _Laws | None:
        """Laws under a tilt that puts the mean of the total near its posterior's."""
        wanted = np.asarray(sum(self.means))
        own: tuple[list[Float64], float] = [], math.inf

        def moments(tilt: Float64) -> tuple[Float64, Float64]:
            nonlocal own
            self.tilt = float(tilt)
            laws, error = own = self._group_laws()
            if not error <= _CERTAIN:
                return wanted, np.ones(())  # no tilt is worth trying from here
            means = [float(np.arange(len(q)) @ q) for q in laws]
            variance = sum(float((np.arange(len(q)) - m) ** 2 @ q) for q, m in zip(laws, means))
            return np.asarray(sum(means)), np.asarray(variance)

        start = np.asarray(self.tilt)
        found = tilt_towards(moments, lambda *_: wanted, start, near=_CLOSE, slack=1.0, steps=_STEPS)
        # A last step may have gone further than was looked.
        if float(found) != self.tilt or not own[1] <= _CERTAIN:
            return None
        return self._joined(*own)

    def _group_laws(self) -> tuple[list[Float64], float]:
        laws, error = [], 0.0
        for g, nu in enumerate(self.nu):
            probs, bound = count_law(nu, self._tilted(g))
            laws.append(probs)
            error += bound + UNIT_ROUNDOFF * float(probs.max(initial=0.0))
        return laws, error

    def _joined(self, laws: list[Float64], error: float) -> _Laws | None:
        first = [int(np.argmax(q > 0.0)) for q in laws]
        own = [q[low : len(q) - int(np.argmax(q[::-1] > 0.0))] for q, low in zip(laws, first)]
        width = sum(len(q) for q in own) - len(own) + 1
        counts = sum(first) + np.arange(width)
        log_weight = self.root[counts] - self.tilt * counts
        top = log_weight.max()
        if top == -math.inf:
            return None
        weight = np.exp(log_weight - top)
        length = fft.next_fast_len(width + max(map(len, own)), real=True)
        spectra = [fft.rfft(q, length) for q in own]
        total = fft.irfft(_product(spectra), length)[:width]
        norm = float(weight @ total)
        # Transforms of laws are off by a few roundings of their norms, which are at most 1.
        noise = 16.0 * math.log2(length) * UNIT_ROUNDOFF * math.sqrt(float(weight @ weight))
        error = (error + noise) / norm if norm > 0.0 else math.inf
        if not error <= _ACCEPTED:
            return None
        reversed_weight = fft.rfft(weight[::-1], length)
        others = []
        for g, q in enumerate(own):
            rest = _product([x for h, x in enumerate(spectra) if h != g])
            # sum_t f(t) rest(t - k) is the product with f reversed, read from its end.
            found = fft.irfft(reversed_weight * rest, length)
            others.append(_positive(found[width - len(q) : width][::-1], noise))
        return _Laws(tuple(first), tuple(own), tuple(others), weight, total, norm, error)

    # -- answers -----------------------------------------------------------------------------------------------

    def counts(self) -> Float64:
        """P(count) of every set, packed (T,)."""
        laws = self.laws
        each = [q * d for q, d in zip(laws.own, laws.others)]
        return self._packed(each, np.maximum(laws.weight * laws.sum, 0.0))

    def _packed(self, groups: list[Float64], total: Float64) -> Float64:
        """Shares of Z of the counts of all groups and of the total, on their windows, among those of all sets (T,)."""
        first, cells = self.laws.first, (*self.star.cells, self.star.total)
        out = np.zeros(max(int(c.stop) for c in cells if c is not None))
        for place, low, values in zip(cells, (*first, sum(first)), (*groups, total)):
            if place is not None:
                out[place.start + low :][: len(values)] = values / self.laws.norm
        return out

    def moved(self, v: Float64, h: Float64, *, counts: bool) -> tuple[Float64, Float64] | None:
        """Derivatives of P(y = 1), (n,), and P(count), (T,), along v (n,) and h (T,); None without a certificate."""
        laws, star = self.laws, self.star
        pushed = [np.zeros(len(q) + 1) if c is None else h[c] for q, c in zip(star.variables, star.cells)]
        own = []
        for g, nu in enumerate(self.nu):
            move = v[star.variables[g]][None, None], pushed[g][None, None]
            found = native.flat_tangent(nu[None], self._tilted(g)[None], *move, True)
            if not found[3][0] <= _ACCEPTED:
                return None
            low = laws.first[g]
            own.append(np.where(laws.own[g] > 0.0, found[2][0, 0, low : low + len(laws.own[g])], 0.0))
        push = h[star.total][sum(laws.first) :][: len(laws.weight)]
        push = np.where(laws.weight > 0.0, push, 0.0)
        others, total = self._moved_others(own, push)
        change = np.empty(self.n)
        for g, nu in enumerate(self.nu):
            again = self._moved_group(g, nu, v[star.variables[g]], pushed[g], others[g])
            if again is None:
                return None
            change[star.variables[g]] = again
        if not counts:
            return change, np.zeros(0)
        rate = float(laws.weight @ (laws.sum * push + total)) / laws.norm
        known = zip(laws.own, laws.others, own, others)
        each = [more * d + q * other - rate * q * d for q, d, more, other in known]
        return change, self._packed(each, laws.weight * (laws.sum * (push - rate) + total))

    def _moved_others(self, own: list[Float64], push: Float64) -> tuple[list[Float64], Float64]:
        """Derivatives of every D_g and of the law of the total."""
        laws = self.laws
        width = len(laws.weight)
        length = fft.next_fast_len(width + max(map(len, own)), real=True)
        spectra = [fft.rfft(q, length) for q in laws.own]
        rates = [fft.rfft(q, length) for q in own]
        weight, pushed = (fft.rfft(x[::-1], length) for x in (laws.weight, laws.weight * push))
        moved = []
        for g, q in enumerate(laws.own):
            rest = [h for h in range(len(own)) if h != g]
            change = _product_rate([spectra[h] for h in rest], [rates[h] for h in rest])
            found = fft.irfft(weight * change + pushed * _product([spectra[h] for h in rest]), length)
            moved.append(found[width - len(q) : width][::-1])
        return moved, fft.irfft(_product_rate(spectra, rates), length)[:width]

    def _moved_group(self, g: int, nu: Float64, v: Float64, h: Float64, others: Float64) -> Float64 | None:
        laws, low = self.laws, self.laws.first[g]
        seen = laws.others[g] > 0.0
        inside = slice(low, low + len(seen))
        table = np.full(len(nu) + 1, -math.inf)
        logs = np.log(np.where(seen, laws.others[g], 1.0))
        table[inside] = np.where(seen, self._tilted(g)[inside] + logs, -math.inf)
        pushed = np.where(table > -math.inf, h, 0.0)
        pushed[inside] += np.where(seen, others / np.where(seen, laws.others[g], 1.0), 0.0)
        pushed[inside] -= (laws.own[g] * laws.others[g] / laws.norm) @ pushed[inside]
        found = native.flat_tangent(nu[None], table[None], v[None, None], pushed[None, None], False)
        return found[0][0, 0] if found[3][0] <= _ACCEPTED else None


def _product(spectra: list[Any]) -> Any:
    return reduce(np.multiply, spectra, np.ones(1))


def _product_rate(spectra: list[Any], rates: list[Any]) -> Any:
    """The derivative of a product from those of its factors."""
    out: Any = np.zeros(1)
    for g, rate in enumerate(rates):
        out = out + rate * _product([x for h, x in enumerate(spectra) if h != g])
    return out


def _positive(values: Float64, noise: float) -> Float64:
    """Sums of products of positive numbers; what rounding has drowned is none."""
    return np.where(values > noise, values, 0.0)
