"""What this program is called, and how the shell that called it finds it again."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

PROGRAM = "diloco-chaos"


def called() -> str:
    """Return the program's name where a shell finds it by that, else the path by which it was called, as in a virtual
    environment that is not activated."""
    path = Path(sys.argv[0])
    if path.name != PROGRAM or shutil.which(PROGRAM) is not None:
        return PROGRAM
    return shlex.quote(min(os.path.relpath(path), str(path), key=len))
