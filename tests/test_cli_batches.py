"""``tallytree infer`` in batches: the same answers, packed and separated files, constant memory, early messages."""

from __future__ import annotations

import gzip
import io
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tallytree as tt
from cli_files import HALLS, LOGITS, Run, columns, text, write
from mortal import run_until_it_lives

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.usefixtures("cli_folder")
ASKED = ("--count", "exactly:3")


def table(path: str, between: str = ",", packed: bool = False) -> str:
    lines = [f"name{between}logit{between}hall"]
    lines += [f"v{i}{between}{x!r}{between}{h}" for i, (x, h) in enumerate(zip(LOGITS, HALLS))]
    content = ("\n".join(lines) + "\n").encode()
    return text(path, gzip.compress(content) if packed else content)


FILES = {
    "plain.csv": (",", False, ()),
    "packed.csv.gz": (",", True, ()),
    "tabs.tsv": ("\t", False, ()),
    "tabs.tsv.gz": ("\t", True, ()),
    "semicolons.csv": (";", False, ("--delimiter", ";")),
    "bars.txt": ("|", False, ("--delimiter", "|")),
    "tabs.txt": ("\t", False, ("--delimiter", "tab")),
}


@pytest.mark.parametrize("stream", [(), ("--stream",)], ids=["memory", "batches"])
@pytest.mark.parametrize("name", FILES)
def test_packed_and_separated_files_are_read(name: str, stream: tuple[str, ...], good: Run) -> None:
    between, packed, options = FILES[name]
    good("infer", table(name, between, packed), *ASKED, *options, *stream, "--output", "out.csv", "--quiet")
    model = tt.CountModel(LOGITS, tt.exactly(3))
    found = columns("out.csv")
    assert found["name"] == [f"v{i}" for i in range(6)]
    assert [float(x) for x in found["posterior_prob"]] == pytest.approx(model.marginals, abs=1e-14)
    assert [float(x) for x in found["posterior_logit"]] == pytest.approx(model.posterior_logits, abs=1e-12)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_batches_give_the_answers_and_the_cells_of_the_file(ending: str, good: Run) -> None:
    import pyarrow.parquet as parquet

    good("infer", table("in.csv"), *ASKED, "--output", "in.parquet", "--quiet")
    for name in ("in.csv", "in.parquet"):
        column = () if name == "in.csv" else ("--column", "logit")
        if name == "in.parquet":
            kept = parquet.read_table(name).drop_columns(["posterior_prob", "posterior_logit"])
            parquet.write_table(kept, name)
        out = f"{name}.out.{ending}"
        good("infer", name, *ASKED, *column, "--stream", "--output", out, "--quiet")
        if ending == "csv":
            found = columns(out)
            probs, halls = [float(x) for x in found["posterior_prob"]], found["hall"]
        else:
            read = parquet.read_table(out)
            assert str(read.schema.field("logit").type) == "double"
            probs, halls = read["posterior_prob"].to_pylist(), read["hall"].to_pylist()
        assert probs == pytest.approx(tt.CountModel(LOGITS, tt.exactly(3)).marginals, abs=1e-14)
        assert halls == HALLS


def test_groups_and_probabilities_in_batches(good: Run) -> None:
    probs = [0.1, 0.7, 0.0, 0.4, 1.0, 0.5]
    write("p.csv", ["prob", "hall"], list(zip(probs, HALLS)))
    good(
        "infer",
        "p.csv",
        "--group-count",
        "hall",
        "at_most:1",
        "--count",
        "at_least:2",
        "--stream",
        "--output",
        "o.csv",
    )
    with np.errstate(divide="ignore"):
        logits = np.log(probs) - np.log1p(-np.array(probs))
    groups = [
        tt.Group([0, 1], tt.at_most(1)),
        tt.Group([2, 3, 4], tt.at_most(1)),
        tt.Group(None, tt.at_least(2)),
    ]
    wanted = tt.CountModel(logits, groups).marginals
    assert [float(x) for x in columns("o.csv")["posterior_prob"]] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("stream", [(), ("--stream",)], ids=["memory", "batches"])
def test_a_missing_label_of_a_parquet_file_is_in_no_group(stream: tuple[str, ...], good: Run) -> None:
    logits = np.array([0.0, 1.0, 2.0, 3.0])
    columns = {"numbers": [1.0, np.nan, np.nan, 1.0], "texts": ["a", None, None, "a"]}
    pq.write_table(pa.table({"logit": logits, **columns}), "x.parquet")
    for column in columns:
        question = ("infer", "x.parquet", "--group-count", column, "exactly:1", *stream)
        good(*question, "--output", "out.parquet", "--force")
        found = pq.read_table("out.parquet").column("posterior_prob").to_numpy()
        wanted = tt.CountModel(logits, [tt.Group([0, 3], tt.exactly(1))]).marginals
        assert np.allclose(found, wanted, atol=1e-12)


def test_what_is_printed_says_the_same_in_batches(good: Run) -> None:
    shown = good("infer", table("in.csv"), *ASKED, "--stream", "--top", "2")
    model = tt.CountModel(LOGITS, tt.exactly(3))
    assert f"{model.log_partition:.6f}" in shown
    assert "always 3" in shown
    assert "v2" in shown
    assert "The 2 most probable rows" in shown
    assert "read in batches" in shown


def test_standard_input_is_streamed(good: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    content = Path(table("in.csv.gz", packed=True)).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert good("infer", "-", *ASKED, "--stream", "--output", "o.csv").startswith("standard input")
    assert len(columns("o.csv")["posterior_prob"]) == 6


@pytest.mark.parametrize("stream", [(), ("--stream",)], ids=["memory", "batches"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--column", "logits", "--scale", "logit"), "has no column `logits`"),
        (("--group-count", "site", "exactly:1"), "has no column `site`"),
        (("--output", "out.csv"), "already has a column `posterior_prob`"),
    ],
)
def test_a_missing_column_is_reported_before_a_row_is_read(
    options: tuple[str, ...], message: str, stream: tuple[str, ...], bad: Run
) -> None:
    text(
        "broken.csv", b'name,logit,posterior_prob\na,1,1\n"unfinished,x\nb'
    )  # rows that no reader would take
    assert message in bad("infer", "broken.csv", *options, *stream)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"name,logit\n", "has a header but no rows"),
        (b"name,logit\na,1\nb,\n", "row 2: column `logit` is empty. Every row"),
        (b"name,logit\na,1\nb,nan\n", "row 2: column `logit` is NaN"),
        (b"name,logit\na,x\n", "row 1: column `logit` must hold numbers; 'x' arrived"),
        (b"name,logit\na,1\nb,1,2\n", "is not a readable CSV file"),
        (b"logit,logit\n1,2\n", "more than one column `logit`"),
        (b"name,prob\na,1.5\n", "between 0 and 1; 1.5 arrived"),
        (gzip.compress(b"name,logit\na,1\n", mtime=0)[:-9], "ends"),
    ],
)
def test_bad_files_get_a_message_in_batches(content: bytes, message: str, bad: Run) -> None:
    text("bad.csv", content)
    assert message in bad("infer", "bad.csv", "--stream", "--output", "out.csv")
    assert sorted(p.name for p in Path().iterdir() if p.name != "valves.csv" and "out" in p.name) == []


def test_what_batches_cannot_do_is_said(bad: Run) -> None:
    path = table("in.csv")
    assert "takes groups of one column" in bad(
        "infer", path, "--stream", "--group-count", "hall", "exactly:1", "--group-count", "name", "at_most:1"
    )
    assert "--method chooses" in bad("infer", path, "--stream", "--method", "tree")
    assert "must be one character" in bad("infer", path, "--delimiter", "::")


def test_a_long_file_is_streamed_where_the_question_allows_it(
    good: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallytree.cli.infer.LONG", 50)
    path = table("in.csv")
    assert "read in batches" in good("infer", path, *ASKED)
    assert "read in batches" in good("infer", table("in.csv.gz", packed=True), *ASKED)
    assert "read in batches" not in good("infer", path, *ASKED, "--method", "tree")
    nested = ("--group-count", "hall", "at_most:2", "--group-count", "name", "at_most:1")
    assert "read in batches" not in good("infer", path, *ASKED, *nested)


def test_numbers_that_hardly_repeat_are_written_without_a_dictionary(good: Run) -> None:
    rng = np.random.default_rng(0)
    pq.write_table(pa.table({"logit": rng.normal(size=50), "hall": np.arange(50) % 2}), "in.parquet")
    good("infer", "in.parquet", "--group-count", "hall", "exactly:9", "--output", "out.parquet")
    tt.ChunkedCountModel("in.parquet", tt.exactly(9), column="logit").marginals(out="m.parquet")
    tt.ChunkedCountModel("in.parquet", tt.exactly(9), column="logit").mode(out="mode.parquet")
    dictionaries = {}
    for name in ("out", "m", "mode"):
        row_group = pq.ParquetFile(f"{name}.parquet").metadata.row_group(0)
        for column in map(row_group.column, range(row_group.num_columns)):
            dictionaries[column.path_in_schema] = column.has_dictionary_page
    assert {name for name, there in dictionaries.items() if there} == {"hall", "mode"}


def test_a_parquet_file_is_as_long_as_its_cells(good: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tallytree.cli.infer.LONG", 16 * 5_000)
    for n in (4_000, 5_000):  # two columns of few values: a kilobyte each
        pq.write_table(pa.table({"logit": np.zeros(n), "hall": np.arange(n) % 2}), "in.parquet")
        assert Path("in.parquet").stat().st_size < 8_000
        monkeypatch.setattr("tallytree.cli.infer._PACKED", 1_000)
        shown = good("infer", "in.parquet", "--group-count", "hall", "exactly:9")
        assert ("read in batches" in " ".join(shown.split())) == (n == 5_000)


_PEAK = """
import resource, sys, tallytree.cli as cli
code = cli.main(sys.argv[1:])
print("peak", code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def test_memory_does_not_grow_with_the_file() -> None:
    pytest.importorskip("resource")
    peaks = []
    for n in (20_000, 1_500_000):
        numbers = np.random.default_rng(0).normal(size=n)
        with open(f"{n}.csv", "w") as file:
            file.write("name,logit\n")
            file.writelines(f"a long label of row {i},{x:.6f}\n" for i, x in enumerate(numbers))
        words = ["infer", f"{n}.csv", "--stream", "--count", f"exactly:{n // 10}", "--output", f"{n}.parquet"]
        run = subprocess.run(
            [sys.executable, "-c", _PEAK, *words], capture_output=True, text=True, timeout=300
        )
        assert run.stdout.splitlines()[-1].startswith("peak 0"), run.stderr
        peaks.append(int(run.stdout.split()[-1]))
    assert (
        peaks[1] < peaks[0] + 330
    )  # megabytes; the table itself would take several hundred in Python objects


@pytest.mark.parametrize("stop", [2, 4, 7])
def test_an_interrupted_command_goes_on(
    stop: int, good: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tallytree._progress import Progress
    from tallytree.cli import main
    from tallytree.cli.arrow import ArrowTable

    rng = np.random.default_rng(0)
    logits, halls = rng.normal(size=300), rng.integers(0, 7, 300)
    write("in.csv", ["logit", "hall"], zip(logits.tolist(), halls.tolist()))
    monkeypatch.setattr("tallytree.chunked.source.CHUNK", 60)
    steps, advance = [0], Progress.advance

    def count(self: Progress, amount: int = 1, *, earlier: bool = False) -> None:
        steps[0] += self._unit == "variables" and not earlier  # chunks of passes
        if steps[0] == stop:
            raise KeyboardInterrupt
        advance(self, amount, earlier=earlier)

    columns_read: list[str] = []
    parts_of = ArrowTable._parts

    def read(self: ArrowTable, name: str, group: int) -> Iterator[object]:
        columns_read.append(name)
        yield from parts_of(self, name, group)

    monkeypatch.setattr(Progress, "advance", count)
    monkeypatch.setattr(ArrowTable, "_parts", read)
    words = [
        "infer",
        "in.csv",
        "--group-count",
        "hall",
        "exactly:5",
        "--stream",
        "--output",
        "out.csv",
        "--quiet",
    ]
    assert main(words) == 130
    assert "the same command goes on where it was" in capsys.readouterr().err
    assert columns_read == ["logit", "hall"]
    stop, steps[0] = -1, 0
    good(*words)
    assert columns_read == ["logit", "hall"]  # what has been read is not read again
    taken = steps[0]
    groups = [tt.Group(np.flatnonzero(halls == h), tt.exactly(5)) for h in range(7)]
    wanted = tt.CountModel(logits, groups).marginals
    assert [float(x) for x in columns("out.csv")["posterior_prob"]] == pytest.approx(wanted, abs=1e-13)
    assert sorted(path.name for path in Path().iterdir()) == ["in.csv", "out.csv"]
    steps[0] = 0
    good(*words, "--force")
    assert taken < steps[0]


_SMALL = """
from tallytree.chunked import source
from tallytree.cli import arrow, main
source.CHUNK, arrow._BLOCK, arrow._ROWS = 60, 2048, 100
raise SystemExit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("in.csv", "out.parquet"),
        ("in.csv.gz", "out.csv"),
        ("in.parquet", "out.csv"),
        ("in.parquet", "out.parquet"),
    ],
)
def test_a_command_that_was_killed_loses_a_chunk_at_the_most(name: str, goal: str) -> None:
    """Columns, posteriors, output: every chunk is written once, but for the one that the command died in."""
    rng = np.random.default_rng(0)
    halls = [f'hall "{i}",\nfloor {i % 7}' for i in np.sort(rng.integers(0, 40, 500))]
    rows = pa.table({"logit": rng.normal(size=500), "hall": halls})
    if name == "in.parquet":
        pq.write_table(rows, name, row_group_size=60)
    else:
        write("in.csv", ["logit", "hall"], zip(*rows.to_pydict().values()))
        Path("in.csv.gz").write_bytes(gzip.compress(Path("in.csv").read_bytes()))
    words = ["infer", name, "--group-count", "hall", "at_most:4", "--stream", "--output"]
    once = run_until_it_lives(_SMALL, [*words, f"whole{goal}"], [], Path())
    points = random.Random(name + goal).choices(range(2, sum(once.values()) // 2), k=3)
    seen = run_until_it_lives(_SMALL, [*words, goal], points, Path())
    assert once["chunk"] > 20
    assert seen["chunk"] <= once["chunk"] + len(points)
    assert Path(goal).read_bytes() == Path(f"whole{goal}").read_bytes()
    assert not list(Path().glob(f".{goal}*"))


@pytest.mark.parametrize(
    "content", [b'a "b,c\n', b"a,b\r"], ids=["quotes out of order", "lines without ends"]
)
def test_a_text_whose_rows_only_a_reader_can_tell_is_read_on(
    content: bytes, good: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tallytree.cli.arrow._BLOCK", 256)
    line, end = content[:-1], content[-1:]
    lines = [b"name,hall,logit", *(line + b",%d" % (i % 5) for i in range(99))]
    Path("in.csv").write_bytes(end.join(lines) + end)
    good("infer", "in.csv", "--count", "exactly:3", "--stream", "--output", "out.csv")
    wanted = tt.CountModel(np.arange(99) % 5.0, tt.exactly(3)).marginals
    assert [float(x) for x in columns("out.csv")["posterior_prob"]] == pytest.approx(wanted, abs=1e-13)


def test_a_file_is_cut_behind_whole_rows() -> None:
    from tallytree.cli.arrow import end_of_rows

    assert end_of_rows(b"a,b\nc,") == 4
    assert end_of_rows(b"a,b\n") == 4
    assert end_of_rows(b"a,b") == 0
    assert end_of_rows(b'a,"b\nc",d\n"e\n"",f\n') == 10
    assert end_of_rows(b'"b\nc') == 0


def test_how_far_columns_and_the_output_are_is_shown_on_a_terminal(
    good: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tqdm")
    write("in.csv", ["logit", "hall"], [(0.5, i % 3) for i in range(30)])
    words = ["infer", "in.csv", "--group-count", "hall", "exactly:5", "--stream", "--output", "out.csv"]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    from tallytree.cli import main

    assert main(words) == 0
    shown = capsys.readouterr().err
    for what in ("reading logit", "reading hall", "groups", "marginals", "posterior_logits", "writing"):
        assert f"\r{what}: " in shown
    assert main([*words, "--quiet", "--force"]) == 0
    assert capsys.readouterr().err == ""


def test_a_column_that_is_only_named_is_not_said_twice(good: Run) -> None:
    write("in.csv", ["logit", "hall"], [(0.5, i % 3) for i in range(30)])
    write("counts.csv", ["group", "count"], [(0, 1), (1, 2), (2, 3)])
    shown = good("infer", "in.csv", "--group", "hall", "--group-counts", "hall", "counts.csv")
    assert "exactly its count in counts.csv" in shown
    assert "uniform" not in shown
    assert "uniform" in good("infer", "in.csv", "--group", "hall")
