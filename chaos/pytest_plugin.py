"""pytest plugin: scenario files are tests. `pytest scenarios/flagship.yaml` runs one and prints its story on failure.

Only YAML files whose first line is `diloco_chaos: 1` are collected; nobody else's are touched.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chaos.name_clash import clash, hidden

if TYPE_CHECKING:
    from chaos.runner.run import Result

_REPEATS = pytest.StashKey[list[str]]()
"""A line for every run that was repeated because it was inconclusive."""
_HEADER = b"diloco_chaos: 1"  # as in chaos.scenario.document, which is not imported for people who have no scenarios


def pytest_addoption(parser: pytest.Parser) -> None:
    """Command line options."""
    group = parser.getgroup("diloco-chaos")
    group.addoption("--chaos-tier", choices=["ci", "full"], help="run scenarios of this tier only (full: all)")
    group.addoption("--chaos-on", default="local", metavar="BACKEND",
                    help="run scenarios as processes (local, the default), in containers (compose), under virtual time "
                         "(simulated), or on another package's backend")
    group.addoption("--chaos-step-time", default="",
                    help="pace of a learner, as in 150ms; auto: as this machine needs, and never faster than written")
    group.addoption("--chaos-seed", type=int, default=0, help="seed of every scenario")
    group.addoption("--chaos-rerun-inconclusive", type=int, default=0, metavar="N",
                    help="run a scenario again, N times at most, while it proves nothing; never after a failed check")
    group.addoption("--chaos-runs", type=Path, default=Path("runs"), help="where the runs' folders are made")


def pytest_configure(config: pytest.Config) -> None:
    """Marks that scenarios bear."""
    config.stash[_REPEATS] = []
    config.addinivalue_line("markers", "chaos: a scenario that diloco-chaos runs on a cluster")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which runs were repeated, and why."""
    for line in config.stash[_REPEATS]:
        terminalreporter.write_line(f"diloco-chaos: {line}", yellow=True)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Take scenario files."""
    if file_path.suffix not in (".yaml", ".yml"):
        return None
    with open(file_path, "rb") as file:
        first = file.readline().split(b"#")[0].rstrip()
    return ScenarioFile.from_parent(parent, path=file_path) if first == _HEADER else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector,
                               ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Say what to do where a test can't be imported because its folder has the name of one of our packages."""
    report = yield
    if report.failed and isinstance(collector, pytest.Module) and (why := clash(collector.path)):
        report.longrepr = f"{why}\n\n{report.longreprtext}"
    return report


class ScenarioFile(pytest.File):
    """A scenario file holds one test."""

    def collect(self) -> Iterator[pytest.Item]:
        """The test, unless its tier is not asked for."""
        if why := hidden():
            raise self.CollectError(why)
        from chaos.scenario.loading import load
        from chaos.scenario.problems import ScenarioError
        tier = self.config.getoption("--chaos-tier")
        try:
            wanted = tier != "ci" or load(str(self.path))[0].tier == "ci"
        except ScenarioError:
            wanted = True  # it fails when it runs, with all its problems
        if wanted:
            yield ScenarioItem.from_parent(self, name=self.path.stem)


class ScenarioItem(pytest.Item):
    """One scenario, run with one seed."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_marker("chaos")

    def runtest(self) -> None:
        """Run it; everything but a pass is a failure, an inconclusive run too."""
        from chaos.report.live import NullAudience
        from chaos.runner import backends
        from chaos.runner.run import exit_code, run_again_if_inconclusive, run_plan
        from chaos.scenario.loading import load
        from chaos.scenario.plan import freeze
        from chaos.scenario.step_time import paced
        frozen = freeze(load(str(self.path))[0], self.config.getoption("--chaos-seed"))
        backend = backends.named(self.config.getoption("--chaos-on"))
        if refused := backend.refusals(frozen):
            pytest.skip("; ".join(refused).replace("--on", "--chaos-on"))
        if pace := self.config.getoption("--chaos-step-time"):
            frozen = paced(frozen, pace)
        option = self.config.getoption
        result = run_again_if_inconclusive(lambda: run_plan(frozen, option("--chaos-runs"), NullAudience(), backend),
                                           option("--chaos-rerun-inconclusive"), self.config.stash[_REPEATS].append)
        self.user_properties.append(("run", str(result.folder.path)))
        if exit_code(result) == 130:
            raise KeyboardInterrupt
        if exit_code(result) != 0:
            raise ScenarioFailed(result)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:
        """The report instead of a traceback."""
        from chaos.evidence.run_folder import FolderError
        from chaos.runner.baselines import NoReferenceError
        from chaos.scenario.problems import ScenarioError
        from chaos.scenario.step_time import PaceError
        from harness.cleanup.undo_log import UndoLogError
        from harness.cluster.base import ClusterError
        from harness.extras import MissingExtraError
        from harness.providers import ProviderError
        from harness.trainer_api.trainer import TrainerError
        if isinstance(excinfo.value, ScenarioFailed):
            return excinfo.value.report()
        ours = (ScenarioError, FolderError, TrainerError, NoReferenceError, UndoLogError, ClusterError,
                PaceError, MissingExtraError, ProviderError)
        if isinstance(excinfo.value, ours):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where it stands, for pytest's headings."""
        return self.path, 0, f"scenario {self.name}"


class ScenarioFailed(Exception):  # noqa: N818 - a verdict, not an error
    """A scenario that did not pass."""

    def __init__(self, result: Result) -> None:
        super().__init__(result.folder.path.name)
        self._result = result

    def report(self) -> str:
        """The report as text for a log; its first word says whether a check failed or the run proves nothing."""
        from rich.console import Console

        from chaos.report.terminal import show
        out = io.StringIO()
        show(self._result, Console(file=out, width=96, no_color=True))
        return out.getvalue()
