"""The README's Python runs, top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).resolve().parents[1] / "README.md"


def test_python_blocks_run_in_order():
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 4
    names: dict = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)


def test_the_two_commands_stand_on_their_own():
    lines = README.read_text(encoding="utf-8").splitlines()
    assert "python -m pip install . && tallytree demo" in lines
    assert 'python -m pip install ".[test]" && pytest' in lines


@pytest.mark.frameworks
def test_blocks_that_need_an_extra_run_too():
    """Those are marked ``py``."""
    import tallytree

    blocks = re.findall(r"```py\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    names: dict = {"np": np, "tt": tallytree}
    for block in blocks:
        for framework in ("torch", "jax"):
            if f"import {framework}" in block:
                pytest.importorskip(framework)
        exec(compile(block, str(README), "exec"), names)


def test_numbers_quoted_from_benchmarks_are_those_of_the_stored_run():
    """What the README and the home page say about speed stands in the tables that the benchmarks wrote."""
    root = README.parent
    tables = (root / "docs" / "benchmark_tables.md").read_text(encoding="utf-8")
    home = (root / "docs" / "index.md").read_text(encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    table = re.search(r"<!-- written by.*?(\| work .*?)<!-- end -->", text, re.DOTALL)
    assert table is not None
    assert table[1].strip() in tables
    row = re.search(r"^\| one random potential, D = 2\^20 \|(.*)\|$", tables, re.MULTILINE)
    assert row is not None
    own, _, paper, peer = (cell.strip() for cell in row[1].split("|")[:4])
    assert own in home
    assert peer.rpartition(": ")[2] in home
    ratio = float(paper.split()[0]) / float(own.split()[0])
    quoted = re.search(r"takes (\d+) times as long as tallytree at 2\^20", text)
    assert quoted is not None
    assert round(ratio) == int(quoted[1])


def test_links_are_absolute_for_those_who_read_it_elsewhere():
    for target in re.findall(r"\]\(([^)\s]+)\)", README.read_text(encoding="utf-8")):
        assert target.startswith("https://"), target
