"""Folders for temporary files: sorted columns, and what the passes of an interrupted run have found.

In a folder that the user has named, work that was interrupted stays, and the next model of the same data goes on after
the last finished chunk.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any

import numpy as np

from .._version import __version__
from ..errors import TallyTreeError
from .journal import Journal
from .sink import IntoFile, reserve
from .source import Source

Found = tuple[tuple[int, int], Any]  # number and fingerprint of a chunk, and what a task made of it


class Scratch:
    """A folder for temporary files, removed with this object; a copy in another process leaves it alone.

    In a folder that the user has named it bears the name of what it is for, and stays while work of its model is
    `unfinished`, a list that all folders of the model share.
    """

    def __init__(self, parent: str | os.PathLike[str] | None, name: str, unfinished: list[str]) -> None:
        self._unfinished = unfinished
        if parent is None:
            self.path = tempfile.mkdtemp(prefix="tallytree-")
        else:
            self.path = str(Path(parent).absolute() / f".tallytree-{name}")
            if not _claimed(self.path):  # another model of the same data has it
                self.path = tempfile.mkdtemp(prefix=f".tallytree-{name}-", dir=parent)
            os.makedirs(self.path, exist_ok=True)
            Path(self.path, "owner").write_text(str(os.getpid()), "utf-8")
        weakref.finalize(self, _remove, self.path, self._unfinished)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def reserved(self, name: str, dtype: np.dtype[Any], length: int) -> tuple[IntoFile, Journal]:
        """A flat file of numbers, and the journal of who has written to it, of this run or an earlier one."""
        path = str(Path(self.path) / name)
        journal = Journal(Path(f"{path}.journal"), {"dtype": dtype.str, "length": length})
        if not os.path.exists(path) or not journal.open(Path(path), overwrite=True):
            reserve(path, b"", length * dtype.itemsize)
            journal.start()
        return IntoFile(path, 0, dtype.str), journal

    @contextmanager
    def at_work(self, name: str) -> Iterator[None]:
        """What is begun here and not finished stays in a folder that the user has named; what cannot be does not."""
        self._unfinished.append(name)
        try:
            yield
        except TallyTreeError as error:
            if not isinstance(error, OSError):
                self._unfinished.remove(name)
            raise
        self._unfinished.remove(name)

    @contextmanager
    def results(self, key: Any, beside: Sequence[Source]) -> Iterator[Results | None]:
        """What one pass finds, by all that it depends on; None where a later run cannot tell that it is the same."""
        files = [identity(column) for column in beside]
        name = None if None in files else digest((key, files))
        if name is None:
            yield None
            return
        path = Path(self.path, f"{name}.pass")
        with self.at_work(name), open(path, "a+b", opener=partial(os.open, mode=0o600)) as file:
            yield Results(file)


class Results:
    """What a pass has found in chunk after chunk, in this run and in an earlier one of the same user."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
            file.truncate(0)  # what somebody else has pickled is not read
        file.seek(0)

    def earlier(self, numbers: Sequence[int], seen: Mapping[int, int]) -> Iterator[Found]:
        """Entries of an earlier run about the first of these chunks, up to one that is cut short or out of date."""
        for number in numbers:
            place = self._file.tell()
            try:
                found: Found = pickle.load(self._file)
            except (EOFError, pickle.UnpicklingError):
                break
            if found[0][0] != number or seen.get(number, found[0][1]) != found[0][1]:
                break
            yield found
        else:
            return
        self._file.seek(place)
        self._file.truncate()

    def add(self, found: Found) -> None:
        """One more entry."""
        pickle.dump(found, self._file)
        self._file.flush()


def identity(source: Source) -> Any:
    """What tells the files of a source from others and from earlier states of them; None where there are none."""
    parts = (part for chunk in source.chunks for part in getattr(chunk, "others", [chunk]))
    paths = list(dict.fromkeys(getattr(part, "path", None) for part in parts))
    if None in paths:
        return None
    states = [(path, os.stat(str(path))) for path in paths]
    return source.label, source.sizes, [(path, s.st_size, s.st_mtime_ns) for path, s in states]


def digest(key: Any) -> str | None:
    """A short name for a thing, the same in every run of this version; None for what cannot be pickled."""
    try:
        return blake2b(pickle.dumps((__version__, key)), digest_size=8).hexdigest()
    except (pickle.PicklingError, AttributeError, TypeError):  # a function of the user
        return None


_live: dict[str, object] = {}  # folders of this process that are in use, or being removed by another thread


def _claimed(path: str) -> bool:
    """Take a folder, unless a model that still exists, here or in another process, has it."""
    try:
        owner = int(Path(path, "owner").read_text("utf-8"))
        if owner != os.getpid():
            os.kill(owner, 0)
            return False
    except (OSError, ValueError):
        pass
    claim = object()
    return _live.setdefault(path, claim) is claim  # in one step, whatever other threads do


def _remove(path: str, unfinished: list[str]) -> None:
    if not unfinished or not Path(path).name.startswith("."):
        shutil.rmtree(path, ignore_errors=True)
    _live.pop(path, None)
