"""Where the real data sets are: TALLYTREE_DATA, or a folder beside the checkout; tests that need them say so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def data_file(name: str) -> Path:
    """Path of a data file, or a skip that says how to get it."""
    named = os.environ.get("TALLYTREE_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    path = folder / name
    if not path.exists():
        pytest.skip(f"{name} is not there: set TALLYTREE_DATA to the folder with the data sets")
    return path
