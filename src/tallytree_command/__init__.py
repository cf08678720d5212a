"""Where the ``tallytree`` command starts: outside the package, whose import takes a moment that Ctrl-C may hit."""

from __future__ import annotations

import signal


def main() -> int:
    """Import the package, during which an interrupt ends the process without a traceback, and run the command."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not so under nohup
    if ours:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tallytree.cli import main as run

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()
