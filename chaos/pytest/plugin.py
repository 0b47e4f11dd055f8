"""pytest plugin: scenario files are tests. `pytest scenarios/flagship.yaml` runs one and prints its story on failure.

Only YAML files whose first line is `diloco_chaos: 1` are collected; no others are touched.

A test in Python says which scenario is run beside it, and has the run as its argument `chaos`:

    @pytest.mark.chaos("kill-one", on="simulated", seeds=3)
    def test_the_second_death_costs_nobody_else_anything(chaos):
        chaos.kill("learner-2", restart_after="1s")
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pytest

from diloco_chaos.chaos.pytest import reporting

if TYPE_CHECKING:
    from diloco_chaos.chaos.launched import Launched
    from diloco_chaos.chaos.runner.run import Result
    from diloco_chaos.chaos.scenario.model import Scenario

_LAUNCHED = pytest.StashKey["Launched"]()
"""The run that goes on beside a test."""
_REPEATS = pytest.StashKey[list[str]]()
"""A line for every run that was repeated because it was inconclusive."""
_INCONCLUSIVE, _INTERRUPTED = 3, 130
"""Exit codes of a run."""
_HEADER = b"diloco_chaos: 1"  # as in chaos/scenario/document.py, which sessions without scenarios don't import


class _Option(NamedTuple):
    """One of the command line, and of the ini file: `--chaos-step-time`, `chaos_step_time`."""

    default: Any
    help: str
    type: Callable[[str], Any] = str
    choices: Sequence[str] | None = None
    metavar: str | None = None


def _number(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"it must be a whole number, {least} at least")
        return int(text)
    return number


_OPTIONS = {
    "tier": _Option("", "run scenarios of this tier only (full: all)", choices=["ci", "full"]),
    "on": _Option("local", "run scenarios as processes (local, the default), in containers (compose), under virtual "
                           "time (simulated), or on another package's backend", metavar="BACKEND"),
    "step-time": _Option("", "pace of a learner, as in 150ms; auto: as this machine needs, and never faster than "
                             "written"),
    "seed": _Option(0, "seed of every scenario, or the first of several", _number(0)),
    "seeds": _Option(1, "run every scenario with so many seeds, a test each", _number(1)),
    "rerun-inconclusive": _Option(0, "run a scenario again, N times at most, while it proves nothing; never after a "
                                     "failed check", _number(0), metavar="N"),
    "inconclusive": _Option("error", "what a run that proves nothing is to pytest", choices=["error", "skip", "fail"]),
    "runs": _Option(Path("runs"), "where the runs' folders are made", Path),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the command line, each of which the ini file may have, too."""
    group = parser.getgroup("diloco-chaos")
    for name, option in _OPTIONS.items():
        more: dict[str, Any] = {"choices": option.choices} if option.choices else {
            "type": option.type, "metavar": option.metavar}
        group.addoption(f"--chaos-{name}", default=None, help=option.help, **more)
        parser.addini(f"chaos_{name.replace('-', '_')}", f"default of --chaos-{name}", default=None)


def _option(config: pytest.Config, name: str) -> Any:
    """Return an option as the command line gives it, else as the ini file does, else its default.

    Raises:
        pytest.UsageError: the ini file says what can't be.
    """
    option, given = _OPTIONS[name], config.getoption(f"--chaos-{name}")
    if given is not None:
        return given
    key = f"chaos_{name.replace('-', '_')}"
    written = config.getini(key)
    if not written:
        return option.default
    if option.choices and written not in option.choices:
        raise pytest.UsageError(f"{key} = {written}: choose from {', '.join(option.choices)}")
    try:
        return option.type(written)
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"{key} = {written}: {error}") from None


def pytest_configure(config: pytest.Config) -> None:
    """Marks that scenarios bear."""
    config.stash[_REPEATS] = []
    for name in _OPTIONS:
        _option(config, name)  # what can't be is told before anything runs
    config.pluginmanager.register(reporting, "diloco-chaos-reporting")
    config.addinivalue_line("markers", "chaos(scenario, on='local', seeds=1, step_time=''): diloco-chaos runs this "
                                       "scenario beside the test, once a seed; the run is the test's argument `chaos`")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which runs were repeated, and why."""
    for line in config.stash[_REPEATS]:
        terminalreporter.write_line(f"diloco-chaos: {line}", yellow=True)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A marked test is run once a seed, whether it asks for the run or not."""
    mark = metafunc.definition.get_closest_marker("chaos")
    if mark is None or not mark.args:
        return
    if "chaos" not in metafunc.fixturenames:
        metafunc.fixturenames.append("chaos")
    first, seeds = _option(metafunc.config, "seed"), mark.kwargs.get("seeds", 1)
    if not isinstance(seeds, int) or seeds < 1:
        raise pytest.Collector.CollectError(f"{metafunc.function.__name__}: seeds of a chaos mark is a number of runs, "
                                            f"1 at least, not {seeds!r}")
    metafunc.parametrize("chaos", range(first, first + seeds), indirect=True, ids=lambda seed: f"seed{seed}")


def pytest_itemcollected(item: pytest.Item) -> None:
    """So that the run of a marked test takes place also where its function has no such argument: pytest forgets what
    was added while it made one test for each seed."""
    if isinstance(item, pytest.Function) and "chaos" not in item.fixturenames:
        mark = item.get_closest_marker("chaos")
        if mark is not None and mark.args:
            item.fixturenames.append("chaos")


@pytest.fixture
def chaos(request: pytest.FixtureRequest) -> Iterator[Launched]:
    """The run of the marked scenario (`diloco_chaos.Launched`). When the test is over training comes to its end, and
    every check must have passed; a test that failed ends it at once."""
    mark = request.node.get_closest_marker("chaos")
    if mark is None or not mark.args:
        pytest.fail('the argument `chaos` is a run: say of which scenario, @pytest.mark.chaos("kill-one")',
                    pytrace=False)
    run = request.node.stash[_LAUNCHED] = _started(request, **mark.kwargs)
    yield run
    run.stop()


def _started(request: pytest.FixtureRequest, on: str = "", seeds: int = 1, step_time: str = "",
             **unknown: object) -> Launched:
    from diloco_chaos.chaos.launched import start
    from diloco_chaos.chaos.runner import backends
    from diloco_chaos.chaos.scenario.loading import load
    from diloco_chaos.chaos.scenario.plan import freeze
    config = request.config
    scenario = str(request.node.get_closest_marker("chaos").args[0])
    if unknown:
        pytest.fail(f"a chaos mark takes on, seeds and step_time, not {', '.join(unknown)}", pytrace=False)
    beside = request.path.parent / scenario
    try:
        what = load(str(beside) if beside.is_file() else scenario)[0]
        backend = backends.named(on or _option(config, "on"))
        if refused := backend.refusals(freeze(what, request.param)):
            pytest.skip("; ".join(refused).replace("--on", "--chaos-on"))
        return start(what, seed=request.param, on=backend, step_time=step_time or _option(config, "step-time"),
                     runs=_option(config, "runs"))
    except _expected() as error:
        pytest.fail(str(error), pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """A test that passed must have had a run that passed."""
    outcome = yield
    run = pyfuncitem.stash.get(_LAUNCHED, None)
    if run is not None:
        try:
            result = run.must_pass()
        except _expected() as error:
            pytest.fail(str(error), pytrace=False)
        finally:
            if run.result is not None:
                pyfuncitem.stash[reporting.RUN] = run.result
        pyfuncitem.user_properties.extend(_properties(result))
    return outcome


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Take scenario files."""
    if file_path.suffix not in (".yaml", ".yml"):
        return None
    with open(file_path, "rb") as file:
        first = file.readline().split(b"#")[0].rstrip()
    return ScenarioFile.from_parent(parent, path=file_path) if first == _HEADER else None


class ScenarioFile(pytest.File):
    """A scenario file holds one test, or one for each seed."""

    def collect(self) -> Iterator[pytest.Item]:
        """The tests, unless their tier is not asked for.

        Raises:
            CollectError: the scenario can't be run; with all its problems.
        """
        from diloco_chaos.chaos.scenario.loading import load
        from diloco_chaos.chaos.scenario.problems import ScenarioError
        try:
            scenario = load(str(self.path))[0]
        except ScenarioError as error:
            raise self.CollectError(str(error)) from error
        if _option(self.config, "tier") == "ci" and scenario.tier != "ci":
            return
        first, seeds = _option(self.config, "seed"), _option(self.config, "seeds")
        for seed in range(first, first + seeds):
            name = self.path.stem if seeds == 1 else f"{self.path.stem}[seed{seed}]"
            yield ScenarioItem.from_parent(self, name=name, scenario=scenario, seed=seed)


class ScenarioItem(pytest.Item):
    """One scenario, run with one seed."""

    def __init__(self, scenario: Scenario, seed: int, **options: Any) -> None:
        super().__init__(**options)
        self.add_marker("chaos")
        if scenario.skip:
            self.add_marker(pytest.mark.skip(reason=scenario.skip))
        if scenario.xfail:
            from diloco_chaos.chaos.launched import DidNotPassError
            self.add_marker(pytest.mark.xfail(reason=scenario.xfail, raises=DidNotPassError))
        self._scenario, self._seed = scenario, seed
        self._result: Result | None = None

    def setup(self) -> None:
        """Run it. One that proves nothing is an error and no failure: nothing is known of what is tested."""
        from diloco_chaos.chaos.launched import report
        from diloco_chaos.chaos.report.story import headline
        from diloco_chaos.chaos.runner.run import exit_code
        why = ""
        try:
            self._result = self._run()
        except _expected() as error:
            why = str(error)
        if (result := self._result) is None:  # outside of `except`: pytest would tell of both
            pytest.fail(why, pytrace=False)
        self.user_properties.extend(_properties(result))
        self.stash[reporting.RUN] = result
        code, wanted = exit_code(result), _option(self.config, "inconclusive")
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
        if code == _INCONCLUSIVE and wanted == "skip":
            pytest.skip(headline(result))
        if code == _INCONCLUSIVE and wanted == "error":
            pytest.fail(report(result), pytrace=False)

    def _run(self) -> Result:
        from diloco_chaos.chaos.report.live import NullAudience
        from diloco_chaos.chaos.report.saved import kept
        from diloco_chaos.chaos.runner import backends
        from diloco_chaos.chaos.runner.run import run_again_if_inconclusive, run_plan
        from diloco_chaos.chaos.scenario.plan import freeze
        from diloco_chaos.chaos.scenario.step_time import paced
        frozen = freeze(self._scenario, self._seed)
        backend = backends.named(_option(self.config, "on"))
        if refused := backend.refusals(frozen):
            pytest.skip("; ".join(refused).replace("--on", "--chaos-on"))
        if pace := _option(self.config, "step-time"):
            frozen = paced(frozen, pace, backend.most_load)
        runs = _option(self.config, "runs")
        summed_up: Literal["never", "unless passed"] = "never" if self._scenario.xfail else "unless passed"
        return run_again_if_inconclusive(lambda: kept(run_plan(frozen, runs, NullAudience(), backend), summed_up),
                                         _option(self.config, "rerun-inconclusive"),
                                         self.config.stash[_REPEATS].append)

    def runtest(self) -> None:
        """Everything but a pass is a failure."""
        from diloco_chaos.chaos.launched import DidNotPassError, report
        from diloco_chaos.chaos.runner.run import exit_code
        assert self._result is not None, "it was run by `setup`"
        if exit_code(self._result) != 0:
            raise DidNotPassError(report(self._result))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """The report instead of a traceback."""
        if isinstance(excinfo.value, _expected()):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return where the scenario stands, for pytest's headings."""
        return self.path, 0, f"scenario {self.name}"


def _properties(result: Result) -> list[tuple[str, str]]:
    """Return what JUnit's XML says of a run beside its outcome."""
    plan = result.history.plan
    return [("run", str(result.folder.path)), ("seed", str(plan.seed)), ("plan", plan.digest),
            ("repeat", result.folder.repeat),
            *((f"check {verdict.name}", f"{verdict.verdict}: {verdict.measured} (bound {verdict.bound or 'none'})")
              for verdict in result.judgement.checks)]


def _expected() -> tuple[type[BaseException], ...]:
    """Errors that are shown as a sentence or as a report, without a traceback."""
    from diloco_chaos.chaos.launched import DidNotPassError
    from diloco_chaos.harness.base.errors import UserError
    return UserError, DidNotPassError
