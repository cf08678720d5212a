"""Which tests need a framework, and fixtures of the command-line tests."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_files import HALLS, LOGITS, SITES, Run, write
from tallytree.cli import main

OF_FRAMEWORKS = ("test_torch", "test_jax")
ABSENT = re.compile(r"could not import '(tallytree\.)?(torch|jax|numpyro|pyro|statsmodels|sphinx)")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that are named for a framework need it."""
    for item in items:
        if item.path.name.startswith(OF_FRAMEWORKS):
            item.add_marker("frameworks")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """A test that is skipped for want of a framework says so, or `pytest -m frameworks` would leave it out."""
    report = yield
    if report.skipped and ABSENT.search(str(report.longrepr)) and "frameworks" not in item.keywords:
        report.outcome, report.longrepr = "failed", f"Mark it `frameworks`: {report.longrepr[-1]}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """The same of whole files."""
    report = yield
    named = collector.path.name.startswith(OF_FRAMEWORKS)
    if report.skipped and not named and ABSENT.search(str(report.longrepr)):
        report.outcome, report.longrepr = "failed", f"Call it test_torch... or test_jax...: {report.longrepr}"
    return report


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
