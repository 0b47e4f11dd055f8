"""Experiments from Python: a run that goes on while a test's own lines decide what happens to it.

    with diloco_chaos.launch("kill-one.yaml") as run:
        run.wait_steady()
        run.kill("learner-1", restart_after="1s")
        with run.during("latency", "learner-2", delay="50ms"):
            run.wait_rounds(20, within="30s")
        assert run.verdict("no_global_stall")

What the lines did is part of the plan in the run's folder, at the times at which they did it: `diloco-chaos run --plan`
performs it again, without the test.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from diloco_chaos.chaos.checks.base import Verdict
from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.report.saved import kept
from diloco_chaos.chaos.report.story import headline
from diloco_chaos.chaos.report.terminal import show
from diloco_chaos.chaos.runner import backends
from diloco_chaos.chaos.runner.backends import Backend
from diloco_chaos.chaos.runner.director import Director, RunOverError, Seen
from diloco_chaos.chaos.runner.experiment import Experiment
from diloco_chaos.chaos.runner.run import Audience, Result, exit_code, run_plan
from diloco_chaos.chaos.scenario.additions import added
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.chaos.scenario.step_time import duration, paced
from diloco_chaos.faults import FAULTS
from diloco_chaos.harness.base.errors import nearest
from diloco_chaos.harness.base.units import floor_ms

Duration = str | float
"""`"500ms"`, or seconds."""
_WIDTH = 96
_TRIGGERS = {"at", "when", "after"}


class DidNotPassError(AssertionError):
    """A check failed, or the run proves nothing; the message is the run's report."""


class Launched:
    """A run that goes on. Times are the run's own: under virtual time (`on="simulated"`) it stands still between two
    calls.

    A fault is a method by its kind, with its target and its settings as in a scenario's file (`for_` for `for`):
    `run.kill("learner-1", restart_after="1s")`, `run.latency("learner-2", delay="50ms", for_="3s")`. It comes now,
    or as `at`, `when` or `after` says.
    """

    def __init__(self, scenario: Scenario, plan: Plan, backend: Backend, runs: Path, audience: Audience) -> None:
        self._scenario, self._backend = scenario, backend
        self._director = Director(holds=bool(backend.virtual))
        self._within = plan.deadline
        self._error: BaseException | None = None
        self._result: Result | None = None
        self._perform = partial(run_plan, plan, runs, audience, backend, director=self._director)
        self._thread = threading.Thread(target=self._run, name="experiment")
        self._thread.start()

    @property
    def now(self) -> float:
        """Seconds since the run began, as it last looked."""
        return self._director.seen.now

    def wait_steady(self, within: Duration | None = None) -> None:
        """Let the run go on until every learner has taken part: time zero of its faults and checks. `within`: the
        scenario's deadline if not given.

        Raises:
            NotInTimeError, RunOverError: it did not get there.
        """
        self._wait(lambda seen: seen.zero is not None, within, "the steady state")

    def wait_rounds(self, count: int, within: Duration | None = None) -> None:
        """Let it go on for so many more merges, or rounds of a trainer that tells of these.

        Raises:
            NotInTimeError, RunOverError: there were fewer.
        """
        before = self._director.seen.rounds
        self._wait(lambda seen: seen.rounds >= before + count, within, f"round {before + count}")

    def sleep(self, time: Duration) -> None:
        """Let it go on for so long.

        Raises:
            RunOverError: it ended before.
        """
        begun, long = self._director.seen.now, _seconds(time)
        self._wait(lambda seen: seen.now >= begun + long, long + 1.0, "the end of a sleep")

    def inject(self, kind: str, targets: str | Sequence[str], **settings: Any) -> str:
        """Do a fault; waits until it is done where it comes at once. Its name.

        Raises:
            ScenarioError: this cluster can't have it.
            RunOverError: the run has ended.
        """
        self.wait_steady()
        given = {key.removesuffix("_"): value for key, value in settings.items()}
        names = self._director.ask(lambda experiment: self._add(experiment, kind, targets, given))
        if not given.keys() & _TRIGGERS:
            self._wait(lambda seen: names[0] in seen.injected, None, f"{kind} of {targets}")
        return names[0]

    def __getattr__(self, kind: str) -> Callable[..., str]:
        if kind.startswith("_") or kind not in FAULTS:
            raise AttributeError(f"no fault {kind!r}{nearest(kind, list(FAULTS))}")
        return partial(self.inject, kind)

    @contextmanager
    def during(self, kind: str, targets: str | Sequence[str], **settings: Any) -> Iterator[str]:
        """A fault that lasts as long as the block does.

        Raises:
            ScenarioError, RunOverError: as `inject`.
        """
        name = self.inject(kind, targets, **settings, for_=f"{self._within:g}s")
        try:
            yield name
        finally:
            if self._thread.is_alive():
                try:
                    self._director.ask(lambda experiment: experiment.cut_short(name))
                except RunOverError:
                    pass  # its end has undone it

    def finish(self) -> Result:
        """Let training come to its end, and judge it.

        Raises:
            What `run` raises: the input is wrong, or the place can't do what the plan asks for.
        """
        self._director.release()
        self._thread.join()
        if self._error is not None:
            raise self._error
        assert self._result is not None, "a thread that has ended has a result or an error"
        return self._result

    def verdict(self, check: str) -> Verdict:
        """Return a check's line in the report, which is true where it passed; lets training come to its end first.

        Raises:
            LookupError: there is no such check here; and as `finish`.
        """
        judgement = self.finish().judgement
        verdicts = {verdict.name: verdict for verdict in judgement.checks}
        if check not in verdicts:
            why = next((words for words, names in judgement.out_of_reach.items() if check in names), "")
            raise LookupError(f"{check} is out of reach: this trainer does not tell {why}" if why else
                              f"no check {check!r}{nearest(check, list(verdicts))}; there are {', '.join(verdicts)}")
        return verdicts[check]

    @property
    def result(self) -> Result | None:
        """Return what the run left; None while it goes on, and where it did not take place."""
        return self._result

    def must_pass(self) -> Result:
        """Let training come to its end; all checks must have passed.

        Raises:
            DidNotPassError: one did not; the message is the report. And as `finish`.
        """
        result = self.finish()
        if exit_code(result) != 0:
            raise DidNotPassError(report(result))
        return result

    def stop(self, why: str = "stopped by the test") -> None:
        """End it now; it proves nothing then. Nothing where it has ended."""
        self._director.stop(why)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._result = kept(self._perform(), "unless passed")
        except BaseException as error:
            self._error = error
        finally:
            self._director.over(self._how_it_ended())

    def _how_it_ended(self) -> str:
        if self._result is None:
            return f"the run did not take place: {self._error}"
        outcome = self._result.outcome
        return f"the run has ended: {outcome.message or 'training is over'}"

    def _wait(self, met: Callable[[Seen], bool], within: Duration | None, what: str) -> None:
        try:
            self._director.wait(met, self._within if within is None else _seconds(within), what)
        except RunOverError:
            self._thread.join()
            if self._error is not None:
                raise self._error from None
            raise

    def _add(self, experiment: Experiment, kind: str, targets: str | Sequence[str],
             given: Mapping[str, Any]) -> list[str]:
        """Add a fault to the run, and return the ids of what was planned; only the run's thread calls this."""
        now = {} if given.keys() & _TRIGGERS else {"at": f"{floor_ms(experiment.since_zero()):.3f}s"}
        planned = added(self._scenario, experiment.plan, kind, targets, {**given, **now},
                        sorted(self._backend.abilities), experiment.active(), virtual=bool(self._backend.virtual))
        experiment.add(planned)
        return [fault.id for fault in planned]


def start(scenario: str | Path | Scenario, *, seed: int = 0, on: str | Backend = "local", step_time: str = "",
          runs: Path | str = "runs", audience: Audience | None = None) -> Launched:
    """Start a run; the caller ends it, with `finish` or `stop`. Arguments and errors as of `launch`."""
    what = scenario if isinstance(scenario, Scenario) else load(str(scenario))[0]
    backend = backends.named(on) if isinstance(on, str) else on
    plan = freeze(what, seed)
    backend.refuse(plan)
    return Launched(what, paced(plan, step_time, backend.most_load) if step_time else plan, backend, Path(runs),
                    audience or NullAudience())


@contextmanager
def launch(scenario: str | Path | Scenario, *, seed: int = 0, on: str | Backend = "local", step_time: str = "",
           runs: Path | str = "runs", audience: Audience | None = None, must_pass: bool = True) -> Iterator[Launched]:
    """Start a run and leave it to the block; at the block's end training comes to its end, and is judged.

    Args:
        scenario: a file, a name of the library, or a `Scenario`. Its own faults come as it says.
        seed: as of `diloco-chaos run`.
        on: the place: `local`, `compose`, `simulated`, another package's, or a `Backend`.
        step_time: pace of a learner, as in `150ms`; `auto`: as this machine needs; the scenario's if not given.
        runs: where the run's folder is made.
        audience: hears what goes on; if not given, nothing is shown.
        must_pass: whether a run that did not pass fails the block.

    Raises:
        DidNotPassError: see `must_pass`.
        ScenarioError, PaceError, TrainerError, FolderError, NoReferenceError, ...: as `diloco_chaos.run`.
    """
    run = start(scenario, seed=seed, on=on, step_time=step_time, runs=runs, audience=audience)
    try:
        yield run
    except BaseException as error:
        run.stop(f"stopped, because the test raised {type(error).__name__}")
        raise
    if must_pass:
        run.must_pass()
    else:
        run.finish()


def report(result: Result) -> str:
    """The report as text for a log: in its first line what did not hold; its last ones say whether a check failed or
    the run proves nothing, and what to type next."""
    out = io.StringIO()
    show(result, Console(file=out, width=_WIDTH, no_color=True))
    return f"{headline(result)}\n{out.getvalue().rstrip()}"


def _seconds(time: Duration) -> float:
    return duration(time) if isinstance(time, str) else float(time)
