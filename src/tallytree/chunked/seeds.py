"""Streams of random numbers: one for every chunk, and one for what is drawn before."""

from __future__ import annotations

import numpy as np


def chunk_seeds(key: tuple[int, ...], chunks: int) -> list[np.random.SeedSequence]:
    """Seeds of independent streams, a hash of the key and the number of the chunk; the last one is for the splits."""
    return [np.random.SeedSequence(key, spawn_key=(i,)) for i in range(chunks + 1)]
