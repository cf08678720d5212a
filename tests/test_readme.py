"""The README's Python runs, top to bottom."""

from __future__ import annotations

import re
from pathlib import Path

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
