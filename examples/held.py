"""Runs a trainer that stands still in the middle of a checkpoint, so that a scenario can kill it just there.

    python held.py FILE SCRIPT ARGUMENTS...     before FILE is written or renamed to, it stands at `checkpoint.write`

The script is as it was. Where no fault waits for it nothing stands still.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

from diloco_chaos import progress


def main() -> None:
    """See the module."""
    _, pattern, script, *arguments = sys.argv

    renamed = ""

    def hold(event: str, what: tuple[Any, ...]) -> None:
        nonlocal renamed
        written = event == "os.rename" or (event == "open" and set(str(what[1])) & set("wax"))
        if not written or not (path := Path(str(what[event == "os.rename"]))).match(pattern):
            return
        again = event == "open" and str(path) == renamed  # from another file system it is copied instead
        renamed = str(path) if event == "os.rename" else ""
        if not again:
            progress.hold("checkpoint.write")
    sys.addaudithook(hold)
    sys.argv[:], sys.path[0] = [script, *arguments], str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
