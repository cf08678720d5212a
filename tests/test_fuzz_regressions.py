"""Models on which fuzzing once found a violation; each is drawn again and checked as the fuzzer does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FUZZ = Path(__file__).resolve().parents[1] / "tools" / "fuzz.py"


@pytest.mark.parametrize(
    ("seed", "index", "what"),
    [
        (0, 28230, "log-odds near +-800 under prefix tables: wrong by 0.05 although certified"),
        (0, 722, "a tail of a count distribution lost"),
        (0, 23071, "a tail of a count distribution wrong"),
        (0, 21136, "a marginal of 1e-107 rounded to zero"),
        (0, 13963, "array code: log-odds of -342 with eleven digits, certified to sixteen"),
        (1, 3867, "array code: a product that underflowed, 12 nats off although certified"),
        (1, 18363, "array code: table entries with few digits left, 1e-7 off although certified"),
        (
            6,
            2453,
            "log-odds of 924 infinite although certified: a product of two small numbers vanished unseen",
        ),
        (2, 7630, "independent rare variables: log Z with eight digits, certified exact"),
    ],
)
def test_found_violations_stay_fixed(seed, index, what):
    command = [
        sys.executable,
        str(FUZZ),
        "--models",
        "1",
        "--seed",
        str(seed),
        "--jobs",
        "1",
        "--first",
        str(index),
    ]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, f"{what}:\n{run.stdout}\n{run.stderr}"
