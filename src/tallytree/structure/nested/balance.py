"""Weight-balanced binary trees over many sequences at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...arrays import Ints


@dataclass(frozen=True, eq=False)
class Splits:
    """Binary trees over sequences of items.

    Split i joins the items ``low[i]:middle[i]`` and ``middle[i]:high[i]``. An operand is an item j, written ``~j``, or
    another split.

    Attributes
    ----------
    sequence : (n_splits,)
    root : (n_sequences,)
        The split, or the item ``~j``, that holds the whole sequence.
    """

    low: Ints
    middle: Ints
    high: Ints
    sequence: Ints
    left: Ints
    right: Ints
    root: Ints


def split_sequences(starts: Ints, ends: Ints, weights: Ints) -> Splits:
    """Cut every sequence ``weights[start:end]`` (not empty) at its weighted median, and so on.

    An item of weight w in a sequence of weight W ends at depth at most log2(W / w) + 2.
    """
    prefix = np.concatenate([[0.0], np.cumsum(weights, dtype=np.float64)])
    n = len(starts)
    root = np.where(ends - starts == 1, ~starts, -1)
    low, high, sequence = starts, ends, np.arange(n)
    long = high - low > 1
    low, high, sequence = low[long], high[long], sequence[long]
    root[sequence] = np.arange(len(low))
    found: list[tuple[Ints, ...]] = []
    done = 0
    while len(low):
        target = 0.5 * (prefix[low] + prefix[high])
        middle = np.searchsorted(prefix, target)
        closer_before = target - prefix[middle - 1] < prefix[middle] - target
        middle = np.clip(np.where(closer_before, middle - 1, middle), low + 1, high - 1)
        first = done + len(low)  # splits of the next round are numbered from here
        halves_low = np.concatenate([low, middle])
        halves_high = np.concatenate([middle, high])
        long = halves_high - halves_low > 1
        number = np.where(long, first + np.cumsum(long) - 1, ~halves_low)
        found.append((low, middle, high, sequence, number[: len(low)], number[len(low) :]))
        done = first
        both = np.concatenate([sequence, sequence])
        low, high, sequence = halves_low[long], halves_high[long], both[long]
    empty = np.empty(0, np.int64)
    columns = [np.concatenate(c) for c in zip(*found)] if found else [empty] * 6
    lows, middles, highs, sequences, lefts, rights = columns
    return Splits(lows, middles, highs, sequences, lefts, rights, root)
