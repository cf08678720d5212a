"""Which engine runs, on which instruction set, with how many threads.

Settings come from the environment (``TALLYTREE_ENGINE``, ``TALLYTREE_LEVEL``, ``TALLYTREE_NUM_THREADS``, and
``TALLYTREE_KEEP_MB``, which the compiled engine reads), once; `limit_threads` sets the number of threads in code;
`using` changes engine, level and threads for a while.
"""

from __future__ import annotations

import importlib
import os
import platform
import sys
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, SupportsIndex

from . import checks
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
                f"tallytree runs without its C++ engine ({_why_missing()}): answers are the same, but slower. "
                "Reinstall it where a C++20 compiler is available, or set TALLYTREE_ENGINE=array to choose the array "
                "engine without this message.",
                RuntimeWarning,
                stacklevel=2,
            )
    return _current


def _why_missing() -> str:
    """What the build noted when it left out the engine (cmake/probe.cmake)."""
    try:
        return Path(__file__).with_name("_engine_missing.txt").read_text("utf-8").strip()
    except OSError:
        return "building it failed; the messages of `pip install -v` say why"


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
    wanted = os.environ.get("TALLYTREE_NUM_THREADS", "")
    kept = os.environ.get("TALLYTREE_KEEP_MB", "0")
    checks.integer(
        "TALLYTREE_KEEP_MB", int(kept) if kept.isdigit() else kept, 0, 2**31 - 1, "0 to keep no memory"
    )
    return Settings(
        _checked_engine(engine, "TALLYTREE_ENGINE") if engine else _extension,
        _checked_level(os.environ.get("TALLYTREE_LEVEL", "")),
        _checked_threads(int(wanted) if wanted.isdigit() else wanted, "TALLYTREE_NUM_THREADS")
        if wanted
        else _cores(),
    )


def _checked_engine(engine: Any, name: str) -> ModuleType | None:
    """The compiled engine, or None for array code."""
    if checks.one_of(name, engine, ("native", "array")) == "array":
        return None
    if _extension is None:
        raise ParameterError(
            f"`{name}` asks for the compiled engine, which is not installed. Reinstall tallytree where a C++20 "
            "compiler is available, or leave it out."
        )
    return _extension


def _checked_level(wanted: str) -> str:
    """A level that the extension has on this machine, or "" for the best one."""
    known = _extension.levels() if _extension else [wanted]
    return str(checks.one_of("level` of `TALLYTREE_LEVEL", wanted, ("", *known)))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _set(**changes: Any) -> None:
    global _current
    _current = replace(settings(), **changes)


def using(
    *, engine: str | None = None, level: str | None = None, threads: SupportsIndex | None = None
) -> ExitStack:
    """Other settings from now on, or within a ``with`` block; not meant to be nested across threads."""
    changes: dict[str, Any] = {}
    if engine is not None:
        changes["native"] = _checked_engine(engine, "engine")
    if level is not None:
        changes["level"] = _checked_level(level)
    if threads is not None:
        changes["threads"] = _checked_threads(threads)
    undo = ExitStack()
    undo.callback(_set, **{name: getattr(settings(), name) for name in changes})
    _set(**changes)
    return undo  # which does so at the end of a `with` block, if there is one


def limit_threads(threads: SupportsIndex) -> ExitStack:
    """Use at most this many threads, from now on or within a ``with`` block.

    The limit holds for the whole process and takes the place of ``TALLYTREE_NUM_THREADS``. Answers do not depend on
    it. Where the system grants fewer threads, fewer are used.

    Parameters
    ----------
    threads : int
        At least 1; the calling thread is one of them.

    Returns
    -------
    contextlib.ExitStack
        A context manager: leaving the ``with`` block restores the limit from before. Outside a ``with`` block the limit
        stays.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.show_config

    Notes
    -----
    Cost: none. Threads are started when first needed, sleep between calls, and are not carried over a fork.
    Accuracy: answers are the same bit for bit, whatever the number of threads.

    Examples
    --------
    >>> with tt.limit_threads(1):
    ...     tt.CountModel([0.0, 0.0, 0.0, 0.0], tt.exactly(1)).marginals
    array([0.25, 0.25, 0.25, 0.25])
    """
    return using(threads=_checked_threads(threads))


def _checked_threads(threads: Any, name: str = "threads") -> int:
    """A number of threads that the engine's 32 bits hold."""
    return checks.integer(name, threads, 1, 2**31 - 1, "1 to run everything in the calling thread")


def show_config() -> None:
    """Print the engine, instruction set, threads and versions in use.

    See Also
    --------
    tallytree.limit_threads

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
