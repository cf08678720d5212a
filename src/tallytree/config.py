"""Which engine runs, on which instruction set, with how many threads.

Settings come from the environment (``TALLYTREE_ENGINE``, ``TALLYTREE_LEVEL``, ``TALLYTREE_NUM_THREADS``), read once;
`using` changes them for a while.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from .errors import ParameterError

try:
    _extension: ModuleType | None = importlib.import_module("tallytree._native")
except ImportError:
    _extension = None


@dataclass(frozen=True)
class Settings:
    """What inference runs on: `native` is the compiled engine or None, `level` "" means the best there is."""

    native: ModuleType | None
    level: str
    threads: int


_current: Settings | None = None


def settings() -> Settings:
    """The settings in force."""
    global _current
    if _current is None:
        _current = from_environment()
        if _current.native is None and _extension is None and not os.environ.get("TALLYTREE_ENGINE"):
            warnings.warn(
                "tallytree runs without its C++ engine: answers are the same, but slower. Reinstall it where a C++20 "
                "compiler is available, or set TALLYTREE_ENGINE=array to choose the array engine without this message.",
                RuntimeWarning,
                stacklevel=2,
            )
    return _current


def native() -> ModuleType | None:
    """The compiled engine, or None where it is absent or switched off."""
    return (_current or settings()).native


def level() -> str:
    """Instruction-set level asked for, "" for the best one."""
    return (_current or settings()).level


def threads() -> int:
    """Number of threads."""
    return (_current or settings()).threads


def from_environment() -> Settings:
    """Settings as the environment asks for them."""
    engine = os.environ.get("TALLYTREE_ENGINE", "")
    if engine not in ("", "array", "native"):
        raise ParameterError(f"TALLYTREE_ENGINE must be 'native' or 'array'; {engine!r} is set.")
    if engine == "native" and _extension is None:
        raise ParameterError(
            "TALLYTREE_ENGINE=native is set, but the compiled engine is not installed. Reinstall tallytree where a "
            "C++20 compiler is available, or unset it."
        )
    wanted = os.environ.get("TALLYTREE_NUM_THREADS", "")
    if wanted and (not wanted.isdigit() or int(wanted) < 1):
        raise ParameterError(f"TALLYTREE_NUM_THREADS must be a positive integer; {wanted!r} is set.")
    return Settings(
        None if engine == "array" else _extension,
        _checked_level(os.environ.get("TALLYTREE_LEVEL", "")),
        int(wanted) if wanted else _cores(),
    )


def _checked_level(wanted: str) -> str:
    if not isinstance(wanted, str) or (
        wanted and _extension is not None and wanted not in _extension.levels()
    ):
        raise ParameterError(
            "The instruction-set level (TALLYTREE_LEVEL) must be one of "
            f"{', '.join(_extension.levels() if _extension else [''])} on this machine; {wanted!r} arrived."
        )
    return wanted


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def using(
    *, engine: str | None = None, level: str | None = None, threads: int | None = None
) -> Iterator[None]:
    """Run a block with other settings, for tests and benchmarks; not meant to be nested across threads."""
    global _current
    before = settings()
    changes: dict[str, Any] = {}
    if engine is not None:
        if not isinstance(engine, str) or engine not in ("array", "native"):
            raise ParameterError(f"`engine` must be 'native' or 'array'; {engine!r} arrived.")
        if engine == "native" and _extension is None:
            raise ParameterError("The compiled engine is not installed.")
        changes["native"] = _extension if engine == "native" else None
    if level is not None:
        changes["level"] = _checked_level(level)
    if threads is not None:
        if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads < 2**31:
            raise ParameterError(f"`threads` must be a positive integer; {threads!r} arrived.")
        changes["threads"] = threads
    _current = replace(before, **changes)
    try:
        yield
    finally:
        _current = before


def show_config() -> None:
    """Print the engine, instruction set, threads and versions in use.

    Examples
    --------
    >>> tt.show_config()  # doctest: +ELLIPSIS
    tallytree ...
    """
    import numpy
    import scipy

    from ._version import __version__

    now = settings()
    lines = [f"tallytree {__version__}"]
    if now.native is None:
        lines.append("engine: array code (no compiled extension in use)")
    else:
        available = now.native.levels()
        lines.append(
            f"engine: C++, instruction set {now.level or available[0]} (available: {', '.join(available)})"
        )
    lines.append(f"threads: {now.threads}")
    lines.append(f"python {platform.python_version()}, numpy {numpy.__version__}, scipy {scipy.__version__}")
    sys.stdout.write("\n".join(lines) + "\n")
