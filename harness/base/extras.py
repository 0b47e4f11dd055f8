"""Packages that only some uses need, and what to type to install them: the extras of our own package."""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from diloco_chaos.harness.base.errors import UserError

Extra = Literal["trainer", "compose", "ray", "hypothesis", "png", "otel", "kubernetes"]
_PACKAGE = "diloco-chaos"
_HINT = "pip install {what}"
"""What every hint says."""


class MissingExtraError(UserError):
    """What is asked for needs a package that is not installed; the message says what to install."""


def lacking(package: str, extra: Extra, what: str) -> str:
    """Return a sentence that says what to install for `what`, or an empty string where the package is installed.

    Nothing is imported. A plain folder of the package's name on the path, such as a project's `docker`, does not count.
    """
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:  # nor is what it is a part of
        spec = None
    if spec is not None and spec.origin is not None:
        return ""
    return f"{what} needs {package}, which is not installed: {installing(extra)}"


def installing(extra: Extra) -> str:
    """The command that installs an extra from where this package itself came from: a clone, an archive or an index."""
    source = _source()
    url, folder = source.get("url", ""), source.get("dir_info")
    if folder is not None:
        editable = ["--editable"] if folder.get("editable") else []
        return _HINT.format(what=shlex.join([*editable, f"{unquote(urlsplit(url).path)}[{extra}]"]))
    return _HINT.format(what=shlex.quote(f"{_PACKAGE}[{extra}]" + (f" @ {url}" if url else "")))


def _source() -> dict[str, Any]:
    """Return what the installer has recorded of where this package came from (PEP 610); empty where it came from an
    index."""
    try:
        return dict(json.loads(distribution(_PACKAGE).read_text("direct_url.json") or "{}"))
    except (PackageNotFoundError, ValueError):
        return {}


def require(package: str, extra: Extra, what: str) -> None:
    """Go on only where the package is there.

    Raises:
        MissingExtraError: it is not.
    """
    if why := lacking(package, extra, what):
        raise MissingExtraError(why)
