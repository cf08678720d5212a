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
FLOAT32 = 6.1e-8  # relative rounding of a float32
TINY32 = 1.5e-45  # the smallest float32: below, answers in that type are 0


@dataclass
class Report:
    """What is wrong with one case: (answer, what was seen), and p-values of its samples."""

    wrong: list[tuple[str, str]] = field(default_factory=list)
    chi_square: float = 0.0  # summed over tests, against its degrees of freedom
    freedom: int = 0
    asked: int = 0
    raised: bool = False  # an answer ended with an exception that it should not
    tag: str = ""  # what is special about the model: it separates causes in the summary
    worst: float = 0.0  # largest ratio of an error to what `error_bound` and rounding allow

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

    def dominated(self, error: object, bound: object, rounding: object, what: str) -> None:
        """The certificate is at least the error, up to the rounding of what was given and is returned."""
        e, b, r = (np.asarray(v, float) for v in (error, bound, rounding))
        assert (b >= 0).all(), f"error_bound is {b.min()!r}"
        allowed = b + r + 1e-300
        bad = ~(e <= allowed)
        if bad.any():
            at = np.unravel_index(np.argmax(bad), bad.shape)
            raise AssertionError(
                f"{what} off by {np.broadcast_to(e, bad.shape)[at]:.3g}, "
                f"certified {np.broadcast_to(b, bad.shape)[at]:.3g}{_place(at)}"
            )
        self.worst = max(self.worst, float((e / allowed).max(initial=0.0)))


def _place(at: tuple[np.intp, ...]) -> str:
    return f" at {tuple(map(int, at))}" if at else ""


def close(got: object, want: object, allowed: object, top: object = 0.0) -> None:
    """Same shape, never NaN, same infinities, finite entries within ``allowed``.

    Where the truth is finite but stands for infinity, any such number and infinity itself are answers too. Log-weights
    stand for infinity where they are that far below the largest one, ``top``.
    """
    g, w = np.asarray(got, float), np.asarray(want, float)
    assert g.shape == w.shape, f"shape {g.shape}, expected {w.shape}"
    with np.errstate(over="ignore", invalid="ignore"):
        off = np.abs(g - w)
        if ((off <= allowed) & (np.abs(w) < STANDS_FOR_INFINITY)).all():
            return
        _close(g, w, off, allowed, top)


def _close(g: np.ndarray, w: np.ndarray, off: np.ndarray, allowed: object, top: object) -> None:
    """`close` in full, where infinities or something wrong are among the numbers."""
    assert not np.isnan(w).any(), "the oracle has NaN"
    assert not np.isnan(g).any(), f"NaN, want {w[np.isnan(g)][:3]}"
    off = np.where(np.isfinite(w) & np.isfinite(g), off, np.where(g == w, 0.0, INF))
    endless = np.isfinite(w) & (np.abs(w - top) >= STANDS_FOR_INFINITY)
    alike = (np.abs(g - top) >= STANDS_FOR_INFINITY) & (np.sign(g - top) == np.sign(w - top))
    size = np.abs(np.asarray(top, float))
    slack = np.where(size >= STANDS_FOR_INFINITY, 1e-12 * size, 0.0)
    limit = np.broadcast_to(np.maximum(np.asarray(allowed, float), slack), w.shape)
    bad = np.where(endless, ~alike, off > limit)
    if bad.any():
        at = np.unravel_index(np.argmax(np.where(bad, np.minimum(off, 1e300), -1.0)), w.shape)
        raise AssertionError(f"got {g[at]!r}, want {w[at]!r}{_place(at)} (allowed {limit[at]:.2g})")


def size_of(want: object) -> np.ndarray:
    """Absolute values, 0 for infinite ones."""
    w = np.abs(np.asarray(want, float))
    return np.where(w < INF, w, 0.0)


def close_logits(got: object, want: object, single: bool = False) -> None:
    """Within 1e-9 absolute or 1e-10 relative; ``single`` adds the rounding of answers in float32."""
    size = size_of(want)
    close(got, want, np.maximum(1e-9, 1e-10 * size) + (FLOAT32 * size + TINY32 if single else 0.0))


def close_log_partition(got: object, want: object, others: object = 0.0) -> None:
    """Log Z within 1e-10 (1 + abs(log Z)); ``others`` adds the sizes of what was added to it."""
    close(got, want, 1e-10 * (1 + size_of(want) + size_of(others)))


def close_log_probs(got: object, want: object, single: bool = False) -> None:
    """Within 1e-8 above 1e-200, and nothing above it that is not there."""
    g, w = np.asarray(got, float), np.asarray(want, float)
    assert g.shape == w.shape, f"shape {g.shape}, expected {w.shape}"
    assert not np.isnan(g).any(), "NaN"
    seen = w > FLOOR
    assert (g[~seen] < FLOOR + 1e-7).all(), f"got {g[~seen].max()!r} for a log-probability below {FLOOR:.0f}"
    allowed = 1e-8 + (FLOAT32 * size_of(w) if single else 0.0)
    close(np.where(seen, g, 0.0), np.where(seen, w, 0.0), allowed)


def close_marginals(got: object, odds: np.ndarray, single: bool = False) -> None:
    """As good as the contract of the log-odds makes them, where they exceed 1e-200."""
    with np.errstate(over="ignore"):
        on, off = np.exp(-np.logaddexp(0, -odds)), np.exp(-np.logaddexp(0, odds))
    allowed = 1.1 * on * off * np.maximum(1e-9, 1e-10 * size_of(odds)) + 4e-16 * on + 1e-200
    close(got, on, allowed + (FLOAT32 * on + TINY32 if single else 0.0))


def close_probs(got: object, log_p: np.ndarray) -> None:
    """Probabilities against their logarithms: 1e-9 relative to p, 1e-10 to its logarithm."""
    p = np.exp(log_p)
    close(got, p, p * (1e-9 + 2e-10 * size_of(log_p)) + 1e-200)
