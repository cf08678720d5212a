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


def test_the_table_of_speed_is_that_of_the_stored_run():
    tables = (README.parent / "docs" / "benchmark_tables.md").read_text(encoding="utf-8")
    table = re.search(
        r"<!-- written by.*?(\| work .*?)<!-- end -->", README.read_text(encoding="utf-8"), re.DOTALL
    )
    assert table is not None
    assert table[1].strip() in tables


def test_links_are_absolute_for_those_who_read_it_elsewhere():
    for target in re.findall(r"\]\(([^)\s]+)\)", README.read_text(encoding="utf-8")):
        assert target.startswith("https://"), target
