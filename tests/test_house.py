"""The rooms of the C++ engine: what may include what."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

CPP = Path(__file__).parents[1] / "cpp"
ROOMS = {"flat", "tree", "cluster", "sample"}
BELOW = {
    "base": set(),
    "flat": ROOMS | {"base"},
    "tree": ROOMS | {"base"},
    "cluster": ROOMS | {"base"},
    "sample": ROOMS | {"base"},
    "bind": ROOMS | {"base"},
    "test_hooks": ROOMS | {"base", "bind"},
}


def files():
    return sorted(path for path in CPP.rglob("*.?pp"))


@pytest.mark.skipif(not CPP.is_dir(), reason="the sources are not here")
def test_includes_point_downwards():
    wrong = []
    for path in files():
        room = path.parent.name
        for other in re.findall(r'#include "(\w+)/', path.read_text()):
            if other != room and other not in BELOW[room]:
                wrong.append(f"{path.relative_to(CPP)} includes {other}/")
    assert not wrong


@pytest.mark.skipif(not CPP.is_dir(), reason="the sources are not here")
def test_every_source_is_compiled_and_every_header_is_used():
    listed = set(re.findall(r"[\w/]+\.cpp", (CPP / "CMakeLists.txt").read_text()))
    included = {
        name for path in files() for name in re.findall(r'#include "([\w/]+\.hpp)"', path.read_text())
    }
    found = {str(path.relative_to(CPP)) for path in files()}
    assert found == listed | included


GUIDE = CPP.parent / "CONTRIBUTING.md"
ENGINE = "src/tallytree/engine/"
PLACES = (
    "",
    "src/",
    "src/tallytree/",
    ENGINE,
    ENGINE + "count/",
    ENGINE + "forest/",
    "cpp/",
    "cpp/flat/",
    "tools/fuzz/",
)
# A pattern, a thing not to do, and what a build makes.
EXAMPLES = {"examples/gallery/plot_x_name.py", "utils.py", "build/"}


@pytest.mark.skipif(not GUIDE.is_file(), reason="the guide is not here")
def test_files_and_folders_named_in_the_guide_exist():
    text = GUIDE.read_text()
    named = set(re.findall(r"[\w./-]+\.(?:py|cpp|hpp|md|sh|json|toml)\b", text))
    named |= set(re.findall(r"(?<![\w/.])[a-z_]+(?:/[a-z_]+)*/(?=[\s`,);])", text))
    missing = [
        name
        for name in named - EXAMPLES
        if not any((GUIDE.parent / place / name).exists() for place in PLACES)
    ]
    assert not sorted(missing)
