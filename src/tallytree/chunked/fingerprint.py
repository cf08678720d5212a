"""Fingerprints of chunks: 64 bits, at about the speed of memory.

The bytes are laid out as rows of words. The sums of all rows and of all columns, modulo 2^64, are hashed: a change
confined to one row or one column, and any exchange of two words, changes at least one of the sums.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROW = 1024  # words
_BLOCK = 64  # rows: half a megabyte, so that the second sum finds the words in the cache


def fingerprint(values: NDArray[Any]) -> int:
    """A number that differs, for all practical purposes, between arrays whose bytes differ."""
    data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    whole = len(data) - len(data) % (8 * _ROW)
    words = data[:whole].view(np.uint64).reshape(-1, _ROW)
    across, down = np.empty(len(words), np.uint64), np.zeros(_ROW, np.uint64)
    for first in range(0, len(words), _BLOCK):
        block = words[first : first + _BLOCK]
        np.add.reduce(block, axis=1, out=across[first : first + len(block)])
        down += np.add.reduce(block, axis=0)
    digest = blake2b(digest_size=8)
    for part in (np.int64(len(data)), across, down, data[whole:]):
        digest.update(np.ascontiguousarray(part).data)
    return int.from_bytes(digest.digest(), "little")
