"""From messages to a best configuration: counts are split top-down by one scan of a diagonal per node.

Ties go to the smaller count of the root, then to the smaller count of the left child, then, inside a block, to the
variable with the lower index.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ...arrays import Float64
from .block import largest
from .plan import Merges, Plan
from .upward import Upward

Counts = NDArray[np.int64]


def root_maxima(plan: Plan, messages: Float64) -> list[Float64]:
    """Best weight of every component, (B, R) per entry of ``plan.roots``."""
    return [messages[:, roots.cells].max(-1) for roots in plan.roots]


def decode(plan: Plan, up: Upward, nu: Float64, states: NDArray[np.uint8]) -> None:
    """Write a best configuration of the variables in sets to ``states`` (B, D)."""
    messages = up.messages
    counts = np.zeros((len(messages), plan.n_nodes), np.int64)
    for roots in plan.roots:
        counts[:, roots.nodes] = messages[:, roots.cells].argmax(-1)
    for step in reversed(plan.steps):
        _split(step, messages, counts)
    for blocks, t in zip(plan.blocks, up.sorted):
        theta = nu[:, blocks.variables]
        states[:, blocks.variables] = largest(theta, t, counts[:, blocks.nodes])


def diagonal(a: Float64, b: Float64, z: int) -> tuple[int, Float64]:
    """First i and the values ``a[i] + b[z - i]`` of all possible i."""
    first, last = max(0, z - len(b) + 1), min(len(a) - 1, z)
    return first, a[first : last + 1] + b[z - last : z - first + 1][::-1]


def _split(step: Merges, messages: Float64, counts: Counts) -> None:
    a, b = messages[:, step.left_cells], messages[:, step.right_cells]
    z = counts[:, step.nodes]
    partner = z[..., None] - np.arange(a.shape[-1])
    inside = (partner >= 0) & (partner < b.shape[-1])
    other = np.take_along_axis(b, np.where(inside, partner, 0), -1)
    i = np.where(inside, a + other, -math.inf).argmax(-1)  # the smallest of equals
    counts[:, step.left] = i
    counts[:, step.right] = z - i
