"""One schedule tried on a trainer of commands, with what its logs tell."""

from __future__ import annotations

import shutil
from pathlib import Path

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.exploration.commands.lines import kinds_in, sizes
from diloco_chaos.chaos.exploration.commands.novelty import traces
from diloco_chaos.chaos.exploration.corpus import ExplorationError, TriedSchedule
from diloco_chaos.chaos.exploration.explore import ExplorationJob, crashed, with_verdicts
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.perform import Nobody, abilities_of, performed_on
from diloco_chaos.chaos.runner.experiment import Observer
from diloco_chaos.chaos.runner.run import Result
from diloco_chaos.chaos.runner.simulate import NullObserver
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.base.errors import UserError
from diloco_chaos.harness.base.workers import Task
from diloco_chaos.harness.record.tape.events import Event, Steady, Step


class _FromSteady(NullObserver):
    """Notes how long the logs are as the steady state is reached: what comes before is how nodes start."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self.sizes: dict[str, int] = {}

    def on_event(self, event: Event) -> None:
        """See `Observer`."""
        if isinstance(event, Steady) and (run := next(self._runs.glob("*/logs"), None)) is not None:
            self.sizes = sizes(run.parent)


class _Listener(Nobody):
    """Implements `diloco_chaos.chaos.runner.run.Audience`."""

    def __init__(self, runs: Path) -> None:
        self.observer = _FromSteady(runs)

    def watch(self, plan: Plan, what: str) -> Observer:
        """Return the observer of the run itself; of a reference it says nothing."""
        return self.observer if what == "run" else NullObserver()


def attempt(job: ExplorationJob) -> TriedSchedule:
    """Run one schedule, in a folder of its own, which stays if a check failed.

    Raises:
        ExplorationError: the place can't be used.
        KeyboardInterrupt: Ctrl-C ended the run.
    """
    base, runs = Scenario.model_validate_json(job.scenario), Path(job.runs)
    audience = _Listener(runs)
    shutil.rmtree(runs, ignore_errors=True)  # of a search that was killed
    try:
        with performed_on(job.on, plan_of(base, job.faults, 0, abilities_of(job.on)), job.runs, audience) as result:
            assert isinstance(result, Result), "commands take real time"
            if result.outcome.kind == "interrupted":
                raise KeyboardInterrupt
            tried = _tried(job, result, audience.observer.sizes)
        if not tried.failed:
            shutil.rmtree(runs)
        return tried
    except KeyboardInterrupt:
        shutil.rmtree(runs, ignore_errors=True)  # it proves nothing
        raise
    except UserError as error:
        raise ExplorationError(str(error)) from None  # of the place, whatever is tried there
    except Exception as error:  # whatever it is, it is a find: of ours
        return crashed(job, error)


def _tried(job: ExplorationJob, result: Result, before: dict[str, int]) -> TriedSchedule:
    run, history = result.folder.path, result.history
    lines = kinds_in(run, before)
    return with_verdicts(job, result, traces=tuple(sorted(traces(history, run, lines))),
                         lines=tuple((node, kind) for node, kinds in lines.items() for kind in kinds),
                         measured=_measured(history, run))


def _measured(history: History, run: Path) -> dict[str, float]:
    """Return what moments are drawn from: seconds from the steady state to the end, rounds of a worker, and bytes of
    the largest file of any node's state."""
    zero = history.zero or 0.0
    steps = [event.node for event in history.tape.of(Step) if event.t >= zero]
    sizes_of_state = [path.stat().st_size for path in run.glob("state/**/*") if path.is_file()]
    return {"seconds": round(history.end - zero, 3), "rounds": len(steps) / max(1, len(set(steps))),
            "bytes": max(sizes_of_state, default=0)}


COMMANDS = Task(attempt, ExplorationJob, TriedSchedule)
"""What workers do with a schedule of a trainer of commands."""
