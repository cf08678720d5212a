"""Samples of one large component with a single potential.

A few samples are drawn given their totals, half of the variables after the other. More of them pay for upward messages,
which are made once and kept: for the whole component, or of long ones in windows of the total.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64, Ints
from .. import choose, native
from .windows import Cover

ROUNDING = 2.0**-53
Stream = Callable[..., np.random.SeedSequence]


class LargeBlock:
    """The variables of one potential in one model.

    Parameters
    ----------
    nu, log_f : (n,), (n + 1,)
        Log-odds and log-table.
    variables : (n,)
        Their places in a sample.
    prepare : callable
        Makes upward messages, of all counts or for a :class:`~tallytree.engine.sample.array.Window`.
    """

    def __init__(self, nu: Float64, log_f: Float64, variables: Ints, prepare: Callable[..., Any]) -> None:
        self._nu, self._log_f, self._variables, self._prepare = nu, log_f, variables, prepare
        free = np.isfinite(nu)
        self._free = None if free.all() else np.flatnonzero(free)
        self._forced = 0 if self._free is None else int(np.count_nonzero(nu == math.inf))
        n = len(nu) if self._free is None else len(self._free)
        possible = np.isfinite(log_f[self._forced : self._forced + n + 1])
        self._possible = np.flatnonzero(possible)
        self.impossible = not len(self._possible)

    def draw(self, out: NDArray[np.uint8], rows: Ints, stream: Stream) -> None:
        """Fill the columns of this block in ``out[rows]``."""
        count = len(rows)
        if count > choose.FEW_LARGE_DRAWS or not native.present():
            self._draw_kept(out, rows, stream)
            return
        bits = stream(0).generate_state(3 * count, np.uint64)
        totals = self._totals(bits[:count])
        keys = bits[count:].astype(np.uint64).view(np.uint32).reshape(count, 4)
        for i, row in enumerate(rows.tolist()):
            if not self._draw_given(out[row], int(totals[i]), keys[i]):
                self._draw_kept(out, rows[i : i + 1], lambda *place, i=i: stream(2, i, *place))

    # -- given the total -------------------------------------------------------------------------------------------

    def _totals(self, bits: NDArray[Any]) -> Ints:
        """How many of the free variables are on in every sample."""
        if len(self._possible) == 1:
            return np.repeat(self._possible, len(bits))
        law = self._law
        u = (bits >> np.uint64(11)) * 2.0**-53
        return np.asarray(np.minimum(law.searchsorted(u * law[-1], side="right"), law.argmax()))

    @cached_property
    def _law(self) -> Float64:
        """Cumulative probabilities of the count of the free variables."""
        nu = self._nu if self._free is None else self._nu[self._free]
        table = self._log_f[self._forced : self._forced + len(nu) + 1]
        nothing = np.zeros((0, 1, len(nu)))
        found = native.flat_tangent(nu[None], np.ascontiguousarray(table[None]), nothing, None, True)
        probs, bound = found[1][0], float(found[3][0])
        if not bound <= choose.LAW_KNOWN:
            log_weights = native.flat_log_pmf(nu[None])[0] + table
            return np.asarray(np.exp(log_weights - log_weights.max()).cumsum())
        # What lies below the rounding of the largest is no weight of its own: it may be negative.
        weighs = probs > ROUNDING * probs.max()
        weighs &= table > -math.inf
        return np.asarray((probs * weighs).cumsum())

    def _draw_given(self, row: NDArray[np.uint8], total: int, key: NDArray[np.uint32]) -> bool:
        variables = self._variables
        run = len(variables) > 0 and variables[-1] - variables[0] + 1 == len(variables)
        if self._free is None and run:
            return native.draw_given_count(self._nu, total, key, row[variables[0] : variables[-1] + 1])
        nu = self._nu if self._free is None else self._nu[self._free]
        drawn = np.empty(len(nu), np.uint8)
        if not native.draw_given_count(nu, total, key, drawn):
            return False
        row[variables] = self._nu > 0.0
        row[variables if self._free is None else variables[self._free]] = drawn
        return True

    # -- from upward messages --------------------------------------------------------------------------------------

    @cached_property
    def _kept(self) -> Any:
        long = len(self._nu) > choose.LONG_DRAWS
        return Cover(self._nu, self._log_f, self._prepare) if long else self._prepare(None)

    def _draw_kept(self, out: NDArray[np.uint8], rows: Ints, stream: Stream) -> None:
        kept = self._kept
        if not isinstance(kept, Cover):
            kept.draw(out, rows, stream(0))
            return
        weights = np.cumsum(np.exp(kept.log_weights - kept.log_weights.max()))
        u = np.random.default_rng(stream(0)).random(len(rows)) * weights[-1]
        at = np.minimum(np.searchsorted(weights, u, side="right"), int(np.argmax(weights)))
        for j in np.unique(kept.window_of[at]).tolist():
            mine = np.flatnonzero(kept.window_of[at] == j)
            totals = kept.counts[at[mine]]
            kept.part(j).draw(out, rows[mine], stream(1, j), totals)
