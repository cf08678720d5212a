"""Dask as the executor: lazy answers, graphs without data, workers that die."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest

import tallytree as tt

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("default")  # workers that are killed make the cluster complain

LOGITS = np.random.default_rng(5).normal(size=60_000)
WANTED = tt.CountModel(LOGITS, tt.exactly(9_000)).marginals


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, processes=True
    ) as made:
        yield made


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster) as made:
        yield made


def test_answers_are_lazy_and_have_the_chunks_of_the_source():
    source = da.from_array(LOGITS, chunks=7_000)
    model = tt.ChunkedCountModel(source, tt.exactly(9_000))
    answer = model.marginals()
    assert isinstance(answer, da.Array)
    assert answer.chunks == source.chunks
    assert answer.dtype == np.float64
    assert np.allclose(answer.compute(), WANTED, atol=1e-12)
    assert np.array_equal(model.mode().compute(), tt.CountModel(LOGITS, tt.exactly(9_000)).mode())
    assert model.sample(rng=0).sum().compute() == 9_000


def test_groups_have_lazy_answers_too():
    source, ids = da.from_array(LOGITS[:900], chunks=200), np.repeat(np.arange(30), 30)
    model = tt.ChunkedCountModel(
        source, tt.exactly(200), groups=da.from_array(ids, chunks=130), group_potential=tt.at_most(9)
    )
    answer = model.marginals()
    assert isinstance(answer, da.Array)
    assert answer.chunks == source.chunks
    groups = [tt.Group(range(30 * i, 30 * i + 30), tt.at_most(9)) for i in range(30)]
    exact = tt.CountModel(LOGITS[:900], [*groups, tt.Group(None, tt.exactly(200))])
    assert np.allclose(answer.compute(), exact.marginals, atol=1e-11)


def test_graphs_over_files_hold_no_data(tmp_path):
    np.save(tmp_path / "x.npy", np.tile(LOGITS, 20))
    model = tt.ChunkedCountModel(tmp_path / "x.npy", tt.exactly(9_000), chunk_size=100_000, scheduler="dask")
    assert model.n_chunks == 12
    assert len(pickle.dumps(model)) < 12 * 1_000
    assert model.log_partition == pytest.approx(
        tt.ChunkedCountModel(tmp_path / "x.npy", tt.exactly(9_000), chunk_size=100_000).log_partition, abs=0
    )


def test_an_array_of_this_process_is_not_sent_to_workers():
    with pytest.raises(tt.ParameterError, match="lives in the memory of this process"):
        tt.ChunkedCountModel(LOGITS, tt.exactly(9_000), scheduler="dask")
    model = tt.ChunkedCountModel(
        da.from_array(LOGITS, chunks=7_000), groups=np.arange(60_000) // 9, group_potential=tt.at_most(3)
    )
    with pytest.raises(tt.ParameterError, match="`groups` lives in the memory of this process"):
        _ = model.log_partition


def test_two_workers_give_the_same_bits_as_threads(client, tmp_path):
    np.save(tmp_path / "x.npy", LOGITS)
    for options in ({"scheduler": client}, {"scheduler": "threads"}):
        model = tt.ChunkedCountModel(tmp_path / "x.npy", tt.exactly(9_000), chunk_size=2_500, **options)
        name = options["scheduler"] if isinstance(options["scheduler"], str) else "dask"
        model.marginals(out=tmp_path / f"{name}.npy")
        model.sample(rng=2, out=tmp_path / f"{name}-sample.zarr")
        model.mode(out=tmp_path / f"{name}-mode.parquet")
        (tmp_path / f"{name}.txt").write_text(float(model.log_partition).hex())
    assert (tmp_path / "dask.npy").read_bytes() == (tmp_path / "threads.npy").read_bytes()
    assert (tmp_path / "dask.txt").read_text() == (tmp_path / "threads.txt").read_text()
    zarr = pytest.importorskip("zarr")
    drawn = [zarr.open_array(str(tmp_path / f"{name}-sample.zarr"))[:] for name in ("dask", "threads")]
    assert np.array_equal(*drawn)
    assert drawn[0].sum() == 9_000
    assert np.allclose(np.load(tmp_path / "dask.npy"), WANTED, atol=1e-12)


def test_groups_run_on_workers(client, tmp_path):
    logits, ids = LOGITS[:6_000], np.repeat(np.arange(200), 30)
    np.save(tmp_path / "x.npy", logits)
    exact = tt.CountModel(
        logits,
        [
            *(tt.Group(range(30 * i, 30 * i + 30), tt.at_most(12)) for i in range(200)),
            tt.Group(None, tt.exactly(1_500)),
        ],
    )
    for name, order in (("sorted", ids), ("scattered", np.random.default_rng(0).permutation(6_000) % 200)):
        np.save(tmp_path / f"{name}.npy", order)
        model = tt.ChunkedCountModel(
            tmp_path / "x.npy", tt.exactly(1_500), groups=tmp_path / f"{name}.npy", group_potential=tt.at_most(12),
            chunk_size=900, scheduler=client, scratch=tmp_path,
        )  # fmt: skip
        model.marginals(out=tmp_path / f"{name}-out.npy")
        if name == "sorted":
            assert np.allclose(np.load(tmp_path / "sorted-out.npy"), exact.marginals, atol=1e-10)
        assert np.load(tmp_path / f"{name}-out.npy").sum() == pytest.approx(1_500, rel=1e-9)


@pytest.mark.parametrize("total", [(), (tt.between(100, 140),)], ids=["groups alone", "with a total"])
def test_two_workers_give_groups_of_dask_arrays_the_bits_of_threads(client, tmp_path, total):
    ids = np.random.default_rng(0).integers(0, 40, 1_200)
    settings = {
        "groups": da.from_array(ids, chunks=500),
        "group_potential": tt.exactly(3),
        "scratch": tmp_path,
    }
    answers = []
    for scheduler in (client, "threads"):
        source = da.from_array(LOGITS[:1_200], chunks=500)
        model = tt.ChunkedCountModel(source, *total, scheduler=scheduler, **settings)
        found = [
            np.asarray(one) for one in (model.marginals(), model.posterior_logits(), model.sample(rng=3))
        ]
        answers.append([float(model.log_partition).hex(), *(one.tobytes() for one in found)])
        assert (np.bincount(ids, found[2]) == 3).all()
    assert answers[0] == answers[1]


def _slow_block(block, folder):
    with open(os.path.join(folder, f"{os.getpid()}.pid"), "w"):
        pass
    time.sleep(0.05)
    return block


def test_a_worker_that_is_killed_costs_its_chunk(client, tmp_path):
    folder = tmp_path / "pids"
    folder.mkdir()
    source = da.from_array(LOGITS, chunks=1_500).map_blocks(_slow_block, str(folder), dtype=np.float64)
    model = tt.ChunkedCountModel(source, tt.exactly(9_000), scheduler=client)
    killed = []

    def kill():
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            found = [int(p.stem) for p in folder.iterdir() if p.stem != str(os.getpid())]
            if found:
                time.sleep(0.2)
                os.kill(found[0], signal.SIGKILL)
                killed.append(found[0])
                return
            time.sleep(0.01)

    thread = threading.Thread(target=kill)
    thread.start()
    log_z = model.log_partition
    thread.join()
    assert killed
    model.marginals(out=tmp_path / "out.npy")
    quiet = tt.ChunkedCountModel(da.from_array(LOGITS, chunks=1_500), tt.exactly(9_000), scheduler="dask")
    assert log_z == quiet.log_partition
    assert np.array_equal(np.load(tmp_path / "out.npy"), quiet.marginals().compute())


def test_nan_in_a_chunk_is_named_by_the_worker(client, tmp_path):
    values = LOGITS.copy()
    values[7_341] = np.nan
    np.save(tmp_path / "x.npy", values)
    model = tt.ChunkedCountModel(tmp_path / "x.npy", tt.exactly(3), chunk_size=1_000, scheduler=client)
    with pytest.raises(tt.SourceError, match="one in chunk 7 at position 341"):
        model.marginals(out=tmp_path / "out.npy")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.npy"]


@pytest.mark.parametrize("kind", ["model", "distribution"])
@pytest.mark.parametrize("scheduler", ["client", "dask", "threads"])
def test_what_has_a_client_travels_without_it(tmp_path, client, kind, scheduler):
    np.save(tmp_path / "x.npy", LOGITS)
    options = {"chunk_size": 10_000, "scheduler": client if scheduler == "client" else scheduler}
    if kind == "model":
        made, ask = tt.ChunkedCountModel(tmp_path / "x.npy", tt.exactly(9_000), **options), _log_z
    else:
        made, ask = tt.ChunkedPoissonBinomial(logits=tmp_path / "x.npy", **options), _median
    wanted = ask(made)
    assert ask(pickle.loads(pickle.dumps(made))) == wanted
    assert ask(copy.deepcopy(made)) == wanted
    assert client.submit(ask, made).result(timeout=60) == wanted


def test_a_model_in_a_task_does_not_wait_for_its_own_thread(tmp_path):
    np.save(tmp_path / "x.npy", LOGITS)
    model = tt.ChunkedCountModel(tmp_path / "x.npy", tt.exactly(9_000), chunk_size=10_000, scheduler="dask")
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as only, distributed.Client(only) as client:
        assert client.submit(_log_z, model).result(timeout=60) == _log_z(model)
        assert client.submit(_mean_of_marginals, model).result(timeout=60) == pytest.approx(WANTED.mean())


def test_conditioning_keeps_the_client(tmp_path, client):
    np.save(tmp_path / "x.npy", LOGITS)
    model = tt.ChunkedCountModel(tmp_path / "x.npy", tt.exactly(9_000), chunk_size=10_000, scheduler=client)
    given, exact = model.condition({3: 1}), tt.CountModel(LOGITS, tt.exactly(9_000)).condition({3: 1})
    assert copy.deepcopy(given)._passes.executor.client is client
    assert given.log_partition == pytest.approx(exact.log_partition, rel=1e-12)


def _log_z(model):
    return float(model.log_partition)


def _mean_of_marginals(model):
    return float(np.mean(np.concatenate(list(model.marginals()))))


def _median(distribution):
    return int(distribution.ppf(0.5))


# -- series and data frames ----------------------------------------------------------------------------------------


def frame_of(n=900, parts=4):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    stores = np.random.default_rng(1).choice(["north", "south", "west"], n)
    table = pd.DataFrame({"logit": LOGITS[:n], "store": stores}, index=np.arange(n) * 2 + 5)
    return table, dd.from_pandas(table, npartitions=parts)


def test_series_have_series_as_answers_with_their_keys():
    table, frame = frame_of()
    wanted = tt.CountModel(LOGITS[:900], tt.exactly(200)).marginals
    for source, more in ((frame["logit"], {}), (frame, {"column": "logit"})):
        answer = tt.ChunkedCountModel(source, tt.exactly(200), **more).marginals()
        assert answer.divisions == frame.divisions
        found = answer.compute()
        assert found.index.equals(table.index)
        assert found.name == "marginals"
        np.testing.assert_allclose(found.to_numpy(), wanted, atol=1e-12)
    together = frame.assign(posterior=answer).compute()
    np.testing.assert_allclose(together["posterior"], wanted, atol=1e-12)
    assert together["store"].tolist() == table["store"].tolist()


def test_partitions_of_parquet_files_are_taken_as_they_are(tmp_path):
    """Dask reads several small files as one partition where it may, and then has fewer of them than it said."""
    pytest.importorskip("pyarrow")
    dd = pytest.importorskip("dask.dataframe")
    table, frame = frame_of(parts=10)
    frame.to_parquet(tmp_path / "rows")
    rows = dd.read_parquet(tmp_path / "rows")
    wanted = tt.CountModel(LOGITS[:900], tt.exactly(200)).marginals
    answer = tt.ChunkedCountModel(rows, tt.exactly(200)).marginals()
    assert answer.npartitions == rows.npartitions == 10
    # Where divisions are not known, Dask joins by the index, in an order of its own.
    together = rows.assign(posterior=answer).compute().sort_index()
    np.testing.assert_allclose(together["posterior"], wanted, atol=1e-12)
    assert together["store"].tolist() == table["store"].tolist()
    counts = {"north": tt.exactly(40), "south": tt.exactly(80), "west": tt.exactly(3)}
    found = tt.ChunkedCountModel(rows, groups="store", group_potential=counts).marginals().compute()
    assert abs(found[(table["store"] == "south").to_numpy()].sum() - 80) < 1e-9


def test_groups_are_columns_of_the_data_frame():
    table, frame = frame_of()
    counts = {"north": tt.exactly(40), "south": tt.exactly(80), "west": tt.exactly(3)}
    found = tt.ChunkedCountModel(frame, groups="store", group_potential=counts).marginals().compute()
    for store, potential in counts.items():
        inside = (table["store"] == store).to_numpy()
        wanted = tt.CountModel(LOGITS[:900][inside], potential).marginals
        np.testing.assert_allclose(found[inside].to_numpy(), wanted, atol=1e-12)
    with pytest.raises(tt.ParameterError, match="no column `shop`"):
        tt.ChunkedCountModel(frame, groups="shop", group_potential=counts)
    with pytest.raises(tt.ParameterError, match="say which one to use"):
        tt.ChunkedCountModel(frame.rename(columns={"logit": "score"}), tt.exactly(1))


@pytest.mark.parametrize("what", ["marginals", "posterior_logits", "sample", "mode"])
def test_nothing_is_read_before_compute(what):
    reads = []

    def block(values):
        reads.append(len(values))
        return values

    source = da.from_array(LOGITS, chunks=20_000).map_blocks(block, dtype=np.float64, meta=np.empty(0))
    model = tt.ChunkedCountModel(source, tt.exactly(9_000))
    answer = getattr(model, what)()
    assert reads == []
    assert answer.shape == (60_000,)
    assert len(answer.compute()) == 60_000
    assert len(reads) >= 6  # the numbers are read for the sums, and for the answer
    impossible = tt.ChunkedCountModel(da.from_array(np.full(5, -np.inf), chunks=2), tt.exactly(2)).marginals()
    with pytest.raises(tt.InfeasibleError):
        impossible.compute()


def test_a_folder_of_parquet_files_through_a_cluster_of_two_workers(client, tmp_path):
    pytest.importorskip("pyarrow")
    frame = frame_of()[1]
    frame.to_parquet(tmp_path / "rows")
    counts = {"north": tt.exactly(40), "south": tt.exactly(80), "west": tt.exactly(3)}
    settings = {"groups": "store", "group_potential": counts, "scratch": tmp_path}
    model = tt.ChunkedCountModel(tmp_path / "rows", column="logit", scheduler=client, **settings)
    model.marginals(out=tmp_path / "posterior.parquet")
    here = tt.ChunkedCountModel(tmp_path / "rows", column="logit", **settings)
    wanted = np.concatenate(list(here.marginals()))
    import pyarrow.parquet as parquet

    np.testing.assert_array_equal(parquet.read_table(tmp_path / "posterior.parquet")["marginals"], wanted)
    lazy = tt.ChunkedCountModel(frame, tt.exactly(200), column="logit", scheduler=client).marginals()
    exact = tt.CountModel(LOGITS[:900], tt.exactly(200)).marginals
    np.testing.assert_allclose(client.compute(lazy).result(), exact, atol=1e-12)


def test_the_cluster_of_the_page_with_groups_gives_lazy_answers(client, tmp_path):
    table, frame = frame_of()
    frame.to_parquet(tmp_path / "rows")
    dd = pytest.importorskip("dask.dataframe")
    counts = {"north": tt.exactly(40), "south": tt.exactly(80), "west": tt.exactly(3)}
    settings = {"groups": "store", "group_potential": counts, "scratch": tmp_path, "scheduler": client}
    (tmp_path / "pids").mkdir()
    rows = dd.read_parquet(tmp_path / "rows")
    rows = rows.map_partitions(_slow_block, str(tmp_path / "pids"), meta=table.iloc[:0])
    model = tt.ChunkedCountModel(rows, column="logit", **settings)
    lazy = model.marginals()
    assert {path.name for path in tmp_path.iterdir()} == {"rows", "pids"}
    found = client.compute(lazy).result(timeout=120).to_numpy()
    working = {int(path.stem) for path in (tmp_path / "pids").iterdir()} - {os.getpid()}
    assert working == {info["pid"] for info in client.run(lambda: {"pid": os.getpid()}).values()}
    assert len(working) == 2
    for store, potential in counts.items():
        inside = (table["store"] == store).to_numpy()
        wanted = tt.CountModel(LOGITS[:900][inside], potential).marginals
        np.testing.assert_allclose(found[inside], wanted, atol=1e-12)


@pytest.mark.parametrize("kind", ["series", "frame", "unknown", "groups", "stretches", "total"])
@pytest.mark.parametrize("what", ["marginals", "posterior_logits", "sample"])
def test_rows_are_not_counted_before_compute(what, kind):
    """Partitions whose lengths nobody knows: models and answers are made without looking at them."""
    reads = []

    def seen(part):
        reads.append(len(part))
        return part

    dd = pytest.importorskip("dask.dataframe")
    table = frame_of()[0]
    if kind == "stretches":
        table = table.assign(store=np.arange(900) // 50)
    source = dd.from_pandas(table, npartitions=4).map_partitions(seen, meta=table.iloc[:0])
    total, parts = tt.exactly(200), []
    options = {"column": "logit"} if kind != "series" else {}
    if kind in ("groups", "stretches", "total"):
        potential = tt.at_most(90) if kind == "total" else tt.exactly(20)
        options |= {"groups": "store", "group_potential": potential}
        stores = table["store"].to_numpy()
        parts = [tt.Group(np.flatnonzero(stores == store), potential) for store in np.unique(stores)]
        total = total if kind == "total" else None
    elif kind != "frame":
        source = source["logit"].to_dask_array() if kind == "unknown" else source["logit"]
    del reads[:]
    model = tt.ChunkedCountModel(source, total, **options)
    assert "not counted" in repr(model)
    model._repr_html_()
    answer = getattr(model, what)(**({"rng": 0} if what == "sample" else {}))
    assert reads == []
    found = np.asarray(answer.compute())
    assert sum(reads) >= 1_800
    exact = tt.CountModel(LOGITS[:900], [*parts, tt.Group(None, total or tt.uniform())])
    if what == "sample":
        assert np.isfinite(exact.log_prob(found))
    else:
        np.testing.assert_allclose(found, getattr(exact, what), atol=1e-11)
    assert model.n_variables == 900
    assert model.n_chunks == 4
