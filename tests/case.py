"""One model as plain data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Case:
    """A model as plain data: ``theta`` (D,) and ``sets``, pairs of (members, log table)."""

    theta: np.ndarray
    sets: tuple[tuple[tuple[int, ...], np.ndarray], ...]
    name: str = ""

    @property
    def size(self) -> int:
        return len(self.theta)

    def __repr__(self) -> str:
        if self.size > 16:
            return f"Case({self.name!r}, D={self.size}, {len(self.sets)} sets)"
        sets = ", ".join(f"({list(members)}, {show(table)})" for members, table in self.sets)
        return f"Case(theta={show(self.theta)}, sets=[{sets}], name={self.name!r})"


def show(values: np.ndarray) -> str:
    return "[" + ", ".join(repr(float(v)) for v in values) + "]"
