"""The command line gives the answers of the library, from and to any file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tallytree as tt
from cli_files import HALLS, LOGITS, Run, assert_answers, columns, text, write
from tallytree.cli import tables

pytestmark = pytest.mark.usefixtures("cli_folder")


def test_output_holds_the_original_columns_and_the_answers_of_the_model(data: str, good: Run) -> None:
    good("infer", data, "--count", "exactly:3", "--output", "out.csv")
    assert_answers("out.csv", tt.CountModel(LOGITS, tt.exactly(3)))
    found, original = columns("out.csv"), columns(data)
    assert list(found) == [*original, "posterior_prob", "posterior_logit"]
    assert {name: found[name] for name in original} == original


def test_nested_group_columns_with_empty_cells(data: str, good: Run) -> None:
    good(
        "infer", data, "--count", "between:2:4", "--group-count", "hall", "at_least:1",
        "--group-count", "site", "at_most:2", "--output", "out.csv",
    )  # fmt: skip
    groups = [
        tt.Group(None, tt.between(2, 4)),
        tt.Group([0, 1], tt.at_least(1)),
        tt.Group([2, 3, 4], tt.at_least(1)),
        tt.Group([0, 1], tt.at_most(2)),
        tt.Group([2, 3, 4, 5], tt.at_most(2)),
    ]
    assert_answers("out.csv", tt.CountModel(LOGITS, groups))


def test_potentials_on_the_same_count_multiply(data: str, good: Run) -> None:
    good("infer", data, "--count", "at_least:2", "--count", "parity:even", "--output", "out.csv")
    found = [float(x) for x in columns("out.csv")["posterior_prob"]]
    expected = tt.CountModel(LOGITS, tt.at_least(2) * tt.parity("even")).marginals
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_without_potentials_the_posterior_is_the_prior(data: str, good: Run) -> None:
    printed = good("infer", data, "--output", "out.csv")
    assert "independent" in printed
    np.testing.assert_allclose([float(x) for x in columns("out.csv")["posterior_logit"]], LOGITS)


def test_probabilities_and_other_column_names(good: Run) -> None:
    probs = [0.0, 0.25, 0.5, 1.0, 1e-12]
    write("p.csv", ["prob"], [[repr(p)] for p in probs])
    write("q.csv", ["score"], [[repr(p)] for p in probs])
    with np.errstate(divide="ignore"):
        model = tt.CountModel(np.log(probs) - np.log1p(-np.array(probs)), tt.exactly(2))
    good("infer", "p.csv", "--count", "exactly:2", "--output", "out.csv")
    assert_answers("out.csv", model)
    good(
        "infer",
        "q.csv",
        "--column",
        "score",
        "--scale",
        "prob",
        "--count",
        "exactly:2",
        "--output",
        "out2.csv",
    )
    assert_answers("out2.csv", model)


def test_column_chooses_between_logit_and_prob(good: Run) -> None:
    write("both.csv", ["logit", "prob"], [["1", "0.5"], ["-1", "0.25"]])
    good("infer", "both.csv", "--column", "logit", "--count", "exactly:1", "--output", "out.csv")
    assert_answers("out.csv", tt.CountModel([1.0, -1.0], tt.exactly(1)))


@pytest.mark.parametrize("name", ["f", "log_f"])
def test_table_files_in_any_order(data: str, good: Run, name: str) -> None:
    f = [0.0, 1.0, 4.0, 2.0, 0.5, 0.25, 0.125]
    with np.errstate(divide="ignore"):
        log_f = np.log(f)
    values = f if name == "f" else log_f.tolist()
    write("t.csv", ["count", name], [[c, repr(values[c])] for c in (3, 0, 6, 1, 2, 5, 4)])
    good("infer", data, "--table", "t.csv", "--output", "out.csv")
    assert_answers("out.csv", tt.CountModel(LOGITS, log_f))


def test_a_group_table_serves_groups_of_several_sizes(data: str, good: Run) -> None:
    log_f = [0.0, 1.0, -1.0, 0.5]
    write("t.csv", ["count", "log_f"], enumerate(log_f))
    good("infer", data, "--group-table", "hall", "t.csv", "--output", "out.csv")
    groups = [tt.Group([0, 1], log_f[:3]), tt.Group([2, 3, 4], log_f)]
    assert_answers("out.csv", tt.CountModel(LOGITS, groups))


def test_method_is_passed_on(data: str, good: Run, bad: Run) -> None:
    good("infer", data, "--count", "exactly:3", "--method", "chain", "--output", "out.csv")
    assert_answers("out.csv", tt.CountModel(LOGITS, tt.exactly(3), method="chain"))
    assert "argument --method: invalid choice: 'magic'" in bad("infer", data, "--method", "magic")
    message = bad(
        "infer", data, "--count", "exactly:3", "--group-count", "hall", "at_least:1", "--method", "chain"
    )
    assert "Use 'auto'" in message


# -- files -------------------------------------------------------------------------------------------------------


def test_quotes_line_breaks_and_byte_order_mark_survive(good: Run) -> None:
    names = ['say "hi"', "a,b", "two\nlines", "naïve ☃ 変数", ""]
    write("q.csv", ["name", "logit"], zip(names, "12345"))
    text("bom.csv", b"\xef\xbb\xbf" + Path("q.csv").read_bytes() + b"\r\n\r\n")
    printed = good("infer", "bom.csv", "--count", "exactly:2", "--output", "out.csv")
    assert columns("out.csv")["name"] == names
    assert "two lines" in printed
    assert not Path("out.csv").read_bytes().startswith(b"\xef\xbb\xbf")


def test_parquet_round_trip_keeps_types(good: Run) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    halls = pa.array(["a", "a", "b", "b", None, ""]).dictionary_encode()
    table = pa.table({"id": pa.array(range(6), "int32"), "hall": halls, "logit": pa.array(LOGITS, "float64")})
    pq.write_table(table, "in.parquet")
    model = tt.CountModel(LOGITS, [tt.Group([0, 1], tt.exactly(1)), tt.Group([2, 3], tt.exactly(1))])
    printed = good("infer", "in.parquet", "--group-count", "hall", "exactly:1", "--output", "out.parquet")
    assert "  row  id  hall" in printed
    found = pq.read_table("out.parquet")
    assert found.select(["id", "hall", "logit"]).equals(table)
    assert found["posterior_prob"].to_pylist() == model.marginals.tolist()
    good("infer", "in.parquet", "--group-count", "hall", "exactly:1", "--output", "out.csv")
    assert_answers("out.csv", model)
    assert columns("out.csv")["hall"] == ["a", "a", "b", "b", "", ""]


def test_csv_to_parquet_and_a_parquet_file_under_another_name(data: str, good: Run) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    good("infer", data, "--count", "exactly:3", "--output", "out.parquet")
    found = pq.read_table("out.parquet")
    assert found["logit"].to_pylist() == LOGITS
    assert found["hall"].to_pylist() == HALLS
    os.rename("out.parquet", "really_parquet.csv")
    assert "6 variables" in good("infer", "really_parquet.csv", "--count", "exactly:3")


def test_integer_and_narrow_float_columns_of_parquet(good: Run) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"logit": pa.array([1, -2, 0], "int8")}), "i.parquet")
    good("infer", "i.parquet", "--count", "exactly:1", "--output", "i.csv")
    assert_answers("i.csv", tt.CountModel([1.0, -2.0, 0.0], tt.exactly(1)))


def test_parquet_without_pyarrow_names_the_command(
    data: str, bad: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    text("in.parquet", b"PAR1....PAR1")
    for words in (["in.parquet"], [data, "--output", "out.parquet"]):
        assert 'pip install "tallytree[parquet]"' in bad("infer", *words)


def test_a_small_csv_file_never_imports_pyarrow(data: str) -> None:
    code = (
        "import sys; from tallytree.cli import main; main(sys.argv[1:]); sys.exit('pyarrow' in sys.modules)"
    )
    words = [sys.executable, "-c", code, "infer", data, "--quiet", "--output", "out.csv"]
    assert subprocess.run(words, check=False).returncode == 0


def test_an_existing_file_is_replaced_only_with_force(data: str, good: Run, bad: Run) -> None:
    text("out.csv", "precious")
    assert "out.csv exists already" in bad("infer", data, "--output", "out.csv")
    assert Path("out.csv").read_text() == "precious"
    good("infer", data, "--count", "exactly:3", "--output", "out.csv", "--force")
    assert_answers("out.csv", tt.CountModel(LOGITS, tt.exactly(3)))


def test_the_input_can_be_replaced_by_the_output(data: str, good: Run, bad: Run) -> None:
    good("infer", data, "--count", "exactly:3", "--output", data, "--force")
    assert_answers(data, tt.CountModel(LOGITS, tt.exactly(3)))
    message = bad("infer", data, "--count", "exactly:3", "--output", "again.csv")
    assert "already has a column `posterior_prob`" in message


def test_outputs_that_cannot_be_written(data: str, bad: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkdir("folder.csv")
    assert "folder.csv: it is a folder" in bad("infer", data, "--output", "folder.csv", "--force")
    assert "its name must end in .csv or .parquet" in bad("infer", data, "--output", "out.xlsx")
    assert "the folder nowhere does not exist" in bad(
        "infer", data, "--output", os.path.join("nowhere", "out.csv")
    )
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "permission denied in the folder ." in bad("infer", data, "--output", "out.csv")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_special_files_are_never_replaced(data: str, bad: Run) -> None:
    os.mkfifo("pipe.csv")
    assert "it is not a regular file" in bad("infer", data, "--output", "pipe.csv", "--force")


def test_a_failure_while_writing_leaves_everything_as_it_was(
    data: str, bad: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str, *_: object) -> None:
        Path(path).write_text("half")
        raise OSError(28, "No space left on device")

    text("out.csv", "precious")
    monkeypatch.setattr(tables, "write_csv", full)
    assert "cannot write out.csv: no space left on device" in bad(
        "infer", data, "--output", "out.csv", "--force"
    )
    assert Path("out.csv").read_text() == "precious"


POSITIVES = {"a": 1, "b": 2}


def with_positives(path: str) -> str:
    rows = [(h, POSITIVES.get(h, 0), x) for h, x in zip(HALLS, LOGITS)]
    return write(path, ["hall", "positives", "logit"], rows)


@pytest.mark.parametrize("stream", [(), ("--stream",)], ids=["memory", "batches"])
def test_every_group_has_its_own_count(stream: tuple[str, ...], good: Run) -> None:
    if stream:
        pytest.importorskip("pyarrow")
    data = with_positives("in.csv")
    groups = [tt.Group([0, 1], tt.exactly(1)), tt.Group([2, 3, 4], tt.exactly(2))]
    want = tt.CountModel(LOGITS, groups).marginals
    write("counts.csv", ["group", "count"], POSITIVES.items())
    write("halls.csv", ["count", "hall"], [(k, h) for h, k in POSITIVES.items()])
    for asked in (
        ("--group", "hall", "--group-counts", "hall", "counts.csv"),
        ("--group-counts", "hall", "halls.csv"),
        ("--group-count", "hall", "exactly:@positives"),
        ("--group-count", "hall", "between:@positives:@positives"),
    ):
        good("infer", data, *asked, *stream, "--output", "out.csv", "--force", "--quiet")
        found = columns("out.csv")
        assert found["hall"] == HALLS
        assert [float(x) for x in found["posterior_prob"]] == pytest.approx(want, abs=1e-13)
    write("some.csv", ["group", "count"], [("b", 2)])
    good(
        "infer",
        data,
        "--group-counts",
        "hall",
        "some.csv",
        *stream,
        "--output",
        "out.csv",
        "--force",
        "--quiet",
    )
    want = tt.CountModel(LOGITS, [groups[1]]).marginals
    assert [float(x) for x in columns("out.csv")["posterior_prob"]] == pytest.approx(want, abs=1e-13)


@pytest.mark.parametrize("stream", [(), ("--stream",)], ids=["memory", "batches"])
def test_wrong_counts_of_groups_are_refused(stream: tuple[str, ...], bad: Run) -> None:
    if stream:
        pytest.importorskip("pyarrow")
    data = with_positives("in.csv")
    write("strange.csv", ["group", "count"], [("a", 1), ("c", 2)])
    assert "no row of in.csv has `hall` = c" in bad(
        "infer", data, "--group-counts", "hall", "strange.csv", *stream
    )
    write("twice.csv", ["group", "count"], [("a", 1), ("a", 2)])
    assert "listed a second time" in bad("infer", data, "--group-counts", "hall", "twice.csv", *stream)
    write("half.csv", ["group", "count"], [("a", 0.5)])
    assert "`count` must be 0, 1, 2" in bad("infer", data, "--group-counts", "hall", "half.csv", *stream)
    write("many.csv", ["group", "count"], [("b", 4)])
    message = bad("infer", data, "--group-counts", "hall", "many.csv", *stream)
    assert "group `b`: `exactly(4)` needs a group of at least 4" in message
    assert "no column `positive`" in bad("infer", data, "--group-count", "hall", "exactly:@positive", *stream)
    assert "must be the same in every row" in bad(
        "infer", data, "--group-count", "hall", "exactly:@logit", *stream
    )
    assert "--group-count hall: " in bad("infer", data, "--group-count", "hall", "exactl:@positives", *stream)
    certain = write("certain.csv", ["hall", "logit"], [("x", "-inf"), ("x", 1.0), ("y", 0.0)])
    write("two.csv", ["group", "count"], [("x", 2)])
    message = bad("infer", certain, "--group-counts", "hall", "two.csv", *stream)
    assert "`hall` = x: exactly(2)" in message
