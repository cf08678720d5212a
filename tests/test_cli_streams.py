"""The command among other commands: pipes in, full and closed streams out, interrupts."""

from __future__ import annotations

import io
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tallytree as tt
from cli_files import LOGITS, Run
from tallytree.cli import main

pytestmark = pytest.mark.usefixtures("cli_folder")
COMMAND = f"{shlex.quote(sys.executable)} -c 'from tallytree.cli import main; raise SystemExit(main())'"


def shell(line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        line.replace("tallytree", COMMAND), shell=True, capture_output=True, text=True, timeout=120
    )


def test_a_dash_and_a_pipe_are_read_like_a_file(data: str, good: Run) -> None:
    wanted = good("infer", data, "--count", "exactly:3").splitlines()
    asked = "--count exactly:3"
    for line in (
        f"cat {data} | tallytree infer - {asked}",
        f"cat {data} | tallytree infer /dev/stdin {asked}",
        f"tallytree infer - {asked} < {data}",
    ):
        run = shell(line)
        assert (run.returncode, run.stderr) == (0, "")
        rows = run.stdout.splitlines()
        assert [r for r in rows[1:] if "time" not in r] == [r for r in wanted[1:] if "time" not in r]


def test_a_dash_in_the_process_itself(data: str, good: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    content = Path(data).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert good("infer", "-", "--count", "exactly:3").startswith("standard input ")
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(b"count,f\n0,1\n1,1\n2,0\n3,0\n4,0\n5,0\n6,0\n"))
    )
    model = tt.CountModel(LOGITS, tt.at_most(1))
    assert f"{model.log_partition:.6f}" in good("infer", data, "--table", "-")


def test_parquet_comes_through_a_pipe(data: str, good: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    good("infer", data, "--output", "in.parquet", "--quiet")
    content = Path("in.parquet").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert "6 variables" in good("infer", "-", "--column", "logit")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "standard input is empty"),
        (b"name,logit\na,x\n", "standard input, line 2: column `logit` must hold numbers"),
        ("logit\n1\n".encode("utf-16"), "standard input is UTF-16 text"),
        (b"PAR1 and nothing more", "standard input is not a readable Parquet file"),
    ],
)
def test_bad_streams_get_a_message(
    bad: Run, monkeypatch: pytest.MonkeyPatch, content: bytes, message: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert message in bad("infer", "-")
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input: it is closed" in bad("infer", "-")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_behind_the_output_is_a_message(data: str) -> None:
    for words in (f"infer {data}", "--help", "infer --count help", "config"):
        run = shell(f"tallytree {words} > /dev/full")
        assert run.returncode == 1
        assert run.stderr == "tallytree: cannot write the output: no space left on device.\n"
    assert shell("tallytree infer none.csv 2> /dev/full").returncode == 2


def test_a_closed_output_is_a_message(data: str) -> None:
    run = shell(f"tallytree infer {data} >&-")
    assert run.returncode == 1
    assert run.stderr == "tallytree: cannot write the output: standard output is closed.\n"
    assert shell(f"tallytree infer {data} --quiet --output out.csv >&-").returncode == 0
    assert Path("out.csv").exists()
    run = shell("tallytree infer none.csv 2>&-")
    assert (run.returncode, run.stdout) == (2, "")


@pytest.mark.parametrize(
    "words", [["infer", "--count", "help"], ["infer", "x.csv", "--group-count", "a", "help"]]
)
def test_help_in_place_of_a_potential_lists_them(words: list[str], good: Run) -> None:
    printed = good(*words)
    assert "between:lo:hi" in printed
    assert "noisy_or:rate[:leak][:t]" in printed


# The signal is set as a terminal leaves it: a shell that starts the tests in the background has it ignored.
SLOW_IMPORT = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
class Slow:
    def find_spec(self, name, *_):
        if name == "numpy":
            print("importing", flush=True)
            time.sleep(60)
sys.meta_path.insert(0, Slow())
import tallytree.cli
tallytree.cli.main()
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupt_during_the_import_is_quiet() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_IMPORT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors == ""


INTERRUPTED_IMPORT = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupt:
    def find_spec(self, name, *_):
        if name == "pandas":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from tallytree.chunked.chunk import require
try:
    require("pyarrow", "Reading Parquet files")
except KeyboardInterrupt:
    print("heard", hasattr(sys.modules["pandas"], "DataFrame"))
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interrupt_while_pyarrow_imports_pandas_is_heard() -> None:
    """By itself pyarrow takes it for a pandas that is not there, and goes on."""
    pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    run = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, text=True, timeout=60
    )
    assert run.stdout == "heard True\n", run.stderr


def test_main_returns_the_code_of_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["infer", "--help"]) == 0
    assert "reads standard input" in " ".join(capsys.readouterr().out.split())
