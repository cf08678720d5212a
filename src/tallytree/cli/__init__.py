"""The command line: ``tallytree demo``, ``infer FILE``, ``config``."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from threading import current_thread, main_thread

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. While it is imported, which takes a moment, Ctrl-C ends the process without a traceback."""
    ours = current_thread() is main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:  # not so under nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        from .command import main as run
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    return run(argv)
