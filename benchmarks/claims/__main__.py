"""Write `docs/claims.md`: `python -m benchmarks.claims`; with `--measure` its own simulations are made again before
(some ten minutes), with `--check` nothing is written, and exit code 1 says that the page is not what it would be."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from jinja2 import UndefinedError

from benchmarks.claims.page import page
from benchmarks.claims.register import load
from benchmarks.claims.tables import TableError, Tables

ROOT = Path(__file__).parents[2]
CLAIMS = Path("benchmarks") / "claims" / "claims.yaml"
RECORDED = Path("benchmarks") / "claims" / "claims.json"
PAGE = Path("docs") / "claims.md"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Do what the options ask for, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.claims", description=__doc__)
    parser.add_argument("--measure", action="store_true", help="make the page's own simulations again")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if the page is another one")
    options = parser.parse_args(arguments)
    if options.measure:
        from benchmarks.claims.record import record
        measured = record(lambda words: print(words, file=sys.stderr))
        (root / RECORDED).write_text(json.dumps(measured, indent=1) + "\n")
    try:
        text = page(load(root / CLAIMS), json.loads((root / RECORDED).read_text()), Tables(root / "docs"))
    except (OSError, ValueError, TableError, UndefinedError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.check:
        if (root / PAGE).read_text() == text:
            return 0
        print(f"{PAGE} is not what it would be: run python -m benchmarks.claims", file=sys.stderr)
        return 1
    (root / PAGE).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
