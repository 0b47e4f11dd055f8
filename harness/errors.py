"""What people are told of an error that some library raised, and of text that comes from somebody else."""

from __future__ import annotations

import re
from typing import Any

from pydantic import ValidationError

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
"""Control characters but tab and newline, and what changes the direction of text or has no width (Unicode, UAX 9)."""


NOT_UNDERSTOOD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What may come of a tape, or of frames, that nobody of ours wrote."""


def printable(text: str) -> str:
    """The same, with a visible escape for everything that a terminal would obey, or not show."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def all_printable(content: Any) -> Any:
    """The same for all strings of a JSON document."""
    if isinstance(content, str):
        return printable(content)
    if isinstance(content, dict):
        return {printable(key): all_printable(value) for key, value in content.items()}
    return [all_printable(item) for item in content] if isinstance(content, list) else content


def first(error: BaseException) -> str:
    """The first thing that is wrong, in one line."""
    if isinstance(error, ValidationError):
        detail = error.errors()[0]
        place = ".".join(str(part) for part in detail["loc"])
        return f"{place}: {detail['msg']}" if place else str(detail["msg"])
    return (str(error).splitlines() or [type(error).__name__])[0] or type(error).__name__
