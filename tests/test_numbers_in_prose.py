"""Figures in the prose of the pages are those of the stored benchmarks, or of the model they are about."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TABLES = (ROOT / "docs" / "benchmark_tables.md").read_text(encoding="utf-8")


def text(page: str) -> str:
    """A page, with its line breaks as spaces."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


@pytest.fixture
def quotes(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import quotes

    return quotes


def test_figures_in_prose_are_those_of_the_stored_run(quotes):
    assert len(quotes.QUOTES) >= 9
    for quote in quotes.QUOTES:
        assert quote.words.format(quote.figure(TABLES)) in text(quote.page), quote.words


def test_another_run_writes_its_figures_into_the_prose(quotes, tmp_path):
    """Tables whose first cell of every row is another time: pages quote it, and nothing else of them changes."""
    pages = {quote.page for quote in quotes.QUOTES}
    for page in pages:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, tmp_path / page)
    assert quotes.write(TABLES, tmp_path) == []
    slower = re.sub(r"^(\| [^|]* \|) [\d.]+ (us|ms|s) \|", r"\1 77.7 \2 |", TABLES, flags=re.MULTILINE)
    assert {p.relative_to(tmp_path).as_posix() for p in quotes.write(slower, tmp_path)} == pages
    for quote in quotes.QUOTES:
        found = " ".join((tmp_path / quote.page).read_text(encoding="utf-8").split())
        assert quote.words.format(quote.figure(slower)) in found
    assert quotes.write(TABLES, tmp_path)
    for page in pages:
        assert (tmp_path / page).read_text(encoding="utf-8") == (ROOT / page).read_text(encoding="utf-8")


def test_one_run_on_one_machine_is_quoted():
    """The README and the tables name the same day and machine."""
    named = r"Measured on (.*?) on 2 cores \((.*?)\)"
    assert re.findall(named, text("README.md")) == re.findall(named, TABLES.replace("\n", " "))


def test_the_large_model_of_the_demo_has_the_numbers_of_the_readme():
    from tallytree.cli import demo

    _, *lines = demo._large_run()  # the first has the time, which is the machine's
    assert len(lines) == 2
    for line in lines:
        assert line in text("README.md")
