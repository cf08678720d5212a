"""Progress on standard error: a bar where tqdm is installed and somebody looks, a line per step elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Any

_INTERVAL = 2.0  # seconds between lines of plain text


class Progress:
    """Counts finished steps of one part; ``shown`` False is silent."""

    def __init__(self, part: str, total: int, shown: bool) -> None:
        self._part, self._total, self._shown = part, total, shown
        self._done = self._reused = 0
        self._last = self._start = time.monotonic()
        self._bar: Any = None
        if shown and sys.stderr.isatty():
            try:
                from tqdm import tqdm

                self._bar = tqdm(total=total, desc=part, file=sys.stderr)
            except ImportError:
                pass

    def step(self, name: str, reused: bool) -> None:
        """A step is finished, or was there already."""
        self._done += 1
        self._reused += reused
        if not self._shown:
            return
        if self._bar is not None:
            self._bar.set_postfix_str(name, refresh=False)
            self._bar.update(1)
        elif time.monotonic() - self._last > _INTERVAL:
            self._last = time.monotonic()
            sys.stderr.write(f"{self._part}: {self._done} of {self._total} steps ({name})\n")
            sys.stderr.flush()

    def close(self) -> None:
        """Say what was done."""
        if self._bar is not None:
            self._bar.close()
        if self._shown:
            kept = f", {self._reused} of them from an earlier run" if self._reused else ""
            took = time.monotonic() - self._start
            sys.stderr.write(f"{self._part}: {self._done} steps{kept}, {took:.0f} s\n")
            sys.stderr.flush()
