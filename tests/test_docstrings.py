"""Every example in a docstring runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import tallytree


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
