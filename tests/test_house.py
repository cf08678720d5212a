"""The rooms of the C++ engine: what may include what."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import tallytree as tt
from tallytree import config

CPP = Path(__file__).parents[1] / "cpp"
BELOW = {
    "base": set(),
    "flat": {"base"},
    "tree": {"base", "flat"},  # a group's loose variables are a flat block
    "cluster": {"base"},
    "frontier": {"base"},
    "sample": {"base", "flat"},
    "bind": {"base", "flat", "tree", "cluster", "frontier", "sample"},
    "test_hooks": {"base", "flat", "tree", "cluster", "frontier", "sample", "bind"},
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


SOURCES = CPP.parent / "src" / "tallytree"


def _hand_made_caches(tree):
    """Functions that store something in a dictionary and return it."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        assigned = [node.targets for node in ast.walk(function) if isinstance(node, ast.Assign)]
        stored = {
            ast.unparse(target)
            for targets in assigned
            if any(isinstance(target, ast.Subscript) for target in targets)
            for target in targets
        }
        returns = (node for node in ast.walk(function) if isinstance(node, ast.Return) and node.value)
        if stored & {ast.unparse(node.value) for node in returns}:
            yield function.name


@pytest.mark.skipif(not SOURCES.is_dir(), reason="the sources are not here")
def test_memo_has_the_only_caches():
    caches = r"\bcached_property\b|\blru_cache\b|functools\.cache\b"
    wrong = set()
    for path in sorted(SOURCES.rglob("*.py")):
        text = path.read_text()
        found = [*re.findall(caches, text), *_hand_made_caches(ast.parse(text))]
        wrong |= {(path.name, name) for name in found}
    assert wrong == {("memo.py", "lru_cache")}


def _body(function):
    """The code of a function, its own names replaced by numbers."""
    code = function.body[1:] if ast.get_docstring(function) else function.body
    own = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
    names = [node for line in code for node in ast.walk(line) if isinstance(node, ast.Name)]
    own |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    number = {}
    for node in names:
        if node.id in own:
            node.id = number.setdefault(node.id, f"_{len(number)}")
    return "\n".join(map(ast.unparse, code))


@pytest.mark.skipif(not SOURCES.is_dir(), reason="the sources are not here")
def test_no_function_is_written_twice():
    places = {}
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                place = f"{path.relative_to(SOURCES)}: {node.name}"
                places.setdefault(_body(node), []).append(place)
    twice = {body: found for body, found in places.items() if len(found) > 1 and len(body) > 45}
    assert not twice  # longer than an attribute of an attribute: one of them can call the other


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
EXAMPLES = {"examples/gallery/SECTION/plot_name.py", "utils.py", "build/"}


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


def _count(n):
    return tt.CountModel(np.linspace(-1.0, 1.0, n), tt.exactly(10)).marginals


def _forest(n):
    path = tt.Forest([(v, v + 1) for v in range(n - 1)], np.full((n - 1, 2, 2), 0.5))
    return tt.CountModel(np.linspace(-1.0, 1.0, n), tt.exactly(10), edges=path).marginals


def _gradient(n):
    torch = pytest.importorskip("torch")
    import tallytree.torch

    logits = torch.linspace(-1.0, 1.0, n, dtype=torch.float64, requires_grad=True)
    return tallytree.torch.marginals(logits, tt.exactly(10)).sum().backward()


@pytest.mark.skipif(not GUIDE.is_file(), reason="the guide is not here")
@pytest.mark.skipif(config.native() is None, reason="the walks go through the compiled engine")
@pytest.mark.parametrize(
    ("name", "walk"),
    [
        ("A count", _count),
        ("A forest", _forest),
        pytest.param("A gradient", _gradient, marks=pytest.mark.frameworks),
    ],
)
def test_walks_run_through_as_few_files_as_the_guide_says(name, walk):
    package, files = str(Path(tt.__file__).parent), set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(package):
            files.add(frame.f_code.co_filename)

    walk(90)  # imports what is imported when it is needed
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        walk(100)
    finally:
        sys.setprofile(before)
    said = re.search(rf"\*\*{name} \((\d+)\)\.\*\*", GUIDE.read_text())
    assert said is not None
    assert len(files) <= int(said[1]), sorted(files)
