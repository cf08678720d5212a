"""Real data sets for tests, examples and benchmarks: a local folder first, a checked download otherwise.

Nothing is bundled. A file is looked for in the ``folder`` argument, then in the folder named by the
environment variable ``TALLYTREE_DATA``; files that exist in public exactly as used here are otherwise
downloaded (with pooch) and kept in the user's cache. Every file is checked against its SHA-256 before it is
read.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._data_files import FILES, DataError, download, folder_of, how_to_get, is_local, verify
from ._data_files import FOLDER_VARIABLE as FOLDER_VARIABLE
from .errors import ParameterError

__all__ = [
    "BagData",
    "BinaryData",
    "DataError",
    "available",
    "load_bags",
    "load_binary",
    "load_csv",
    "load_npz",
    "path",
]


@dataclass(frozen=True, eq=False)
class BagData:
    """Instances in labelled bags.

    Attributes
    ----------
    X : (n_instances, n_features) float64
        Features.
    groups : (n_instances,) int
        Bag of every instance, 0-based and sorted.
    y : (n_bags,) int
        Label 0 or 1 of every bag.
    folds : (n_repetitions, n_bags) int or None
        Published test folds.

    See Also
    --------
    tallytree.data.load_bags
    tallytree.estimators.BagClassifier

    Examples
    --------
    >>> musk = tt.data.load_bags("musk1")  # doctest: +SKIP
    >>> musk.X.shape, len(musk.y)  # doctest: +SKIP
    ((476, 166), 92)
    """

    X: NDArray[np.float64]
    groups: NDArray[np.int64]
    y: NDArray[np.int64]
    folds: NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class BinaryData:
    """Binary rows in three parts, each (n_rows, n_variables) of uint8.

    Attributes
    ----------
    train, valid, test : (n_rows, n_variables) uint8
        The three parts.

    See Also
    --------
    tallytree.data.load_binary
    tallytree.estimators.CountDensity

    Examples
    --------
    >>> tt.data.load_binary("nltcs").train.shape  # doctest: +SKIP
    (16181, 16)
    """

    train: NDArray[np.uint8]
    valid: NDArray[np.uint8]
    test: NDArray[np.uint8]


def available(folder: str | os.PathLike[str] | None = None) -> list[str]:
    """Names of the files that can be read now without a download.

    Parameters
    ----------
    folder : path, optional
        Folder with the data; default the one named by ``TALLYTREE_DATA``.

    Returns
    -------
    list of str
        Names as :func:`path` takes them.

    See Also
    --------
    tallytree.data.path

    Examples
    --------
    >>> available("no such folder")
    []
    """
    root = folder_of(folder)
    return [] if root is None else [name for name in FILES if (root / name).is_file()]


def path(name: str, folder: str | os.PathLike[str] | None = None) -> Path:
    """Where a data file lies on this machine, after its checksum was verified.

    Parameters
    ----------
    name : str
        Such as ``"density/nltcs.npz"``.
    folder : path, optional
        Folder with the data; default the one named by the environment variable ``TALLYTREE_DATA``.

    Returns
    -------
    pathlib.Path
        An existing file.

    Raises
    ------
    ParameterError
        For a name that is not registered.
    DataError
        If the file is absent and cannot be downloaded, or is not the registered file.

    See Also
    --------
    tallytree.data.available
    tallytree.data.load_npz

    Notes
    -----
    Cost: one pass over the file for its SHA-256, once per process.

    Examples
    --------
    >>> tt.data.path("density/nltcs.npz").name  # doctest: +SKIP
    'nltcs.npz'
    """
    if name not in FILES:
        near = ", ".join(sorted(n for n in FILES if n.split("/")[0] == str(name).split("/")[0])) or ", ".join(
            FILES
        )
        raise ParameterError(f"`name` must be a registered data file; {name!r} arrived. Known: {near}.")
    root = folder_of(folder)
    if root is not None and (root / name).is_file():
        found = root / name
        verify(str(found), found.stat().st_mtime_ns, name)
        return found
    if folder is not None:
        raise DataError(f"`folder` has no file {name!r}: looked for {root}/{name}. {how_to_get(name)}")
    return download(name)


def load_npz(name: str, folder: str | os.PathLike[str] | None = None) -> dict[str, NDArray[Any]]:
    """All arrays of an ``.npz`` file by name; objects are never unpickled.

    Parameters
    ----------
    name : str
        Such as ``"reviewers/midl.npz"``.
    folder : path, optional
        Folder with the data; default the one named by ``TALLYTREE_DATA``.

    Returns
    -------
    dict of str to ndarray
        The arrays.

    Raises
    ------
    ParameterError
        For a name that is not registered.
    DataError
        If the file is absent and cannot be downloaded, or is not the registered file.

    See Also
    --------
    tallytree.data.load_csv
    tallytree.data.path

    Examples
    --------
    >>> tt.data.load_npz("reviewers/midl.npz")["scores"].shape  # doctest: +SKIP
    (177, 118)
    """
    with np.load(path(name, folder), allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}


def load_csv(name: str, folder: str | os.PathLike[str] | None = None, **options: Any) -> Any:
    """A table as a pandas DataFrame.

    Parameters
    ----------
    name : str
        Such as ``"clogit/infert.csv"``.
    folder : path, optional
        Folder with the data.
    **options
        Passed to :func:`pandas.read_csv`, for instance ``dtype={"dur": "category"}``.

    Returns
    -------
    pandas.DataFrame
        As :func:`pandas.read_csv` makes it.

    Raises
    ------
    ParameterError
        For a name that is not registered.
    DataError
        If the file is absent and cannot be downloaded, or is not the registered file.

    See Also
    --------
    tallytree.data.load_npz
    tallytree.data.path

    Examples
    --------
    >>> len(tt.data.load_csv("clogit/infert.csv"))  # doctest: +SKIP
    248
    """
    try:
        import pandas as pd
    except ImportError:
        raise DataError("Tables need pandas. Install it with `pip install tallytree[sklearn]`.") from None
    return pd.read_csv(path(name, folder), **options)


def load_bags(name: str, folder: str | os.PathLike[str] | None = None) -> BagData:
    """A multiple-instance set.

    One of ``musk1``, ``musk2``, ``elephant``, ``fox``, ``tiger``, ``mutagenesis1``, ``protein``.
    Without the folder, ``musk1`` is read from the original text, which can be downloaded (no folds then).

    Parameters
    ----------
    name : str
        Name of the set.
    folder : path, optional
        Folder with the data; default the one named by ``TALLYTREE_DATA``.

    Returns
    -------
    BagData
        Instances, their bags and the labels of the bags.

    Raises
    ------
    ParameterError
        For a name that is not registered.
    DataError
        If the file is absent and cannot be downloaded, or is not the registered file.

    See Also
    --------
    tallytree.data.load_binary
    tallytree.data.BagData

    Examples
    --------
    >>> tt.data.load_bags("musk1").y.sum()  # doctest: +SKIP
    47
    """
    if name == "musk1" and not is_local(f"mil/{name}.npz", folder):
        return _original_musk(folder)
    stored = load_npz(f"mil/{name}.npz", folder)
    folds = stored.get("folds")
    return BagData(
        stored["X"].astype(np.float64),
        stored["bag"].astype(np.int64),
        stored["y"].astype(np.int64),
        None if folds is None else folds.astype(np.int64),
    )


def load_binary(name: str, folder: str | os.PathLike[str] | None = None) -> BinaryData:
    """A binary density set such as ``nltcs``, ``plants``, ``baudio``, or ``caltech101_silhouettes_28``.

    Parameters
    ----------
    name : str
        Name of the set.
    folder : path, optional
        Folder with the data; default the one named by ``TALLYTREE_DATA``.

    Returns
    -------
    BinaryData
        Rows of 0 and 1 for training, validation and testing.

    Raises
    ------
    ParameterError
        For a name that is not registered.
    DataError
        If the file is absent and cannot be downloaded, or is not the registered file.

    See Also
    --------
    tallytree.data.load_bags
    tallytree.data.BinaryData

    Examples
    --------
    >>> tt.data.load_binary("nltcs").test.shape  # doctest: +SKIP
    (3236, 16)
    """
    kind = "images" if name.startswith("caltech") else "density"
    stored = load_npz(f"{kind}/{name}.npz", folder)
    width = int(stored["n_vars"]) if "n_vars" in stored else int(np.prod(stored["shape"]))
    parts = [np.unpackbits(stored[part], axis=1)[:, :width] for part in ("train", "valid", "test")]
    return BinaryData(parts[0], parts[1], parts[2])


def _original_musk(folder: str | os.PathLike[str] | None) -> BagData:
    rows = [
        line.rstrip(".\n").split(",") for line in path("mil/clean1.data", folder).read_text().splitlines()
    ]
    rows = [row for row in rows if len(row) == 169]
    names, first, groups = np.unique([row[0] for row in rows], return_index=True, return_inverse=True)
    order = np.argsort(first)  # bags in the order of the file
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(names))
    features = np.array([row[2:168] for row in rows], np.float64)
    labels = np.array([row[168].rstrip(".") for row in rows], np.float64).astype(np.int64)
    return BagData(features, rank[groups], labels[first[order]], None)
