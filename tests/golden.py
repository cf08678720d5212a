"""Values of oracles that take seconds, stored in ``goldens/`` together with a digest of what they were computed from.

Where a model is not, to the last bit, the one that was stored (another random stream, another rounding of a library),
its values are computed anew. ``python tests/goldens/make.py`` stores them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "goldens"
Values = Mapping[str, np.ndarray]


def _file(name: str) -> Path:
    return FOLDER / (name.replace(" ", "-").replace(",", "") + ".npz")


def digest(*inputs: np.ndarray) -> str:
    found = hashlib.sha256()
    for array in inputs:
        found.update(np.ascontiguousarray(array, np.float64).tobytes())
    return found.hexdigest()


def stored(name: str, inputs: list[np.ndarray], compute: Callable[[], Values]) -> Values:
    """The values stored under this name, if they belong to these inputs; otherwise computed."""
    file = _file(name)
    if file.exists():
        with np.load(file) as held:
            if str(held["digest"]) == digest(*inputs):
                return {key: held[key] for key in held.files}
    return compute()


def store(name: str, inputs: list[np.ndarray], compute: Callable[[], Values]) -> None:
    values = {key: np.asarray(value, np.float64) for key, value in compute().items()}
    np.savez_compressed(_file(name), digest=digest(*inputs), **values)
