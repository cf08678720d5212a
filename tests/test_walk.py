"""The way of a call through the house is short: Python frames from the constructor to the answer."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

import tallytree as tt
from tallytree import config

LOGITS = np.random.default_rng(0).normal(size=100)
TABLE = np.random.default_rng(1).normal(size=101)
# The walk had 72 frames once; it may have half of that.
MOST = 36


def frames(call):
    """Names of the Python functions that a call enters, once everything is warm."""
    call()
    entered: list[str] = []

    def note(frame, event, argument):
        if event == "call":
            entered.append(f"{frame.f_code.co_filename}: {frame.f_code.co_name}")

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered[1:]


@pytest.mark.skipif(config.native() is None, reason="the walk is that of the compiled engine")
@pytest.mark.parametrize(
    "potential",
    [TABLE, tt.exactly(10), tt.at_least(10), tt.at_most(10), tt.between(10, 20)],
    ids=["table", "exactly", "at_least", "at_most", "between"],
)
def test_a_flat_call_takes_few_frames(potential):
    entered = frames(lambda: tt.CountModel(LOGITS, potential).marginals)
    assert len(entered) <= MOST, "\n".join(entered)


def test_a_named_potential_takes_few_frames():
    assert len(frames(lambda: tt.exactly(10))) <= 4


@pytest.mark.parametrize("far", [1e155, -1e300, 1.7e308])
def test_the_short_way_is_silent_about_numbers_whose_squares_overflow(far):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for potential in (tt.exactly(1), np.zeros(3), np.array([0.0, 0.0, -abs(far)])):
            logits = np.array([0.0, far])
            assert np.isfinite(tt.CountModel(logits, potential).marginals).all()
