"""Images from an Ising grid by Swendsen-Wang cluster sweeps, all images at once.

``p(s) = exp(coupling * sum over neighbours of s_i s_j) / Z`` with spins of -1 and 1 and free borders. A sweep joins
equal neighbours with probability ``1 - exp(-2 coupling)`` and gives every cluster a new common spin: it leaves p as it
is, and near the critical coupling it forgets the start in a few sweeps, where single spins need thousands.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

CRITICAL = 0.5 * math.log(1.0 + math.sqrt(2.0))  # of the infinite square grid, Onsager 1944


def images(n: int, side: int, coupling: float, sweeps: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Images (n, side * side) of 0 and 1.

    Notes
    -----
    Cost: O(n side^2) per sweep. Accuracy: the sweeps have the right limit; the start is random spins.

    Examples
    --------
    >>> images(3, 4, 0.4, 10, np.random.default_rng(0)).shape
    (3, 16)
    """
    one, other = grid_pairs(side)
    start = (np.arange(n) * side * side)[:, None]
    first, second = (start + one).reshape(-1), (start + other).reshape(-1)
    spin = rng.integers(0, 2, n * side * side).astype(bool)
    join = -math.expm1(-2.0 * coupling)
    for _ in range(sweeps):
        bond = (spin[first] == spin[second]) & (rng.random(len(first)) < join)
        edges = coo_array(
            (np.ones(int(bond.sum()), bool), (first[bond], second[bond])), shape=(len(spin), len(spin))
        )
        count, cluster = connected_components(edges, directed=False)
        spin = rng.integers(0, 2, count).astype(bool)[cluster]
    return spin.reshape(n, side * side).astype(np.uint8)


def grid_pairs(side: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Both ends of every pair of neighbours of a square grid."""
    pixel = np.arange(side * side).reshape(side, side)
    one = np.concatenate([pixel[:, :-1].reshape(-1), pixel[:-1].reshape(-1)])
    other = np.concatenate([pixel[:, 1:].reshape(-1), pixel[1:].reshape(-1)])
    return one, other
