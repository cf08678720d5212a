"""Nested models of a few thousand variables, in numbers that cannot under- or overflow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from oracle_enumeration import INF, REAL, Sets, leaf_log_weights, log_odds, log_sum_exp
from oracle_states import LN2_HIGH, LN2_LOW

NIL = -(2**50)  # exponent of zero
PAIRS = 2**19  # terms formed at once


class Wide(NamedTuple):
    """Non-negative numbers ``mantissa * 2**exponent``, one integer exponent per entry."""

    mantissa: np.ndarray
    exponent: np.ndarray

    def __mul__(self, other: Wide) -> Wide:  # type: ignore[override]
        return normal(self.mantissa * other.mantissa, self.exponent + other.exponent)


def normal(mantissa: np.ndarray, exponent: np.ndarray) -> Wide:
    fraction, shift = np.frexp(mantissa)
    return Wide(fraction, np.where(fraction == 0, NIL, exponent + shift))


def wide_exp(log_values: Sequence[float]) -> Wide:
    x = np.asarray(log_values, REAL)
    zero = np.isneginf(x)
    x = np.where(zero, 0, x)
    k = np.rint(x / (LN2_HIGH + LN2_LOW))
    rest = np.exp((x - k * LN2_HIGH) - k * LN2_LOW)
    return normal(np.where(zero, 0, rest), k.astype(np.int64))


def wide_log(values: Wide) -> np.ndarray:
    power = np.where(values.mantissa == 0, 0, values.exponent)
    with np.errstate(divide="ignore"):
        return power * LN2_HIGH + (power * LN2_LOW + np.log(values.mantissa))


def wide_log_relative(values: Wide) -> np.ndarray:
    """Return logs up to a constant per row, so that their differences do not suffer from its size."""
    return wide_log(Wide(values.mantissa, values.exponent - values.exponent.max(axis=-1, keepdims=True)))


def windows(values: np.ndarray, width: int) -> np.ndarray:
    """(..., L - width + 1, width): every run of ``width`` entries, without a copy."""
    *batch, length = values.shape
    shape = (*batch, length - width + 1, width)
    return np.lib.stride_tricks.as_strided(values, shape, (*values.strides, values.strides[-1]))


def correlate(long: Wide, short: Wide) -> Wide:
    """Return ``out[i] = sum_j long[i + j] * short[j]``, along the last axis.

    Only positive terms are added, at the exponent of the largest, so every entry is relatively accurate.
    """
    width, batch = short.mantissa.shape[-1], short.mantissa.size // short.mantissa.shape[-1]
    mantissas, exponents = windows(long.mantissa, width), windows(long.exponent, width)
    sums, tops = [], []
    step = max(1, PAIRS // (width * batch))
    for start in range(0, mantissas.shape[-2], step):
        rows = slice(start, start + step)
        exponent = exponents[..., rows, :] + short.exponent[..., None, :]
        top = exponent.max(axis=-1)
        shift = np.maximum(exponent - top[..., None], -16000).astype(np.int32)
        sums.append(np.ldexp(mantissas[..., rows, :] * short.mantissa[..., None, :], shift).sum(axis=-1))
        tops.append(top)
    return normal(np.concatenate(sums, axis=-1), np.concatenate(tops, axis=-1))


def convolve(a: Wide, b: Wide) -> Wide:
    long, short = (a, b) if a.mantissa.shape[-1] >= b.mantissa.shape[-1] else (b, a)
    pad, length = short.mantissa.shape[-1] - 1, long.mantissa.shape[-1]
    shape = (*long.mantissa.shape[:-1], length + 2 * pad)
    padded = Wide(np.zeros(shape, REAL), np.full(shape, NIL))
    padded.mantissa[..., pad : pad + length], padded.exponent[..., pad : pad + length] = long
    return correlate(padded, Wide(short.mantissa[..., ::-1], short.exponent[..., ::-1]))


@dataclass(frozen=True, eq=False)
class Answer:
    """What large-model oracles return. ``log_counts`` holds one log distribution per set. Batch axes lead."""

    log_partition: float | np.ndarray
    posterior_logits: np.ndarray
    log_total: np.ndarray | None = None
    log_counts: tuple[np.ndarray, ...] = ()

    @property
    def marginals(self) -> np.ndarray:
        """P(y_d = 1), relatively accurate near 0."""
        return np.exp(-np.logaddexp(0, -self.posterior_logits))

    def count_log_probs(self, which: int | None = None) -> np.ndarray:
        found = self.log_total if which is None else self.log_counts[which]
        if found is None:
            raise ValueError("this oracle does not give count distributions")
        return found


@dataclass
class Node:
    size: int
    children: tuple[int, int] | None
    factors: list[Wide]
    up: Wide | None = None
    down: Wide | None = None


def enclosing(size: int, members: Sequence[frozenset[int]]) -> dict[frozenset[int], frozenset[int] | None]:
    """Map every set to the smallest one that strictly contains it; refuse crossing sets."""
    chains: list[list[frozenset[int]]] = [[] for _ in range(size)]
    for s in sorted(members, key=len):
        for v in s:
            chains[v].append(s)
    parent: dict[frozenset[int], frozenset[int] | None] = {}
    for chain in chains:
        for s, above in zip(chain, [*chain[1:], None]):
            # Sets that agree, for all their members, on the next larger set are subsets of it.
            if parent.setdefault(s, above) is not above or (above is not None and len(above) == len(s)):
                raise ValueError(f"sets are not nested around {sorted(s)[:20]}")
    return parent


def build_tree(
    theta: Sequence[float], sets: Sets
) -> tuple[list[Node], dict[frozenset[int], int], list[frozenset[int]]]:
    """Return the nodes of a binary tree, children before parents, the node of each set, and the sets' keys.

    The root covers all variables, whether or not a set does.
    """
    size = np.shape(theta)[-1]
    keys = [frozenset(members) for members, _ in sets]
    if any(len(key) != len(members) for key, (members, _) in zip(keys, sets)):
        raise ValueError("a set repeats a member")
    shared: dict[frozenset[int], frozenset[int]] = {key: key for key in keys if key}
    everything = frozenset(range(size))
    shared.setdefault(everything, everything)
    parts: dict[frozenset[int], list[int]] = {key: [] for key in shared}
    parent = enclosing(size, list(shared.values()))

    leaves = np.moveaxis(leaf_log_weights(theta), -2, 0)
    nodes = [Node(1, None, [wide_exp(leaf)]) for leaf in leaves]
    smallest: dict[int, frozenset[int]] = {}
    for key in sorted(shared, key=len, reverse=True):
        smallest.update(dict.fromkeys(key, key))
    for v, key in smallest.items():
        parts[key].append(v)

    where: dict[frozenset[int], int] = {}
    for key in sorted(shared, key=len):
        row = parts[key]
        while len(row) > 1:  # merge neighbours, round after round
            merged = []
            for left, right in zip(row[::2], row[1::2]):
                nodes.append(Node(nodes[left].size + nodes[right].size, (left, right), []))
                merged.append(len(nodes) - 1)
            row = merged + row[len(row) & ~1 :]
        where[key] = row[0]
        above = parent[key]
        if above is not None:
            parts[above].append(row[0])
    for key, (_, log_table) in zip(keys, sets):
        if np.shape(log_table)[-1] != len(key) + 1:
            raise ValueError("a table must have one entry more than its set has members")
        if key:
            nodes[where[key]].factors.append(wide_exp(log_table))
    return nodes, where, keys


def log_space_tree(theta: Sequence[float], sets: Sets) -> Answer:
    """Sum-product over a nested family at D up to a few thousand, at any scale of theta and tables.

    Products of mantissas and integer exponents, direct sums of positive terms, about 2 D^2 of them: a few
    seconds at D = 4096. An impossible model has ``log_partition = -inf`` and NaN elsewhere. Batch axes of theta
    (..., D) and of the tables (..., n + 1) lead; all models of a batch must be possible.
    """
    nodes, where, keys = build_tree(theta, sets)
    for node in nodes:
        if node.children is None:
            node.up, *node.factors = node.factors  # the first factor of a leaf is its theta
        else:
            left, right = (nodes[c] for c in node.children)
            node.up = convolve(left.up, right.up)
        for factor in node.factors:
            node.up = node.up * factor

    root = nodes[-1] if len(nodes) > 1 else nodes[0]
    log_z = log_sum_exp(wide_log(root.up))
    log_z = log_z + sum(np.asarray(t, REAL)[..., 0] for key, (_, t) in zip(keys, sets) if not key)
    size = np.shape(theta)[-1]
    if np.isneginf(log_z).all():
        empty = [np.full(len(key) + 1, np.nan) for key in keys]
        return Answer(-INF, np.full(size, np.nan), np.full(size + 1, np.nan), tuple(empty))

    root.down = wide_exp(np.zeros_like(root.up.mantissa))
    for node in reversed(nodes):
        if node.children is None:
            continue
        above = node.down
        for factor in node.factors:
            above = above * factor
        left, right = (nodes[c] for c in node.children)
        left.down, right.down = correlate(above, right.up), correlate(above, left.up)

    leaves = [leaf.up * leaf.down for leaf in nodes[:size]]
    both = wide_log_relative(Wide(*(np.stack(part, axis=-2) for part in zip(*leaves))) if size else root.up)
    logits = log_odds(both[..., 1], both[..., 0]) if size else np.zeros(0)
    beliefs: dict[frozenset[int], np.ndarray] = {frozenset(): np.zeros((*np.shape(log_z), 1))}
    for key, index in where.items():
        belief = wide_log_relative(nodes[index].up * nodes[index].down)
        beliefs[key] = np.asarray(belief - log_sum_exp(belief)[..., None], float)
    total = beliefs[frozenset(range(size))]
    return Answer(np.asarray(log_z, float)[()], logits, total, tuple(beliefs[key] for key in keys))
