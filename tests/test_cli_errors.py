"""Bad input gets a message, never a traceback."""

from __future__ import annotations

import os

import pytest

from cli_files import Run, text, write
from tallytree.cli import main

pytestmark = pytest.mark.usefixtures("cli_folder")


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
        (b"name,logit\na,1\nb,x1\n", "in.csv, line 3: column `logit` must hold numbers; 'x1' arrived"),
        (b'name,logit\n"a\n\nb",1\n\nc,x1\n', "in.csv, line 6: column `logit` must hold numbers"),
        (b"logit\n1\n1_000\n", "line 3: column `logit` must hold numbers; '1_000' arrived"),
        (
            b'logit\n1\n"1,5"\n',
            "line 3: column `logit` must hold numbers with a decimal point; '1,5' arrived",
        ),
        (b"name,logit\na,1\nb,\n", "line 3: column `logit` is empty"),
        (b"name,logit\na,1\nb,NaN\n", "line 3: column `logit` is NaN"),
        (b"prob\n0.5\n1.5\n", "line 3: column `prob` must hold probabilities between 0 and 1; 1.5 arrived"),
        (b"prob\n-0.5\n", "line 2: column `prob` must hold probabilities between 0 and 1; -0.5 arrived"),
        (b"prob\ninf\n", "line 2: column `prob` must hold probabilities between 0 and 1; inf arrived"),
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
        ("count,f\n0.5,1\n", "t.csv, line 2: `count` must be 0, 1, 2, ...; 0.5 arrived"),
        ("count,f\n0,1\n-1,1\n", "t.csv, line 3: `count` must be 0, 1, 2, ...; -1 arrived"),
        (
            "count,f\n0,1\n1,-2\n",
            "t.csv, line 3: `f` must be 0 (impossible) or a positive number; -2 arrived",
        ),
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
    assert "column `name` must hold numbers; 'v0' arrived" in bad(
        "infer", data, "--column", "name", "--scale", "prob"
    )


def test_bad_potentials_name_the_argument_and_the_group(data: str, bad: Run) -> None:
    assert bad("infer", data, "--count", "exactly").startswith("--count: `exactly` must be written exactly:k")
    assert "Known are" in bad("infer", data, "--count", "exactl:1")
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
    assert "gives probability zero to every configuration: all rows: exactly(1); `hall` = " in message
    assert "cannot be true together" in message
    assert "group" not in message  # they have no numbers on the command line
    write("c.csv", ["logit"], [["inf"], ["inf"]])
    assert "all rows: exactly(1) cannot be true. Relax" in bad("infer", "c.csv", "--count", "exactly:1")


def test_a_potential_that_is_nearly_right_is_recognised(data: str, bad: Run) -> None:
    assert "Did you mean exactly:12?" in bad("infer", data, "--count", "12")
    assert "Did you mean at_least:k?" in bad("infer", data, "--count", "at-least:1")


def test_usage_errors_point_to_the_help(data: str, bad: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert bad("infer").endswith("Try `tallytree infer --help`.\n")
    assert "invalid choice: 'frobnicate'" in bad("frobnicate")
    assert "must be 0 or a positive integer; '-1' arrived" in bad("infer", data, "--top", "-1")
    assert "expected 2 arguments" in bad("infer", data, "--group-count", "hall")
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().err
