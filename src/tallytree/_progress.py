"""Progress of long work, told to a function or shown on standard error.

Where somebody looks (a terminal or a notebook) and tqdm is installed, there is a bar with the remaining time;
elsewhere a line of text every few seconds and one at the end.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from . import checks
from .errors import ParameterError

Report = Callable[..., Any]  # takes the number of the step, and what else the work has to tell

_INTERVAL = 2.0  # seconds between lines of text


def check_progress(progress: Any, numbers: str) -> bool | Report:
    """What users pass as `progress`; `numbers` are those that a function gets."""
    if isinstance(progress, (bool, np.bool_)):
        return bool(progress)
    if not callable(progress):
        raise ParameterError(
            f"`progress` must be True, False or a function of {numbers}; {checks.describe(progress)} arrived."
        )
    return progress  # type: ignore[no-any-return]


class Progress:
    """Counts what is finished; `wanted` is False (silent), True (shown) or a function that is told.

    `earlier` of the `total` were finished in an earlier run.
    """

    def __init__(
        self, label: str, total: int, wanted: bool | Report, unit: str = "steps", earlier: int = 0
    ) -> None:
        self._label, self._total, self._unit = label, total, unit
        self._report = wanted if callable(wanted) else None
        self._shown = wanted is True and sys.stderr is not None
        self._done = self._earlier = earlier
        self._note = ""
        self._start = self._last = time.monotonic()
        self._bar = self._open_bar() if self._shown and _watched() else None

    def _open_bar(self) -> Any:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            return None
        return tqdm(
            total=self._total,
            initial=self._done,
            desc=self._label,
            unit=f" {self._unit}",
            unit_scale=self._total >= 10_000,
            dynamic_ncols=True,
        )

    def advance(
        self, amount: int = 1, note: str = "", told: tuple[Any, ...] = (), earlier: bool = False
    ) -> None:
        """So much more is finished: `note` is shown with it, and a function gets `told`."""
        self._done += amount
        self._earlier += amount if earlier else 0
        self._note = note
        if self._report is not None:
            self._report(*told)
        elif self._bar is not None:
            if note:
                self._bar.set_postfix_str(note, refresh=False)
            self._bar.update(amount)
        elif self._shown and time.monotonic() - self._last > _INTERVAL:
            self._last = time.monotonic()
            self._write(f"{self._done} of {self._total} {self._unit}" + (note and f" ({note})"))

    def share(self, more: int = 0) -> float:
        """What part of all is finished, with so much more."""
        return (self._done + more) / self._total if self._total else 1.0

    def close(self) -> None:
        """Say what was done."""
        if self._bar is not None:
            self._bar.close()
        if self._shown and (self._bar is None or self._earlier):
            earlier = f", {self._earlier} of them from an earlier run" if self._earlier else ""
            note = self._note and f" ({self._note})"
            self._write(f"{self._done} {self._unit}{note}{earlier}, {time.monotonic() - self._start:.0f} s")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"{self._label}: {text}\n")
        sys.stderr.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _watched() -> bool:
    """Whether standard error is a terminal, or the page of a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


class Iterations(Progress):
    """Iterations of a method and how far it is from rest; a function is told both."""

    interrupted = False

    def __init__(self, progress: bool | Report, total: int, label: str) -> None:
        wanted = check_progress(progress, "the iteration and the residual")
        super().__init__(label, total, wanted, "iterations")

    def update(self, iteration: int, residual: float) -> None:
        """Tell what has been reached."""
        change = "" if math.isnan(residual) else f"change {residual:.1e}"  # sampling has no residual
        self.advance(note=change, told=(iteration, residual))


@contextmanager
def stoppable(progress: bool | Report, total: int, label: str) -> Iterator[Iterations]:
    """Iterations that Ctrl-C ends early: what follows the ``with`` block returns what has been reached."""
    with Iterations(progress, total, label) as shown:
        try:
            yield shown
        except KeyboardInterrupt:
            shown.interrupted = True
