"""Progress bars: how far a pass is, and how long the rest will take."""

from __future__ import annotations

from typing import Any

from .extras import require


class Progress:
    """Counts the variables that a pass has finished; shows them where asked to."""

    def __init__(self, label: str, total: int, shown: bool, done: int = 0) -> None:
        self._bar: Any = None
        if shown:
            tqdm = require("tqdm", "A progress bar").tqdm
            self._bar = tqdm(
                total=total, initial=done, desc=label, unit=" variables", unit_scale=True, dynamic_ncols=True
            )

    def advance(self, variables: int) -> None:
        if self._bar is not None:
            self._bar.update(variables)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()
