"""The code on the pages of the site runs, top to bottom, and its links lead somewhere."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from public_names import objects

DOCS = Path(__file__).resolve().parents[1] / "docs"
sys.path.append(str(DOCS))
import data_pages  # noqa: E402
from executed import printed, shown, statements  # noqa: E402

FRAMEWORKS = {"torch", "jax", "numpyro", "pyro", "statsmodels"}
PAGES = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if not {"_build", "generated", "gallery"} & set(page.relative_to(DOCS).parts)
]
RUNNING = [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")]


def name_of(page: Path) -> str:
    return str(page.relative_to(DOCS))


def run(block: str, page: str, names: dict) -> None:
    """Statement by statement; an expression that is a claim, such as ``error < 1e-6``, must be true."""
    for source, value in statements(block, page, names):
        parts = value if isinstance(value, tuple) else (value,)
        claims = [part for part in parts if isinstance(part, bool | np.bool_)]
        assert all(claims), f"{page}: {source} is not true"


def test_there_are_pages_with_code():
    assert len(RUNNING) > 20


def blocks_of(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def needs(page: Path) -> set[str]:
    """What the code of a page imports that not everybody has."""
    imported = re.findall(r"^\s*(?:import|from) (\w+)", "\n".join(blocks_of(page)), re.MULTILINE)
    return set(imported) & {*FRAMEWORKS, "pandas", "sklearn"}


@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[pytest.mark.frameworks] if needs(p) & FRAMEWORKS else []) for p in RUNNING],
    ids=name_of,
)
@pytest.mark.filterwarnings("default")
def test_python_blocks_run_in_order(page):
    for name in needs(page):
        pytest.importorskip(name)
    blocks = blocks_of(page)
    names: dict = {}
    for block in blocks:
        run(block, str(page), names)


@pytest.mark.parametrize("page", RUNNING, ids=name_of)
def test_code_fits_between_the_side_columns_of_the_page(page):
    most = 88 if page.parent.name == "guide" else 110  # pages of the guide have two side columns
    assert [line for block in blocks_of(page) for line in block.splitlines() if len(line) > most] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" in target or target.startswith("mailto:"):
            continue
        found = (page.parent / target).resolve()
        if "gallery" in found.parts and found.name != "index.rst":
            found = DOCS.parent / "examples" / "gallery" / found.parent.name / (found.stem + ".py")
        elif found.name == "index.rst":
            found = DOCS.parent / "examples" / "gallery" / "README.rst"
        assert found.exists(), f"{name_of(page)} links to {target}"


def test_every_public_object_is_in_the_reference():
    listed = set()
    for page in (DOCS / "api").glob("*.md"):
        module = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            if found := re.match(r"\.\. (?:current)?module:: (\S+)", line):
                module = found[1]
            elif found := re.match(r"(?:   |\.\. autofunction:: )(\w+)$", line):
                listed.add(f"{module}.{found[1]}")
    missing = [name for name, _ in objects() if name not in listed]
    assert not missing, f"Not on any page of docs/api: {missing}"


def test_a_page_shows_what_its_code_prints():
    names: dict = {}
    assert printed("a = 2\nprint('one')\na + 1.5", "page", names) == "one\n3.5"
    assert printed("a\na, 0.25", "page", names) == "a\n    2\na, 0.25\n    (2, 0.25)"
    assert printed("b = a", "page", names) == ""
    assert len(printed("for i in range(99): print(i)", "page", names).splitlines()) == 31
    with pytest.raises(ZeroDivisionError):
        printed("1 / 0", "page", names)


def test_values_are_shown_without_their_types():
    assert shown(np.float64(1 / 3)) == "0.333333"
    assert shown((np.int64(3), np.bool_(True), [np.zeros(2)])) == "(3, True, [[0., 0.]])"


def test_pages_on_real_data_have_stored_outputs_of_their_scripts():
    """If this fails: build the site where the data is, look at the page, and commit `docs/data_pages`."""
    read_data = {
        str(script.relative_to(data_pages.SCRIPTS).with_suffix(""))
        for script in data_pages.SCRIPTS.glob("*/plot_*.py")
        if re.search(r"^from reproduction", script.read_text(), re.MULTILINE)
    }
    assert read_data == set(data_pages.PAGES)
    for page in data_pages.PAGES:
        assert data_pages.stored_digest(page) == data_pages.digest(page), page
        text = (data_pages.STORED / f"{page}.rst").read_text()
        pictures = re.findall(r"image-sg:: /gallery/(\S+)", text)
        assert pictures, page
        assert all((data_pages.STORED / picture).is_file() for picture in pictures), page
