"""One HTML page: the three statements that matter most, the table of all, the figures."""

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

from .claim import DIFFERS, MIN_SEEDS, REPRODUCED, TUNED, Claim, tally
from .statements import FOREMOST, STATEMENTS

_COLOUR = {REPRODUCED: "#2e7d4f", TUNED: "#8a6d00", DIFFERS: "#b5403a"}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2em auto; padding: 0 1.2em; color: #222 }
h1 { font-size: 1.6em } h2 { margin-top: 1.8em; border-bottom: 1px solid #ddd; padding-bottom: .2em }
figure { margin: 1.2em 0 } figure img { max-width: 100%; height: auto; border: 1px solid #eee }
figcaption { color: #444; font-size: .93em } .paper { border-left: 3px solid #bbb; padding-left: .9em; color: #444 }
table { border-collapse: collapse; width: 100%; font-size: .86em; margin: 1em 0 }
th, td { text-align: left; vertical-align: top; padding: .35em .6em; border-bottom: 1px solid #e4e4e4 }
th { background: #f6f6f6 } .verdict { font-weight: 600; white-space: nowrap }
.note { background: #fff7e6; padding: .6em .9em } .small { color: #555; font-size: .9em }
code { background: #f4f4f4; padding: 0 .25em }
"""
RULE = (
    f"A statement is reproduced if it holds as the paper describes it on every one of {MIN_SEEDS} seeds, with the "
    "95% interval of the mean within the bounds, too; matched by tuning if it needs a choice that the paper does not "
    "state, which is named; and differs otherwise. Every bound is in the table; claims.json has every number."
)


@dataclass
class Picture:
    """A figure: file name without ending, caption, what the paper's shows, and its bytes by format."""

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
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def page(sections: Sequence[Section], claims: Sequence[Claim], settings: Mapping[str, str]) -> str:
    """The whole report; pictures are embedded."""
    body = [
        "<h1>Fast exact inference for recursive cardinality models, reproduced</h1>",
        "<p>Tarlow, Swersky, Zemel, Adams and Frey, UAI 2012: the experiments of section 6 and the costs stated "
        "in sections 2 "
        "to 5, rerun with tallytree.</p>",
        f"<p><strong>{html.escape(tally(claims))}.</strong> {html.escape(RULE)}</p>",
    ]
    foremost = [c for key in FOREMOST for c in claims if c.key == key]
    if foremost:
        body += ["<h2>The three that matter most</h2>", "<ol>"]
        body += [
            f"<li>{html.escape(STATEMENTS[c.key].text)} {_word(c)} {html.escape(c.found)}</li>"
            for c in foremost
        ]
        body.append("</ol>")
    if claims:
        body += [f"<h2>All {len(claims)} statements</h2>", _claims(claims)]
    for section in sections:
        body += _section(section)
    body += ["<h2>This run</h2>", _table([{"": k, " ": v} for k, v in settings.items()])]
    text = "\n".join(body)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Recursive cardinality models, reproduced</title>\n<style>{_STYLE}</style></head>\n"
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
            f'<p class="paper">{html.escape(picture.paper)}</p></figure>'
        )
    for name, rows in section.tables.items():
        out += [f"<h3>{html.escape(name)}</h3>", _table(rows)]
    return out


def _claims(claims: Sequence[Claim]) -> str:
    rows = "".join(
        f"<tr><td>{i}</td><td>{html.escape(STATEMENTS[c.key].text)} "
        f'<span class="small">({STATEMENTS[c.key].section})</span></td>'
        f'<td>{html.escape(c.found)} <span class="small">{html.escape(c.note)}</span></td>'
        f'<td>{_word(c)}<div class="small">{html.escape(c.choice)}</div></td>'
        f'<td class="small">{html.escape(c.rule)}</td></tr>'
        for i, c in enumerate(claims, 1)
    )
    return (
        "<table><tr><th></th><th>the paper (section)</th><th>measured: mean [95% interval]</th><th>verdict, choice</th>"
        f"<th>bounds</th></tr>{rows}</table>"
    )


def _word(claim: Claim) -> str:
    return f'<span class="verdict" style="color: {_COLOUR[claim.verdict]}">{claim.verdict}</span>'


def markdown_table(claims: Sequence[Claim], runs: Mapping[str, Sequence[Claim]] | None = None) -> str:
    """The table of all statements; a verdict that changes between stored `runs` is called unsettled."""
    lines = ["| | the paper (section) | measured: mean [95% interval] | verdict |", "|---|---|---|---|"]
    for i, c in enumerate(claims, 1):
        statement = STATEMENTS[c.key]
        verdict = f"**{c.verdict}**" + (f": {c.choice}" if c.choice else "")
        found = verdicts(c.key, runs or {})
        if len(found) > 1:
            verdict = "**unsettled**: " + "; ".join(
                f"{v} in {', '.join(names)}" for v, names in found.items()
            )
        row = f"| {i} | {statement.text} ({statement.section}) | {c.found} | {verdict} |"
        lines.append(row.replace("^", "\\^"))
    return "\n".join(lines) + "\n"


def verdicts(key: str, runs: Mapping[str, Sequence[Claim]]) -> dict[str, list[str]]:
    """The verdicts on a statement, and the runs that have them."""
    found: dict[str, list[str]] = {}
    for name, claims in runs.items():
        for c in claims:
            if c.key == key:
                found.setdefault(c.verdict, []).append(name)
    return found


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
