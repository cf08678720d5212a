"""The paper's algorithm as it is printed in section 5: plain numbers, FFTs, a balanced binary tree, no numerical care.

It shows what the printed algorithm costs, and where it needs the care that section 6.1 asks for. A level of
the tree is one
array, so that NumPy does a level at a time: ``messages[l]`` has the nodes of 2^l variables as rows, (D / 2^l, 2^l + 1).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from tallytree.arrays import Bools, Float64


def upward(logits: Float64, tables: Sequence[Float64 | None]) -> list[Float64]:
    """Messages of all nodes to their parents, leaves first, each scaled to a sum of 1 (section 5.2.1).

    Parameters
    ----------
    logits : (D,)
        Log-odds; D is a power of two.
    tables : sequence
        Per level l >= 1 the log-potentials of its nodes, (D / 2^l, 2^l + 1), or None.

    Returns
    -------
    list of arrays
        One per level, from the variables to the root. O(D log^2 D) time, O(D log D) space.
    """
    messages = [np.stack([expit(-logits), expit(logits)], axis=-1)]
    for table in tables:
        below = messages[-1]
        message = _convolved(below[0::2], below[1::2])
        messages.append(message if table is None else message * np.exp(table))
        messages[-1] /= messages[-1].sum(-1, keepdims=True)
    return messages


def marginals(logits: Float64, tables: Sequence[Float64 | None]) -> Float64:
    """``P(y_d = 1)``, by the upward pass and the downward messages of section 5.2.2, (D,)."""
    messages = upward(logits, tables)
    # What the rest of the tree says about a node, its own potential included: all ones times f at the root.
    top = tables[-1]
    above = np.ones_like(messages[-1]) if top is None else np.exp(top)
    for level in range(len(tables) - 1, -1, -1):
        left, right = messages[level][0::2], messages[level][1::2]
        down = np.empty_like(messages[level])
        down[0::2], down[1::2] = _correlated(above, right), _correlated(above, left)
        own = tables[level - 1] if level else None
        if own is not None:
            down *= np.exp(own)
        above = down / down.sum(-1, keepdims=True)
    joint = above * messages[0]
    return np.asarray(joint[:, 1] / joint.sum(-1))


def sample(logits: Float64, tables: Sequence[Float64 | None], rng: np.random.Generator) -> Bools:
    """One exact joint sample: the count at the root, then both children of every node given its count (section 5.3)."""
    messages = upward(logits, tables)
    counts = _drawn(messages[-1], rng)
    for below in messages[-2::-1]:
        left, right = below[0::2], below[1::2]
        width = left.shape[1]
        rest = counts[:, None] - np.arange(width)
        possible = (rest >= 0) & (rest < width)
        diagonal = left * np.where(possible, np.take_along_axis(right, np.where(possible, rest, 0), 1), 0.0)
        first = _drawn(diagonal, rng)
        counts = np.stack([first, counts - first], axis=-1).reshape(-1)
    return np.asarray(counts == 1)


def _drawn(weights: Float64, rng: np.random.Generator) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """An index of every row, drawn in proportion to the weights."""
    total = np.maximum(weights, 0.0).cumsum(-1)
    u = rng.random((len(weights), 1)) * total[:, -1:]
    return np.asarray((total <= u).sum(-1))


def _convolved(a: Float64, b: Float64) -> Float64:
    n = a.shape[-1] + b.shape[-1] - 1
    length = 1 << (n - 1).bit_length()
    return np.asarray(np.fft.irfft(np.fft.rfft(a, length) * np.fft.rfft(b, length), length)[..., :n])


def _correlated(above: Float64, other: Float64) -> Float64:
    """``sum_r above(l + r) other(r)`` for l from 0 to the size of the other child, by one convolution."""
    width = above.shape[-1] - other.shape[-1] + 1
    return _convolved(above, other[..., ::-1])[..., other.shape[-1] - 1 :][..., :width]
