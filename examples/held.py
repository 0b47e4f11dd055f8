"""Runs a trainer that stands still in the middle of a checkpoint, so that a scenario can kill it just there.

    python held.py FILE SCRIPT ARGUMENTS...     before FILE is written or renamed to, it stands at `checkpoint.write`

The script is as it was. Where no fault waits for it nothing stands still.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Any

from diloco_chaos import progress


def main() -> None:
    """See the module."""
    _, pattern, script, *arguments = sys.argv

    source, name = "", ""   # of the newest rename

    def hold(event: str, what: tuple[Any, ...]) -> None:
        nonlocal source, name
        written = event == "os.rename" or (event == "open" and set(str(what[1])) & set("wax"))
        if not written or not Path(path := str(what[event == "os.rename"])).match(pattern):
            return
        if event == "open" and path == name != source and os.path.exists(source):
            return   # it could not be renamed, since it is on another file system, and is copied
        source, name = (str(what[0]), path) if event == "os.rename" else ("", "")
        progress.hold("checkpoint.write")
    sys.addaudithook(hold)
    sys.argv[:], sys.path[0] = [script, *arguments], str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
