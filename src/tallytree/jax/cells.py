"""Reading cells of stored messages at places known beforehand.

Values are gathered. The tangent of a gather, transposed, would scatter into zeros of the caller's float type (see
:mod:`.positive`); so tangents are put together from static slices, one for every run of neighbouring cells.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def pick(storage: Any, cells: Any) -> Any:
    """``storage[:, cells]`` for a constant array of cells."""
    return _pick(_Cells(cells), storage)


class _Cells:
    """A constant index array that may be a static argument: it is compared by identity."""

    def __init__(self, places: Any) -> None:
        self.places = np.asarray(places, np.int32)  # 64-bit indices do not survive every transformation


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _pick(cells: _Cells, storage: Any) -> Any:
    return storage.at[:, cells.places].get(mode="promise_in_bounds")


@_pick.defjvp
def _pick_jvp(cells: _Cells, primals: Any, tangents: Any) -> tuple[Any, Any]:
    return _pick(cells, primals[0]), _by_slices(tangents[0], cells.places)


def _by_slices(storage: Any, places: Any) -> Any:
    flat = np.asarray(places).reshape(-1)
    if len(flat) == 0:
        return storage[:, :0].reshape(storage.shape[0], *places.shape)
    step = np.diff(flat)
    runs = np.split(flat, np.flatnonzero(step != 1) + 1)
    joined: list[Any] = []
    for run in runs:
        joined.append(storage[:, int(run[0]) : int(run[-1]) + 1])
    return jnp.concatenate(joined, -1).reshape(storage.shape[0], *places.shape)
