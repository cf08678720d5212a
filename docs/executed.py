"""Sphinx extension: pages show what their Python prints.

Every block marked ``python`` on the pages of `EXECUTED` runs when the site is built, top to bottom in one namespace
per page. Below the block stands what it printed, the value of every expression, and the figures that it drew. An error
is a warning of the build, and so fails it. `tests/test_docs.py` runs the same blocks without Sphinx.
"""

from __future__ import annotations

import ast
import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

EXECUTED = ("start/", "guide/", "theory/")
LONGEST = 30  # lines of one output


def statements(block: str, page: str, names: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Run a block statement by statement; yield the source and the value of each expression."""
    for statement in ast.parse(block).body:
        if isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), page, "eval"), names)
            yield ast.get_source_segment(block, statement) or "", value
        else:
            exec(compile(ast.Module([statement], []), page, "exec"), names)


def shown(value: Any) -> str:
    """Write a value as a reader wants it: arrays with four digits, numbers without their type."""
    if isinstance(value, tuple):
        parts = [shown(part) for part in value]
        return "\n".join(parts) if any("\n" in part for part in parts) else "(" + ", ".join(parts) + ")"
    if isinstance(value, list):
        return "[" + ", ".join(shown(part) for part in value) + "]"
    if isinstance(value, np.bool_ | bool):
        return str(bool(value))
    if isinstance(value, np.floating | float):
        return f"{float(value):.6g}"
    if isinstance(value, np.integer):
        return str(int(value))
    if isinstance(value, np.ndarray):
        return np.array2string(value, precision=4, threshold=60, max_line_width=84, separator=", ")
    return repr(value)


def printed(block: str, page: str, names: dict[str, Any]) -> str:
    """Run a block and return what a reader sees below it."""
    text = io.StringIO()
    values = []
    with contextlib.redirect_stdout(text), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for source, value in statements(block, page, names):
            if value is not None and not type(value).__module__.startswith("matplotlib"):
                values.append((source, value, text.tell()))
    # Several values are told apart by the expressions they belong to.
    pieces, start, everything = [], 0, text.getvalue()
    for source, value, end in values:
        line = shown(value)
        if len(values) > 1:
            short = (
                source if "\n" not in source and len(source) <= 60 else source.splitlines()[0][:57] + "..."
            )
            line = f"{short}\n" + "\n".join("    " + row for row in line.splitlines())
        pieces += [everything[start:end], line + "\n"]
        start = end
    rows = "".join([*pieces, everything[start:]]).rstrip().splitlines()
    if len(rows) > LONGEST:
        rows = [*rows[:LONGEST], "..."]
    return "\n".join(rows)


def _figures(app: Any, docname: str, number: int) -> list[Any]:
    """Save the figures a block drew beside the page and return their nodes."""
    import matplotlib.pyplot as plt
    from docutils import nodes

    images = []
    for figure in map(plt.figure, plt.get_fignums()):
        name = f"{docname.replace('/', '-')}-{number}-{len(images)}.png"
        folder = Path(app.srcdir) / "_build" / "executed"
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / name, dpi=130)
        axes = figure.get_axes()
        title = next((axis.get_title() for axis in axes if axis.get_title()), "figure")
        images.append(nodes.image(uri="../" * docname.count("/") + f"_build/executed/{name}", alt=title))
    plt.close("all")
    return images


def _execute(app: Any, doctree: Any) -> None:
    from docutils import nodes
    from sphinx.util import logging

    docname = app.env.docname
    if not docname.startswith(EXECUTED):
        return
    import gallery_look

    gallery_look.reset({}, docname)
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, block in enumerate(list(doctree.findall(nodes.literal_block))):
        if block.get("language") != "python":
            continue
        try:
            text = printed(block.astext(), docname, names)
        except Exception as error:
            logging.getLogger(__name__).warning("%s: %r in\n%s", docname, error, block.astext())
            return
        below: list[Any] = []
        if text:
            below.append(nodes.literal_block(text, text, language="none", classes=["output"]))
        below += _figures(app, docname, number)
        place = block.parent.index(block) + 1
        block.parent[place:place] = below


def setup(app: Any) -> dict[str, Any]:
    """Run before images are collected, so that figures are copied like others."""
    app.connect("doctree-read", _execute, priority=100)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
