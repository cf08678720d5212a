"""Which engine runs, on which instruction set, with how many threads."""

from __future__ import annotations

import os
import platform
import sys
import warnings
from types import ModuleType

from .errors import ParameterError

_native: ModuleType | None
try:
    from . import _native  # type: ignore[attr-defined,no-redef]
except ImportError:
    _native = None

_LEVEL = "TALLYTREE_LEVEL"
_THREADS = "TALLYTREE_NUM_THREADS"
_ENGINE = "TALLYTREE_ENGINE"
_announced = False


def native(feature: str = "tree_pass") -> ModuleType | None:
    """The compiled engine, or None where it is absent or switched off with ``TALLYTREE_ENGINE=array``.

    ``feature`` is what the caller needs it for; an extension built without it does not serve.
    """
    if os.environ.get(_ENGINE, "").lower() == "array" or not hasattr(_native, feature):
        return None
    return _native


def _announce() -> None:
    global _announced
    if not _announced:
        _announced = True
        warnings.warn(
            "tallytree runs without its C++ engine: answers are the same, but slower. Reinstall it where a C++20 "
            "compiler is available, or set TALLYTREE_ENGINE=array to choose the array engine without this message.",
            RuntimeWarning,
            stacklevel=2,
        )


def level() -> str:
    """Instruction-set level asked for in ``TALLYTREE_LEVEL``, or "" for the best one."""
    wanted = os.environ.get(_LEVEL, "")
    if wanted and _native is not None and wanted not in _native.levels():
        raise ParameterError(
            f"{_LEVEL} must be one of {', '.join(_native.levels())} on this machine; {wanted!r} is set. Unset it."
        )
    return wanted


def threads() -> int:
    """Number of threads: ``TALLYTREE_NUM_THREADS``, else the cores this process may use."""
    wanted = os.environ.get(_THREADS, "")
    if wanted:
        if not wanted.isdigit() or int(wanted) < 1:
            raise ParameterError(f"{_THREADS} must be a positive integer; {wanted!r} is set.")
        return int(wanted)
    return _cores()


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def show_config() -> None:
    """Print the engine, instruction set, threads and versions in use.

    Examples
    --------
    >>> tt.show_config()  # doctest: +ELLIPSIS
    tallytree ...
    """
    import numpy
    import scipy

    from . import __version__

    engine = native()
    lines = [f"tallytree {__version__}"]
    if engine is None:
        lines.append("engine: array code (no compiled extension in use)")
    else:
        available = engine.levels()
        lines.append(
            f"engine: C++, instruction set {level() or available[0]} (available: {', '.join(available)})"
        )
    lines.append(f"threads: {threads()}")
    lines.append(f"python {platform.python_version()}, numpy {numpy.__version__}, scipy {scipy.__version__}")
    sys.stdout.write("\n".join(lines) + "\n")
