"""The experiments of the paper: complete reports, resumed runs, equal numbers for equal seeds, clear messages."""

from __future__ import annotations

import base64
import csv
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")

from oracle_states import all_states
from reproduction import bags, baselines, claim, data, images, ising, matching, runtime
from reproduction.__main__ import main
from reproduction.bags_claims import permutation_p
from reproduction.report import csv_text
from reproduction.sizes import TINY
from reproduction.statements import FOREMOST, STATEMENTS
from reproduction.store import ARRAYS, Store, write_whole
from reproduction.workers import each
from tallytree import CountModel, PoissonBinomial, PrecisionError

SMALL = replace(TINY, runs=(1, 1), large_grids=(8,))


@pytest.fixture(autouse=True)
def _no_download(monkeypatch):
    def refuse(name):
        raise data.DataError(f"The data file {name!r} is not on this machine. It is public at somewhere.")

    monkeypatch.setattr(data, "download", refuse)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with everything, at the smallest size; with bags where the data is."""
    out = tmp_path_factory.mktemp("made") / "out"
    named = os.environ.get("TALLYTREE_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    there = (folder / "mil" / "musk1.npz").exists()
    parts = ["all"] if there else ["images"]
    assert main([*parts, "--tiny", "--out", str(out), "--quiet"]
                + (["--data", str(folder)] if there else [])) == 0  # fmt: skip
    return out


def message(capsys, *words):
    try:
        code = main(words)
    except SystemExit as stop:  # how argparse refuses
        code = stop.code
    assert code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err


# -- the report


def test_the_report_holds_every_figure_and_the_folder_every_number(made):
    text = (made / "report.html").read_text("utf-8")
    pictures = sorted((made / "figures").glob("*.png"))
    assert len(pictures) >= 7
    for picture in pictures:
        assert base64.b64encode(picture.read_bytes()).decode() in text
        assert picture.with_suffix(".svg").read_bytes().startswith(b"<?xml")
        assert f'id="{picture.stem}"' in text
    assert not re.search(r'src="(?!data:)', text)  # nothing outside is needed
    for table in (made / "tables").glob("*.csv"):
        rows = list(csv.reader(table.read_text("utf-8").splitlines()))
        assert len(rows) > 1
        assert len({len(r) for r in rows}) == 1
    assert not list(made.rglob("*.tmp"))


def test_every_claim_has_a_verdict_in_the_report(made):
    text = (made / "report.html").read_text("utf-8")
    rows = json.loads((made / "claims.json").read_text("utf-8"))
    keys = [row["key"] for row in rows]
    parts = {STATEMENTS[key].part for key in keys}
    assert keys == [key for key, s in STATEMENTS.items() if s.part in parts]  # each once, in order
    assert {row["verdict"] for row in rows} <= set(claim.VERDICTS)
    top = sum(key in FOREMOST for key in keys)
    assert text.count('class="verdict"') == len(rows) + top
    assert claim.tally(claim.from_json(rows)) in text
    assert (made / "statements.md").read_text("utf-8").count("\n| ") == len(rows)


# -- resuming, and equal seeds


def test_an_interrupted_run_continues(tmp_path, capsys, monkeypatch):
    out = tmp_path / "out"
    words = ["matching", "--tiny", "--out", str(out), "--quiet"]
    with monkeypatch.context() as patch:
        patch.setattr(matching, "_large", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert main(words) == 130
    assert "interrupted" in capsys.readouterr().err
    assert not (out / "report.html").exists()
    kept = {p: p.stat().st_mtime_ns for p in (out / "steps").iterdir()}
    assert len(kept) == 2 * TINY.seeds * sum(TINY.runs)
    assert not list(out.rglob("*.tmp"))
    with monkeypatch.context() as patch:
        patch.setattr(matching, "true_marginals", lambda *_: pytest.fail("computed again"))
        assert main(words) == 0
    assert {p: p.stat().st_mtime_ns for p in kept} == kept
    assert (out / "report.html").exists()


def test_a_damaged_step_is_computed_again(tmp_path):
    store = Store(tmp_path)
    assert store.numbers("a", {"n": 1}, lambda: {"x": 1.5}) == {"x": 1.5}
    assert store.numbers("a", {"n": 1}, lambda: pytest.fail("computed again")) == {"x": 1.5}
    assert store.numbers("a", {"n": 2}, lambda: 7) == 7  # other inputs, another file
    store.result(ARRAYS, "b", {}, lambda: {"v": np.arange(3)})
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:5])
    assert store.numbers("a", {"n": 1}, lambda: 3) == 3
    assert store.result(ARRAYS, "b", {}, lambda: {"v": np.arange(4)})["v"].tolist() == [0, 1, 2, 3]
    assert store.result(ARRAYS, "b", {}, lambda: pytest.fail("computed again"))["v"].tolist() == [0, 1, 2, 3]


def test_equal_seeds_give_equal_numbers(tmp_path):
    def numbers(folder, seed):
        found = matching.measure(SMALL, seed, Store(tmp_path / folder), 1)
        errors = [row["error"] for row in found["rows"]] + [g["sweeps"] for g in found["large"]]
        sets = images.measure(SMALL, seed, Store(tmp_path / folder), 1)["sets"]
        arrays = {(k, i): v for ones in sets.values() for i, one in enumerate(ones) for k, v in one.items()}
        return errors, {k: v for k, v in arrays.items() if not k[0].endswith("seconds")}

    first, second, other = numbers("a", 3), numbers("b", 3), numbers("c", 4)
    assert first[0] == second[0] != other[0]
    assert first[1].keys() == second[1].keys()
    for key, value in first[1].items():
        np.testing.assert_array_equal(value, second[1][key])
    assert not np.array_equal(first[1]["rc_nll", 0], other[1]["rc_nll", 0])
    assert not np.array_equal(first[1]["rc_nll", 0], first[1]["rc_nll", 1])


def test_processes_side_by_side_give_the_same(tmp_path):
    tasks = [
        (f"truth-{run}", {"run": run}, matching.true_marginals, ((3, 6), run, [0], 1, 1)) for run in range(2)
    ]
    alone = each(Store(tmp_path / "a"), tasks, 1)
    seen = []
    store = Store(tmp_path / "b", lambda name, reused: seen.append((name, reused)))
    assert each(store, tasks, 2) == alone
    assert sorted(seen) == [("truth-0", False), ("truth-1", False)]


# -- what goes wrong


def test_folders_that_cannot_be_written_are_named(tmp_path, capsys, monkeypatch):
    text = message(capsys, "images", "--tiny", "--out", str(tmp_path / "no" / "such"))
    assert "does not exist" in text
    (tmp_path / "file").write_text("x")
    assert "not a folder" in message(capsys, "images", "--tiny", "--out", str(tmp_path / "file"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_: False)
        text = message(capsys, "images", "--tiny", "--out", str(tmp_path / "closed"))
    assert "permission denied" in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file"]


def test_wrong_names_and_numbers_are_refused(tmp_path, capsys):
    out = str(tmp_path / "out")
    assert "invalid choice: 'imges'" in message(capsys, "imges", "--out", out)
    assert "--seed" in message(capsys, "images", "--seed", "x", "--out", out)
    assert "`jobs`" in message(capsys, "images", "--jobs", "0", "--out", out)
    assert "not allowed with" in message(capsys, "images", "--quick", "--full", "--out", out)
    assert "must be a folder" in message(capsys, "bags", "--out", out, "--data", str(tmp_path / "none"))
    assert not os.path.exists(out)


def test_a_broken_data_file_stops_before_anything_is_written(tmp_path, capsys):
    (tmp_path / "mil").mkdir()
    (tmp_path / "mil" / "musk1.npz").write_bytes(b"not this")
    text = message(capsys, "all", "--tiny", "--out", str(tmp_path / "out"), "--data", str(tmp_path))
    assert "SHA-256" in text
    assert "musk1.npz" in text
    assert not (tmp_path / "out").exists()


def test_without_data_the_bags_say_how_to_get_it_and_the_rest_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("TALLYTREE_DATA", raising=False)
    out = tmp_path / "out"
    text = message(capsys, "bags", "--tiny", "--out", str(out))
    assert "--data" in text
    assert "mil/clean1.data" in text
    assert not out.exists()
    monkeypatch.setattr("reproduction.__main__.PARTS", ("matching", "bags"))
    assert main(["all", "--tiny", "--out", str(out)]) == 0
    assert "left out: no data" in capsys.readouterr().out
    assert "mil/clean1.data" in (out / "report.html").read_text("utf-8")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "kept"
    write_whole(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(Exception, match="no space left"):
            write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["kept"]


# -- the experiments themselves


def test_cluster_sweeps_have_the_right_distribution():
    coupling, side = 0.4, 3
    one, other = ising.grid_pairs(side)
    assert len(one) == 2 * side * (side - 1)
    bits = all_states((2,) * (side * side))
    spin = 2 * bits - 1
    energy = (spin[:, one] * spin[:, other]).sum(1)
    weight = np.exp(coupling * energy)
    drawn = 2.0 * ising.images(20000, side, coupling, 12, np.random.default_rng(0)) - 1
    p = np.bincount(energy + 12, weight / weight.sum(), 25)
    found = np.bincount(((drawn[:, one] * drawn[:, other]).sum(1) + 12).astype(int), minlength=25) / 20000
    assert np.abs(found - p).max() < 4 * np.sqrt(0.25 / 20000)
    total = np.bincount(bits.sum(1), weight / weight.sum(), 10)
    counts = np.bincount(((drawn + 1) / 2).sum(1).astype(int), minlength=10) / 20000
    assert np.abs(counts - total).max() < 4 * np.sqrt(0.25 / 20000)


def test_enumerated_marginals_meet_the_counts():
    truth = matching.enumerated(matching.affinity((3, 6), 0, [0]))
    assert ((truth.sum(1) >= 2) & (truth.sum(1) <= 3)).all()
    assert ((truth.sum(0) >= 1) & (truth.sum(0) <= 2)).all()


def test_growth_is_fitted_per_seed_beyond_the_cost_of_a_call():
    rows = [
        {
            "kind": "fft-tree",
            "x": 2**e,
            "processor": [1e-7 * 2.0 ** (e * p) for p in (1.0, 1.2)] if e > 11 else [1.0, 1.0],
        }
        for e in range(3, 20)
    ]
    assert runtime.exponents(rows, "fft-tree", "processor") == pytest.approx((1.0, 1.2))
    assert runtime.exponents(rows[:10], "fft-tree", "processor") == ()
    assert "1.10" in runtime.growth_text(rows, "fft-tree", "processor")


def test_methods_agree_and_caps_are_kept(tmp_path):
    rows = runtime.measure(SMALL, 0, Store(tmp_path))
    means = np.array(
        [r["mean"] for r in rows if r["x"] == 16 and r["kind"] in ("chain", "tree", "fft-tree", "auto")]
    )
    assert means.shape == (4, TINY.seeds)
    assert np.ptp(means, axis=0).max() < 1e-9
    slow = runtime.measure(replace(SMALL, time_cap=0.0), 0, Store(tmp_path / "b"))
    notes = {(r["kind"], r["x"]): r["note"] for r in slow}
    assert "limit" in notes["chain", 64]
    assert notes["chain", 16] == ""


def test_the_elimination_of_potetz_and_lee_is_right_or_refuses():
    logits, table = np.random.default_rng(1).normal(size=(2, 60))
    table = np.append(table, 0.3)
    want = CountModel(logits, table).marginals
    np.testing.assert_allclose(baselines.potetz_lee(logits, table), want, atol=1e-9)
    with pytest.raises(PrecisionError):
        baselines.potetz_lee(np.full(60, -20.0), np.where(np.arange(61) == 60, 0.0, -1e4))


def test_the_textbook_transform_has_absolute_accuracy():
    for n in (199, 200):
        logits = np.random.default_rng(n).normal(size=n)
        law = PoissonBinomial(logits=logits).pmf(np.arange(n + 1))
        assert np.abs(baselines.dft_cf_pmf(logits) - law).max() < 1e-14


@pytest.mark.skipif(
    not hasattr(os, "fork"), reason="problems have processes of their own where there is fork"
)
def test_a_problem_runs_in_its_own_process_and_within_its_limits():
    with runtime.Forks(replace(TINY, own_process=True)) as forks:
        found = forks.ask("auto", 64, [0, 0], 0.0)
        assert found["processor"] > 0
        assert found["mean"] == runtime.single("auto", 64, [0, 0], 0.0)["mean"]
        assert "failed" in forks.ask("no-such-method", 64, [0, 0], 0.0)["note"]
        assert "memory" in forks.ask("chain", 4096, [0, 0], 0.0, 2e7)["note"]
        assert forks.ask("auto", 64, [0, 0], 0.0) | found | {"note": ""}  # it goes on


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits of memory are those of POSIX")
def test_a_limit_of_the_shell_is_lowered_and_never_raised():
    """Without its privilege a process may not lift a hard limit: the Chain was said to fail."""
    code = """
import resource
resource.setrlimit(resource.RLIMIT_AS, (1 << 36, 1 << 36))
from reproduction.runtime import _forked
print(_forked("chain", 64, [0, 0], 0.0, 1e9, 60.0))
"""
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert "note" not in done.stdout, done.stdout


def test_the_matching_coupling_is_where_the_curve_meets_the_printed_value():
    scan = [[c, 300.0 - 400.0 * c] for c in (0.32, 0.36, 0.4, 0.44)]
    assert images.matching_coupling(scan) == pytest.approx((300.0 - images.PAPER_TREE) / 400.0)


def test_bag_curves_take_the_least_validation_error():
    base = {"potential": "normal", "mu": 0.5, "l1": 0.1, "active": [1.0, 2.0], "share": [0.1, 0.2]}
    rows = [
        base | {"sigma": s, "division": d, "valid": valid, "test": test, "wrong": [1, 0, d]}
        for d, (first, second) in enumerate([(0.3, 0.1), (0.3, 0.2)])
        for s, valid, test in ((0.1, [first], [0.0]), (0.2, [second], [0.4 - 0.2 * d]))
    ]
    (chosen,) = bags.curves(rows)["normal"]
    assert (chosen["second"], chosen["test_error"]) == (0.2, pytest.approx(0.3))
    assert (chosen["lowest"], chosen["highest"]) == (pytest.approx(0.2), pytest.approx(0.4))
    assert bags.mistakes(rows[1::2]).tolist() == [1.0, 0.0, 0.5]


def test_noise_alone_does_not_pass_for_an_effect():
    rng = np.random.default_rng(0)
    noise = [permutation_p((rng.random((6, 40)) < 0.2) * 1.0, rng) for _ in range(20)]
    assert np.mean(np.array(noise) < 0.05) <= 0.15
    better = np.linspace(0.5, 0.1, 6)[:, None]
    assert permutation_p((rng.random((6, 90)) < better) * 1.0, rng) < 0.05


def test_tables_hold_all_columns():
    assert csv_text([{"a": 1}, {"a": 2, "b": 0.1}]) == "a,b\n1,\n2,0.1\n"


def test_the_times_of_large_grids_are_not_those_of_remembered_answers(monkeypatch):
    asked = []
    real = matching.assignment

    def watched(*arguments, **options):
        problem = real(*arguments, **options)
        asked.append(problem)
        return problem

    monkeypatch.setattr(matching, "assignment", watched)
    found = matching._large(6, [0])
    assert len(asked) == 2 * matching._REPEATS
    assert found["shape"] == "6x6"
