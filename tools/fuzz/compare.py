"""The accuracy contract as assertions, and a report of what broke it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

INF = math.inf
STANDS_FOR_INFINITY = 1e15
FLOOR = math.log(1e-200)


@dataclass
class Report:
    """What is wrong with one model: (answer, what was seen), and p-values of its samples."""

    wrong: list[tuple[str, str]] = field(default_factory=list)
    chi_square: float = 0.0  # summed over tests, against its degrees of freedom
    freedom: int = 0
    asked: int = 0
    raised: bool = False  # an answer ended with an exception that it should not
    tag: str = ""  # what is special about the model: it separates causes in the summary

    @contextmanager
    def answer(self, name: str) -> Iterator[None]:
        """Every answer is asked for inside one of these, so that one failure does not hide the next."""
        self.asked += 1
        try:
            yield
        except AssertionError as error:
            self.wrong.append((name + self.tag, str(error)))
        except Exception as error:  # anything raised is wrong too
            self.raised = True
            self.wrong.append((name + self.tag, f"{type(error).__name__}: {str(error)[:300]}"))


def close(got: object, want: object, allowed: object, top: float = 0.0) -> None:
    """Same shape, never NaN, same infinities, finite entries within ``allowed``.

    Where the truth is finite but stands for infinity, any such number and infinity itself are answers too. Log-weights
    stand for infinity where they are that far below the largest one, ``top``.
    """
    g, w = np.asarray(got, float), np.asarray(want, float)
    assert g.shape == w.shape, f"shape {g.shape}, expected {w.shape}"
    assert not np.isnan(w).any(), "the oracle has NaN"
    assert not np.isnan(g).any(), f"NaN, want {w[np.isnan(g)][:3]}"
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.where(np.isfinite(w) & np.isfinite(g), np.abs(g - w), np.where(g == w, 0.0, INF))
        endless = np.isfinite(w) & (np.abs(w - top) >= STANDS_FOR_INFINITY)
        alike = (np.abs(g - top) >= STANDS_FOR_INFINITY) & (np.sign(g - top) == np.sign(w - top))
    allowed = np.broadcast_to(np.asarray(allowed, float), w.shape)
    if abs(top) >= STANDS_FOR_INFINITY:
        allowed = np.maximum(allowed, 1e-12 * abs(top))
    bad = np.where(endless, ~alike, off > allowed)
    if bad.any():
        at = np.unravel_index(np.argmax(np.where(bad, np.minimum(off, 1e300), -1.0)), w.shape)
        place = f" at {tuple(map(int, at))}" if w.ndim else ""
        raise AssertionError(f"got {g[at]!r}, want {w[at]!r}{place} (allowed {allowed[at]:.2g})")


def _size(want: object) -> np.ndarray:
    w = np.asarray(want, float)
    return np.where(np.isfinite(w), np.abs(w), 0.0)


def close_logits(got: object, want: object, single: bool = False) -> None:
    """Within 1e-9 absolute or 1e-10 relative; ``single`` adds the rounding of answers in float32."""
    close(
        got, want, np.maximum(1e-9, 1e-10 * _size(want)) + (6.1e-8 * _size(want) + 1e-37 if single else 0.0)
    )


def close_log_partition(got: object, want: object, others: object = 0.0) -> None:
    """Log Z within 1e-10 (1 + abs(log Z)); ``others`` adds the sizes of what was added to it."""
    close(got, want, 1e-10 * (1 + _size(want) + _size(others)))


def close_log_probs(got: object, want: object, single: bool = False) -> None:
    """Within 1e-8 above 1e-200, and nothing above it that is not there."""
    g, w = np.asarray(got, float), np.asarray(want, float)
    assert g.shape == w.shape, f"shape {g.shape}, expected {w.shape}"
    assert not np.isnan(g).any(), "NaN"
    seen = w > FLOOR
    assert (g[~seen] < FLOOR + 1e-7).all(), f"got {g[~seen].max()!r} for a log-probability below {FLOOR:.0f}"
    close(g[seen], w[seen], 1e-8 + (6.1e-8 * np.abs(w[seen]) if single else 0.0))


def close_marginals(got: object, odds: np.ndarray, single: bool = False) -> None:
    """As good as the contract of the log-odds makes them, where they exceed 1e-200."""
    with np.errstate(over="ignore"):
        on, off = np.exp(-np.logaddexp(0, -odds)), np.exp(-np.logaddexp(0, odds))
    allowed = 1.1 * on * off * np.maximum(1e-9, 1e-10 * _size(odds)) + 4e-16 * on + 1e-200
    close(got, on, allowed + (6.1e-8 * on + 1.5e-45 if single else 0.0))


def close_probs(got: object, log_p: np.ndarray) -> None:
    """Probabilities against their logarithms: 1e-9 relative to p, 1e-10 to its logarithm."""
    p = np.exp(log_p)
    close(got, p, p * (1e-9 + 2e-10 * _size(log_p)) + 1e-200)


def dominated(error: float, bound: float, rounding: float, what: str) -> None:
    assert bound >= 0, f"error_bound is {bound!r}"
    assert error <= bound + rounding + 1e-300, f"{what} off by {error:.3g}, certified {bound:.3g}"
