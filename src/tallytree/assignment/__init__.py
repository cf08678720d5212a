"""Assignments: matrices of binary cells with potentials on row and column counts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .gibbs import ErgodicityWarning as ErgodicityWarning
    from .problem import Assignment as Assignment
    from .results import AssignmentBeliefs as AssignmentBeliefs
    from .results import AssignmentBounds as AssignmentBounds
    from .results import AssignmentExact as AssignmentExact
    from .results import AssignmentMode as AssignmentMode
    from .results import GibbsMarginals as GibbsMarginals

# Imported when first used: the function below has the name of this package, so `import tallytree` needs it at once.
_HOME = {"Assignment": "problem", "ErgodicityWarning": "gibbs"}  # the others are in results

__all__ = [
    "Assignment",
    "AssignmentBeliefs",
    "AssignmentBounds",
    "AssignmentExact",
    "AssignmentMode",
    "ErgodicityWarning",
    "GibbsMarginals",
    "assignment",
]


def assignment(affinity: Any, rows: Any = None, columns: Any = None, forbidden: Any = None) -> Assignment:
    """Assignment problem: which cells of a matrix are on, given affinities and how many may be on per row and column.

    ``p(y) = exp(sum_ij affinity_ij y_ij) prod_i f_i(sum_j y_ij) prod_j g_j(sum_i y_ij) / Z``

    Parameters
    ----------
    affinity : (I, J) array_like or sparse matrix
        Log-odds of the cells; ``-inf`` forbids a cell, ``inf`` forces it. In a sparse matrix only stored entries,
        including stored zeros, are allowed cells. Numbers below -1e12, such as masks of -1e20, are treated as
        ``-inf``, as are table entries more than 1e12 below the largest.
    rows, columns : potential, array or list, optional
        Potential on the count of every row and of every column: one for all, or a list with one for each; default none.
        Arrays hold log-tables, (J + 1,) or (I, J + 1) for rows, (I + 1,) or (J, I + 1) for columns.
    forbidden : (I, J) array_like of bool, optional
        Cells that must stay empty.

    Returns
    -------
    Assignment
        Its methods are ``infer`` (exact where that is cheap), ``exact``, ``loopy_bp`` (approximate marginals),
        ``bounds``, ``mode`` (the best assignment, exact), ``dual_decomposition``, ``sample``, ``gibbs_marginals``, and
        the baselines ``node_marginals`` and ``lp_marginals``.

    Raises
    ------
    InfeasibleError
        If no assignment meets the smallest and largest allowed counts; the message names the rows or columns that
        clash. Counts with gaps, such as "0 or 3", are only checked when an answer is asked for.

    See Also
    --------
    tallytree.FactorGraph
    tallytree.loopy_bp
    tallytree.plot.assignment_heatmap

    Notes
    -----
    Cost: one maximum-flow problem, which finds the cells that the counts decide (none if all rows, all columns and all
    cells are alike).

    Accuracy: decided cells are exact. They are removed before inference, because a constraint that leaves no choice
    would drive the messages of belief propagation to infinity.

    References
    ----------
    Tarlow, Swersky, Zemel, Adams, Frey (2012), section 6.2.

    Examples
    --------
    Six papers, four reviewers; each paper gets two reviewers, each reviewer two to four papers:

    >>> scores = np.add.outer([0.0, 1.0, 2.0, 0.5], [0.0, 0.1, 0.2, 0.3, 0.4, 0.5])
    >>> problem = tt.assignment(scores, rows=tt.between(2, 4), columns=tt.exactly(2))
    >>> problem
    Assignment(shape=(4, 6), n_cells=24, n_free=24)
    >>> result = problem.infer()
    >>> result
    AssignmentExact(exact, log_partition=24.2063, width=960)
    >>> result.column_counts.round(6)
    array([2., 2., 2., 2., 2., 2.])
    >>> problem.mode().cells.sum(axis=1)
    array([2, 4, 4, 2])
    """
    from .problem import Assignment  # see _HOME

    return Assignment(affinity, rows, columns, forbidden)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f".{_HOME.get(name, 'results')}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
