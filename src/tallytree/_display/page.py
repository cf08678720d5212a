"""The frame of every display: the text of an object, pictures below it, and words instead of an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from ..errors import TallyTreeError

BLUE, ORANGE = "#5b8fd6", "#d9822b"  # both show on white and on black


def page(text: str, pictures: Sequence[str] = ()) -> str:
    """The text of an object, and pictures below it."""
    return f'<div><code>{escape(text)}</code><div style="margin-top:0.5em">{"".join(pictures)}</div></div>'


def page_of(thing: object, draw: Callable[[], Sequence[str]], *, small: bool = True) -> str:
    """An object with its pictures if it is small enough; one without answers, such as an impossible model, says why."""
    try:
        pictures = draw() if small else []
    except TallyTreeError as error:
        return page(f"{thing!r}: {error}")
    return page(repr(thing), pictures)


def figure(inside: str, width: int, height: int, title: str, more: str = "") -> str:
    """A picture with its title above; a narrow page makes it smaller."""
    return (
        '<figure style="display:inline-block;margin:0 1.5em 0 0;max-width:100%;vertical-align:top">'
        '<figcaption style="font-size:smaller;font-weight:normal;text-align:start;color:inherit;margin:0 0 3px">'
        f"{escape(title + more)}</figcaption>"
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" style="max-width:100%" role="img" '
        f'aria-label="{escape(title)}">{inside}</svg></figure>'
    )
