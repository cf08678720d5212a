"""What the command line prints, and how it ends."""

from __future__ import annotations

import io
import subprocess
import sys
import warnings
from collections.abc import Callable

import numpy as np
import pytest

import tallytree as tt
from cli_files import LOGITS, Run, assert_answers, columns, write
from oracle_states import all_states
from tallytree.cli import demo, infer, main
from tallytree.cli.terminal import (
    Column,
    Terminal,
    count_table,
    printable,
    probability,
    quantiles,
    quantity,
    seconds,
    width_of,
)

pytestmark = pytest.mark.usefixtures("cli_folder")


def test_help_and_version_exit_with_zero(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--version"], ["--help"], ["infer", "--help"], ["demo", "--help"]):
        assert main(words) == 0
        printed = capsys.readouterr().out
        assert all(len(line) <= 80 for line in printed.splitlines())
    main_version = f"tallytree {tt.__version__}\n"
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == main_version


def test_config_is_show_config(good: Run, capsys: pytest.CaptureFixture[str]) -> None:
    printed = good("config")
    tt.show_config()
    assert printed == capsys.readouterr().out


def test_reproduce_says_where_it_went(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "all", "--quick"]) == 2
    assert "python -m reproduction all --quick" in capsys.readouterr().err


# -- output ------------------------------------------------------------------------------------------------------


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
    monkeypatch.setattr("tallytree.cli.infer._MOST_COUNTED", 3)
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
    everything = all_states((2,) * n)
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

    monkeypatch.setattr("tallytree.cli.questions.Question.model", build)
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
