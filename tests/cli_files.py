"""What the tests of the command line share: files, and commands that must succeed or fail."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import tallytree as tt

LOGITS = [0.5, -1.25, 2.0, -0.75, 0.1, -2.5]
HALLS = ["a", "a", "b", "b", "b", ""]
SITES = ["n", "n", "s", "s", "s", "s"]

Run = Callable[..., str]


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
