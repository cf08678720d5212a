"""Messages of many nodes, kept step by step, and read at places known beforehand.

A step of the schedule stores the messages of its nodes one after another; cell 0 holds what padding reads. Readers name
cells of all steps together; only the steps that they name are touched. Messages of a regular tree lie at equal
distances, in pairs or repeated, and are cut out by slices. Others are gathered; and since the tangent of a gather,
transposed, would scatter into zeros of the caller's float type (see :mod:`.positive`), their tangents are put together
from static slices, one for every run of neighbouring cells.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Messages(NamedTuple):
    """What the steps so far stored, (B, cells) each, in the order of their cells."""

    parts: tuple[Any, ...]

    def followed_by(self, messages: Any) -> Messages:
        """These, and the messages (B, ...) of one more step."""
        flat = messages.reshape(messages.shape[0], math.prod(messages.shape[1:]))
        return Messages((*self.parts, flat))

    def at(self, cells: Any) -> Any:
        """The entries at a constant array of cells, (B, *cells.shape)."""
        places = np.asarray(cells, np.int64)
        starts = np.cumsum([0, *(p.shape[1] for p in self.parts)])
        holder = np.searchsorted(starts, places, "right") - 1
        holder = np.maximum(holder, 0)
        named = np.unique(holder)
        if len(named) == 0:
            return pick(self.parts[0], places)
        sizes = [self.parts[i].shape[1] for i in named]
        offset = np.zeros(len(self.parts), np.int64)
        offset[named] = np.cumsum([0, *sizes[:-1]]) - starts[named]
        joined = [self.parts[i] for i in named]
        storage = joined[0] if len(joined) == 1 else jnp.concatenate(joined, -1)
        return pick(storage, places + offset[holder])

    def largest(self, of: Any) -> Any:
        """The largest ``of(entry)``, (B,)."""
        tops = [jnp.max(of(p), -1) for p in self.parts if p.shape[1]]
        return jnp.max(jnp.stack(tops, -1), -1)


def pick(storage: Any, cells: Any) -> Any:
    """``storage[:, cells]`` for a constant array of cells."""
    cells = np.asarray(cells)
    if cells.ndim == 2 and cells.size:
        found = _in_a_row(storage, cells)
        if found is not None:
            return found
    return _pick(_Cells(cells), storage)


def _in_a_row(storage: Any, cells: Any) -> Any:
    """Messages at equal distances, or such in which every one comes twice, or the two of every pair change places."""
    count, width = cells.shape
    starts = cells[:, 0]
    if np.any(cells != starts[:, None] + np.arange(width)):
        return None
    if _evenly(starts, width):
        return _cut(storage, starts, width)
    if count % 2:
        return None
    first, second = starts[0::2], starts[1::2]
    if np.array_equal(first, second) and _evenly(first, width):
        once = _cut(storage, first, width)
        return jnp.broadcast_to(once[:, :, None], (*once.shape[:2], 2, width)).reshape(
            once.shape[0], count, width
        )
    swapped = np.stack([second, first], 1).reshape(-1)
    if _evenly(swapped, width):
        pairs = _cut(storage, swapped, width).reshape(storage.shape[0], count // 2, 2, width)
        return pairs[:, :, ::-1].reshape(storage.shape[0], count, width)
    return None


def _evenly(starts: Any, width: int) -> bool:
    step = np.diff(starts)
    return len(step) == 0 or bool(step[0] >= width and np.all(step == step[0]))


def _cut(storage: Any, starts: Any, width: int) -> Any:
    """Messages of equal distance, (B, count, width)."""
    batch, count = storage.shape[0], len(starts)
    distance = int(starts[1] - starts[0]) if count > 1 else width
    first, last = int(starts[0]), int(starts[0]) + count * distance
    whole = storage[:, first:last]
    short = last - first - whole.shape[1]  # what follows the last message
    if short:
        whole = jnp.concatenate([whole, jnp.zeros((batch, short), storage.dtype)], -1)
    return whole.reshape(batch, count, distance)[:, :, :width]


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
