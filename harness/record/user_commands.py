"""Commands that a user gave for what only the user can do or undo."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


def begun(argv: Sequence[str]) -> None:
    """Begin one that takes away what this process may need: in a session of its own, for it must not end with us."""
    subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                     start_new_session=True)


def carried_out(argv: Sequence[str], within: float) -> None:
    """Run one, to its end.

    Raises:
        OSError: it can't be run, fails, or takes longer than so many seconds.
    """
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within,
                              check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"it takes longer than {within:g} s") from error
    if done.returncode:
        raise OSError(": ".join([f"exit status {done.returncode}", *done.stderr.strip().splitlines()[-1:]]))
