"""A progress line for iterations: tqdm where it is installed, plain text otherwise, or a function of the user."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any

from .. import checks
from ..errors import ParameterError

Report = Callable[[int, float], Any]

_INTERVAL = 0.5  # seconds between lines of plain text


class Progress:
    """Context that shows iterations and how far they are from rest.

    ``progress`` is False (silent), True (a bar on standard error) or a function of the iteration and the residual.
    """

    def __init__(self, progress: bool | Report, total: int, label: str) -> None:
        if not isinstance(progress, bool) and not callable(progress):
            raise ParameterError(
                "`progress` must be True, False or a function of the iteration and the residual; "
                f"{checks.describe(progress)} arrived."
            )
        self._wanted = progress
        self._total, self._label = total, label
        self._bar: Any = None
        self._last = 0.0
        self._printed = False

    def __enter__(self) -> Progress:
        if self._wanted is True:
            try:
                from tqdm.auto import tqdm

                self._bar = tqdm(total=self._total, desc=self._label)
            except ImportError:
                pass
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
        elif self._printed:
            sys.stderr.write("\n")

    def update(self, iteration: int, residual: float) -> None:
        """Tell what has been reached."""
        if self._wanted is False:
            return
        if self._wanted is not True:
            self._wanted(iteration, residual)
        elif self._bar is not None:
            if not math.isnan(residual):  # sampling has none
                self._bar.set_postfix_str(f"change {residual:.1e}", refresh=False)
            self._bar.update(1)
        elif time.monotonic() - self._last > _INTERVAL:
            self._last, self._printed = time.monotonic(), True
            change = "" if math.isnan(residual) else f", change {residual:.1e}"
            sys.stderr.write(f"\r{self._label}: iteration {iteration} of {self._total}{change}   ")
            sys.stderr.flush()
