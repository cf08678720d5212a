"""Sphinx extension: which members of a class the API reference describes, and where short names lead."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

INTERNAL = {"family", "components", "program", "largest", "tree_flatten", "tree_unflatten", "kept"}


def _skip(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Members that come from other libraries, and those that are for other parts of the package."""
    target = inspect.unwrap(getattr(obj, "fget", None) or getattr(obj, "func", None) or obj)
    home = getattr(target, "__module__", None)
    if callable(target) and home is not None and not home.startswith("tallytree"):
        return True
    if name in INTERNAL:
        return True
    if getattr(obj, "__objclass__", None) is tuple or type(obj).__name__ == "_tuplegetter":
        return True  # of a named tuple, whose fields stand under Attributes
    return None


def _public(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Names without their module, or with the module that holds them, lead to the public object."""
    from sphinx.util.nodes import make_refnode

    objects = env.domains["py"].objects
    target = node.get("reftarget", "")
    names = [
        "tallytree." + target,
        "tallytree." + target.rpartition(".")[2],
        "tallytree.potentials." + target,
    ]
    for name in names:
        if target and name in objects:
            found = objects[name]
            return make_refnode(app.builder, node["refdoc"], found.docname, found.node_id, contnode, name)
    return None


def members(module: str, name: str) -> dict[str, list[str]]:
    """Names of the attributes and of the methods of a class that its page describes, for the tables at its top."""
    cls = getattr(importlib.import_module(module), name)
    shown: dict[str, list[str]] = {"Attributes": [], "Methods": []}
    for member in sorted(dir(cls)):
        static = inspect.getattr_static(cls, member)
        method = inspect.isfunction(static) or isinstance(static, classmethod | staticmethod)
        computed = any(
            hasattr(static, where) for where in ("fget", "func", "_compute")
        )  # a property, cached or not
        kept = not member.startswith("_") and not _skip(
            None, "class", member, getattr(cls, member), False, None
        )
        if kept and (method or computed):
            shown["Methods" if method else "Attributes"].append(member)
    return shown


def _tables(app: Any, config: Any) -> None:
    """Tables for the template of classes: by name, since Sphinx keeps no functions among its settings."""
    described, module = {}, ""
    for page in sorted(Path(app.srcdir, "api").glob("*.md")):
        for line in page.read_text().splitlines():
            if home := re.match(r"\.\. (?:current)?module:: (\S+)", line):
                module = home[1]
            elif (entry := re.match(r"   (\w+)$", line)) and inspect.isclass(
                getattr(importlib.import_module(module), entry[1], None)
            ):
                described[f"{module}.{entry[1]}"] = members(module, entry[1])
    config.autosummary_context = {"described": described}


def setup(app: Any) -> dict[str, Any]:
    """Hooks."""
    app.connect("config-inited", _tables)
    app.connect("autodoc-skip-member", _skip)
    app.connect("missing-reference", _public)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
