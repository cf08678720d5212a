"""A statement of the paper, what was measured on several seeds, and a verdict computed from these numbers alone.

A statement has one or more readings: settings that are compatible with what the paper says. A reading *holds* if
every measured number is within its bounds on every seed, on at least `MIN_SEEDS` of them, and the interval of its
mean is within them, too. Then the verdict is

- *reproduced* if all readings hold and none of them was tuned to the paper's result,
- *matched by tuning* if some hold, which are named: a choice that the paper does not state decides,
- *differs* otherwise.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import t as student

REPRODUCED, TUNED, DIFFERS = "reproduced", "matched by tuning", "differs"
VERDICTS = (REPRODUCED, TUNED, DIFFERS)
MIN_SEEDS = 5
AS_DESCRIBED = "as the paper describes it"
_DIGITS = 5  # of stored numbers
_MISSING = 1e300  # stands for infinity and NaN in files


@dataclass(frozen=True)
class Measure:
    """One number per seed, and the bounds that the statement sets on it.

    Attributes
    ----------
    name : str
        What was measured, with its unit.
    values : tuple of float
        One per seed.
    low, high : float or None
        Bounds; at least one is there.
    signed : bool
        Whether the number can be negative.
    """

    name: str
    values: tuple[float, ...]
    low: float | None = None
    high: float | None = None
    signed: bool = False

    def __post_init__(self) -> None:
        if self.low is None and self.high is None:
            raise ValueError(f"{self.name!r} has no bound: a verdict that cannot fail is not a verdict")
        if not self.signed and self.high is None and not (self.low or 0.0) > 0.0:
            raise ValueError(f"{self.name!r} cannot be below its bound")

    @property
    def interval(self) -> tuple[float, float]:
        """Of the mean over seeds, at 95%, by Student's distribution."""
        return interval(self.values)

    @property
    def holds(self) -> bool:
        """Whether all values and the interval are within the bounds, on enough seeds."""
        return len(self.values) >= MIN_SEEDS and all(map(self._within, (*self.values, *self.interval)))

    def _within(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    @property
    def bounds(self) -> str:
        """The bounds in words."""
        if self.low is None:
            return f"at most {number(self.high)}"
        if self.high is None:
            return f"at least {number(self.low)}"
        return f"{number(self.low)} to {number(self.high)}"

    @property
    def shown(self) -> str:
        """Mean and interval."""
        low, high = self.interval
        return f"{number(float(np.mean(self.values)))} [{number(low)}, {number(high)}]"


@dataclass(frozen=True)
class Reading:
    """A setting that is compatible with the paper; ``tuned`` if it was chosen to meet the paper's result."""

    name: str
    measures: tuple[Measure, ...]
    tuned: bool = False

    @property
    def holds(self) -> bool:
        """Whether every measure does."""
        return all(m.holds for m in self.measures)

    @property
    def decisive(self) -> Measure:
        """The first measure that does not hold, or the first."""
        return next((m for m in self.measures if not m.holds), self.measures[0])


@dataclass(frozen=True)
class Claim:
    """How one statement fares: its key in `statements.STATEMENTS`, its readings, and a remark."""

    key: str
    readings: tuple[Reading, ...]
    note: str = ""

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        held = [r for r in self.readings if r.holds]
        if len(held) == len(self.readings) and not any(r.tuned for r in held):
            return REPRODUCED
        return TUNED if held else DIFFERS

    @property
    def choice(self) -> str:
        """The readings that hold where not all do or one was tuned; empty for other verdicts."""
        return "; ".join(r.name for r in self.readings if r.holds) if self.verdict == TUNED else ""

    @property
    def found(self) -> str:
        """Means with intervals: all measures of a single reading; of several readings each the one that decides."""
        if len(self.readings) == 1:
            measures = self.readings[0].measures
            names = [m.name for m in measures]
            text = "; ".join(
                f"{_after(before, m.name)}: {m.shown}" for before, m in zip(["", *names], measures)
            )
        else:
            groups: dict[str, list[str]] = {}
            for r in self.readings:
                groups.setdefault(r.decisive.name, []).append(f"{r.name} {r.decisive.shown}")
            text = "; ".join(f"{name}: " + ", ".join(shown) for name, shown in groups.items())
        return text + "."

    @property
    def rule(self) -> str:
        """The bounds of all measures; those that are the same are said once."""
        names = dict.fromkeys((m.name, m.bounds) for r in self.readings for m in r.measures)
        if len({bounds for _, bounds in names}) == 1:
            return next(iter(names))[1] + "."
        return "; ".join(f"{name}: {bounds}" for name, bounds in names) + "."


def plain(key: str, measures: Iterable[Measure], note: str = "") -> Claim:
    """A statement that leaves nothing open."""
    return Claim(key, (Reading(AS_DESCRIBED, tuple(measures)),), note)


def _after(before: str, name: str) -> str:
    """The last word of a name that is otherwise the one before, else the whole name."""
    start, _, last = name.rpartition(" ")
    return last if start and start == before.rpartition(" ")[0] else name


def tally(claims: Sequence[Claim]) -> str:
    """How many statements have which verdict, in words."""
    counts = [(sum(c.verdict == v for c in claims), v) for v in VERDICTS]
    return f"{len(claims)} statements of the paper: " + ", ".join(f"{n} {v}" for n, v in counts)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Interval of the mean at 95%, by Student's distribution; without ends for one value or infinite ones."""
    n = len(values)
    if n < 2 or not np.all(np.isfinite(values)):
        return -math.inf, math.inf
    mean = float(np.mean(values))
    half = float(student.ppf(0.975, n - 1)) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return mean - half, mean + half


def to_json(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    """Claims as JSON can hold them, numbers with five digits."""
    return [
        {
            "key": c.key,
            "verdict": c.verdict,
            "note": c.note,
            "readings": [
                {
                    "name": r.name,
                    "tuned": r.tuned,
                    "measures": [
                        {
                            "name": m.name,
                            "values": [_rounded(v) for v in m.values],
                            "low": m.low,
                            "high": m.high,
                            "signed": m.signed,
                        }
                        for m in r.measures
                    ],
                }
                for r in c.readings
            ],
        }
        for c in claims
    ]


def to_text(claims: Sequence[Claim]) -> str:
    """JSON with a line per claim: what a run writes as ``claims.json`` and ``reproduction/results`` keeps."""
    lines = (json.dumps(row, separators=(",", ":")) for row in to_json(claims))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def from_json(rows: Sequence[Mapping[str, Any]]) -> list[Claim]:
    """Claims from `to_json`; the stored verdicts are not read, they are computed again."""
    return [
        Claim(
            row["key"],
            tuple(
                Reading(
                    r["name"],
                    tuple(Measure(**{**m, "values": tuple(m["values"])}) for m in r["measures"]),
                    r["tuned"],
                )
                for r in row["readings"]
            ),
            row["note"],
        )
        for row in rows
    ]


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else _MISSING


def number(value: float | None) -> str:
    """Three digits, without a power of ten where it can be."""
    if value is None or not math.isfinite(value) or abs(value) >= _MISSING:
        return "no number"
    if value == 0.0 or 1e-4 <= abs(value) < 1e5:
        text = (
            f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}" if abs(value) < 1000 else f"{value:,.0f}"
        )
        return text if "e" not in text else f"{value:.5f}"
    return f"{value:.1e}"


def seconds(t: float | None) -> str:
    """A time with its unit."""
    if t is None or math.isnan(t):
        return "not measured"
    return f"{t * 1e6:.0f} us" if t < 1e-3 else f"{t * 1e3:.3g} ms" if t < 1 else f"{t:.3g} s"


def standard_error(values: Any) -> float:
    """Of the mean of independent values; 0 for a single one."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
