"""The command line: answers are those of the library, and bad input gets a message, never a traceback."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

import tallytree as tt
from tallytree.cli import demo, infer, main, output
from tallytree.cli.count_table import count_table, quantiles
from tallytree.cli.terminal import Column, Terminal, printable, probability, quantity, seconds, width_of

LOGITS = [0.5, -1.25, 2.0, -0.75, 0.1, -2.5]
HALLS = ["a", "a", "b", "b", "b", ""]
SITES = ["n", "n", "s", "s", "s", "s"]

Run = Callable[..., str]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def data() -> str:
    """Six rows with two nested group columns."""
    rows = zip([f"v{i}" for i in range(6)], HALLS, SITES, map(str, LOGITS))
    return write("data.csv", ["name", "hall", "site", "logit"], rows)


@pytest.fixture
def good(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that works; the result is what it printed."""

    def run(*words: str) -> str:
        code = main(words)
        captured = capsys.readouterr()
        assert (code, captured.err) == (0, "")
        return captured.out

    return run


@pytest.fixture
def bad(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that is refused; the result is the message."""

    def run(*words: str) -> str:
        before = set(os.listdir())
        code = main(words)
        captured = capsys.readouterr()
        assert code == 2
        assert captured.out == ""
        assert captured.err.startswith("tallytree: ")
        assert "Traceback" not in captured.err
        assert set(os.listdir()) == before
        return captured.err.removeprefix("tallytree: ")

    return run


def write(path: str, header: Sequence[str], rows: object) -> str:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])  # type: ignore[misc]
    return path


def text(path: str, content: str | bytes) -> str:
    Path(path).write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def columns(path: str) -> dict[str, list[str]]:
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return dict(zip(header, map(list, zip(*rows))))


def assert_answers(path: str, model: tt.CountModel) -> None:
    found = columns(path)
    assert [float(x) for x in found["posterior_prob"]] == model.marginals.tolist()
    assert [float(x) for x in found["posterior_logit"]] == model.posterior_logits.tolist()


# -- answers -----------------------------------------------------------------------------------------------------


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


def test_csv_never_imports_pyarrow(data: str) -> None:
    code = (
        "import sys; from tallytree.cli import main; main(sys.argv[1:]); sys.exit('pyarrow' in sys.modules)"
    )
    words = [sys.executable, "-c", code, "infer", data, "--quiet", "--output", "out.csv"]
    assert subprocess.run(words, check=False).returncode == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty. It needs a header line"),
        (b"\n\n", "has no header"),
        (b",,\n1,2,3\n", "has no header"),
        (b"name,logit\n", "has a header but no rows"),
        (b"name,score\na,1\n", "has neither a `logit` nor a `prob` column; its columns are `name`, `score`"),
        (b"name;logit\na;1\n", "seem to be separated by semicolons"),
        (b"name\tlogit\na\t1\n", "seem to be separated by tabs"),
        (b"0.5,1.5\n2,3\n", "first line holds numbers: add a header line"),
        (b"logit,prob\n1,0.5\n", "has both a `logit` and a `prob` column. Choose with --column"),
        (b"logit,a,a\n1,2,3\n", "more than one column `a`"),
        (b"name,logit\na,1\nb,x1\n", "in.csv, line 3: column `logit` must hold numbers; got 'x1'"),
        (b'name,logit\n"a\n\nb",1\n\nc,x1\n', "in.csv, line 6: column `logit` must hold numbers"),
        (b"logit\n1\n1_000\n", "line 3: column `logit` must hold numbers; got '1_000'"),
        (b'logit\n1\n"1,5"\n', "line 3: column `logit` must hold numbers with a decimal point; got '1,5'"),
        (b"name,logit\na,1\nb,\n", "line 3: column `logit` is empty"),
        (b"name,logit\na,1\nb,NaN\n", "line 3: column `logit` is NaN"),
        (b"prob\n0.5\n1.5\n", "line 3: column `prob` must hold probabilities between 0 and 1; got 1.5"),
        (b"prob\n-0.5\n", "line 2: column `prob` must hold probabilities between 0 and 1; got -0.5"),
        (b"prob\ninf\n", "line 2: column `prob` must hold probabilities between 0 and 1; got inf"),
        (b"name,logit\na,1\nb\n", "line 3: the row has 1 cell, but the header has 2"),
        (b"name,logit\na,b,1\n", "line 2: the row has 3 cells, but the header has 2"),
        (b'name,logit\na,1\n"b,1\n', "line 3: not valid CSV (unexpected end of data)"),
        (b'name,logit\n"a"b,1\n', "line 2: not valid CSV"),
        (b"name,logit\nna\xefve,1\n", "is not UTF-8 text (it contains the byte 0xef)"),
        ("logit\n1\n".encode("utf-16"), "is UTF-16 text. Save it as CSV in UTF-8"),
        (b"PK\x03\x04\xff\xfe\xfa", "is a compressed file or a spreadsheet"),
    ],
)
def test_bad_csv_files_get_a_message_with_the_line(bad: Run, content: bytes, message: str) -> None:
    text("in.csv", content)
    found = bad("infer", "in.csv", "--count", "at_least:0")
    assert message in found
    assert "in.csv" in found


def test_files_that_cannot_be_read(bad: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot read none.csv: there is no such file" in bad("infer", "none.csv")
    os.mkdir("folder.csv")
    assert "cannot read folder.csv: it is a folder" in bad("infer", "folder.csv")
    assert "null" in bad("infer", "a\0b.csv")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    text("secret.csv", "logit\n1\n")
    monkeypatch.setattr("builtins.open", refuse)
    assert "cannot read secret.csv: permission denied." in bad("infer", "secret.csv")


def test_bad_parquet_files_get_a_message(bad: Run) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    text("broken.parquet", b"PAR1 and nothing more")
    assert "broken.parquet is not a readable Parquet file" in bad("infer", "broken.parquet")
    cases = {
        "must hold numbers; its type is string": pa.array(["1", "x"]),
        "in.parquet, row 2: column `logit` is empty": pa.array([1.0, None]),
        "in.parquet, row 2: column `logit` is NaN": pa.array([1.0, float("nan")]),
        "its type is bool": pa.array([True, False]),
    }
    for message, values in cases.items():
        pq.write_table(pa.table({"logit": values}), "in.parquet")
        assert message in bad("infer", "in.parquet")
    pq.write_table(pa.table({"logit": [1.0], "g": [[1, 2]]}), "in.parquet")
    assert "cannot name groups" in bad("infer", "in.parquet", "--group-count", "g", "exactly:1")
    pq.write_table(pa.table([pa.array([1.0]), pa.array([2.0])], names=["logit", "logit"]), "in.parquet")
    assert "more than one column `logit`" in bad("infer", "in.parquet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("n,f\n0,1\n", "has no column `count`"),
        ("count,g\n0,1\n", "It has neither `log_f` nor `f`"),
        ("count,f,log_f\n0,1,0\n", "It has both `log_f` and `f`"),
        ("count,f\n0.5,1\n", "t.csv, line 2: `count` must be 0, 1, 2, ...; got 0.5"),
        ("count,f\n0,1\n-1,1\n", "t.csv, line 3: `count` must be 0, 1, 2, ...; got -1"),
        ("count,f\n0,1\n1,-2\n", "t.csv, line 3: `f` must be 0 (impossible) or a positive number; got -2"),
        ("count,log_f\n0,inf\n", "t.csv, line 2: `log_f` must be a number below inf"),
        ("count,f\n0,1\n2,1\n", "1 is missing. Write `f` = 0 for an impossible count"),
        ("count,log_f\n1,1\n", "0 is missing. Write `log_f` = -inf for an impossible count"),
        ("count,f\n0,1\n1,1\n1,2\n", "t.csv, line 4: count 1 is listed a second time"),
        (
            "count,f\n0,1\n1,1\n",
            "must list every count from 0 to 6, the number of variables it is for; it ends at 1",
        ),
    ],
)
def test_bad_table_files_get_a_message(data: str, bad: Run, content: str, message: str) -> None:
    text("t.csv", content)
    assert message in bad("infer", data, "--table", "t.csv")


# -- arguments ---------------------------------------------------------------------------------------------------


def test_columns_that_are_not_there(data: str, bad: Run) -> None:
    message = bad("infer", data, "--group-count", "Hal", "exactly:1")
    assert "data.csv has no column `Hal`; its columns are `name`, `hall`, `site`, `logit`." in message
    assert "Did you mean `hall`?" in message
    assert "has no column `score`" in bad("infer", data, "--column", "score", "--scale", "prob")


def test_scale_and_column_belong_together(data: str, bad: Run) -> None:
    assert "Add --scale logit (log-odds) or --scale prob" in bad("infer", data, "--column", "name")
    assert "Add --column NAME" in bad("infer", data, "--scale", "prob")
    assert "column `name` must hold numbers; got 'v0'" in bad(
        "infer", data, "--column", "name", "--scale", "prob"
    )


def test_bad_potentials_name_the_argument_and_the_group(data: str, bad: Run) -> None:
    assert bad("infer", data, "--count", "exactly").startswith("--count: `exactly` must be written exactly:k")
    assert "Known are" in bad("infer", data, "--count", "help")
    assert bad("infer", data, "--group-count", "hall", "exactly:x").startswith("--group-count hall: ")
    assert "`exactly(7)` needs a group of at least 7" in bad("infer", data, "--count", "exactly:7")
    message = bad("infer", data, "--group-count", "hall", "exactly:3")
    assert message.startswith(
        "--group-count hall exactly:3, group `a`: `exactly(3)` needs a group of at least 3"
    )
    text("t.csv", "count,f\n0,1\n1,1\n")
    message = bad("infer", data, "--group-table", "hall", "t.csv")
    assert message.startswith("--group-table hall t.csv, group `a`: t.csv must list every count from 0 to 2")


def test_crossing_groups_name_columns_values_and_line(bad: Run) -> None:
    write("x.csv", ["logit", "g", "h"], [[0, "a", "x"], [0, "a", "y"], [0, "b", "y"]])
    message = bad("infer", "x.csv", "--group-count", "g", "exactly:1", "--group-count", "h", "exactly:1")
    assert "`g` = a and `h` = y share x.csv, line 3 and neither contains the other" in message


def test_a_group_column_without_values_is_refused(bad: Run) -> None:
    write("e.csv", ["logit", "g"], [[0, ""], [0, ""]])
    assert "is empty in every row" in bad("infer", "e.csv", "--group-count", "g", "exactly:1")


def test_an_impossible_model_is_a_message(data: str, bad: Run) -> None:
    message = bad("infer", data, "--count", "exactly:1", "--group-count", "hall", "at_least:1")
    assert "gives probability zero to every configuration" in message


def test_usage_errors_point_to_the_help(data: str, bad: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert bad("infer").endswith("Try `tallytree infer --help`.\n")
    assert "invalid choice: 'frobnicate'" in bad("frobnicate")
    assert "must be 0 or a positive integer; got '-1'" in bad("infer", data, "--top", "-1")
    assert "expected 2 arguments" in bad("infer", data, "--group-count", "hall")
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().err


def test_help_and_version_exit_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--version"], ["--help"], ["infer", "--help"], ["demo", "--help"]):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 0
        printed = capsys.readouterr().out
        assert all(len(line) <= 80 for line in printed.splitlines())
    main_version = f"tallytree {tt.__version__}\n"
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == main_version


def test_config_is_show_config(good: Run, capsys: pytest.CaptureFixture[str]) -> None:
    printed = good("config")
    tt.show_config()
    assert printed == capsys.readouterr().out


# -- output ------------------------------------------------------------------------------------------------------


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
    def full(file: io.TextIOBase, *_: object) -> None:
        file.write("half")
        raise OSError(28, "No space left on device")

    text("out.csv", "precious")
    monkeypatch.setattr(output, "write_csv", full)
    assert "cannot write out.csv: no space left on device" in bad(
        "infer", data, "--output", "out.csv", "--force"
    )
    assert Path("out.csv").read_text() == "precious"


def test_quiet_prints_nothing(data: str, good: Run) -> None:
    assert good("infer", data, "--count", "exactly:3", "--quiet", "--output", "out.csv") == ""
    assert_answers("out.csv", tt.CountModel(LOGITS, tt.exactly(3)))


def test_the_summary_shows_what_the_model_says(data: str, good: Run) -> None:
    printed = good(
        "infer", data, "--count", "between:2:3", "--group-count", "hall", "at_least:1", "--top", "2"
    )
    groups = [
        tt.Group(None, tt.between(2, 3)),
        tt.Group([0, 1], tt.at_least(1)),
        tt.Group([2, 3, 4], tt.at_least(1)),
    ]
    model = tt.CountModel(LOGITS, groups)
    counts = np.exp(model.count_log_probs())
    assert f"log Z            {model.log_partition:.6f}\n" in printed
    assert f"{model.marginals.sum():.3f} after" in printed
    assert f"{counts[2]:.4f}" in printed
    assert f"{counts[3]:.4f}" in printed
    assert "The 2 most probable rows" in printed
    best = int(np.argmax(model.marginals))
    row = next(line for line in printed.splitlines() if f" v{best} " in line)
    assert row.split()[0] == str(best + 2)
    assert f"{model.marginals[best]:.4f}" in row
    assert all(width_of(line) <= 80 for line in printed.splitlines())


def test_rows_can_be_ordered_by_change(data: str, good: Run) -> None:
    printed = good("infer", data, "--count", "exactly:5", "--top", "1", "--by", "change")
    model = tt.CountModel(LOGITS, tt.exactly(5))
    changed = np.argmax(np.abs(model.marginals - tt.CountModel(LOGITS).marginals))
    assert printed.splitlines()[-1].split()[:2] == [str(changed + 2), f"v{changed}"]
    assert "most" not in good("infer", data, "--top", "0")


def test_large_files_skip_the_count_distribution_unless_asked(
    data: str, good: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallytree.cli.summary._MOST_COUNTED", 3)
    assert "not computed for so many rows unless --counts is given" in good("infer", data)
    assert "Count of all rows" in good("infer", data, "--counts")
    assert "always 2" in good("infer", data, "--count", "exactly:2")


def test_many_rows_take_seconds(good: Run) -> None:
    rng = np.random.default_rng(5)
    n = 20_000
    rows = zip(range(n), (i // 10 for i in range(n)), rng.normal(-2.0, 1.0, n).tolist())
    write("big.csv", ["id", "team", "logit"], rows)
    printed = good("infer", "big.csv", "--count", f"exactly:{n // 10}", "--output", "out.csv", "--top", "1")
    assert f"always {n // 10:,}" in printed
    assert sum(map(float, columns("out.csv")["posterior_prob"])) == pytest.approx(n // 10)


# -- demo --------------------------------------------------------------------------------------------------------


def test_demo_prints_the_answers_in_80_columns(good: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_LARGE", 2_000)
    monkeypatch.setattr(demo, "_LARGE_ON", 200)
    printed = good("demo")
    assert all(width_of(line) <= 80 for line in printed.splitlines())
    model = demo.demo_model()
    n = model.n_variables
    everything = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    log_probs = model.log_prob(everything)
    best = everything[np.argmax(log_probs)]
    np.testing.assert_allclose(np.exp(log_probs) @ everything, model.marginals, rtol=1e-12)
    for name, p, on in zip((f"{h}-{i}" for h in demo.HALLS for i in (1, 2, 3, 4)), model.marginals, best):
        line = next(line for line in printed.splitlines() if f" {name} " in line)
        assert f"{p:.4f}" in line
        assert line.startswith("  ●") == bool(on)
    assert f"{np.exp(log_probs.max()):.4f}" in printed
    assert f"log Z {model.log_partition:.6f}" in printed
    assert "2,000 variables, exactly 200 on" in printed
    assert "sum to 200.000000" in printed


# -- terminal ----------------------------------------------------------------------------------------------------


def test_bars_and_tables_follow_the_character_set() -> None:
    plain = Terminal(io.StringIO(), unicode=False)
    assert plain.bar(0.5, 10) == "#####"
    assert Terminal(io.StringIO()).bar(0.55, 10) == "█████▌"
    assert Terminal(io.StringIO()).bar(1e-9, 10) == "▏"
    assert Terminal(io.StringIO()).bar(0.0, 10) == ""
    raw = io.BytesIO()
    ascii_stream = io.TextIOWrapper(raw, encoding="ascii")
    terminal = Terminal.of(ascii_stream)
    assert not terminal.unicode
    terminal.say("变 ok", terminal.heading("x")[:4])
    ascii_stream.flush()
    assert raw.getvalue() == b"? ok\nx --\n"
    assert Terminal.of(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")).unicode


def test_tables_shrink_text_to_the_width() -> None:
    terminal = Terminal(io.StringIO(), width=40)
    lines = terminal.table(
        [Column("name", ["x" * 60, "変" * 30], shrinks=True), Column("p", ["0.5", "1"], right=True)]
    )
    assert [width_of(line) for line in lines] == [40, 40, 40]
    assert "…" in lines[1]


def test_cells_of_a_file_cannot_control_the_terminal() -> None:
    assert printable("a\x1b[31mb\nc") == "a?[31mb c"


def test_numbers_read_well() -> None:
    assert [probability(p) for p in (0.0, 1e-9, 0.25, 1 - 1e-9, 1.0)] == [
        "0",
        "<.0001",
        "0.2500",
        ">.9999",
        "1",
    ]
    assert [quantity(x) for x in (3.0, 1234.5678, 4e6 + 0.25)] == ["3", "1,234.568", "4,000,000.2"]
    assert [seconds(s) for s in (0.00123, 0.5, 42.0)] == ["1.2 ms", "0.50 s", "42 s"]


def test_count_tables_group_many_counts_into_ranges() -> None:
    terminal = Terminal(io.StringIO())
    probs = np.exp(tt.CountModel(np.zeros(10_000)).count_log_probs())
    lines = count_table(terminal, {"posterior": probs})
    assert 5 <= len(lines) - 1 <= 17
    shown = sum(float(line.split()[1]) for line in lines[1:])
    assert shown == pytest.approx(1.0, abs=2e-3)
    assert "median 5,000" in quantiles(probs)
    assert count_table(terminal, {"posterior": np.array([0.0, 0.5, 0.5])})[1].split()[:2] == ["1", "0.5000"]


# -- how it ends -------------------------------------------------------------------------------------------------


def raising(error: BaseException) -> Callable[..., None]:
    def run(*_: object) -> None:
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "tallytree: interrupted.\n"),
        (BrokenPipeError(), 141, ""),
        (MemoryError(), 1, "tallytree: not enough memory for this model.\n"),
        (
            KeyError("x"),
            1,
            "tallytree: internal error: KeyError: 'x'. Please report it with the output of --debug.\n",
        ),
    ],
)
def test_interrupts_and_faults_end_cleanly(
    data: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int,
    message: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(infer, "read_table", raising(error))
    monkeypatch.setattr("tallytree.cli.command._discard_output", lambda: None)
    assert main(["infer", data]) == code
    assert capsys.readouterr().err == message


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--debug", "infer", "none.csv"], ["infer", "none.csv", "--debug"]):
        assert main(words) == 2
        message = capsys.readouterr().err
        assert "Traceback" in message
        assert message.splitlines()[-1].startswith("tallytree: cannot read none.csv")


@pytest.mark.filterwarnings("default")
def test_warnings_are_notes(
    data: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(*_: object) -> tt.CountModel:
        warnings.warn("slow today", RuntimeWarning, stacklevel=1)
        return tt.CountModel(LOGITS)

    monkeypatch.setattr(infer, "build", build)
    assert main(["infer", data, "--quiet"]) == 0
    assert capsys.readouterr().err == "tallytree: note: slow today\n"


def test_the_real_command_survives_a_closed_pipe(data: str) -> None:
    command = [
        sys.executable,
        "-m",
        "tallytree.cli",
        "infer",
        data,
        "--count",
        "exactly:3",
        "--output",
        "out.csv",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # the reader goes before anything is printed
    assert process.stderr.read() == b""
    assert process.wait(60) == 141
    process.stderr.close()
    assert_answers("out.csv", tt.CountModel(LOGITS, tt.exactly(3)))
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 2
    assert again.stderr.startswith("tallytree: out.csv exists already")
