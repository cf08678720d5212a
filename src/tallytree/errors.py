"""The errors that tallytree raises; every one derives from :class:`TallyTreeError`."""

from __future__ import annotations


class TallyTreeError(Exception):
    """Base class of all errors raised by tallytree."""


class ParameterError(TallyTreeError, ValueError):
    """An argument has the wrong shape, type or value."""


class StructureError(TallyTreeError, ValueError):
    """Groups, parents or a linkage do not describe a nested family."""


class InfeasibleError(TallyTreeError):
    """The model gives probability zero to every configuration."""


class PrecisionError(TallyTreeError):
    """A method chosen by name cannot certify its answer for this model; ``method="auto"`` can."""


class SourceError(TallyTreeError, ValueError):
    """A chunk of a source cannot be used: it holds NaN, or it is not what it was when it was read before."""


class OutputError(TallyTreeError, OSError):
    """An output cannot be written: the disk is full, or what lies there belongs to another run."""
