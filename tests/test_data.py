"""Data loading: local folder first, checksums, clear errors, nothing bundled."""

from __future__ import annotations

import numpy as np
import pytest

from real_data import data_folder
from reproduction import data
from reproduction.data import DataError
from tallytree.errors import ParameterError, TallyTreeError


def test_unknown_names_list_what_is_near():
    with pytest.raises(ParameterError, match=r"clogit/infert\.csv"):
        data.path("clogit/nothing.csv")


def test_a_missing_derived_file_says_where_it_comes_from(monkeypatch):
    monkeypatch.delenv("TALLYTREE_DATA", raising=False)
    with pytest.raises(DataError, match=r"arranger1044/DEBD.*TALLYTREE_DATA"):
        data.load_binary("nltcs")
    assert issubclass(DataError, TallyTreeError)


def test_a_changed_file_is_refused(tmp_path):
    (tmp_path / "clogit").mkdir()
    (tmp_path / "clogit" / "infert.csv").write_text("not the data")
    with pytest.raises(DataError, match="SHA-256"):
        data.path("clogit/infert.csv", tmp_path)
    assert data.available(tmp_path) == ["clogit/infert.csv"]


def test_the_environment_variable_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TALLYTREE_DATA", str(tmp_path))
    assert data.available() == []
    monkeypatch.delenv("TALLYTREE_DATA")
    assert data.available() == []


def test_a_failed_download_says_so(monkeypatch):
    pooch = pytest.importorskip("pooch")
    monkeypatch.delenv("TALLYTREE_DATA", raising=False)

    def refuse(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr(pooch, "retrieve", refuse)
    with pytest.raises(DataError, match=r"could not be downloaded.*public at https://raw"):
        data.path("mil/clean1.data")


def test_a_download_is_checked_against_the_registry(monkeypatch, tmp_path):
    pooch = pytest.importorskip("pooch")
    monkeypatch.delenv("TALLYTREE_DATA", raising=False)
    seen = {}

    def retrieve(url, known_hash, fname, path):
        seen.update(url=url, hash=known_hash)
        return str(tmp_path / fname)

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    assert data.path("mil/clean1.data").name == "mil-clean1.data"
    assert seen["hash"].startswith("sha256:59e3be66")
    assert seen["url"].endswith("example/musk1.data")


@pytest.mark.data
def test_every_registered_file_has_its_checksum():
    folder = data_folder()
    names = data.available(folder)
    assert len(names) >= 40
    for name in names:
        assert data.path(name, folder).is_file()


@pytest.mark.data
def test_musk_from_the_original_text_is_the_prepared_set(monkeypatch, tmp_path):
    folder = data_folder()
    (tmp_path / "mil").mkdir()
    (tmp_path / "mil" / "clean1.data").write_bytes((folder / "mil" / "clean1.data").read_bytes())
    prepared, original = data.load_bags("musk1", folder), data.load_bags("musk1", tmp_path)
    assert prepared.y.sum() == 47
    np.testing.assert_array_equal(np.bincount(prepared.groups), np.bincount(original.groups))
    np.testing.assert_array_equal(prepared.X, original.X)
    np.testing.assert_array_equal(prepared.y, original.y)


@pytest.mark.data
def test_binary_sets_are_unpacked():
    found = data.load_binary("nltcs", data_folder())
    assert found.train.shape == (16181, 16)
    assert found.test.shape == (3236, 16)
    assert found.train.mean() == pytest.approx(0.332, abs=1e-3)
