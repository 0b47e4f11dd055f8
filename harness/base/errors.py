"""What people are told of an error that some library raised, and of text that comes from somebody else."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""Control characters but tab and newline, and what changes the direction of text or has no width (Unicode, UAX 9)."""


class UserError(Exception):
    """A mistake of the user's, or something that this machine lacks: the message says what is wrong, where, and what to
    do. It ends a command with `exit_code`, and never shows a traceback."""

    exit_code: int = 2


NOT_UNDERSTOOD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What may come of a tape, or of frames, that nobody of ours wrote."""


def printable(text: str) -> str:
    """Return the text with a visible escape for every character that a terminal would obey or not show."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


def all_printable(content: Any) -> Any:
    """The same for all strings of a JSON document."""
    if isinstance(content, str):
        return printable(content)
    if isinstance(content, dict):
        return {printable(key): all_printable(value) for key, value in content.items()}
    return [all_printable(item) for item in content] if isinstance(content, list) else content


def close(name: object, names: Iterable[str]) -> list[str]:
    """The one of these that may be meant by a name that none of them has, if there is one."""
    return difflib.get_close_matches(str(name), list(names), 1)


def nearest(name: object, names: Iterable[str]) -> str:
    """`; did you mean ...?`, or nothing."""
    return "".join(f"; did you mean {known!r}?" for known in close(name, names))


def first(error: BaseException) -> str:
    """The first thing that is wrong, in one line; what stands in a list is counted from 1."""
    from pydantic import ValidationError  # most of those who raise errors don't need it
    if isinstance(error, ValidationError):
        detail = error.errors()[0]
        place = ".".join(str(part + 1 if isinstance(part, int) else part) for part in detail["loc"])
        return f"{place}: {detail['msg']}" if place else str(detail["msg"])
    return (str(error).splitlines() or [type(error).__name__])[0] or type(error).__name__
