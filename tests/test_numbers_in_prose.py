"""Figures in the prose of the pages are those of the stored benchmarks, or of the model they are about."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TABLES = (ROOT / "docs" / "benchmark_tables.md").read_text(encoding="utf-8")
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def text(page: str) -> str:
    """A page, with its line breaks as spaces."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def cells(start: str) -> list[str]:
    """The cells of the rows whose names begin so, the last such row of the stored run."""
    rows = [line for line in TABLES.splitlines() if line.startswith(f"| {start}")]
    assert rows, start
    return [cell.strip() for cell in rows[-1].strip("|").split("|")]


def in_seconds(cell: str) -> float:
    number, unit = cell.rpartition(": ")[2].split()
    return float(number) * UNITS[unit]


@pytest.mark.parametrize(
    ("page", "words", "row"),
    [
        ("docs/theory/certificate.md", "all answers take {} by FFT", "Ward tree, a potential of sd 1 "),
        ("docs/theory/certificate.md", "for each number, {} (50)", "Ward tree, a potential of sd 50 "),
        ("docs/theory/certificate.md", "{} (1000)", "Ward tree, a potential of sd 1000 "),
        ("docs/guide/speed.md", "1000 models of 100 variables take {}", "1000 models of 100 variables"),
        ("docs/index.md", "2^20 variables under one potential: {}", "one random potential, D = 2^20"),
    ],
)  # fmt: skip
def test_times_are_those_of_the_stored_run(page, words, row):
    assert words.format(cells(row)[1]) in text(page)


def test_one_run_on_one_machine_is_quoted():
    """The README and the tables name the same day and machine."""
    named = r"Measured on (.*?) on 2 cores \((.*?)\)"
    assert re.findall(named, text("README.md")) == re.findall(named, TABLES.replace("\n", " "))


def test_rows_and_growth_agree_as_well_as_the_page_says():
    """The table of growth is measured apart from the rows, in the same run."""
    said = re.search(r"differ by up to (\d+) %", text("docs/benchmarks.md"))
    assert said is not None
    growth = {r.split("|")[1].strip(): r for r in TABLES.splitlines() if r.startswith("| ")}
    head = growth["method"].strip("|").split("|")
    column = next(i for i, name in enumerate(head) if name.strip() == "2^19")
    row = cells("one random potential, D = 2^19")
    apart = [
        in_seconds(row[i]) / in_seconds(growth[name].strip("|").split("|")[column].strip())
        for i, name in (
            (1, "tallytree"),
            (2, "tallytree, 1 thread"),
            (3, "FFT tree of the paper"),
            (4, "NumPy FFT tree"),
        )
    ]
    assert max(abs(a - 1) for a in apart) <= float(said[1]) / 100


def test_the_large_model_of_the_demo_has_the_numbers_of_the_readme():
    from tallytree.cli import demo

    _, *lines = demo._large_run()  # the first has the time, which is the machine's
    assert len(lines) == 2
    for line in lines:
        assert line in text("README.md")
