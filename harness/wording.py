"""What people are told of an error that some library raised."""

from __future__ import annotations

from pydantic import ValidationError


def first(error: BaseException) -> str:
    """The first thing that is wrong, in one line."""
    if isinstance(error, ValidationError):
        detail = error.errors()[0]
        place = ".".join(str(part) for part in detail["loc"])
        return f"{place}: {detail['msg']}" if place else str(detail["msg"])
    return (str(error).splitlines() or [type(error).__name__])[0] or type(error).__name__
