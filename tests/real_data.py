"""Where the real data sets are: TALLYTREE_DATA, or a folder beside the checkout; tests that need them say so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def data_folder() -> Path:
    """The folder with the data sets, or a skip that says how to name it."""
    named = os.environ.get("TALLYTREE_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real data is absent: set TALLYTREE_DATA to the folder with the data sets")
    return folder


def data_file(name: str) -> Path:
    """Path of one data file, or a skip."""
    path = data_folder() / name
    if not path.exists():
        pytest.skip(f"{name} is absent from the folder with the data sets")
    return path
