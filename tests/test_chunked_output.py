"""Where answers go: files appear when they are complete, and a run that was stopped goes on."""

from __future__ import annotations

import errno
import gc
import os
import random
import subprocess
import sys

import numpy as np
import pytest

import tallytree as tt
from mortal import run_until_it_lives
from tallytree.chunked import sink
from tallytree.chunked.journal import Entry, Journal

N = 1000
LOGITS = np.random.default_rng(3).normal(size=N)
WANTED = tt.CountModel(LOGITS, tt.exactly(300)).marginals


def model(**options):
    return tt.ChunkedCountModel(LOGITS, tt.exactly(300), chunk_size=130, **options)


def read(path):
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".zarr":
        return pytest.importorskip("zarr").open_array(str(path), mode="r")[:]
    return pytest.importorskip("pyarrow.parquet").read_table(path).column(0).to_numpy()


every_format = pytest.mark.parametrize("name", ["out.npy", "out.zarr", "out.parquet"])


@every_format
def test_a_file_holds_the_answer_and_nothing_lies_beside_it(name, tmp_path):
    target = tmp_path / name
    assert model().marginals(out=target) == target
    assert np.allclose(read(target), WANTED, atol=1e-12)
    assert [p.name for p in tmp_path.iterdir()] == [name]


@every_format
def test_single_precision_and_states_keep_their_dtype(name, tmp_path):
    single = tt.ChunkedCountModel(LOGITS.astype(np.float32), tt.exactly(300), chunk_size=130)
    single.marginals(out=tmp_path / name)
    assert read(tmp_path / name).dtype == np.float32
    single.sample(rng=0, out=tmp_path / name, overwrite=True)
    drawn = read(tmp_path / name)
    assert drawn.dtype == np.uint8
    assert drawn.sum() == 300


def test_arrays_are_filled_in_place(tmp_path):
    out = np.empty(N)
    assert model().marginals(out=out) is out
    assert np.allclose(out, WANTED, atol=1e-12)
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(str(tmp_path / "x.zarr"), shape=(N,), chunks=(77,), dtype="f8")
    model().marginals(out=array)
    assert np.array_equal(array[:], out)
    mapped = np.lib.format.open_memmap(tmp_path / "y.npy", "w+", np.float64, (N,))
    model().marginals(out=mapped)
    assert np.array_equal(mapped, out)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty(3), "1,000 entries of dtype float64"),
        (np.empty(N, np.float32), "dtype float64"),
        ("out.txt", "ends in .npy, .zarr or .parquet"),
        (7, "must be an array, or a path"),
        ("no/such/folder/out.npy", "does not exist"),
    ],
)
def test_an_output_that_cannot_be_used_is_refused(out, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(tt.TallyTreeError, match=message):
        model().marginals(out=out)


def test_a_file_that_exists_is_replaced_only_on_request(tmp_path):
    target = tmp_path / "out.npy"
    target.write_text("mine")
    with pytest.raises(tt.OutputError, match="exists already"):
        model().marginals(out=target)
    assert target.read_text() == "mine"
    model().marginals(out=target, overwrite=True)
    assert np.allclose(np.load(target), WANTED, atol=1e-12)


@pytest.mark.parametrize("name", ["out.npy", "out.zarr", "out.parquet"])
@pytest.mark.parametrize("what", ["marginals", "posterior_logits", "sample", "mode"])
def test_a_file_that_exists_is_said_before_anything_is_read(what, name, tmp_path):
    (tmp_path / name).mkdir()

    def chunks():
        yield LOGITS
        if reading:
            raise AssertionError("the source was read")

    reading = False
    asked = tt.ChunkedCountModel(chunks, tt.exactly(300))
    reading = True
    with pytest.raises(tt.OutputError, match="exists already"):
        getattr(asked, what)(out=tmp_path / name)


@pytest.mark.parametrize("left", ["nothing", "shorter", "garbage"])
@every_format
def test_what_a_crash_left_of_an_output_is_not_taken_up(left, name, tmp_path):
    target, aside, journal = tmp_path / name, tmp_path / f".{name}.partial", tmp_path / f".{name}.journal"
    asked = model()
    header = asked._header("marginals", np.dtype(np.float64))
    Journal(journal, header).start()
    lines = [
        '{"chunk": 99, "source": 1, "written": 2}',
        "[1, 2]",
        '{"chunk": "x"}',
        "7",
        "null",
        '{"chunk": 0.5}',
    ]
    with open(journal, "ab") as file:
        file.write("\n".join(lines).encode() + b"\n\xff\xfe\n")
    aside.write_bytes({"nothing": b"", "shorter": b"\x93NUMPY", "garbage": b"x" * 8128}[left])
    asked.marginals(out=target)
    assert np.allclose(read(target), WANTED, atol=1e-12)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_journal_that_nobody_can_read_belongs_to_others(tmp_path):
    (tmp_path / ".out.npy.journal").write_bytes(b"\xff\xfe\n")
    with pytest.raises(tt.OutputError, match="unfinished output of another model"):
        model().marginals(out=tmp_path / "out.npy")


class _Stop(Exception):
    pass


def stop_after(monkeypatch, kind, chunks, error=_Stop):
    """Let a writer fail after some chunks; returns the numbers of the chunks that are written."""
    written, original = [], kind.write

    def write(self, chunk, values):
        if len(written) >= chunks:
            raise error() if isinstance(error, type) else error
        written.append(chunk.number)
        return original(self, chunk, values)

    monkeypatch.setattr(kind, "write", write)
    return written


@pytest.mark.parametrize(
    ("name", "kind"),
    [("out.npy", sink.IntoFile), ("out.zarr", sink.IntoZarr), ("out.parquet", sink.IntoParquet)],
)
def test_an_interrupted_run_goes_on_after_the_last_finished_chunk(name, kind, tmp_path, monkeypatch):
    target = tmp_path / name
    model().marginals(out=target)
    complete = read(target)
    with monkeypatch.context() as patch:
        stop_after(patch, kind, 3)
        with pytest.raises(_Stop):
            model(workers=1).marginals(out=target.with_name("again" + target.suffix))
    assert not target.with_name("again" + target.suffix).exists()
    with monkeypatch.context() as patch:
        again = stop_after(patch, kind, 100)
        model(workers=1).marginals(out=target.with_name("again" + target.suffix))
    assert again == [3, 4, 5, 6, 7]
    assert np.array_equal(read(target.with_name("again" + target.suffix)), complete)


def test_a_finished_chunk_that_was_damaged_is_made_again(tmp_path, monkeypatch):
    target = tmp_path / "out.npy"
    with monkeypatch.context() as patch:
        stop_after(patch, sink.IntoFile, 4)
        with pytest.raises(_Stop):
            model(workers=1).marginals(out=target)
    partial = tmp_path / ".out.npy.partial"
    content = bytearray(partial.read_bytes())
    content[128 + 8 * 200] ^= 1  # in chunk 1
    partial.write_bytes(content)
    with monkeypatch.context() as patch:
        again = stop_after(patch, sink.IntoFile, 100)
        model(workers=1).marginals(out=target)
    assert again == [1, 4, 5, 6, 7]
    assert np.allclose(np.load(target), WANTED, atol=1e-12)


def _without_middle(path):
    data = path.read_bytes()
    place = len(data) * 2 // 3
    path.write_bytes(data[:place] + b"?" + data[place + 1 :])


def _unreadable(path):
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file() and file.name != "zarr.json":
            file.write_bytes(b"x" * 100)


@pytest.mark.parametrize(
    "damage",
    [
        lambda aside, journal: _without_middle(journal),
        lambda aside, journal: journal.write_bytes(journal.read_bytes() + b"[" * 200000 + b"\n"),
        lambda aside, journal: _unreadable(aside),
        lambda aside, journal: (_unreadable(aside), _without_middle(journal)),
    ],
    ids=["one byte of a line", "a deep line", "an unreadable output", "both"],
)
@pytest.mark.parametrize(
    ("name", "kind"),
    [("out.npy", sink.IntoFile), ("out.zarr", sink.IntoZarr), ("out.parquet", sink.IntoParquet)],
)
def test_what_was_damaged_since_an_interrupted_run_counts_as_not_written(
    damage, name, kind, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        stop_after(patch, kind, 5)
        with pytest.raises(_Stop):
            model(workers=1).marginals(out=tmp_path / name)
    damage(tmp_path / f".{name}.partial", tmp_path / f".{name}.journal")
    model(workers=1).marginals(out=tmp_path / name)
    assert np.allclose(read(tmp_path / name), WANTED, atol=1e-12)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_a_journal_that_is_no_file_is_said(tmp_path):
    (tmp_path / ".out.npy.journal").mkdir()
    with pytest.raises(tt.OutputError, match="cannot be read"):
        model().marginals(out=tmp_path / "out.npy")


def test_the_unfinished_output_of_another_model_is_not_taken_up(tmp_path, monkeypatch):
    target = tmp_path / "out.npy"
    with monkeypatch.context() as patch:
        stop_after(patch, sink.IntoFile, 4)
        with pytest.raises(_Stop):
            model(workers=1).marginals(out=target)
    other = tt.ChunkedCountModel(LOGITS, tt.exactly(301), chunk_size=130)
    with pytest.raises(tt.OutputError, match="unfinished output of another model"):
        other.marginals(out=target)
    other.marginals(out=target, overwrite=True)
    assert np.allclose(np.load(target), tt.CountModel(LOGITS, tt.exactly(301)).marginals, atol=1e-12)


def test_chunks_of_a_source_that_changed_since_are_made_again(tmp_path, monkeypatch):
    target, path = tmp_path / "out.npy", tmp_path / "x.npy"
    np.save(path, LOGITS)
    with monkeypatch.context() as patch:
        stop_after(patch, sink.IntoFile, 4)
        with pytest.raises(_Stop):
            tt.ChunkedCountModel(path, None, chunk_size=130, workers=1).posterior_logits(out=target)
    changed = LOGITS.copy()
    changed[[140, 141]] = changed[[141, 140]]  # log Z is the same
    np.save(path, changed)
    tt.ChunkedCountModel(path, None, chunk_size=130, workers=1).posterior_logits(out=target)
    assert np.allclose(np.load(target), changed, atol=1e-12)


def test_a_full_disk_is_said_and_leaves_nothing_under_the_name(tmp_path, monkeypatch):
    target = tmp_path / "out.npy"
    with monkeypatch.context() as patch:
        stop_after(patch, sink.IntoFile, 3, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(tt.OutputError, match=r"no space left on device.*are free. Make room"):
            model(workers=1).marginals(out=target)
    assert not target.exists()
    model().marginals(out=target)
    assert np.allclose(np.load(target), WANTED, atol=1e-12)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="this system reserves no space")
def test_a_disk_that_is_too_small_is_noticed_before_any_work(tmp_path, monkeypatch):
    def too_large(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", too_large)
    with pytest.raises(tt.OutputError, match="no space left on device"):
        model().marginals(out=tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()


_LIMITED = """
import resource, sys, numpy as np, tallytree as tt
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    tt.ChunkedCountModel(np.zeros(10_000), tt.exactly(3)).marginals(out=sys.argv[1])
except tt.OutputError as error:
    print(error)
"""


def test_a_limit_of_the_system_on_files_is_a_message(tmp_path):
    pytest.importorskip("resource")
    run = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path / "out.npy")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "cannot write" in run.stdout
    assert "file too large" in run.stdout
    assert not (tmp_path / "out.npy").exists()


_ASKED = """
import sys, tallytree as tt
model = tt.ChunkedCountModel(sys.argv[1], tt.exactly(3000), chunk_size=512)
model.marginals(out=sys.argv[2])
"""


@every_format
def test_a_run_that_was_killed_goes_on_and_the_result_is_the_same(name, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=10_000))
    target, whole = tmp_path / name, tmp_path / f"whole{name}"
    subprocess.run(
        [sys.executable, "-c", _ASKED, str(tmp_path / "x.npy"), str(whole)], check=True, timeout=120
    )
    points = random.Random(name).choices(range(3, 25), k=3)
    seen = run_until_it_lives(_ASKED, [str(tmp_path / "x.npy"), str(target)], points, tmp_path)
    assert 20 <= seen["chunk"] <= 20 + len(points)
    assert contents(target) == contents(whole)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([name, f"whole{name}", "x.npy"])


def contents(path):
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    return [(p.relative_to(path), p.read_bytes()) for p in files]


def test_a_line_that_was_cut_short_counts_as_not_written(tmp_path):
    journal = Journal(tmp_path / "j", {"what": "x"})
    journal.start()
    journal.add(0, Entry(1, 2))
    journal.add(1, Entry(3, 4))
    (tmp_path / "j").write_bytes((tmp_path / "j").read_bytes()[:-5])
    again = Journal(tmp_path / "j", {"what": "x"})
    assert again.open(tmp_path / "target")
    assert again.finished == {0: Entry(1, 2)}


def test_progress_shows_the_remaining_time(tmp_path, capsys, monkeypatch):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    model(progress=True).marginals(out=tmp_path / "out.npy")
    shown = capsys.readouterr().err
    assert "marginals: 100%" in shown
    assert "variables/s" in shown


def answers(kind, folder, progress):
    """Bytes of the answers of a model over files; every pass of it tells its chunks."""
    options = {"chunk_size": 700, "workers": 1, "progress": progress, "scratch": folder / "scratch"}
    if kind == "events":
        found = tt.ChunkedPoissonBinomial(logits=folder / "x.npy", **options)
        return np.array([found.std(), found.logpmf(1900)]).tobytes()
    groups = (
        {}
        if kind in ("flat", "sharp")
        else {"groups": folder / f"{kind}.npy", "group_potential": tt.at_most(40)}
    )
    potential = None if kind == "alone" else tt.gaussian(1200, 0.1) if kind == "sharp" else tt.exactly(1200)
    found = tt.ChunkedCountModel(folder / "x.npy", potential, **options, **groups)
    out = folder / f"{kind}-out.npy"
    found.marginals(out=out, overwrite=out.exists())
    told = np.array([found.log_partition, found.error_bound]).tobytes()
    if kind == "flat":
        told += (
            np.concatenate(list(found.mode())).tobytes() + np.concatenate(list(found.sample(rng=1))).tobytes()
        )
    return told + out.read_bytes()


@pytest.mark.parametrize("kind", ["flat", "sharp", "events", "alone", "sorted", "scattered"])
def test_an_interrupt_of_any_pass_loses_one_chunk(kind, tmp_path):
    rng = np.random.default_rng(3)
    np.save(tmp_path / "x.npy", rng.normal(size=4000))
    ids = np.sort(rng.integers(0, 50, 4000))
    for name, order in (("sorted", ids), ("alone", ids), ("scattered", rng.permutation(ids))):
        np.save(tmp_path / f"{name}.npy", order)
    (tmp_path / "scratch").mkdir()
    whole = []
    wanted = answers(kind, tmp_path, whole.append)
    gc.collect()
    assert list((tmp_path / "scratch").iterdir()) == []
    (tmp_path / f"{kind}-out.npy").unlink(missing_ok=True)
    writing = [i for i, stage in enumerate(whole) if stage.work == "marginals"]
    for stop in range(2, writing[-1] if writing else len(whole), 3):  # before the output is complete
        first, rest = [], []

        def interrupt(stage, stop=stop, first=first):
            first.append(stage)
            if len(first) == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            answers(kind, tmp_path, interrupt)
        gc.collect()
        assert answers(kind, tmp_path, rest.append) == wanted
        gc.collect()
        assert len(first) + len(rest) <= len(whole) + 1
        assert list((tmp_path / "scratch").iterdir()) == []
        (tmp_path / f"{kind}-out.npy").unlink(missing_ok=True)


def test_results_of_other_files_models_and_users_are_not_taken_up(tmp_path, monkeypatch):
    values = np.random.default_rng(3).normal(size=4000)
    np.save(tmp_path / "x.npy", values)

    def model(k, progress=False, file="x.npy"):
        options = {"chunk_size": 700, "workers": 1, "progress": progress, "scratch": tmp_path}
        return tt.ChunkedCountModel(tmp_path / file, tt.exactly(k), **options)

    def interrupt(stage):
        if stage.done > 2000:
            raise KeyboardInterrupt

    def cut():
        with pytest.raises(KeyboardInterrupt):
            _ = model(1200, interrupt).log_partition
        gc.collect()

    cut()
    seen = []
    exact = tt.CountModel(values, tt.exactly(1200)).log_partition
    assert model(1200, seen.append).log_partition == pytest.approx(exact, rel=1e-13)
    assert seen[0].done == 2100 + 700  # two chunks were kept, and the one of which the function heard
    gc.collect()
    cut()
    np.save(tmp_path / "x.npy", values + 1.0)
    exact = tt.CountModel(values + 1.0, tt.exactly(1200)).log_partition
    assert model(1200).log_partition == pytest.approx(exact, rel=1e-13)
    gc.collect()
    cut()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    seen = []
    assert model(1200, seen.append).log_partition == pytest.approx(exact, rel=1e-13)
    assert seen[0].done == 700
