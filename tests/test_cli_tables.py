"""Tables of the command line: two readers of CSV, by hand and by pyarrow, that must agree on everything."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallytree.cli import tables
from tallytree.cli.arrow import ArrowTable, first_lines, quotes_in_order
from tallytree.cli.tables import InputProblem, TextTable, read_table

pytest.importorskip("pyarrow")

GOOD = [
    b"a,b\n1,x\n2,y\n",
    b"a,b\r\n1,x\r\n\r\n2,y",
    b"a,b\r1,x\r2,y\r",
    b'\xef\xbb\xbf"a","b"\n"1","x, ""y"""\n\n"2","over\nlines"\n3,\n',
    b'a,b\n-inf,"\r\n"\n1e-320, z\n',
    "a,b\n0.1,Zürich\n".encode(),
    b'a,b\n 1 ,x"y\n+2,NA\n',  # numbers that only Python reads, and a quote inside an open cell
    b"a\n1\n\n2\n",
    b"\n\na,b\n1,x\n",
]
BAD = [
    b"a,b\n1,x\n2\n",
    b"a,b\n1,x,y\n",
    b'a,b\n1,"x"y\n',
    b'a,b\n1,"x\n',
    b"a,b\n1,x\n2,\xff\n",
    b" , \n1,2\n",
    b"",
]

FIRST = np.array([0])


def read(content: bytes, many: int, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(tables, "_MANY", many)
    monkeypatch.setattr(tables, "source_of", lambda *_: tables.Source("file.csv", content))
    try:
        return read_table("file.csv")
    except InputProblem as problem:
        return str(problem)


@pytest.mark.parametrize("content", GOOD)
def test_both_readers_of_csv_see_the_same(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    hand, arrow = read(content, 10**9, monkeypatch), read(content, 0, monkeypatch)
    assert isinstance(hand, TextTable)
    assert isinstance(arrow, TextTable if b'x"y' in content else ArrowTable)
    assert arrow.names == hand.names
    assert [tuple(row) for row in arrow.rows()] == [tuple(row) for row in hand.rows()]
    assert [arrow.number_of(i) for i in range(len(hand.text))] == list(hand.first_lines)
    np.testing.assert_array_equal(arrow.numbers("a"), hand.numbers("a"))
    for name in hand.names:
        assert arrow.codes(name).values == hand.codes(name).values
        np.testing.assert_array_equal(arrow.codes(name).codes, hand.codes(name).codes)
        assert arrow.cells(FIRST, [name]) == hand.cells(FIRST, [name])


@pytest.mark.parametrize("content", BAD)
def test_a_file_that_is_refused_is_refused_in_the_same_words(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = read(content, 10**9, monkeypatch)
    assert isinstance(said, str)
    assert read(content, 0, monkeypatch) == said


@pytest.mark.parametrize("cell", ["", " ", "x", "1_000", "nan", "NaN", "1,5", "0x10", "1e5f", "1 2", "--1"])
def test_a_cell_that_is_no_number_is_refused_in_the_same_words(
    cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = f'a,b\n1,x\n\n"{cell}",y\n'.encode()
    words = []
    for many in (10**9, 0):
        with pytest.raises(InputProblem) as problem:
            read(content, many, monkeypatch).numbers("a")  # type: ignore[attr-defined]
        words.append(str(problem.value))
    assert words[0] == words[1]
    assert words[0].startswith("file.csv, line 4: column `a` ")


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_numbers_are_read_to_the_last_bit(values: list[float]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        table = read("a\n{}\n".format("\n".join(map(repr, values))).encode(), 0, patch)
    assert isinstance(table, ArrowTable)
    np.testing.assert_array_equal(table.numbers("a"), values)


@given(st.text(alphabet='a,"\n\r', max_size=14))
def test_any_arrangement_of_quotes_and_lines_is_judged_as_by_the_strict_reader(text: str) -> None:
    content = ("h,i\n" + text).encode()
    array = np.frombuffer(content, np.uint8)
    reader = csv.reader(io.StringIO(content.decode(), newline=""), strict=True)
    starts, line = [], 0
    try:
        for row in reader:
            starts += [line + 1] if row else []
            line = reader.line_num
    except csv.Error:
        assert not quotes_in_order(array, ",")
        return
    if quotes_in_order(array, ","):
        assert first_lines(array).tolist() == starts
    with pytest.MonkeyPatch.context() as patch:
        hand, arrow = read(content, 10**9, patch), read(content, 0, patch)
    if isinstance(hand, str):
        assert arrow == hand
    else:
        assert [tuple(row) for row in arrow.rows()] == [tuple(row) for row in hand.rows()]  # type: ignore[attr-defined]


def test_large_files_are_read_by_pyarrow_and_written_with_their_cells(tmp_path: Path) -> None:
    from tallytree.cli import main

    rng = np.random.default_rng(0)
    logits, n = rng.normal(size=60_000), 60_000
    lines = [f'"row {i}, as it was",{logit!r}' for i, logit in enumerate(logits.tolist())]
    path, out = tmp_path / "large.csv", tmp_path / "out.csv"
    path.write_text("name,logit\n" + "\n".join(lines) + "\n")
    assert isinstance(read_table(str(path)), ArrowTable)
    assert main(["infer", str(path), "--count", "exactly:1000", "--output", str(out), "--quiet"]) == 0
    with open(out, newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["name", "logit", "posterior_prob", "posterior_logit"]
    assert [row[0] for row in rows] == [f"row {i}, as it was" for i in range(n)]
    assert [float(row[1]) for row in rows] == logits.tolist()
    assert sum(float(row[2]) for row in rows) == pytest.approx(1000.0, rel=1e-12)
