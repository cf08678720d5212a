"""What goes wrong with files and arguments, in words for whoever typed the command."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from ..errors import TallyTreeError


class InputProblem(TallyTreeError):
    """A file or an argument that cannot be used; the message says what to do about it."""


class UsageProblem(InputProblem):
    """Arguments that do not make a command."""


def reason(error: OSError | EOFError) -> str:
    """Why the system refused, without the number of the error: ``permission denied``."""
    if isinstance(error, EOFError):
        return "it is packed by gzip and ends too early"
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def quoted(names: Sequence[str], most: int = 12) -> str:
    """Column names as a list for a message."""
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def require_column(path: str, name: str, names: Sequence[str]) -> None:
    """Refuse a column that the file does not have, with the nearest one that it has."""
    if name in names:
        return
    folded = {known.strip().casefold(): known for known in names}
    near = difflib.get_close_matches(name.strip().casefold(), folded, n=1)
    hint = f" Did you mean `{folded[near[0]]}`?" if near else ""
    raise InputProblem(f"{path} has no column `{name}`; its columns are {quoted(names)}.{hint}")
