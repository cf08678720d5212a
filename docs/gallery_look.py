"""The look of every picture in the gallery, whatever the page before it did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style


def reset(gallery_conf: dict[str, Any], fname: str) -> None:
    """Called by sphinx-gallery before each page."""
    matplotlib.rcdefaults()
    matplotlib.use("Agg")
    matplotlib.style.use(str(Path(__file__).with_name("tallytree.mplstyle")))
