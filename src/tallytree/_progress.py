"""Progress of long work, told to a function or shown on standard error: the argument `progress`, everywhere the same.

Where somebody looks (a terminal or a notebook) and tqdm is installed, there is a bar with the remaining time;
elsewhere a line of text every few seconds and one at the end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Self

import numpy as np

from . import checks
from .errors import ParameterError

_INTERVAL = 2.0  # seconds between lines of text


class Stage(NamedTuple):
    """How far work is: ``done`` of ``total`` units, and numbers by their names; what a function of the user is told."""

    work: str
    done: int
    total: int
    unit: str
    numbers: dict[str, float]


Report = Callable[[Stage], Any]


def check_progress(progress: Any) -> bool | Report:
    """What users pass as `progress`."""
    if isinstance(progress, (bool, np.bool_)):
        return bool(progress)
    if not callable(progress):
        raise ParameterError(
            "`progress` must be True, False or a function of one argument, which has `work`, `done`, `total`, `unit` "
            f"and `numbers`; {checks.describe(progress)} arrived."
        )
    return progress  # type: ignore[no-any-return]


class Progress:
    """Counts what is finished; `progress` is False (silent), True (shown) or a function that is told.

    `earlier` of the `total` were finished in an earlier run; a total of 0 is not known.
    """

    interrupted = False

    def __init__(
        self, label: str, total: int, progress: bool | Report, unit: str = "steps", earlier: int = 0
    ) -> None:
        self._label, self._total, self._unit = label, total, unit
        wanted = check_progress(progress)
        self._report = None if isinstance(wanted, bool) else wanted
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
            total=self._total or None,
            initial=self._done,
            desc=self._label,
            unit=f" {self._unit}",
            unit_scale=self._total >= 10_000,
            dynamic_ncols=True,
        )

    def advance(self, amount: int = 1, note: str = "", *, earlier: bool = False, **numbers: float) -> None:
        """So much more is finished; a note or the numbers are shown with it. Of an earlier run nobody is told."""
        self._done += amount
        self._earlier += amount if earlier else 0
        self._note = note or ", ".join(f"{name.replace('_', '-')} {x:.6g}" for name, x in numbers.items())
        if self._report is not None and not earlier:
            self._tell(self._report, Stage(self._label, self._done, self._total, self._unit, numbers))
        elif self._bar is not None:
            if self._note:
                self._bar.set_postfix_str(self._note, refresh=False)
            self._bar.update(amount)
        elif self._shown and time.monotonic() - self._last > _INTERVAL:
            self._last = time.monotonic()
            of = f" of {self._total}" if self._total else ""
            self._write(f"{self._done}{of} {self._unit}" + (self._note and f" ({self._note})"))

    def _tell(self, report: Report, stage: Stage) -> None:
        try:
            report(stage)
        except StopIteration as error:  # to generators and optimisers it is no error
            raise RuntimeError("the function given as `progress` raised StopIteration") from error

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


@contextmanager
def stoppable(
    progress: bool | Report, total: int, label: str, unit: str = "iterations"
) -> Iterator[Progress]:
    """Work that Ctrl-C ends early: what follows the ``with`` block returns what has been reached."""
    with Progress(label, total, progress, unit) as shown:
        try:
            yield shown
        except KeyboardInterrupt:
            shown.interrupted = True
