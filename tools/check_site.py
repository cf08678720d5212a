"""Checks of the built site: ``python tools/check_site.py docs/_build/html``.

Every link inside it leads to a page, a file or a place on a page that exists; and every question of
`tools/questions.md` is answered within two clicks of the front page, and found by a search. No page shows the folder it
was built in.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

QUESTIONS = Path(__file__).with_name("questions.md")
CLICKS = 2
SHOWN = 12  # results that one sees at once


@dataclass
class Page(HTMLParser):
    """The links and anchors of a page."""

    links: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif (name == "href" and tag in ("a", "link")) or (name == "src" and tag in ("img", "script")):
                self.links.append(value)


def read_pages(site: Path) -> dict[Path, Page]:
    """All pages by their file."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        if "_static" in path.parts:  # templates of the theme
            continue
        pages[path] = Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    return pages


def target_of(page: Path, link: str) -> tuple[Path, str] | None:
    """The file and the anchor that a link names; None for links to elsewhere."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    place = page if not parts.path else (page.parent / unquote(parts.path)).resolve()
    return place / "index.html" if place.is_dir() else place, unquote(parts.fragment)


def broken_links(pages: dict[Path, Page]) -> list[str]:
    """Links that lead nowhere, in words."""
    found = []
    root = min((page.parent for page in pages), key=lambda folder: len(folder.parts))
    for page, content in pages.items():
        for link in content.links:
            target = target_of(page, link)
            if target is None:
                continue
            place, anchor = target
            if not place.exists():
                found.append(f"{page.relative_to(root)}: {link} is no file")
            elif anchor and place in pages and anchor not in pages[place].anchors:
                found.append(f"{page.relative_to(root)}: {link} is no place on its page")
    return sorted(set(found))


def machine_paths(pages: dict[Path, Page]) -> list[str]:
    """Pages that show where they were built, as warnings among printed lines do."""
    here = str(Path(__file__).resolve().parents[1]) + "/"
    return [f"{page.name}: it shows {here}" for page in pages if here in page.read_text(encoding="utf-8")]


def clicks_from(start: Path, pages: dict[Path, Page]) -> dict[Path, int]:
    """How many clicks every page is from the start."""
    far, edge = {start: 0}, [start]
    while edge:
        targets = {t[0] for page in edge for link in pages[page].links if (t := target_of(page, link))}
        new = sorted(t for t in targets if t in pages and t not in far)
        far.update(dict.fromkeys(new, far[edge[0]] + 1))
        edge = new
    return far


class Search:
    """The index of Sphinx, asked as the search box asks it: all words must occur, whole or as a part of longer ones."""

    def __init__(self, site: Path) -> None:
        from sphinx.search.en import SearchEnglish

        text = (site / "searchindex.js").read_text(encoding="utf-8")
        index = json.loads(text.removeprefix("Search.setIndex(").rstrip().removesuffix(")"))
        self._names = index["docnames"]
        self._terms = [index["terms"], index["titleterms"]]
        self._language = SearchEnglish({})

    def pages(self, words: str) -> list[str]:
        """Names of the pages that a search finds, those first whose titles hold the words."""
        scores: list[dict[int, int]] = []
        for word in re.findall(r"\w+", words.lower()):
            if word not in self._language.stopwords:
                scores.append(self._scores(self._language.stem(word)))
        common = set.intersection(*map(set, scores)) if scores else set()
        order = sorted(common, key=lambda n: (-max(s[n] for s in scores), -sum(s[n] for s in scores)))
        return [self._names[number] for number in order]

    def _scores(self, word: str) -> dict[int, int]:
        """The pages with a word, and what Sphinx gives for it: whole or in part, in titles or elsewhere."""
        found: dict[int, int] = {}
        for terms, whole, part in ((self._terms[0], 5, 2), (self._terms[1], 15, 7)):
            for term, where in terms.items():
                if term == word or (len(word) > 2 and word in term):
                    for number in [where] if isinstance(where, int) else where:
                        found[number] = max(found.get(number, 0), whole if term == word else part)
        return found


def questions() -> list[tuple[str, str, str]]:
    """Question, words to search for, page."""
    text = QUESTIONS.read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| \d+ \| (.+?) \| (.+?) \| \[.*\]\(\.\./docs/(.+?)\.(?:md|rst)\) \|$", text, re.MULTILINE
    )
    if len(rows) != 20:
        sys.exit(f"tools/questions.md must list 20 questions; {len(rows)} were read.")
    return rows


def unanswered(site: Path, pages: dict[Path, Page]) -> list[str]:
    """Questions that are too far from the front page, or that a search does not answer."""
    far = clicks_from(site / "index.html", pages)
    search = Search(site)
    found = []
    for question, words, page in questions():
        clicks = far.get(site / f"{page}.html")
        if clicks is None or clicks > CLICKS:
            found.append(f"{question} {page} is {clicks} clicks from the front page")
        hits = search.pages(words)
        if page not in hits[:SHOWN]:
            found.append(f"{question} A search for '{words}' finds other pages: {', '.join(hits[:SHOWN])}")
    return found


def main(folder: str) -> int:
    site = Path(folder).resolve()
    pages = read_pages(site)
    problems = broken_links(pages) + machine_paths(pages) + unanswered(site, pages)
    print(
        "\n".join(problems)
        or f"{len(pages)} pages: no broken links; 20 questions within {CLICKS} clicks and one search."
    )
    return min(len(problems), 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
