"""The benchmark command runs, and what it compares with is right."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tallytree as tt

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


def run(*arguments):
    command = [sys.executable, str(BENCHMARKS / "run.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_smallest_row_runs_and_is_written_as_json(tmp_path):
    out = tmp_path / "out.json"
    text = run("--quick", "--only", "single-100", "--repeats", 1, "--json", out)
    assert "single-100" in text
    assert "target" in text
    results = json.loads(out.read_text())
    (row,) = results["rows"]
    assert row["median"] > 0
    assert row["error"]["log_odds"] < 1e-12
    assert results["machine"]["cores"] >= 1
    for contender in row["contenders"]:
        assert contender["times"] or contender["reason"]


def test_rows_are_listed():
    assert {"flat-2^20", "ward-50", "memory", "growth"} <= set(run("--list").split())


def sweep(*arguments):
    command = [sys.executable, str(BENCHMARKS / "cliffs.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_kind_and_verb_of_the_sweep_runs():
    done = sweep("--size", 40, "--input", "normal, between", "--all", "--limit", 20)
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stdout
    lines = done.stdout.splitlines()
    assert "the worst ratio is" in lines[-1]
    for kind in (
        "flat",
        "batch",
        "nested",
        "blocks",
        "ragged",
        "path",
        "chain",
        "weighted",
        "sums",
        "loopy",
        "chunked",
    ):
        assert any(line.startswith(f"numpy {kind} 40 ") and "marginals" in line for line in lines), kind
    for verb in (
        "gradient",
        "counts",
        "sample",
        "mode",
        "entropy",
        "product ones",
        "covariance row",
        "kl near",
    ):
        assert any(line.startswith("numpy flat 40 ") and verb in line for line in lines), verb


SLOW_AND_QUICK = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import cliffs

def work(n):
    while True:
        np.ones(n).sum()

cliffs.POTENTIALS["slow"] = work
cells = [cliffs.Cell("numpy", "flat", "marginals", 50, "normal", p) for p in ("slow", "between")]
for cell, price, *_ in cliffs.priced(cells, limit=1.0):
    print(cell.potential, price.exact, price.ratio > 100.0)
"""

TOO_LARGE = """
import sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import cliffs

cliffs.POTENTIALS["large"] = lambda n: np.ones((1 << 31) + n)
cells = [cliffs.Cell("numpy", "flat", "marginals", 50, "normal", p) for p in ("large", "between")]
for cell, price, *_ in cliffs.priced(cells, limit=1.0, memory=4.0):
    print(cell.potential, price.exact)
"""

CLOCKS = """
import signal, sys, time
sys.path.insert(0, sys.argv[1])
import cliffs

start = time.perf_counter()
signal.setitimer(signal.ITIMER_PROF, 60.0)
print(cliffs.Cell("numpy", "flat", "marginals", 50, *cliffs.USUAL).seconds(0.0, 60.0) > 0.0)
print(time.perf_counter() - start < 1.0)
"""


def test_a_cell_beyond_its_limit_of_processor_time_is_ended_and_the_next_one_runs():
    """In a process of its own, as the command is: its children are forks, and JAX refuses to be forked."""
    command = [sys.executable, "-c", SLOW_AND_QUICK, str(BENCHMARKS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    slow, quick = done.stdout.splitlines()
    assert slow == "slow False True"
    assert quick.startswith("between True")


def test_a_cell_beyond_its_memory_is_above_the_aim_and_the_next_one_runs():
    command = [sys.executable, "-c", TOO_LARGE, str(BENCHMARKS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["large False", "between True"]


def test_two_processes_share_a_sweep_and_its_store(tmp_path):
    store = tmp_path / "cliffs.json"
    asked = ("--size", 40, 60, "--kind", "flat", "--verb", "marginals", "mode", "--few", 60, "--store", store)
    for share in ("1/2", "2/2"):
        assert sweep(*asked, "--share", share).returncode == 0
    parts = json.loads(store.read_text())
    assert {(p["verb"], p["size"]) for p in parts} == {
        (v, n) for v in ("marginals", "mode") for n in (40, 60)
    }
    assert all(p["inputs"] < 30 for p in parts if p["size"] == 60)
    assert "0 cells" in sweep(*asked, "--missing").stdout


def test_the_clock_sees_short_calls_while_a_limit_of_processor_time_is_set():
    """A clock that moves in ticks prices them at zero seconds, and then at tens of thousands of calls each."""
    command = [sys.executable, "-c", CLOCKS, str(BENCHMARKS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]


@pytest.fixture
def textbook(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import peers

    return peers


@pytest.mark.parametrize("size", [1, 2, 33, 1000])
def test_the_textbook_tree_is_right_where_nothing_is_extreme(textbook, size):
    rng = np.random.default_rng(size)
    logits, tables = rng.normal(size=(3, size)), rng.normal(size=(3, size + 1))
    found, model = textbook.fft_tree(logits, tables), tt.CountModel(logits, tables)
    np.testing.assert_allclose(found.log_partition, model.log_partition, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.posterior_logits, model.posterior_logits, rtol=1e-11, atol=1e-11)


def test_the_textbook_tree_needs_a_tilt_far_from_the_mean(textbook):
    logits = np.random.default_rng(0).normal(size=2000)
    table = np.where(np.arange(2001) == 200, 0.0, -np.inf)
    model = tt.CountModel(logits, tt.exactly(200))
    wrong = textbook.fft_tree(logits, table).marginals
    assert not np.allclose(wrong, model.marginals, atol=0.01)
    right = textbook.tilted(logits, table, 200)
    np.testing.assert_allclose(right.posterior_logits, model.posterior_logits, rtol=1e-10, atol=1e-10)


def test_one_run_writes_the_tables_of_the_site_and_the_readme(tmp_path, monkeypatch):
    out = tmp_path / "out.json"
    run("--quick", "--only", "single-100", "--repeats", 1, "--clock", "processor", "--json", out)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import report

    (tmp_path / "docs").mkdir()
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    written = report.write(json.loads(out.read_text()), tmp_path)
    assert written == [tmp_path / report.TABLES, readme]
    tables, text = written[0].read_text(), readme.read_text()
    for content in (tables, text):
        assert "| one potential, 100 variables |" in content
        assert "processor times of all threads" in content
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert report.write(json.loads(out.read_text()), tmp_path) == written  # again, in the same place


def test_the_readme_and_the_site_show_the_same_run():
    root = BENCHMARKS.parent
    readme = (root / "README.md").read_text(encoding="utf-8")
    shown = readme.split("<!-- written by benchmarks/run.py --write -->\n")[1].split("\n<!-- end -->")[0]
    heading, table = shown.split("\n\n")
    assert table.count("\n| ") == 6
    tables = (root / "docs" / "benchmark_tables.md").read_text(encoding="utf-8")
    assert table in tables
    where, how = heading.split(". ", 1)
    assert tables.startswith(where)
    assert how in tables


def test_the_reasons_of_a_sweep_name_kinds_verbs_and_inputs_that_there_are(monkeypatch):
    """A reason with a name that no cell has would never hold."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import cliff_tables
    import cliffs

    inputs = [", ".join(i) for i in cliffs.INPUTS]
    for reason in cliff_tables.REASONS:
        assert all(any(k.startswith(w) for k in cliffs.KINDS) for w in reason.kinds), reason.kinds
        assert all(any(v.startswith(w) for v in cliffs.VERBS) for w in reason.verbs), reason.verbs
        assert all(any(w in i for i in inputs) for w in reason.inputs), reason.inputs


def test_every_cliff_of_the_site_has_its_reason(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import cliff_tables

    text = cliff_tables.TABLE.read_text("utf-8")
    assert "| model | answers | cells | worst | where | why |" in text
    assert cliff_tables.UNKNOWN not in text
