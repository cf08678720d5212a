"""One HTML file with every figure, what the paper states, what was measured, and the verdicts."""

from __future__ import annotations

import base64
import csv
import html
import io
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallytree._version import __version__

from .claim import DIFFERS, NOT_REPRODUCED, REPRODUCED, UNDECIDED, Claim, tally

_COLOUR = {REPRODUCED: "#2e7d4f", DIFFERS: "#b36b00", NOT_REPRODUCED: "#b5403a", UNDECIDED: "#666"}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2em auto; padding: 0 1.2em; color: #222 }
h1 { font-size: 1.7em } h2 { margin-top: 2.2em; border-bottom: 1px solid #ddd; padding-bottom: .2em }
figure { margin: 1.4em 0 } figure img { max-width: 100%; height: auto; border: 1px solid #eee }
figcaption { color: #444; font-size: .93em } .paper { border-left: 3px solid #bbb; padding-left: .9em; color: #444 }
table { border-collapse: collapse; width: 100%; font-size: .9em; margin: 1em 0 }
th, td { text-align: left; vertical-align: top; padding: .4em .6em; border-bottom: 1px solid #e4e4e4 }
th { background: #f6f6f6 } .verdict { font-weight: 600; white-space: nowrap }
.note { background: #fff7e6; padding: .6em .9em }
td.why { color: #555 } code { background: #f4f4f4; padding: 0 .25em }
"""


@dataclass
class Picture:
    """A figure: file name without ending, caption, what the paper says about it, and its bytes by format."""

    name: str
    caption: str
    paper: str
    content: Mapping[str, bytes]


@dataclass
class Section:
    """A part of the report."""

    part: str
    title: str
    about: str
    pictures: list[Picture] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def page(sections: Sequence[Section], settings: Mapping[str, str]) -> str:
    """The whole report; pictures are embedded."""
    claims = [c for s in sections for c in s.claims]
    body = [
        "<h1>Recursive cardinality models: section 6 reproduced</h1>",
        "<p>Experiments of Tarlow, Swersky, Zemel, Adams and Frey, <em>Fast Exact Inference for Recursive Cardinality "
        "Models</em>, UAI 2012, rerun with tallytree. Every verdict is computed from the numbers of this run.</p>",
        f"<p><strong>{html.escape(tally(claims))}.</strong> The same statements under settings of our own are "
        "listed apart "
        "and not counted.</p>",
        _table([{"": k, " ": v} for k, v in settings.items()]),
    ]
    if claims:
        body += ["<h2>Claims at a glance</h2>", _glance([c for c in claims if not c.variant])]
    for section in sections:
        body += _section(section)
    text = "\n".join(body)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Section 6 reproduced with tallytree</title>\n<style>{_STYLE}</style></head>\n"
        f"<body>\n{text}\n</body></html>\n"
    )


def _section(section: Section) -> list[str]:
    out = [
        f'<h2 id="{section.part}">{html.escape(section.title)}</h2>',
        f"<p>{html.escape(section.about)}</p>",
    ]
    out += [f'<p class="note">{html.escape(note)}</p>' for note in section.notes]
    for picture in section.pictures:
        data = base64.b64encode(picture.content["png"]).decode()
        out.append(
            f'<figure id="{picture.name}"><img alt="{html.escape(picture.caption)}" src="data:image/png;base64,{data}">'
            f"<figcaption>{html.escape(picture.caption)} "
            f"(<code>{picture.name}.png</code>, <code>.svg</code>)</figcaption>"
            f'<p class="paper">The paper: {html.escape(picture.paper)}</p></figure>'
        )
    out.append(_claims([c for c in section.claims if not c.variant]))
    variants = [c for c in section.claims if c.variant]
    if variants:
        out += ["<h3>The same under settings of our own</h3>", _claims(variants)]
    for name, rows in section.tables.items():
        out += [f"<h3>{html.escape(name)}</h3>", _table(rows)]
    return out


def _glance(claims: Sequence[Claim]) -> str:
    rows = "".join(
        f'<tr><td><a href="#{c.part}">{c.part}</a></td><td>{html.escape(c.paper)}</td>{_word(c)}</tr>'
        for c in claims
    )
    return f"<table><tr><th>part</th><th>the paper</th><th>verdict</th></tr>{rows}</table>"


def _claims(claims: Sequence[Claim]) -> str:
    if not claims:
        return ""
    rows = "".join(
        f'<tr><td>{html.escape(c.paper)}</td><td>{html.escape(c.found)}</td>{_word(c)}<td class="why">'
        f"{html.escape(c.why)}</td></tr>"
        for c in claims
    )
    return (
        "<table><tr><th>the paper states</th><th>measured here</th><th>verdict</th><th>how judged, and why</th></tr>"
        f"{rows}</table>"
    )


def _word(claim: Claim) -> str:
    return f'<td class="verdict" style="color: {_COLOUR[claim.verdict]}">{claim.verdict}</td>'


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    names = list(rows[0])
    head = "".join(f"<th>{html.escape(n)}</th>" for n in names)
    lines = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_cell(r.get(n)))}</td>" for n in names) + "</tr>" for r in rows
    )
    head = f"<tr>{head}</tr>" if any(n.strip() for n in names) else ""
    # A column name may break after an underscore, so that wide tables fit the page.
    return f"<table>{head.replace('_', '_<wbr>')}{lines}</table>"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, all columns that occur; numbers with all their digits."""
    names = list(dict.fromkeys(k for row in rows for k in row))
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()


def machine() -> dict[str, str]:
    """What the run was made with, for the report."""
    import numpy
    import scipy

    from tallytree.config import settings

    return {
        "hardware": f"{_processor()}, {os.cpu_count()} processors visible, {_memory()} of memory",
        "software": f"tallytree {__version__} ({'C++ engine' if settings().native else 'array code'}), Python "
        f"{platform.python_version()}, NumPy {numpy.__version__}, SciPy {scipy.__version__}, {platform.system()}",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"
    except (AttributeError, OSError, ValueError):
        return "an unknown amount"
