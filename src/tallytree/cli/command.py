"""The ``tallytree`` command: arguments, exit codes, and messages instead of tracebacks."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from ..config import show_config
from ..engine.count.infer import METHODS
from ..errors import TallyTreeError
from ..potentials.parsing import usage
from . import demo, infer
from .tables import UsageProblem, reason

_OK, _FAILED, _BAD_INPUT, _INTERRUPTED, _BROKEN_PIPE = 0, 1, 2, 130, 141

_ABOUT = "Exact inference for binary variables with potentials on how many are on."
_INFER_ABOUT = """\
Posterior probability that each row of FILE is on, given what is known about
counts. FILE is CSV (plain or gzip) or Parquet with a header; column `logit`
holds log-odds, or column `prob` probabilities.
"""
_MOVED = """\
`reproduce` left the package: the experiments of the paper are beside it, in the source tree.
Run `python -m reproduction all --quick` in a checkout or an unpacked source distribution."""
_SPECS = """\
SPEC, a potential on a count:
  exactly:12   at_least:1   at_most:3   between:1:3   one_of:0,3   parity:even
  noisy_or:0.2:leak=0.01   gaussian:4:0.8   poisson:3.5   ("help" lists all)

examples:
  tallytree infer valves.csv --count exactly:12
  tallytree infer valves.csv --count at_most:9 --group-count hall between:1:3
  tallytree infer scores.parquet --table counts.csv --output posterior.csv
  tallytree infer scores.parquet --group-counts store positives.csv
  tallytree infer scores.parquet --group-count store exactly:@positives
  sort -u valves.csv | tallytree infer - --count exactly:12
"""


class _Potentials(argparse.Action):
    """Collect potentials; "help" in place of one lists them all, as ``--help`` lists the arguments."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        spec = values if isinstance(values, str) else values[-1]
        if spec == "help":
            print("SPEC, a potential on a count, is one of", *usage(), sep="\n  ")
            parser.exit(_OK)
        setattr(namespace, self.dest, [*getattr(namespace, self.dest), values])


class _Parser(argparse.ArgumentParser):
    """A parser that reports errors as this program does and takes options only in full."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stdout).write(message)  # argparse would swallow that it cannot be written

    def error(self, message: str) -> NoReturn:
        raise UsageProblem(f"{message}\nTry `{self.prog} --help`.")


def _not_negative(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else -1
    if number < 0:
        raise argparse.ArgumentTypeError(f"must be 0 or a positive integer; {text!r} arrived")
    return number


def _delimiter(text: str) -> str:
    named = {"tab": "\t", "\\t": "\t"}.get(text, text)
    if len(named) != 1 or not named.isascii() or named in '"\r\n':
        raise argparse.ArgumentTypeError(f"must be one character, or tab; {text!r} arrived")
    return named


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    from .. import __version__

    common = _Parser(add_help=False)
    common.add_argument(
        "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
    )
    top = _Parser(prog="tallytree", description=_ABOUT, parents=[common])
    top.add_argument("--version", action="version", version=f"tallytree {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)

    def command(name: str, run: Any, text: str, **settings: Any) -> _Parser:
        settings = {"description": text.capitalize() + "."} | settings
        sub: _Parser = commands.add_parser(name, help=text, parents=[common], **settings)
        sub.set_defaults(run=run)
        return sub

    command("demo", demo.run, "a small model with all its answers, and a large one timed")
    settings = {"epilog": _SPECS, "formatter_class": argparse.RawDescriptionHelpFormatter}
    about = "posteriors of the rows of a file, given counts"
    _add_arguments(command("infer", infer.run, about, description=_INFER_ABOUT, **settings))
    command("config", lambda _: show_config(), "engine, instruction set, threads and versions in use")
    return top


def _add_arguments(sub: _Parser) -> None:
    """The arguments of ``infer``."""
    text = "CSV or Parquet file, one row per variable; - reads standard input"
    sub.add_argument("file", metavar="FILE", help=text)
    add = sub.add_argument_group("numbers").add_argument
    add("--column", metavar="NAME", help="column with log-odds or probabilities (default: logit or prob)")
    add("--scale", choices=("logit", "prob"), help="what it holds, if its name does not say it")
    text = "what separates the cells of a CSV file: a character, or tab (default: tab for .tsv, else a comma)"
    add("--delimiter", metavar="CHAR", type=_delimiter, help=text)
    text = "do not hold all rows in memory; large files are always read like this (needs pyarrow)"
    add("--stream", action="store_true", help=text)

    add = sub.add_argument_group("what is known of counts (several multiply)").add_argument
    several: dict[str, Any] = {"action": _Potentials, "default": []}
    add("--count", metavar="SPEC", help="potential on how many of all rows are on", **several)
    text = "the same as a table: a file with columns count and log_f (or f)"
    add("--table", metavar="FILE", action="append", default=[], help=text)
    text = "rows with equal text in COLUMN are a group, whose count is reported; empty cells are in no group"
    add("--group", metavar="COLUMN", action="append", default=[], help=text)
    text = "potential on the count of each group; @NAME takes a number from a column: exactly:@positives"
    add("--group-count", metavar=("COLUMN", "SPEC"), nargs=2, help=text, **several)
    text = "exact count of each group: a CSV or Parquet file with columns group and count"
    add("--group-counts", metavar=("COLUMN", "FILE"), nargs=2, action="append", default=[], help=text)
    text = "potential on the count of each group as a table, see --table; smaller groups use its first rows"
    add("--group-table", metavar=("COLUMN", "FILE"), nargs=2, action="append", default=[], help=text)
    text = "method of inference, to compare methods (default: auto)"
    sub.add_argument("--method", choices=METHODS, default="auto", metavar="NAME", help=text)

    add = sub.add_argument_group("output").add_argument
    text = "write all columns, posterior_prob and posterior_logit to this .csv or .parquet file"
    add("--output", metavar="OUT", help=text)
    add("--force", action="store_true", help="replace OUT if it exists")
    add("--top", metavar="N", type=_not_negative, default=10, help="rows to print (default: 10)")
    text = "print the rows with the largest posterior, or with the largest change of it"
    add("--by", choices=("posterior", "change"), default="posterior", help=text)
    add("--counts", action="store_true", help="print the count distribution of large files too")
    add("--quiet", action="store_true", help="print nothing")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; the result is the exit code.

    0 is success, 2 bad arguments or input (a message on standard error starts with ``tallytree:``), 1 an error of the
    program itself or output that cannot be written, 130 an interrupt.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    if sys.stdout is None:  # closed by whoever started the command
        sys.stdout = _Closed()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _note
            return _command(words)
    except TallyTreeError as error:
        return _complain(str(error), _BAD_INPUT, debug)
    except BrokenPipeError:
        _discard_output()
        return _BROKEN_PIPE
    except KeyboardInterrupt as error:
        return _complain(f"interrupted{str(error) and ': '}{error}.", _INTERRUPTED, debug)
    except OSError as error:  # files have messages of their own; this is standard output
        _discard_output()
        return _complain(f"cannot write the output: {reason(error)}.", _FAILED, debug)
    except MemoryError:
        return _complain("not enough memory for this model.", _FAILED, debug)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        return _complain(
            f"internal error: {what}. Please report it with the output of --debug.", _FAILED, debug
        )


def _command(words: list[str]) -> int:
    if words[:1] == ["reproduce"]:
        raise UsageProblem(_MOVED)
    top = parser()
    try:
        arguments = top.parse_args(words)
    except SystemExit as stop:  # after --help and the like
        sys.stdout.flush()
        return int(stop.code or _OK)
    if not hasattr(arguments, "run"):
        top.print_help(sys.stderr)
        return _BAD_INPUT
    arguments.run(arguments)
    sys.stdout.flush()  # here a closed pipe shows
    return _OK


def _complain(message: str, code: int, debug: bool) -> int:
    if sys.stderr is None:  # closed; print would turn to standard output
        return code
    with suppress(OSError):
        if debug:
            traceback.print_exc()
        print(f"tallytree: {message}", file=sys.stderr)
    return code


def _note(message: Warning | str, *_: object, **__: object) -> None:
    print(f"tallytree: note: {message}", file=sys.stderr)


class _Closed(io.TextIOBase):
    """A standard output that is not there: whatever is written fails, as on a closed file."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        raise OSError(errno.EBADF, "standard output is closed")


def _discard_output() -> None:
    """Let the interpreter flush what is left into nothing, not into the closed pipe."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
