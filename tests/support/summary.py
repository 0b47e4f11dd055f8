"""What `make test` says at its end: what failed, what was skipped and why, and the slowest tests.

    python tests/support/summary.py REPORT.xml ...

A report is pytest's own, of `--junitxml` in its form `xunit1`, which names files; where one is missing, its part did
not come to its end. The reason that a test gives for being skipped says how to have it run.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

_SLOWEST = 20


class Test(NamedTuple):
    """One test's outcome."""

    name: str
    seconds: float
    failed: bool
    skipped: str
    """Why, in one line; empty where it was run."""


def tests(report: Path) -> Iterator[Test]:
    """Yield the tests of a report.

    Raises:
        OSError: there is none.
        ElementTree.ParseError: it was not written to its end.
    """
    for case in ElementTree.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        why = "" if skipped is None else (skipped.get("message") or "no reason").partition("\n")[0]
        yield Test(f"{case.get('file')}::{case.get('name')}", float(case.get("time", 0)),
                   case.find("failure") is not None or case.find("error") is not None, why)


def summary(done: list[Test], missing: list[str]) -> Iterator[str]:
    """Yield the lines."""
    slowest = sorted(done, key=lambda test: -test.seconds)[:_SLOWEST]
    yield f"The slowest {len(slowest)} of {len(done):,} tests:"
    yield from (f"  {test.seconds:6.1f} s  {test.name}" for test in slowest)
    skipped = Counter(test.skipped for test in done if test.skipped)
    if skipped:
        yield f"{skipped.total():,} were skipped:"
    yield from (f"  {count:4}  {why}" for why, count in skipped.most_common())
    failed = [test.name for test in done if test.failed]
    yield f"{len(failed)} failed{':' if failed else ', ' + ('all' if not skipped else 'the rest') + ' passed'}"
    yield from (f"  {name}" for name in failed)
    yield from (f"no report of {name}: that part did not come to its end" for name in missing)


def main(reports: list[str]) -> int:
    """Print the summary; 1 where a report is missing."""
    done, missing = list[Test](), list[str]()
    for report in reports:
        try:
            done += tests(Path(report))
        except (OSError, ElementTree.ParseError):
            missing.append(Path(report).stem)
    print("\n".join(summary(done, missing)))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
