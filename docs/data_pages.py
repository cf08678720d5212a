"""Sphinx extension: the gallery pages on real data have their outputs also where the data is not.

What these pages print and draw is kept in `docs/data_pages/`. A build that finds the data (`TALLYTREE_DATA`) runs
them and writes it there, to be committed. A build without the data, such as that of the published site, takes it from
there. A page whose script has changed since says that its outputs are missing; `tests/test_docs.py` finds such pages.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import Any

PAGES = (
    "counts/plot_cooccurrence",
    "counts/plot_image_density",
    "counts/plot_survey_design",
    "learning/plot_conditional_logit",
    "overlapping/plot_reviewers",
    "sums/plot_elections",
)
HERE = Path(__file__).resolve().parent
SCRIPTS, MADE, STORED = HERE.parent / "examples" / "gallery", HERE / "gallery", HERE / "data_pages"
MISSING = r"""\1
.. note::

   The outputs are missing: this page reads data that the build did not have, and its script has changed since they
   were stored.
"""


def digest(page: str) -> str:
    """Checksum of the script of a page."""
    return hashlib.sha256((SCRIPTS / f"{page}.py").read_bytes()).hexdigest()


def stored_digest(page: str) -> str:
    """Checksum of the script that the stored outputs of a page come from, empty if there are none."""
    written = STORED / f"{page}.sha256"
    return written.read_text().strip() if written.exists() else ""


def has_data() -> bool:
    """Whether the data can be read here."""
    from reproduction import data

    return bool(data.available())


def scripts_to_run() -> str:
    """Pattern of the scripts that sphinx-gallery runs."""
    without = "" if has_data() else "(?!" + "|".join(page.partition("plot_")[2] for page in PAGES) + ")"
    return "plot_" + without


def _copy(page: str, source: Path, target: Path) -> None:
    """Copy the text and the pictures of a page in place of those that are there."""
    section, name = page.split("/")
    for picture in (target / section / "images").glob(f"**/sphx_glr_{name}_*.png"):
        picture.unlink()
    pictures = (source / section / "images").glob(f"**/sphx_glr_{name}_*.png")
    for file in (source / f"{page}.rst", *pictures):
        to = target / file.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, to)


def _exchange(app: Any) -> None:
    """Store what was made with the data, or take what is stored."""
    for page in PAGES:
        fresh = stored_digest(page) == digest(page)
        if has_data() and not fresh:
            _copy(page, MADE, STORED)
            (STORED / f"{page}.sha256").write_text(digest(page) + "\n")
        elif not has_data() and fresh:
            _copy(page, STORED, MADE)
        elif not has_data():
            text = MADE / f"{page}.rst"
            text.write_text(re.sub(r"(\n=+\n)", MISSING, text.read_text(), count=1))  # below the title


def setup(app: Any) -> dict[str, Any]:
    """Run after sphinx-gallery, which makes its pages at the same event."""
    app.connect("builder-inited", _exchange, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
