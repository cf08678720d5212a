"""Fixtures of the command-line tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli_files import HALLS, LOGITS, SITES, Run, write
from tallytree.cli import main


@pytest.fixture
def cli_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def data() -> str:
    """Six rows with two nested group columns."""
    rows = zip([f"v{i}" for i in range(6)], HALLS, SITES, map(str, LOGITS))
    return write("data.csv", ["name", "hall", "site", "logit"], rows)


@pytest.fixture
def good(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that works; the result is what it printed."""

    def run(*words: str) -> str:
        code = main(words)
        captured = capsys.readouterr()
        assert (code, captured.err) == (0, "")
        return captured.out

    return run


@pytest.fixture
def bad(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that is refused; the result is the message."""

    def run(*words: str) -> str:
        before = set(os.listdir())
        code = main(words)
        captured = capsys.readouterr()
        assert code == 2
        assert captured.out == ""
        assert captured.err.startswith("tallytree: ")
        assert "Traceback" not in captured.err
        assert set(os.listdir()) == before
        return captured.err.removeprefix("tallytree: ")

    return run
