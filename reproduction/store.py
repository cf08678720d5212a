"""Finished steps on disk: each is written whole and renamed, so an interrupted run continues where it was.

A step is known by its name and by everything its result depends on; another seed or another size is another file.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.errors import TallyTreeError

_VERSION = 3  # raise it when a step comes to mean something else


class OutputProblem(TallyTreeError):
    """The folder for the results cannot be used."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a file beside its final place, then rename it."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_bytes(content)
        os.replace(aside, path)
    except OSError as error:
        text = error.strerror or str(error)
        raise OutputProblem(f"cannot write {path}: {text[:1].lower()}{text[1:]}.") from None
    finally:
        with suppress(OSError):
            aside.unlink()


def prepare(out: str | os.PathLike[str]) -> Path:
    """The folder for the results, made if its parent is there; refused early, before any work is done."""
    path = Path(out)
    if path.exists() and not path.is_dir():
        raise OutputProblem(f"cannot write to {path}: it is not a folder. Name a folder with --out.")
    parent = Path(os.path.realpath(path)).parent
    if not path.exists() and not parent.is_dir():
        raise OutputProblem(
            f"cannot write to {path}: the folder {parent} does not exist. Make it first, or name another with --out."
        )
    place = path if path.exists() else parent
    if not os.access(place, os.W_OK | os.X_OK):
        raise OutputProblem(f"cannot write to {path}: permission denied in the folder {place}.")
    try:
        path.mkdir(exist_ok=True)
        probe = path / f".probe.{secrets.token_hex(4)}.tmp"
        probe.touch()
        probe.unlink()
    except OSError as error:
        text = error.strerror or str(error)
        raise OutputProblem(f"cannot write to {path}: {text[:1].lower()}{text[1:]}.") from None
    return path


class Format(NamedTuple):
    """How results of a kind are kept in files."""

    ending: str
    pack: Callable[[Any], bytes]
    unpack: Callable[[bytes], Any]


class Store:
    """Results of steps in ``folder``; ``on_done`` hears of every finished step and whether it was there already."""

    def __init__(self, folder: Path, on_done: Callable[[str, bool], None] | None = None) -> None:
        self.folder = folder
        self._on_done = on_done

    def numbers(self, name: str, inputs: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """A result that JSON can hold."""
        return self.result(NUMBERS, name, inputs, compute)

    def result(self, kind: Format, name: str, inputs: Mapping[str, Any], compute: Callable[[], Any]) -> Any:
        """The stored result, or a new one, which comes back as it will be read again."""
        found = self.known(kind, name, inputs)
        reused = found is not None
        if not reused:
            content = kind.pack(compute())
            write_whole(self._path(kind, name, inputs), content)
            found = kind.unpack(content)
        if self._on_done is not None:
            self._on_done(name, reused)
        return found

    def known(self, kind: Format, name: str, inputs: Mapping[str, Any]) -> Any:
        """The stored result, or None; a file that cannot be read counts as absent."""
        try:
            return kind.unpack(self._path(kind, name, inputs).read_bytes())
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
            return None

    def _path(self, kind: Format, name: str, inputs: Mapping[str, Any]) -> Path:
        text = json.dumps([_VERSION, name, inputs], sort_keys=True, default=_plain)
        return self.folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.{kind.ending}"


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _packed_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _unpacked_arrays(content: bytes) -> dict[str, NDArray[Any]]:
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}


NUMBERS = Format("json", lambda result: json.dumps(result, indent=1, default=_plain).encode(), json.loads)
ARRAYS = Format("npz", _packed_arrays, _unpacked_arrays)
