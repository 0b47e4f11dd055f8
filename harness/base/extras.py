"""Packages that only some uses need, and what to install for them: `diloco-chaos[trainer]`, `diloco-chaos[compose]`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from diloco_chaos.harness.base.errors import UserError

Extra = Literal["trainer", "compose", "ray", "hypothesis", "png", "otel", "kubernetes"]


class MissingExtraError(UserError):
    """What is asked for needs a package that is not installed; the message says what to install."""


def lacking(package: str, extra: Extra, what: str) -> str:
    """What to install for `what`, as a sentence; empty where the package is there. Imports nothing. A folder of that
    name on the path, as many projects have a `docker`, is none."""
    try:
        found = find_spec(package)
    except ModuleNotFoundError:  # nor is what it is a part of
        found = None
    if found is not None and found.origin is not None:
        return ""
    return f"{what} needs {package}, which is not installed: pip install 'diloco-chaos[{extra}]'"


def require(package: str, extra: Extra, what: str) -> None:
    """Go on only where the package is there.

    Raises:
        MissingExtraError: it is not.
    """
    if why := lacking(package, extra, what):
        raise MissingExtraError(why)
