"""Samples of an assignment and averages over them, by Markov chains that start from the best one."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from .. import checks
from .._progress import Iterations, Report
from ..arrays import Bools, Float64
from ..errors import ParameterError
from ..loopy.options import stoppable
from ..models.sampling import Size, shape_of_size
from . import ergodicity, gibbs
from .ergodicity import Constraints
from .gibbs import Grid
from .matrix import MatrixProblem
from .results import GibbsMarginals


class Chains(MatrixProblem):
    """A problem whose assignments are drawn."""

    def sample(
        self,
        size: Size = 1,
        rng: Any = None,
        *,
        burn_in: int = 50,
        thin: int = 5,
        chains: int | None = None,
        progress: bool | Report = False,
    ) -> Any:
        """Assignments that respect all counts, by Markov chains that start from the best one.

        Parameters
        ----------
        size : int, tuple of int or None
            Number of assignments; None draws one, without an axis for it. No tuple for a sparse problem.
        rng : Generator, int or None
            Source of randomness.
        burn_in, thin : int
            Sweeps before the first and between kept ones. A sweep redraws every row and every column from its exact
            conditional distribution, then trades between pairs of rows and of columns.
        chains : int, optional
            Chains side by side; default min(size, 64).
        progress : bool or callable
            Show the sweeps, or call a function of their number and NaN.

        Returns
        -------
        (size..., I, J) array of bool, or a list of sparse matrices for a sparse problem
            Assignments.

        Raises
        ------
        ParameterError
            If a number is too small, or ``rng`` cannot be used.
        InfeasibleError
            If no assignment meets the counts.

        See Also
        --------
        mode, row_gibbs

        Notes
        -----
        Cost: O(I J K) per sweep and chain. Accuracy: the chains have the right limit; how close they are after
        ``burn_in`` sweeps is not certified. Warns where some assignments cannot be reached.

        Examples
        --------
        >>> problem = tt.assignment(np.zeros((2, 3)), rows=tt.exactly(1), columns=tt.at_most(1))
        >>> problem.sample(4, rng=0).sum(axis=2)
        array([[1, 1],
               [1, 1],
               [1, 1],
               [1, 1]])
        """
        lead, every = shape_of_size(size), _at_least("thin", thin, 1)
        if self._sparse and len(lead) > 1:
            raise ParameterError(
                f"`size` must be a number or None for a sparse problem, whose samples are a list; {size!r} arrived."
            )
        count = math.prod(lead)
        parallel = min(count, 64) if chains is None else _at_least("chains", chains, 1)
        burn = _at_least("burn_in", burn_in, 0)
        ergodicity.check_mixed(self._shape_of_chains)
        sweeps = -(-count // max(parallel, 1)) * every
        kept: list[Bools] = []
        left = count
        states = self._run("states", sweeps, burn, parallel, rng) if count else ()
        with Iterations(progress, burn + sweeps, "sample") as shown:
            for s, (_, y, _) in enumerate(states, 1):
                if s > burn and (s - burn) % every == 0:
                    kept.append(y[:left].copy())
                    left -= len(kept[-1])
                shown.update(s, math.nan)
        out = np.concatenate(kept) if kept else np.zeros((0, *self.shape), bool)
        if self._sparse:
            matrices = [sparse.csr_array(m) for m in out]
            return matrices if lead else matrices[0]
        return out.reshape(*lead, *self.shape)

    def block_gibbs(
        self,
        sweeps: int = 1000,
        rng: Any = None,
        *,
        burn_in: int = 100,
        chains: int = 16,
        progress: bool | Report = False,
    ) -> GibbsMarginals:
        """Marginals by the paper's Gibbs sampler on 2x2 blocks, started from the best assignment.

        Warns with ``ErgodicityWarning`` where allowed counts are disjoint, so that the chain cannot pass from one to
        another, and where forbidden cells may separate assignments.

        Parameters
        ----------
        sweeps : int
            Length of a chain.
        rng : Generator, int or None
            Source of randomness.
        burn_in : int
            Sweeps that are thrown away.
        chains : int
            How many chains run.
        progress : bool or callable
            Whether to report.

        Returns
        -------
        GibbsMarginals
            Averages over chains and sweeps, with standard errors.

        Raises
        ------
        ParameterError
            If a number is too small, or ``rng`` cannot be used.
        InfeasibleError
            If no assignment meets the counts.

        See Also
        --------
        row_gibbs, loopy_bp, sample

        Examples
        --------
        >>> problem = tt.assignment(np.zeros((2, 2)), rows=tt.exactly(1), columns=tt.exactly(1))
        >>> problem.block_gibbs(200, rng=0).marginals.round(1)
        array([[0.5, 0.5],
               [0.5, 0.5]])
        """
        ergodicity.check_square_blocks(self._shape_of_chains)
        return self._average("square", sweeps, burn_in, chains, rng, progress)

    def row_gibbs(
        self,
        sweeps: int = 200,
        rng: Any = None,
        *,
        burn_in: int = 20,
        chains: int = 64,
        moves: str = "rows",
        progress: bool | Report = False,
    ) -> GibbsMarginals:
        """Marginals by Gibbs sampling whole rows exactly, started from the best assignment.

        Averages conditional marginals, not states. ``moves="mixed"`` adds column blocks and trades, which are needed
        where column counts are exact; with ``moves="rows"`` such problems warn.

        Parameters
        ----------
        sweeps : int
            Length of a chain.
        rng : Generator, int or None
            Source of randomness.
        burn_in : int
            Sweeps that are thrown away.
        chains : int
            How many chains run.
        moves : {"rows", "mixed"}
            What is drawn at once.
        progress : bool or callable
            Whether to report.

        Returns
        -------
        GibbsMarginals
            Averages over chains and sweeps, with standard errors.

        Raises
        ------
        ParameterError
            If a number is too small, ``moves`` is neither, or ``rng`` cannot be used.
        InfeasibleError
            If no assignment meets the counts.

        See Also
        --------
        block_gibbs, loopy_bp, sample

        Examples
        --------
        >>> problem = tt.assignment(np.zeros((2, 3)), rows=tt.exactly(1), columns=tt.at_most(1))
        >>> problem.row_gibbs(100, rng=0, moves="mixed").marginals.round(1)
        array([[0.3, 0.3, 0.3],
               [0.3, 0.3, 0.3]])
        """
        checks.one_of("moves", moves, ("rows", "mixed"))
        if moves == "rows":
            ergodicity.check_row_blocks(self._shape_of_chains)
        else:
            ergodicity.check_mixed(self._shape_of_chains)
        return self._average(moves, sweeps, burn_in, chains, rng, progress)

    @cached_property
    def _grid(self) -> Grid:
        theta = np.full(self.shape, -math.inf)
        values = self._scatter(self._cells.logits[self._reduced.free], math.inf, -math.inf)
        theta[self._cells.places] = values
        return Grid(theta, *self._tables)

    @property
    def _shape_of_chains(self) -> Constraints:
        reduced = self._reduced
        blocked = 0 < self.n_free < self.shape[0] * self.shape[1]
        return Constraints(*self._tables, reduced.row_tables, reduced.column_tables, blocked)

    def _run(self, kind: str, sweeps: int, burn_in: int, chains: int, rng: Any) -> Any:
        start = np.zeros(self.shape, bool)
        start[self._cells.places] = self._best_cells
        return gibbs.run(self._grid, start, kind, sweeps, burn_in, chains, checks.generator(rng))

    def _average(
        self, kind: str, sweeps: int, burn_in: int, chains: int, rng: Any, progress: bool | Report
    ) -> GibbsMarginals:
        sweeps, chains = _at_least("sweeps", sweeps, 1), _at_least("chains", chains, 1)
        burn_in = _at_least("burn_in", burn_in, 0)
        total = np.zeros((chains, *self.shape))
        done = 0
        with stoppable(progress, sweeps, "gibbs") as shown:
            for keep, y, marginals in self._run(kind, sweeps, burn_in, chains, rng):
                if not keep:
                    continue
                total += y if marginals is None else marginals
                done += 1
                shown.update(done, math.nan)
        each = total[:, *self._cells.places] / max(done, 1)
        mean, error = self._matrix(each.mean(0), 0.0), self._matrix(self._standard_error(each), 0.0)
        return GibbsMarginals(mean, error, chains, done, shown.interrupted)

    def _standard_error(self, each: Float64) -> Float64:
        """Of the means (C, cells) of the chains; infinite where they say nothing, 0 where nothing is to be said."""
        if len(each) == 1:
            error = np.full(self.n_cells, math.inf)
        else:
            error = each.std(0, ddof=1) / math.sqrt(len(each))
            error[(each == each[0]).all(0) & np.isin(each[0], (0.0, 1.0))] = math.inf
        decided = np.ones(self.n_cells, bool)
        decided[self._reduced.free] = False
        return np.where(decided, 0.0, error)


def _at_least(name: str, value: Any, least: int) -> int:
    number = checks.integer(name, value)
    if number < least:
        raise ParameterError(
            f"`{name}` must be an integer of at least {least}; {number} arrived. Leave it out for the default."
        )
    return number
