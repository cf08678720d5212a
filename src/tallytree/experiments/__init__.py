"""The experiments of Tarlow et al. (2012), section 6: runtime, matching, bags and images, with a report.

Run them with ``tallytree reproduce``, or from Python with :func:`reproduce`.
"""

from __future__ import annotations

from .run import reproduce
from .sizes import FULL, PARTS, QUICK, TINY, Sizes

__all__ = ["FULL", "PARTS", "QUICK", "TINY", "Sizes", "reproduce"]
