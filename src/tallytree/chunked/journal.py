"""The journal of an output: which chunks are finished, so that a run that was killed goes on where it was.

One line of JSON per finished chunk, behind a header that says what is being written. It stands beside the output as
long as this has its provisional name. A last line that was cut short by a crash counts as not written.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import OutputError

_VERSION = 1


class Entry(NamedTuple):
    """Fingerprints of what was read and of what was written."""

    source: int
    written: int


class Journal:
    """Finished chunks of one output."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self._header = {"tallytree": _VERSION, **header}
        self.finished: dict[int, Entry] = {}

    def open(self, target: Path) -> bool:
        """Read what an earlier run left; True if there is something to go on with."""
        try:
            lines = self.path.read_text("utf-8").split("\n")[
                :-1
            ]  # behind the last newline: nothing, or half a line
        except FileNotFoundError:
            return False
        if not lines:
            return False
        if _parsed(lines[0]) != self._header:
            raise OutputError(
                f"`out`: beside {target} lies the unfinished output of another model or question, "
                f"{self.path.name}. Pass overwrite=True to start again, or choose another name."
            )
        for line in lines[1:]:
            entry = _parsed(line)
            if entry is not None:
                self.finished[int(entry["chunk"])] = Entry(int(entry["source"]), int(entry["written"]))
        return True

    def start(self) -> None:
        """Begin anew."""
        self.finished = {}
        self.path.write_text(json.dumps(self._header) + "\n", "utf-8")

    def add(self, chunk: int, entry: Entry) -> None:
        """Note a chunk that has been written."""
        line = json.dumps({"chunk": chunk, "source": entry.source, "written": entry.written}) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)
        self.finished[chunk] = entry

    def forget(self) -> None:
        """Remove the journal of a finished output."""
        with suppress(FileNotFoundError):
            self.path.unlink()


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None
