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
def test_blocks_that_need_an_extra_run_too(tmp_path, monkeypatch):
    """Those are marked ``py``; the vector of 10^9 log-odds on disk is a short one here."""
    import tallytree

    blocks = re.findall(r"```py\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 2
    monkeypatch.chdir(tmp_path)
    np.save("scores.npy", np.random.default_rng(0).normal(size=1000))
    names: dict = {"np": np, "tt": tallytree}
    for block in blocks:
        for framework in ("torch", "jax"):
            if f"import {framework}" in block:
                pytest.importorskip(framework)
        exec(compile(block.replace("10**8", "100"), str(README), "exec"), names)
    assert np.load("draw.npy").sum() == 100


def test_links_are_absolute_for_those_who_read_it_elsewhere():
    for target in re.findall(r"\]\(([^)\s]+)\)", README.read_text(encoding="utf-8")):
        assert target.startswith("https://"), target
