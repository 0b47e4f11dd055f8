"""The synchronous reference, trained beside the fault-free one: the latter keeps a pace, and leaves processors idle.

`python -m diloco_chaos.chaos.runner.reference_beside PARENT < plan.json` is the process that trains it, at the lowest
priority. It has an undo log and a reaper of its own, and dies with the harness.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from tempfile import TemporaryFile
from types import TracebackType
from typing import Self

from diloco_chaos.chaos.evidence.run_folder import cache_folder
from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.runner.baselines import NoReferenceError, References
from diloco_chaos.chaos.runner.experiment import Observer
from diloco_chaos.chaos.scenario import plan as plans
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.base.parent_death import die_with_parent
from diloco_chaos.harness.places.registry import DEFAULT
from diloco_chaos.harness.record.tape.events import Event

_LOOK_S, _END_S = 0.1, 10.0
_LOWEST_PRIORITY = 19


class ReferenceBeside:
    """The process, as the harness sees it; it ends with the `with` block."""

    def __init__(self, plan: Plan) -> None:
        """Start it."""
        self._said = TemporaryFile("w+")  # noqa: SIM115 - it is closed with the process
        self._process = subprocess.Popen([sys.executable, "-m", __name__, str(os.getpid())], stdin=subprocess.PIPE,
                                         stdout=self._said, stderr=self._said, text=True, process_group=0)
        assert self._process.stdin is not None
        with self._process.stdin as plan_file:
            json.dump(plans.document(plan), plan_file)

    def await_start(self, ready: Callable[[], object]) -> None:
        """Wait until what the other reference begins from is there.

        Raises:
            NoReferenceError: it ended before.
        """
        while not ready():
            if self._process.poll() is not None:
                self.finish()
                return
            time.sleep(_LOOK_S)

    def finish(self) -> None:
        """Wait until it is trained.

        Raises:
            NoReferenceError: it could not be.
        """
        if self._process.wait() != 0:
            self._said.seek(0)
            raise NoReferenceError(self._said.read().strip() or "the synchronous reference run ended without a word")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """End it as Ctrl-C would, so that nothing is left of it."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()  # its reaper does the rest
                self._process.wait()
        self._said.close()


class _Nobody:
    def on_event(self, event: Event) -> None:
        """Do nothing."""

    def on_tick(self, now: float) -> None:
        """Do nothing."""


def _nobody(plan: Plan, what: str) -> Observer:
    return _Nobody()


def main(parent: int) -> int:
    """Train the synchronous reference of the plan on standard input; return the exit code."""
    die_with_parent(parent)
    os.nice(_LOWEST_PRIORITY)
    plan = Plan.model_validate(json.load(sys.stdin)["plan"])
    backend = named(DEFAULT)
    try:
        with backend.cleanup_guard() as undo_log:
            data = plan.trainer.prepare(cache_folder() / "corpora", undo_log)
            references = References(cache_folder(), data.file, data.digest, backend.stage, undo_log)
            references.train("synchronous", plan, _nobody)
    except NoReferenceError as error:
        print(error)
        return NoReferenceError.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
