"""What is public, by the lists of the modules that users import."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

MODULES = (
    "tallytree",
    "tallytree.potentials",
    "tallytree.learn",
    "tallytree.loopy",
    "tallytree.assignment",
    "tallytree.estimators",
    "tallytree.torch",
    "tallytree.torch.losses",
    "tallytree.jax",
    "tallytree.jax.losses",
    "tallytree.jax.numpyro",
    "tallytree.plot",
)
LOSSES = ("bag_nll", "proportion_nll", "mil_nll", "positive_unlabelled_nll")


def objects() -> Iterator[tuple[str, Any]]:
    """Every public class and function once, by its name; modules whose framework is absent are left out."""
    seen = set()
    for module in MODULES:
        try:
            home = importlib.import_module(module)
        except ImportError:
            continue
        for name in getattr(home, "__all__", LOSSES):
            found = getattr(home, name)
            if (inspect.isclass(found) or inspect.isfunction(found)) and found not in seen:
                seen.add(found)
                yield f"{module}.{name}", found


def methods(cls: type) -> Iterator[tuple[str, Any, bool]]:
    """Public methods and properties that this package defines: name, function, whether it is a property."""
    for name in sorted(dir(cls)):
        if name.startswith("_"):
            continue
        static = inspect.getattr_static(cls, name)
        plain = inspect.isfunction(static) or isinstance(static, classmethod | staticmethod)
        target = static.__func__ if isinstance(static, classmethod | staticmethod) else static
        if not plain:
            hidden = (
                getattr(static, where, None) for where in ("fget", "func", "_compute")
            )  # `cached` computes
            target = next((function for function in hidden if function), static)
        home = getattr(target, "__module__", None) or ""
        if callable(target) and home.startswith("tallytree"):
            yield name, target, not plain
