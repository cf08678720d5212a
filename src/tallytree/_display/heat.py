"""Matrices of non-negative numbers as heat maps: the stronger the colour, the larger the number."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Float64
from .page import BLUE, figure

MOST_CELLS = 1 << 20  # read for a picture
_MOST_ROWS, _MOST_COLUMNS = 32, 64  # of the picture; larger matrices are averaged over blocks
_WIDTH, _TALLEST, _WIDEST = 320.0, 160.0, 20.0
_LEVELS = 16  # of the colour: cells of one level are one path, which keeps the text short


def heat(matrix: Any, title: str) -> str:
    """A matrix, dense or sparse; nothing of an empty one and of one that is too large to be read for a picture."""
    if hasattr(matrix, "tocoo"):
        found = matrix.tocoo()
        row, column, values = found.row, found.col, np.asarray(found.data, np.float64)
    else:
        dense = np.asarray(matrix, np.float64)
        if dense.size > MOST_CELLS:
            return ""
        row, column = (index.ravel() for index in np.indices(dense.shape))
        values = dense.ravel()
    return heat_of_cells(row, column, values, matrix.shape, title)


def heat_of_cells(
    row: NDArray[Any], column: NDArray[Any], values: Float64, shape: tuple[int, ...], title: str
) -> str:
    """The same of listed cells; the others stay blank."""
    if not values.size or values.size > MOST_CELLS:
        return ""
    rows, columns = min(shape[0], _MOST_ROWS), min(shape[1], _MOST_COLUMNS)
    block = (row * rows // shape[0]) * columns + column * columns // shape[1]
    total = np.bincount(block, values, minlength=rows * columns)
    number = np.bincount(block, minlength=rows * columns)
    means = (total / np.maximum(number, 1)).reshape(rows, columns)
    blocks = ", averaged over blocks" if (rows, columns) != tuple(shape) else ""
    return _picture(means, f"{title}{blocks}")


def _picture(matrix: Float64, title: str) -> str:
    rows, columns = matrix.shape
    wide = min(_WIDTH / columns, _WIDEST)
    tall = min(_TALLEST / rows, wide)
    top = float(matrix.max())
    level = np.ceil(_LEVELS * matrix / top).astype(int) if top > 0.0 else np.zeros(matrix.shape, int)
    paths = [_cells(level == strength, strength / _LEVELS) for strength in range(1, _LEVELS + 1)]
    width, height = wide * columns, tall * rows
    cells = f'<g transform="scale({wide:g} {tall:g})" fill="{BLUE}">{"".join(paths)}</g>'
    frame = (
        f'<rect x="0.5" y="0.5" width="{width:.1f}" height="{height:.1f}" fill="none" '
        'stroke="currentColor" stroke-opacity="0.5"/>'
    )
    strongest = f" (strongest {top:.3g})"
    return figure(cells + frame, int(np.ceil(width)) + 1, int(np.ceil(height)) + 1, title, strongest)


def _cells(chosen: NDArray[np.bool_], opacity: float) -> str:
    """Cells of one level as one path, a run of neighbours in a row as one rectangle."""
    if not chosen.any():
        return ""
    ends = np.diff(chosen.astype(np.int8), axis=1, prepend=0, append=0)
    (row, start), (_, stop) = np.nonzero(ends == 1), np.nonzero(ends == -1)
    runs = zip(row.tolist(), start.tolist(), (stop - start).tolist())
    path = "".join(f"M{j} {i}h{n}v1h-{n}z" for i, j, n in runs)
    return f'<path d="{path}" fill-opacity="{opacity:.2f}"/>'
