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
    """Return logs up to a common constant, so that their differences do not suffer from its size."""
    return wide_log(Wide(values.mantissa, values.exponent - values.exponent.max()))


def correlate(long: Wide, short: Wide) -> Wide:
    """Return ``out[i] = sum_j long[i + j] * short[j]``.

    Only positive terms are added, at the exponent of the largest, so every entry is relatively accurate.
    """
    width = len(short.mantissa)
    mantissas = np.lib.stride_tricks.sliding_window_view(long.mantissa, width)
    exponents = np.lib.stride_tricks.sliding_window_view(long.exponent, width)
    sums, tops = [], []
    step = max(1, PAIRS // width)
    for start in range(0, len(mantissas), step):
        rows = slice(start, start + step)
        exponent = exponents[rows] + short.exponent
        top = exponent.max(axis=1)
        shift = np.maximum(exponent - top[:, None], -16000).astype(np.int32)
        sums.append(np.ldexp(mantissas[rows] * short.mantissa, shift).sum(axis=1))
        tops.append(top)
    return normal(np.concatenate(sums), np.concatenate(tops))


def convolve(a: Wide, b: Wide) -> Wide:
    long, short = (a, b) if len(a.mantissa) >= len(b.mantissa) else (b, a)
    pad = len(short.mantissa) - 1
    padded = Wide(np.pad(long.mantissa, pad), np.pad(long.exponent, pad, constant_values=NIL))
    return correlate(padded, Wide(short.mantissa[::-1], short.exponent[::-1]))


@dataclass(frozen=True, eq=False)
class Answer:
    """What large-model oracles return. ``log_counts`` holds one log distribution per set."""

    log_partition: float
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
    size = len(theta)
    keys = [frozenset(members) for members, _ in sets]
    if any(len(key) != len(members) for key, (members, _) in zip(keys, sets)):
        raise ValueError("a set repeats a member")
    shared: dict[frozenset[int], frozenset[int]] = {key: key for key in keys if key}
    everything = frozenset(range(size))
    shared.setdefault(everything, everything)
    parts: dict[frozenset[int], list[int]] = {key: [] for key in shared}
    parent = enclosing(size, list(shared.values()))

    nodes = [Node(1, None, [wide_exp(leaf)]) for leaf in leaf_log_weights(theta)]
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
        if len(log_table) != len(key) + 1:
            raise ValueError("a table must have one entry more than its set has members")
        if key:
            nodes[where[key]].factors.append(wide_exp(log_table))
    return nodes, where, keys


def log_space_tree(theta: Sequence[float], sets: Sets) -> Answer:
    """Sum-product over a nested family at D up to a few thousand, at any scale of theta and tables.

    Products of mantissas and integer exponents, direct sums of positive terms, about 2 D^2 of them: a few
    seconds at D = 4096. An impossible model has ``log_partition = -inf`` and NaN elsewhere.
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
    log_z = log_z + sum(REAL(log_table[0]) for key, (_, log_table) in zip(keys, sets) if not key)
    if np.isneginf(log_z):
        empty = [np.full(len(key) + 1, np.nan) for key in keys]
        return Answer(-INF, np.full(len(theta), np.nan), np.full(len(theta) + 1, np.nan), tuple(empty))

    root.down = wide_exp(np.zeros(root.size + 1))
    for node in reversed(nodes):
        if node.children is None:
            continue
        above = node.down
        for factor in node.factors:
            above = above * factor
        left, right = (nodes[c] for c in node.children)
        left.down, right.down = correlate(above, right.up), correlate(above, left.up)

    leaves = [wide_log_relative(leaf.up * leaf.down) for leaf in nodes[: len(theta)]]
    logits = np.array([log_odds(on, off) for off, on in leaves], float)
    beliefs: dict[frozenset[int], np.ndarray] = {frozenset(): np.zeros(1)}
    for key, index in where.items():
        belief = wide_log_relative(nodes[index].up * nodes[index].down)
        beliefs[key] = np.asarray(belief - log_sum_exp(belief), float)
    total = beliefs[frozenset(range(len(theta)))]
    return Answer(float(log_z), logits, total, tuple(beliefs[key] for key in keys))
