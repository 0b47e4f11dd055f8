"""What `make test` runs: `python tests/support/parts.py [PYTEST OPTION OF SCENARIOS ...]`.

Unit tests keep processors busy, and no time matters to them; the other parts are judged by their pace, and wait most of
the time. So unit tests run beside them, at the lowest priority, and give way. What needs the machine for itself comes
last. A part that fails keeps none of the others from being run.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple, Self

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
ALONE, SCENARIOS = Part("alone", ["tests/alone"]), "scenarios"


TURN = "DILOCO_CHAOS_TURN"
"""Environment variable: a file whose lock each part holds that is judged by its pace, and whoever else is, too."""


def give_way() -> None:
    """Let this process and those that it starts have only processors that nobody else wants.

    Where sessions share processors (sched(7), "The autogroup feature"), a priority counts within its session alone:
    this is a session of its own, and its group gives way, too.
    """
    os.setsid()
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError):  # the kernel has no such groups
        Path("/proc/self/autogroup").write_text("19")


@contextmanager
def turn() -> Iterator[None]:
    """Wait until nobody else is judged by its pace; the `with` block is then."""
    with open(os.environ.get(TURN, os.devnull), "a") as file:
        if TURN in os.environ:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Running:
    """A part that runs until the end of the `with` block; it hears of no Ctrl-C, and is told of one."""

    def __init__(self, part: Part, log: IO[bytes] | None = None, first: Callable[[], None] = os.setpgrp) -> None:
        self._process = subprocess.Popen(
            part.argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=first)

    def passed(self) -> bool:
        """Wait for its end; whether all of it passed."""
        return self._process.wait() == 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


def passed(part: Part) -> bool:
    """Run it when it is its turn; whether all of it passed."""
    with turn(), Running(part) as running:
        return running.passed()


def all_passed(options: Sequence[str]) -> Iterator[bool]:
    """Run all parts, scenarios with these options; yield of each whether all of it passed."""
    log = UNIT.report.with_suffix(".log")
    print(f"unit tests run beside what follows, and write to {log}", flush=True)
    with log.open("wb") as file, Running(UNIT, file, give_way) as unit:
        yield passed(PAIRED)
        yield passed(Part(SCENARIOS, ["scenarios", *options]))
        yield unit.passed()
    print(log.read_text(errors="replace"), flush=True)
    yield passed(ALONE)


def main(options: Sequence[str]) -> int:
    """Run all parts, print the summary; return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the first is ignored by what a shell starts in the background
        signal.signal(number, signal.default_int_handler)
    REPORTS.mkdir(parents=True, exist_ok=True)
    for old in REPORTS.glob("*.xml"):
        old.unlink()
    try:
        outcomes = list(all_passed(options))
    except KeyboardInterrupt:
        return 130
    status = summary.main([str(REPORTS / f"{name}.xml") for name in ("unit", "paired", "alone", SCENARIOS)])
    return status or int(not all(outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
