"""Every public object is documented in full, and every example in a docstring prints what it says."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re

import numpy as np
import pytest

import tallytree
from public_names import methods, objects


def modules():
    inside = (m.name for m in pkgutil.walk_packages(tallytree.__path__, "tallytree."))
    return ["tallytree", *(name for name in inside if not name.endswith(("_native", "__main__")))]


@pytest.mark.parametrize("name", modules())
def test_examples_print_what_they_say(name):
    try:
        module = importlib.import_module(name)
    except ImportError as missing:
        pytest.skip(f"{name} needs an extra that is not installed: {missing}")
    names = {"tt": tallytree, "np": np}
    for short, adapter in (("ttj", "tallytree.jax"), ("ttt", "tallytree.torch")):
        if name.startswith(adapter):
            names[short] = importlib.import_module(adapter)
    result = doctest.testmod(module, extraglobs=names, optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


PUBLIC = dict(objects())
NOT_FOR_USERS = {"kept", "tree_unflatten"}  # protocols of the package and of JAX


def arguments(target):
    try:
        names = inspect.signature(target).parameters
    except ValueError:
        return []
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def sections(target):
    """Text under every heading of a numpydoc docstring."""
    parts = re.split(r"^([A-Z][A-Za-z ]+)\n-{3,}\n", inspect.getdoc(target) or "", flags=re.MULTILINE)
    return {"Summary": parts[0].strip(), **dict(zip(parts[1::2], parts[2::2]))}


def documented(found):
    """Names before the colon of the entries of Parameters and Attributes."""
    listed = found.get("Parameters", "") + "\n" + found.get("Attributes", "")
    entries = re.findall(r"^(\S.*?)(?: :.*)?$", listed, re.MULTILINE)
    return {name.strip().lstrip("*") for entry in entries for name in entry.split(",")}


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_object_is_documented_in_full(name):
    target = PUBLIC[name]
    found = sections(target)
    wanted = {"Summary", "Examples", "See Also"}
    error = inspect.isclass(target) and issubclass(target, Exception)
    if not error:
        assert set(arguments(target)) <= documented(found), set(arguments(target)) - documented(found)
    if inspect.isfunction(target):
        wanted |= {"Returns"} if inspect.signature(target).return_annotation not in (None, "None") else set()
    if "Parameters" in found and name != "tallytree.data.available":
        wanted |= {"Raises"}
    assert wanted <= {heading for heading, text in found.items() if text.strip()}


@pytest.mark.parametrize("name", [name for name, target in PUBLIC.items() if inspect.isclass(target)])
def test_every_public_method_says_what_it_does_and_takes(name):
    for method, target, is_property in methods(PUBLIC[name]):
        found = sections(target)
        assert found["Summary"], method
        if not is_property and method not in NOT_FOR_USERS:
            assert set(arguments(target)) <= documented(found), method
