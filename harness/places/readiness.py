"""Whether a command counts as started, by its log, its port, and what it answers."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import requests

from diloco_chaos.harness.trainers.core.log_lines import lines_of
from diloco_chaos.harness.trainers.core.programs import ReadyCheck

_ERRORS_FROM = 400


def is_ready(ready: ReadyCheck, log: Path, address: tuple[str, int], url: str, patience: float) -> bool:
    """Return whether everything that is waited for is there.

    Args:
        ready: what is waited for.
        log: of the process.
        address: where it listens, if it does.
        url: of `ready`, with everything in its place.
        patience: seconds that a connection, or an answer, may take.
    """
    if ready.log and not _says(log, ready.log):
        return False
    if ready.port:
        try:
            socket.create_connection(address, patience).close()
        except OSError:
            return False
    return not url or _answers(url, patience)


def _says(log: Path, expression: str) -> bool:
    """Return whether a line of the log matches."""
    if not log.is_file():
        return False
    return any(re.search(expression, line) for line in lines_of(log.read_bytes()))


def _answers(url: str, patience: float) -> bool:
    """Return whether there is an answer that is no error."""
    try:
        with requests.get(url, timeout=patience, allow_redirects=False, stream=True) as answer:
            return answer.status_code < _ERRORS_FROM
    except requests.RequestException:
        return False
