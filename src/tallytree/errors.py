"""The errors that tallytree raises, every one derived from :class:`TallyTreeError`, and how it warns."""

from __future__ import annotations

import sys
import warnings


class TallyTreeError(Exception):
    """Base class of all errors raised by tallytree.

    See Also
    --------
    tallytree.ParameterError
    tallytree.StructureError
    tallytree.InfeasibleError
    tallytree.PrecisionError

    Examples
    --------
    >>> issubclass(tt.ParameterError, tt.TallyTreeError) and issubclass(tt.ParameterError, ValueError)
    True
    """


class ParameterError(TallyTreeError, ValueError):
    """An argument has the wrong shape, type or value.

    See Also
    --------
    tallytree.TallyTreeError

    Examples
    --------
    >>> try:
    ...     tt.exactly(-1)
    ... except tt.ParameterError as error:
    ...     print(type(error).__name__)
    ParameterError
    """


class StructureError(TallyTreeError, ValueError):
    """Groups, parents or a linkage do not describe a nested family.

    See Also
    --------
    tallytree.TallyTreeError
    tallytree.FactorGraph

    Examples
    --------
    >>> try:
    ...     tt.CountModel([0.0] * 3, [tt.Group([0, 1]), tt.Group([1, 2])])
    ... except tt.StructureError as error:
    ...     print(type(error).__name__)
    StructureError
    """


class InfeasibleError(TallyTreeError):
    """The model gives probability zero to every configuration.

    Attributes
    ----------
    groups : tuple of int
        Numbers of groups that contradict one another, as few as possible; empty if they are not known.

    See Also
    --------
    tallytree.TallyTreeError
    tallytree.StructureError

    Examples
    --------
    >>> try:
    ...     tt.CountModel([0.0, -np.inf], tt.exactly(2)).marginals
    ... except tt.InfeasibleError as error:
    ...     print(type(error).__name__, error.groups)
    InfeasibleError (0,)
    """

    def __init__(self, *message: object, groups: tuple[int, ...] = ()) -> None:
        super().__init__(*message)
        self.groups = groups


class PrecisionError(TallyTreeError):
    """A method chosen by name cannot certify its answer for this model; ``method="auto"`` can.

    See Also
    --------
    tallytree.TallyTreeError
    tallytree.CountModel

    Examples
    --------
    >>> issubclass(tt.PrecisionError, tt.TallyTreeError)
    True
    """


class SourceError(TallyTreeError, ValueError):
    """A chunk of a source cannot be used: it holds NaN, or it is not what it was when it was read before.

    See Also
    --------
    tallytree.TallyTreeError
    tallytree.ChunkedCountModel

    Examples
    --------
    >>> issubclass(tt.SourceError, tt.TallyTreeError)
    True
    """


class OutputError(TallyTreeError, OSError):
    """An output cannot be written: the disk is full, or the file belongs to another run.

    See Also
    --------
    tallytree.TallyTreeError
    tallytree.ChunkedCountModel

    Examples
    --------
    >>> issubclass(tt.OutputError, tt.TallyTreeError)
    True
    """


class SlowWarning(UserWarning):
    """An answer needs a method whose cost grows with the square of the number of variables.

    The answer will be right. The warning is issued before the work begins; it says how long that may take and what may
    avoid it. Ctrl-C ends the work within a second.

    See Also
    --------
    tallytree.CountModel

    Examples
    --------
    >>> issubclass(tt.SlowWarning, UserWarning)
    True
    """


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line that called the package."""
    package, level = __name__.partition(".")[0], 1
    frame = sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level + 1)
