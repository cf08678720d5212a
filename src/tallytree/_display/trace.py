"""Numbers of a run, iteration after iteration, as a line."""

from __future__ import annotations

from typing import Any

import numpy as np

from .page import BLUE, figure

_HEIGHT, _WIDTH, _MOST_POINTS = 64.0, 320.0, 256


def trace(values: Any, title: str, *, logarithmic: bool = False) -> list[str]:
    """A line through at least two finite numbers; on a logarithmic axis through those above zero."""
    numbers = np.asarray(values, np.float64)
    at = np.flatnonzero(np.isfinite(numbers) & ((numbers > 0.0) if logarithmic else True))
    if len(at) < 2:
        return []
    at = at[np.unique(np.linspace(0, len(at) - 1, min(len(at), _MOST_POINTS)).astype(int))]
    heights = np.log10(numbers[at]) if logarithmic else numbers[at]
    low, high = float(heights.min()), float(heights.max())
    # Halves, because the difference of two large numbers of opposite sign may be out of range.
    share = (heights / 2 - low / 2) / (high / 2 - low / 2) if high > low else np.full(len(at), 0.5)
    x = 3.0 + (_WIDTH - 6.0) * at / max(len(numbers) - 1, 1)
    y = _HEIGHT - 3.0 - (_HEIGHT - 6.0) * share
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist()))
    line = f'<polyline points="{points}" fill="none" stroke="{BLUE}" stroke-width="1.5"/>'
    foot = (
        f'<line x1="0" x2="{_WIDTH:g}" y1="{_HEIGHT:g}" y2="{_HEIGHT:g}" stroke="currentColor" stroke-opacity="0.5"/>'
        f'<text x="0" y="{_HEIGHT + 14:g}" font-size="11" fill="currentColor">1</text>'
        f'<text x="{_WIDTH:g}" y="{_HEIGHT + 14:g}" text-anchor="end" font-size="11" '
        f'fill="currentColor">{len(numbers)}</text>'
    )
    ends = f" ({numbers[at[0]]:.5g} to {numbers[at[-1]]:.5g}{', logarithmic' * logarithmic})"
    return [figure(line + foot, int(_WIDTH), int(_HEIGHT) + 18, title, ends)]
