"""What `make test` runs: `python tests/support/parts.py [PYTEST OPTION OF SCENARIOS ...]`.

Unit tests keep processors busy, and no time matters to them; the other parts are judged by their pace, and wait most of
the time. So unit tests run beside them, at the lowest priority, and give way. What needs the machine for itself comes
last. A part that fails keeps none of the others from being run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

import summary

REPORTS = Path("build/tests")
_PYTEST = [sys.executable, "-m", "pytest", "-rfE", "-o", "junit_family=xunit1"]
_PATIENCE_S = 20.0


class Part(NamedTuple):
    """Some of the tests, and how they are run."""

    name: str
    arguments: Sequence[str]

    @property
    def report(self) -> Path:
        """Where pytest writes what came out."""
        return REPORTS / f"{self.name}.xml"

    @property
    def argv(self) -> list[str]:
        """Return its command line."""
        return [*_PYTEST, *self.arguments, "--junitxml", str(self.report)]


UNIT = Part("unit", ["tests", "--ignore", "tests/alone", "--ignore", "tests/paired", "--numprocesses", "3", "--dist",
                     "loadfile"])
"""Three at a time: a third of it is spent waiting."""
PAIRED = Part("paired", ["tests/paired", "--numprocesses", "2"])
"""Two at a time: jobs that sleep."""
ALONE = Part("alone", ["tests/alone"])


def give_way() -> None:
    """Let this process and those that it starts have only processors that nobody else wants.

    Where sessions share processors (sched(7), "The autogroup feature"), a priority counts within its session alone:
    this is a session of its own, and its group gives way, too.
    """
    os.setsid()
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):  # the kernel has no such groups
        Path("/proc/self/autogroup").write_text("19")


def run(part: Part) -> bool:
    """Run it; whether all of it passed."""
    return subprocess.run(part.argv, check=False).returncode == 0


class Beside:
    """A part that runs beside others, and what it says, which is printed once it has ended."""

    def __init__(self, part: Part, first: Callable[[], None] = give_way) -> None:
        self._log = part.report.with_suffix(".log")
        print(f"{part.name} tests run beside what follows; until their end they write to {self._log}", flush=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(part.argv, stdout=log, stderr=log, preexec_fn=first)

    def passed(self) -> bool:
        """Wait for its end, and print what it said; whether all of it passed."""
        status = self._process.wait()
        print(self._log.read_text(errors="replace"), flush=True)
        return status == 0

    def end(self) -> None:
        """End it as Ctrl-C would, where it has not ended."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


def main(options: Sequence[str]) -> int:
    """Run all parts, print the summary; return the exit code."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    for old in REPORTS.glob("*.xml"):
        old.unlink()
    scenarios = Part("scenarios", ["scenarios", *options])
    signal.signal(signal.SIGTERM, _interrupted)
    unit = Beside(UNIT)
    try:
        began = time.monotonic()
        passed = [run(PAIRED), run(scenarios)]
        print(f"after {time.monotonic() - began:.0f} s only unit tests are left", flush=True)
        passed += [unit.passed(), run(ALONE)]
    except KeyboardInterrupt:
        return 130
    finally:
        unit.end()
    told = summary.main([str(part.report) for part in (UNIT, PAIRED, ALONE, scenarios)])
    return told or int(not all(passed))


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
