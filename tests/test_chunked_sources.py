"""Where log-odds come from: every kind of source gives the same answers, and bad ones are named by their chunk."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import tallytree as tt
from tallytree.chunked.chunk import fingerprint
from tallytree.chunked.source import as_source, recut

N = 1000
RNG = np.random.default_rng(7)
LOGITS = RNG.normal(size=N)


def _npy(folder, values):
    np.save(folder / "x.npy", values)
    return folder / "x.npy"


def _memmap(folder, values):
    return np.load(_npy(folder, values), mmap_mode="r")


def _sliced_memmap(folder, values):
    whole = np.concatenate([np.full(37, np.nan, values.dtype), values, np.full(5, np.nan, values.dtype)])
    return np.load(_npy(folder, whole), mmap_mode="r")[37:-5]


def _zarr(folder, values):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(str(folder / "x.zarr"), shape=values.shape, chunks=(90,), dtype=values.dtype)
    array[:] = values
    return array


def _zarr_path(folder, values):
    _zarr(folder, values)
    return str(folder / "x.zarr")


def _parquet(folder, values):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    parquet.write_table(
        pyarrow.table({"name": np.arange(len(values)), "logit": values}),
        folder / "x.parquet",
        row_group_size=130,
    )
    return folder / "x.parquet"


def _parquet_folder(folder, values):
    """As Spark and Dask write it: parts in the order of their numbers, and files that are no parts."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (folder / "parts").mkdir()
    for i, part in enumerate(np.array_split(values, 12)):
        table = pyarrow.table({"name": np.arange(len(part)), "logit": part})
        parquet.write_table(table, folder / "parts" / f"part.{i}.parquet", row_group_size=50)
    (folder / "parts" / "_SUCCESS").touch()
    (folder / "parts" / "_metadata.parquet").touch()
    return folder / "parts"


def _dask(folder, values):
    array = pytest.importorskip("dask.array")
    return array.from_array(values, chunks=170)


SOURCES = {
    "array": lambda folder, values: values,
    "strided": lambda folder, values: np.repeat(values, 2)[::2],
    "npy": _npy,
    "memmap": _memmap,
    "sliced memmap": _sliced_memmap,
    "big-endian": lambda folder, values: _npy(folder, values.astype(values.dtype.newbyteorder(">"))),
    "zarr": _zarr,
    "zarr path": _zarr_path,
    "parquet": _parquet,
    "folder of parquet files": _parquet_folder,
    "dask": _dask,
    "list of chunks": lambda folder, values: np.array_split(values, 7),
    "function": lambda folder, values: lambda: iter(np.array_split(values, 7)),
}
every_source = pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES.keys())


def whole(answer):
    """An answer of any layout as an array."""
    if isinstance(answer, np.ndarray):
        return answer
    if hasattr(answer, "compute"):
        return answer.compute()
    return np.concatenate(list(answer))


@every_source
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_every_kind_of_source_gives_the_answers_of_the_model_in_memory(make, dtype, tmp_path):
    values = LOGITS.astype(dtype)
    model = tt.ChunkedCountModel(make(tmp_path, values), tt.exactly(200), chunk_size=150)
    exact = tt.CountModel(values, tt.exactly(200))
    assert model.n_variables == N
    assert model.log_partition == pytest.approx(exact.log_partition, rel=1e-12)
    for what in ("marginals", "posterior_logits"):
        found = whole(getattr(model, what)())
        assert found.dtype == dtype
        assert np.allclose(
            found, getattr(exact, what), rtol=1e-6 if dtype == np.float32 else 1e-12, atol=1e-9
        )
    assert np.array_equal(whole(model.mode()), exact.mode())


def test_a_file_is_read_where_the_task_runs_and_travels_without_numbers(tmp_path):
    for make in (_npy, _memmap, _sliced_memmap, _parquet, _zarr):
        folder = tmp_path / make.__name__
        folder.mkdir()
        source = as_source(make(folder, np.tile(LOGITS, 50)), chunk_size=10**6)
        assert source.travels
        chunk = pickle.loads(pickle.dumps(source.chunks[0]))
        assert len(pickle.dumps(chunk)) < 2000
        assert np.array_equal(chunk.load(), np.tile(LOGITS, 50)[: chunk.stop])


def test_a_copy_on_write_map_is_read_from_memory(tmp_path):
    mapped = np.load(_npy(tmp_path, LOGITS), mmap_mode="c")
    mapped[3] = 2.5
    assert whole(tt.ChunkedCountModel(mapped).posterior_logits())[3] == pytest.approx(2.5, rel=1e-12)


def test_other_boundaries_give_the_same_entries(tmp_path):
    for make in (SOURCES["array"], _npy, _zarr, _parquet):
        folder = tmp_path / str(id(make))
        folder.mkdir()
        source = recut(as_source(make(folder, LOGITS), chunk_size=64), [0, 1, 500, 501, N])
        assert np.array_equal(np.concatenate([chunk.load() for chunk in source.walk()]), LOGITS)
        assert source.sizes == [1, 499, 1, 499]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.zeros((3, 4)), "one axis"),
        (np.zeros(3, np.int64), "float32 or float64 log-odds; dtype int64"),
        (np.zeros(3, np.float16), "three digits"),
        (np.zeros(3, complex), "dtype complex128"),
        ("data.txt", "ends in .npy, .parquet or .zarr"),
        ("nothing.npy", "no such file"),
        (iter([np.zeros(3)]), "read more than once"),
        ([np.zeros(3), np.zeros((2, 2))], "chunk 1 has shape"),
        ([np.zeros(3), np.zeros(2, np.float32)], "one dtype; chunk 1 has float32"),
        (5, "must be a NumPy array or memmap"),
    ],
)
def test_a_source_that_cannot_be_used_is_refused_before_it_is_read(source, message):
    with pytest.raises((tt.ParameterError, tt.SourceError), match=message):
        tt.ChunkedCountModel(source)


def _as_npz(folder):
    with open(folder / "x.npy", "wb") as file:
        np.savez(file, x=np.zeros(3))
    return folder / "x.npy"


def _as_nothing(folder):
    (folder / "x.npy").touch()
    return folder / "x.npy"


def _empty_zarr(folder):
    pytest.importorskip("zarr")
    (folder / "x.zarr").mkdir()
    return folder / "x.zarr"


def _parts_of_two_types(folder):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for i, dtype in enumerate((np.float32, np.float64)):
        parquet.write_table(pyarrow.table({"logit": np.zeros(3, dtype)}), folder / f"{i}.parquet")
    return folder


def _no_parquet(folder):
    pytest.importorskip("pyarrow")
    (folder / "x.parquet").write_bytes(b"PAR1")
    return folder / "x.parquet"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_as_npz, "not a readable .npy file"),
        (_as_nothing, "not a readable .npy file"),
        (_empty_zarr, "not a readable Zarr array"),
        (lambda folder: folder, "has no files that end in .parquet"),
        (_parts_of_two_types, "of one type; 0.parquet has float and 1.parquet has double"),
        (_no_parquet, "not a readable Parquet file"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(make, message, tmp_path):
    with pytest.raises(tt.ParameterError, match=message):
        tt.ChunkedCountModel(make(tmp_path))


def test_a_vector_without_entries_is_a_source(tmp_path):
    assert tt.ChunkedCountModel(_npy(tmp_path, np.zeros(0))).n_variables == 0
    zarr = pytest.importorskip("zarr")
    empty = zarr.create_array(str(tmp_path / "x.zarr"), shape=(0,), chunks=(1,), dtype="f8")
    assert tt.ChunkedCountModel(empty).log_partition == 0.0


def test_groups_are_a_column_of_a_folder_of_parquet_files(tmp_path):
    model = tt.ChunkedCountModel(
        _parquet_folder(tmp_path, LOGITS), groups="name", group_potential=tt.at_most(1)
    )
    assert model.n_variables == N
    assert np.isfinite(model.log_partition)


def test_a_missing_parquet_column_is_named(tmp_path):
    path = _parquet(tmp_path, LOGITS)
    with pytest.raises(tt.ParameterError, match="no column `x`; its columns are `name`, `logit`"):
        tt.ChunkedCountModel(path, column="x")


def test_nan_is_reported_with_its_chunk_and_position(tmp_path):
    values = np.zeros(80_000)
    values[7341 * 10 + 4] = np.nan
    np.save(tmp_path / "x.npy", values)
    model = tt.ChunkedCountModel(tmp_path / "x.npy", tt.exactly(5), chunk_size=10)
    with pytest.raises(tt.SourceError, match=r"one in chunk 7,341 at position 4 \(entry 73,414\)"):
        model.marginals(out=tmp_path / "out.npy")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.npy"]


def test_an_empty_cell_of_a_parquet_file_is_reported_with_its_chunk(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet

    parquet.write_table(
        pyarrow.table({"logit": [0.0, 1.0, None, 2.0]}), tmp_path / "x.parquet", row_group_size=2
    )
    with pytest.raises(tt.SourceError, match="chunk 1 at position 0"):
        _ = tt.ChunkedCountModel(tmp_path / "x.parquet").log_partition


def test_a_chunk_that_changes_between_passes_is_named(tmp_path):
    path = _npy(tmp_path, LOGITS)
    model = tt.ChunkedCountModel(path, tt.exactly(300), chunk_size=100)
    _ = model.log_partition
    values = LOGITS.copy()
    values[[512, 513]] = values[[513, 512]]  # the same numbers in another order
    np.save(path, values)
    with pytest.raises(tt.SourceError, match=r"chunk 5 \(entries 500 to 599\) is not what it was"):
        model.marginals(out=tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()


def test_a_file_that_becomes_shorter_is_named(tmp_path):
    path = _npy(tmp_path, LOGITS)
    model = tt.ChunkedCountModel(path, chunk_size=100)
    np.save(path, LOGITS[:450])
    with pytest.raises(tt.SourceError, match="ends within chunk 4"):
        _ = model.log_partition


def test_an_iterable_that_changes_is_noticed():
    parts = [np.zeros(3), np.zeros(4)]
    model = tt.ChunkedCountModel(lambda: iter(parts), tt.exactly(2))
    parts.append(np.zeros(1))
    with pytest.raises(tt.SourceError, match="more than the 2 chunks"):
        _ = model.log_partition
    del parts[1:]
    with pytest.raises(tt.SourceError, match="1 chunks arrived, and 2 the first time"):
        _ = model.log_partition


def test_fingerprints_see_every_single_change():
    values = RNG.normal(size=5000)
    known = fingerprint(values)
    assert fingerprint(values.copy()) == known
    for at in RNG.integers(0, 5000, 50):
        changed = values.copy()
        changed[at] = np.nextafter(changed[at], 9)
        assert fingerprint(changed) != known
    swapped = values.copy()
    swapped[[10, 3000]] = swapped[[3000, 10]]
    assert fingerprint(swapped) != known
    assert fingerprint(values[:-1]) != known
    assert fingerprint(np.zeros(3)) != fingerprint(np.zeros(4))
    assert fingerprint(np.zeros(1)) != fingerprint(-np.zeros(1))


def test_missing_packages_are_named_with_their_extra(monkeypatch, tmp_path):

    from tallytree.chunked import chunk

    def missing(name, *args, **kwargs):
        raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

    monkeypatch.setattr(chunk, "import_module", missing)
    (tmp_path / "x.parquet").touch()
    (tmp_path / "x.zarr").mkdir()
    with pytest.raises(tt.ParameterError, match=r'pip install "tallytree\[parquet\]"'):
        tt.ChunkedCountModel(tmp_path / "x.parquet")
    with pytest.raises(tt.ParameterError, match=r'pip install "tallytree\[zarr\]"'):
        tt.ChunkedCountModel(tmp_path / "x.zarr")
    with pytest.raises(tt.ParameterError, match=r'pip install "tallytree\[dask\]"'):
        tt.ChunkedCountModel(np.zeros(3), scheduler="dask")


def test_columns_of_other_packages_are_sources():
    values = np.array([0.5, -1.0, 2.0, 0.3])
    want = tt.CountModel(values, tt.exactly(2)).log_partition
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    for column in (
        pandas.Series(values, index=[3, 1, 0, 2]),
        pyarrow.array(values),
        pyarrow.chunked_array([values]),
    ):
        assert np.isclose(tt.ChunkedCountModel(column, tt.exactly(2), chunk_size=3).log_partition, want)
    whole = tt.ChunkedCountModel(
        [1, 0, -2], tt.exactly(1)
    ).log_partition  # a list of whole numbers has no dtype
    assert np.isclose(whole, tt.CountModel([1, 0, -2], tt.exactly(1)).log_partition)


def test_arguments_of_a_sum_from_chunks_are_checked():
    law = tt.ChunkedPoissonBinomial([0.2, 0.5, 0.9])
    for ask in (law.pmf, law.cdf, law.ppf):
        with pytest.raises(tt.ParameterError, match="must be an array of"):
            ask("a")
        with pytest.raises(tt.ParameterError, match="is NaN"):
            ask(np.nan)
    with pytest.raises(tt.SourceError, match="Log-odds go in `logits`"):
        tt.ChunkedPoissonBinomial([0.2, 3.0]).mean()


def test_blocks_of_dask_whose_sizes_are_not_known_are_counted_when_they_are_needed(tmp_path):
    array = _dask(tmp_path, LOGITS)
    model = tt.ChunkedCountModel(array[array > 0], tt.exactly(3))
    wanted = tt.CountModel(LOGITS[LOGITS > 0], tt.exactly(3))
    np.testing.assert_allclose(model.marginals().compute(), wanted.marginals, atol=1e-12)
    assert model.log_partition == pytest.approx(wanted.log_partition, rel=1e-12)
    with pytest.raises(tt.ParameterError, match="as many entries"):
        model.log_prob(np.zeros(5))
    distribution = tt.ChunkedPoissonBinomial(logits=array[array > 0])
    assert "not counted" in repr(distribution)
    assert distribution.n == np.count_nonzero(LOGITS > 0)
    impossible = tt.ChunkedCountModel(array[array > 0], tt.exactly(10**9)).marginals()
    with pytest.raises(tt.ParameterError, match="exactly"):
        impossible.compute()
