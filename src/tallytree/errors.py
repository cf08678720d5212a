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
