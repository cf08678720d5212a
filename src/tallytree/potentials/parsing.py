"""Potentials written as text, for the command line: ``name:argument:argument``."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

from tallytree.checks import Entries
from tallytree.errors import ParameterError
from tallytree.potentials.base import Potential
from tallytree.potentials.constraints import parity
from tallytree.potentials.exponentials import uniform
from tallytree.potentials.named import FACTORIES
from tallytree.potentials.tables import table


def parse_potential(text: str) -> Potential:
    """Read a potential from text such as ``"exactly:12"`` or ``"noisy_or:0.2:leak=0.01"``.

    Parameters
    ----------
    text : str
        Name, then arguments separated by colons, in order or as ``name=value``. Lists are separated by
        commas: ``"one_of:0,3"``, ``"table:0,-1.5,-inf"``, ``"exponential_mixture:1,-1:1,0.5"``.

    Returns
    -------
    Potential
        What the function of that name returns.

    Raises
    ------
    ParameterError
        If an argument has the wrong shape, type or value; the message says what was required.

    See Also
    --------
    tallytree.Potential
    tallytree.potentials.as_potential

    Notes
    -----
    Cost: nothing to speak of.
    Accuracy: numbers are read as Python reads them.

    Examples
    --------
    >>> tt.potentials.parse_potential("between:1:3")
    between(1, 3)
    >>> tt.potentials.parse_potential("gaussian:0.5:0.1:fraction=true")
    gaussian(0.5, 0.1, fraction=True)
    """
    if not isinstance(text, str):
        raise ParameterError(
            f"a potential to parse must be text; {text!r} of type {type(text).__name__} arrived. "
            "Use `as_potential` for arrays and functions."
        )
    name, *parts = (part.strip() for part in text.split(":"))
    if name not in _known():
        hint = f" Did you mean exactly:{name}?" if name.isdecimal() and not parts else ""
        near = difflib.get_close_matches(name.replace("-", "_"), _known(), n=1)
        hint = f" Did you mean {_usage(near[0])}?" if near else hint
        raise ParameterError(
            f"a potential must be written name:argument:..., with a known name; {text!r} arrived.{hint} Known are:\n  "
            + "\n  ".join(usage())
        )
    factory, kinds = _known()[name]
    given: dict[str, Any] = {}
    for part, position in zip(parts, [*kinds, *("" for _ in parts)]):
        key, value = part.split("=", 1) if "=" in part else (position, part)
        if key not in kinds or key in given:
            raise ParameterError(
                f"`{name}` must be written {_usage(name)}; {text!r} arrived. Leave out {part!r} or correct it."
            )
        given[key] = _read(kinds[key], value, key, name)
    for key, parameter in inspect.signature(factory).parameters.items():
        if key not in given and parameter.default is inspect.Parameter.empty:
            raise ParameterError(f"`{name}` must be written {_usage(name)}; {text!r} arrived. Add `{key}`.")
    return factory(**given)


def usage() -> list[str]:
    """Syntax of every potential."""
    return [_usage(name) for name in _known()]


def _usage(name: str) -> str:
    """Syntax of one potential, optional arguments in brackets: ``noisy_or:rate[:leak][:t]``."""
    factory, kinds = _known()[name]
    parameters = inspect.signature(factory).parameters
    text = name
    for key, kind in kinds.items():
        label = {_INTEGERS: f"{key},...", _NUMBERS: f"{key},...", _FLAG: f"{key}=true"}.get(kind, key)
        text += f":{label}" if parameters[key].default is inspect.Parameter.empty else f"[:{label}]"
    return text


def _read(kind: str, value: str, key: str, name: str) -> Any:
    try:
        return _READERS[kind](value)
    except ValueError:
        raise ParameterError(
            f"`{key}` of `{name}` must be {kind}; {value!r} arrived. Write {_usage(name)}."
        ) from None


def _read_flag(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError(value)
    return value.lower() == "true"


_INTEGER, _NUMBER, _WORD, _FLAG = "an integer", "a number", "a word", "true or false"
_INTEGERS, _NUMBERS = "integers separated by commas", "numbers separated by commas"
_READERS: dict[str, Callable[[str], Any]] = {
    _INTEGER: int,
    _NUMBER: float,
    _WORD: str,
    _FLAG: _read_flag,
    _INTEGERS: lambda value: [int(item) for item in value.split(",")],
    _NUMBERS: lambda value: [float(item) for item in value.split(",")],
}


def _kind(entries: Entries | None, core: int) -> str:
    """What the text of a declared number must be."""
    if entries is None:
        return _FLAG
    return ((_INTEGER, _INTEGERS), (_NUMBER, _NUMBERS))["f" in entries.kinds][core]


def _known() -> dict[str, tuple[Callable[..., Potential], dict[str, str]]]:
    """Every potential and its arguments."""
    known: dict[str, tuple[Callable[..., Potential], dict[str, str]]] = {
        name: (call, {label: _kind(entries, core) for label, entries in numbers.items()})
        for name, (call, numbers, core) in FACTORIES.items()
    }
    known |= {"parity": (parity, {"which": _WORD}), "uniform": (uniform, {})}
    return {**known, "table": (table, {"log_values": _NUMBERS})}
