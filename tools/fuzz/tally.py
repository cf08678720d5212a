"""What happened to many models: numbers per kind, violations, how far a run got."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .run import Violation


@dataclass
class Part:
    """Of one kind."""

    models: int = 0
    checks: int = 0
    violations: int = 0
    worst: float = 0.0  # largest error over `error_bound` plus rounding
    seconds: float = 0.0  # processor time
    cases: list[tuple[int, int]] = field(default_factory=list)  # ranges of models that are done

    def add(self, other: Part) -> None:
        self.models += other.models
        self.checks += other.checks
        self.violations += other.violations
        self.worst = max(self.worst, other.worst)
        self.seconds += other.seconds
        self.cases += other.cases

    def next_after(self, first: int) -> int:
        """The first model from ``first`` on that is not done: where to go on."""
        for a, b in sorted(self.cases):
            if a > first:
                break
            first = max(first, b)
        return first


@dataclass
class Tally:
    parts: dict[str, Part] = field(default_factory=dict)
    chi_square: float = 0.0
    freedom: int = 0
    found: list[Violation] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for kind, part in other.parts.items():
            self.parts.setdefault(kind, Part()).add(part)
        self.chi_square += other.chi_square
        self.freedom += other.freedom
        self.found += other.found

    @property
    def models(self) -> int:
        return sum(p.models for p in self.parts.values())

    @property
    def drift(self) -> float:
        """Standard score of the sum of all chi-square statistics: biases too small to show in one model."""
        return (self.chi_square - self.freedom) / (2 * self.freedom) ** 0.5 if self.freedom else 0.0

    def by_answer(self) -> Counter[tuple[str, str, str]]:
        return Counter((v.kind, v.engine, v.answer) for v in self.found)

    def summary(self, first: int) -> dict[str, Any]:
        """For machines: what `--first` was, and per kind the first model that a next run should take."""
        kinds = {
            kind: {
                "models": p.models,
                "next": p.next_after(first),
                "checks": p.checks,
                "violations": p.violations,
                "worst_error_over_bound": round(p.worst, 6),
                "milliseconds_per_model": round(1e3 * p.seconds / max(p.models, 1), 3),
            }
            for kind, p in self.parts.items()
        }
        return {
            "first": first,
            "next": min((k["next"] for k in kinds.values()), default=first),
            "models": self.models,
            "checks": sum(p.checks for p in self.parts.values()),
            "violations": len(self.found),
            "chi_square_sd": round(self.drift, 3),
            "kinds": kinds,
        }
