"""The accuracy the package promises, as assertions. ``want`` comes from an oracle."""

from __future__ import annotations

import math

import numpy as np

INF = math.inf


def assert_contract(got: np.ndarray, want: np.ndarray) -> None:
    """Posterior log-odds within 1e-9 absolute or 1e-10 relative, the same infinities, never NaN."""
    _assert_close(got, want, np.maximum(1e-9, 1e-10 * np.abs(_finite(want))), "posterior_logits")


def assert_log_partition(got: float, want: float) -> None:
    """Log Z within 1e-10 (1 + |log Z|)."""
    _assert_close(got, want, 1e-10 * (1 + np.abs(_finite(want))), "log_partition")


def assert_count_log_probs(got: np.ndarray, want: np.ndarray) -> None:
    """Within 1e-8 where the probability is above 1e-200; nowhere else may more than that be claimed."""
    got, want = np.asarray(got, float), np.asarray(want, float)
    floor = math.log(1e-200)
    seen = want > floor
    assert got.shape == want.shape, f"count_log_probs has shape {got.shape}, expected {want.shape}"
    assert not np.isnan(got).any(), f"count_log_probs has {np.isnan(got).sum()} NaN"
    assert (got[~seen] < floor + 1e-8).all(), f"a negligible count got log probability {got[~seen].max()}"
    _assert_close(got[seen], want[seen], np.full(seen.sum(), 1e-8), "count_log_probs")


def _finite(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, float)
    return np.where(np.isfinite(values), values, 0.0)


def _assert_close(got: np.ndarray, want: np.ndarray, allowed: np.ndarray, what: str) -> None:
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert got.shape == want.shape, f"{what} has shape {got.shape}, expected {want.shape}"
    assert not np.isnan(want).any(), "the oracle returned NaN: is the model impossible?"
    infinite = ~np.isfinite(want) | ~np.isfinite(got)
    distance = np.abs(_finite(got) - _finite(want))
    bad = np.where(infinite, got != want, distance > allowed)
    if bad.any():
        with np.errstate(over="ignore"):
            error = np.where(bad, np.where(infinite, INF, distance / allowed), 0.0)
        at = np.unravel_index(np.argmax(error), error.shape)
        raise AssertionError(
            f"{what}: {int(bad.sum())} of {bad.size} entries off, worst at {tuple(map(int, at))}: "
            f"got {got[at]!r}, want {want[at]!r}, allowed error {np.broadcast_to(allowed, bad.shape)[at]:.3g}"
        )
