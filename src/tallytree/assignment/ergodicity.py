"""Which Markov chains can reach every assignment, and warnings where one may not."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np

from ..arrays import Float64


class ErgodicityWarning(UserWarning):
    """A Markov chain cannot reach every configuration, so its averages may be wrong.

    See Also
    --------
    tallytree.assignment.Assignment

    Examples
    --------
    >>> from tallytree.assignment import ErgodicityWarning
    >>> issubclass(ErgodicityWarning, UserWarning)
    True
    """


@dataclass(frozen=True, eq=False)
class Constraints:
    """Log-tables as given, and those of the free cells; whether some cells are blocked."""

    rows: Float64
    columns: Float64
    free_rows: list[Float64]
    free_columns: list[Float64]
    blocked: bool

    @property
    def exact(self) -> bool:
        """Whether every row and every column has a single count."""
        return all((t > -math.inf).sum() == 1 for t in [*self.free_rows, *self.free_columns])


def gaps(tables: Float64) -> bool:
    """Whether a table allows counts that are not an interval."""
    possible = tables > -math.inf
    span = possible.shape[1] - np.argmax(possible, axis=1) - np.argmax(possible[:, ::-1], axis=1)
    return bool((possible.sum(1) != span).any())


def check_square_blocks(given: Constraints) -> None:
    """2x2 blocks change a count by at most two, and keep exact counts only by swaps."""
    for name, tables in (("row", given.rows), ("column", given.columns)):
        if gaps(tables):
            _warn(
                f"The allowed {name} counts are disjoint, and 2x2 blocks cannot pass from one to another: the "
                f"chain is not "
                f"ergodic, and its averages depend on its start. Use loopy_bp, or sample, which redraws whole {name}s."
            )
            return
    if given.blocked and given.exact:
        _warn(
            "With forbidden cells and exact counts, 2x2 blocks may not connect all assignments: the averages may "
            "depend on the start. Compare with loopy_bp."
        )


def check_row_blocks(given: Constraints) -> None:
    """A row can only change column counts by one."""
    single = sum(len(t) > 1 and int((t > -math.inf).sum()) == 1 for t in given.free_columns)
    if single:
        _warn(
            f"{single} columns have an exact count, which redrawing a single row cannot move: the chain is not "
            f"ergodic. "
            'Use moves="mixed".'
        )
    elif gaps(given.columns):
        _warn(
            "The allowed column counts are disjoint, and redrawing single rows cannot pass from one to another: the "
            'chain is not ergodic. Use moves="mixed".'
        )


def check_mixed(given: Constraints) -> None:
    """Row and column blocks with trades connect all but contrived problems."""
    if gaps(given.rows) and gaps(given.columns):
        _warn(
            "Allowed row and column counts are both disjoint, and the moves may not connect all assignments: the "
            "samples may depend on the start. Compare with loopy_bp."
        )
    elif given.blocked and given.exact:
        _warn(
            "With forbidden cells and exact counts in rows and columns, trades between pairs may not connect all "
            "assignments: the samples may depend on the start. Compare with loopy_bp."
        )


def _warn(text: str) -> None:
    warnings.warn(text, ErgodicityWarning, stacklevel=4)
