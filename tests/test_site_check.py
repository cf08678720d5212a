"""The checks of the built site find what is broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.check_site import broken_links, clicks_from, machine_paths, questions, read_pages, target_of

PAGES = {
    "index.html": '<a href="guide/index.html">x</a> <a href="list.html">x</a> <img src="gone.png"> <a href="https://x.org">x</a>',
    "guide/index.html": '<h1 id="top">x</h1> <a href="page.html#here">x</a> <a href="../index.html#nowhere">x</a>',
    "guide/page.html": '<h2 id="here">x</h2> <a href="#here">x</a> <a href="./">x</a> <a href="missing.html">x</a>',
    "list.html": '<a href="far.html">x</a>',
    "far.html": "",
    "_static/template.html": '<a href="{{ pathto() }}">x</a>',
}  # fmt: skip


def site(folder):
    for name, content in PAGES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    return read_pages(folder.resolve())


def test_the_folder_of_the_machine_is_found_on_a_page(tmp_path):
    (tmp_path / "index.html").write_text(
        f"{Path(__file__).resolve().parents[1]}/examples/x.py:3: UserWarning"
    )
    assert len(machine_paths(read_pages(tmp_path))) == 1
    (tmp_path / "index.html").write_text("examples/x.py")
    assert machine_paths(read_pages(tmp_path)) == []


def test_broken_links_files_and_anchors_are_found(tmp_path):
    assert broken_links(site(tmp_path)) == [
        "guide/index.html: ../index.html#nowhere is no place on its page",
        "guide/page.html: missing.html is no file",
        "index.html: gone.png is no file",
    ]
    assert target_of(tmp_path / "index.html", "mailto:a@b.org") is None


def test_clicks_are_counted(tmp_path):
    root = tmp_path.resolve()
    far = clicks_from(root / "index.html", site(tmp_path))
    assert far == {
        root / "index.html": 0,
        root / "guide/index.html": 1,
        root / "list.html": 1,
        root / "guide/page.html": 2,
        root / "far.html": 2,
    }


@pytest.mark.frameworks
def test_a_search_finds_pages_with_all_words_and_titles_first(tmp_path):
    pytest.importorskip("sphinx")

    from tools.check_site import Search

    index = {
        "docnames": ["one", "two", "three"],
        "terms": {"count": [0, 1, 2], "overlap": [0, 1], "overlapping": 2},
        "titleterms": {"overlap": 1},
    }
    (tmp_path / "searchindex.js").write_text(f"Search.setIndex({json.dumps(index)})")
    search = Search(tmp_path)
    assert search.pages("counts that overlap") == ["two", "one", "three"]
    assert search.pages("counts elsewhere") == []


def test_there_are_twenty_questions():
    assert len(questions()) == 20
