"""The search itself: schedules are drawn, tried, and drawn anew with what their runs taught, until the time is over.

What fails is tried once more before it counts, and made as small as it can be: the same checks must fail. All is in a
folder, from which the next search goes on.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from diloco_chaos.chaos.exploration.commands.ground import Ground, aims
from diloco_chaos.chaos.exploration.commands.guide import Lessons, draw
from diloco_chaos.chaos.exploration.corpus import ExplorationError, ScheduleCorpus, SearchState, TriedSchedule
from diloco_chaos.chaos.exploration.explore import HEALTHY, ExplorationJob, Search, as_json
from diloco_chaos.chaos.exploration.generate import Document
from diloco_chaos.chaos.exploration.perform import abilities_of
from diloco_chaos.chaos.exploration.scenario_writer import text
from diloco_chaos.chaos.exploration.shrink import shrunk
from diloco_chaos.harness.base.errors import UserError
from diloco_chaos.harness.base.workers import Workers
from diloco_chaos.harness.record.storage.files import bytes_of, write_whole

_FOUND = "found.json"
_SHRINKS = 16
"""Runs that make a schedule smaller, at the most."""
_MIDDLE = 0.3
"""Share of the time without faults at which a fault comes that no longer waits for something."""


class HuntError(UserError):
    """Nothing can be searched for; the message says why and what to do."""


@dataclass
class Finding:
    """A schedule that fails, and did so again."""

    checks: list[str]
    """Those that failed both times."""
    number: int
    """The schedule that was drawn."""
    faults: list[Document]
    """The smallest that fails them."""
    file: str
    evidence: list[str]
    failed: int = 2
    of: int = 2
    """How many runs of that schedule failed, and of how many."""
    runs: int = 0
    """How many runs the search had made when it was found and small."""
    times: int = 1
    """How many schedules of the search failed these checks."""


@dataclass
class HuntState(SearchState):
    """What a search has found so far."""

    tried: list[TriedSchedule] = field(default_factory=list)
    lessons: Lessons = field(default_factory=Lessons)
    found: list[Finding] = field(default_factory=list)
    flakes: list[TriedSchedule] = field(default_factory=list)
    """Schedules that failed once, and not again."""
    healthy: TriedSchedule | None = None
    runs: int = 0
    """Runs of this search, also those that repeat a schedule or make it smaller."""
    taken_over: int = 0
    """Schedules that were in the folder already."""


class Hunt:
    """One search. `state` is right at any time, also when Ctrl-C ends it."""

    def __init__(self, search: Search, corpus: Path, workers: Workers[ExplorationJob, TriedSchedule], *,
                 at_once: int = 1, over: Callable[[], bool] = lambda: False,
                 tell: Callable[[HuntState], None] = lambda _: None) -> None:
        """Args:
            search: what is tried, and where.
            corpus: the folder of results.
            workers: who runs schedules.
            at_once: how many are drawn, and run, at a time.
            over: asked before each run that makes a schedule smaller: whether the time is over.
            tell: called after each result.

        Raises:
            ExplorationError: the folder is another search's, or can't be written.
            HuntError: no fault can be drawn.
        """
        self.state = HuntState()
        self._search, self._workers, self._at_once, self._over, self._tell = search, workers, at_once, over, tell
        self._base = search.base(HEALTHY)
        abilities = abilities_of(search.on)
        drawable = aims(search.scenario, abilities, search.kinds)
        if not drawable:
            raise HuntError(f"no fault can be drawn: {', '.join(search.kinds or ()) or 'what can be drawn'} finds no "
                            f"target among these nodes on {search.on}: faults of links need a node that `listens` and "
                            f"is named by another one, and corrupt, truncate, delete and io need the node's `state`")
        self._ground = Ground(self._base, abilities, drawable)
        kinds = tuple(dict.fromkeys(kind for kind, _ in drawable))
        self._corpus = ScheduleCorpus(corpus, search.settings(kinds) | {"seed": 0})
        self._take_over()

    def _take_over(self) -> None:
        """Know what the folder holds of an earlier search."""
        state, known = self.state, self._corpus.known
        if (healthy := known.get(HEALTHY)) is not None:
            self._begin(healthy)
        for number, tried in sorted(known.items()):
            if number != HEALTHY and tried.repeats is None:
                state.tried.append(tried)
                state.lessons.learn(tried)
        state.taken_over = len(state.tried)
        path = self._corpus.folder / _FOUND
        if state.tried and path.exists():
            try:
                state.found = [Finding(**finding) for finding in json.loads(bytes_of(path))]
            except (ValueError, TypeError) as error:
                raise ExplorationError(f"{path}: is no list of what was found; remove it, or name another folder with "
                                       f"--corpus-dir") from error
        self._next = max(known, default=HEALTHY) + 1
        self._seeds = self._corpus.seeds[len(state.tried):]

    def run(self, schedules: int, stop: Callable[[HuntState], bool] = lambda _: False) -> None:
        """Try so many schedules more, or until it is enough.

        Raises:
            HuntError: the run without any fault fails, or proves nothing.
            UserError: the place can't be used.
            KeyboardInterrupt: Ctrl-C.
        """
        if self.state.healthy is None:
            self._try_without_faults()
        left = schedules
        while left > 0 and not stop(self.state) and not self._over():
            jobs = [self._drawn() for _ in range(min(self._at_once, left))]
            jobs = [job for job in jobs if job.faults]
            if not jobs:
                raise HuntError("no schedule makes sense: what is drawn can't be; name other kinds with --faults")
            left -= len(jobs)
            for tried in self._tried(jobs):
                self._corpus.append(tried)
                self.state.tried.append(tried)
                self.state.lessons.learn(tried)
                if tried.failed:
                    self._look_closer(tried)
                self._tell(self.state)

    def _try_without_faults(self) -> None:
        job = self._job(HEALTHY, ())
        [healthy] = self._tried([job])
        if healthy.failed:
            [healthy] = self._tried([job])
        if healthy.failed:
            raise HuntError(f"without any fault {healthy.evidence[0] if healthy.evidence else healthy.failed[0]}: "
                            f"no schedule can show more; make `diloco-chaos run` pass without faults first (the run "
                            f"is in {job.runs})")
        if not healthy.measured.get("rounds"):
            why = healthy.undecided[0][1] if healthy.undecided else f"it ended: {healthy.outcome}"
            raise HuntError(f"without any fault no round was made from the steady state on ({why}): see what "
                            f"`diloco-chaos run` says of the scenario without faults")
        self._corpus.append(healthy)
        self._begin(healthy)

    def _begin(self, healthy: TriedSchedule) -> None:
        self.state.healthy = healthy
        self.state.lessons.begin(healthy)
        lines: dict[str, list[str]] = {}
        for node, kind in healthy.lines:
            lines.setdefault(node, []).append(kind)
        measured = healthy.measured
        self._ground = Ground(self._base, self._ground.abilities, self._ground.aims, measured["seconds"],
                              int(measured["rounds"]), lines, int(measured["bytes"]))

    def _drawn(self) -> ExplorationJob:
        number = self._number()
        while self._seeds:
            faults = self._seeds.pop(0).faults
            if self._ground.possible(faults):
                return self._job(number, faults)
        if self._search.storms:
            return self._job(number, self._search.stormy(number, self._base))
        lessons = self.state.lessons if self._search.guided else None
        chance = random.Random(f"{self._search.seed}/{number}")
        aim, drawn = draw(self._ground, chance, self._search.max_faults, lessons)
        return self._job(number, drawn, aim)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _job(self, number: int, faults: Sequence[Document], aim: tuple[str, str] | None = None) -> ExplorationJob:
        name = "healthy" if number == HEALTHY else f"{number:06d}"
        return ExplorationJob(number=number, scenario=as_json(self._base), faults=tuple(faults), aim=aim,
                              on=self._search.on, runs=f"{self._search.runs}/{name}")

    def _tried(self, jobs: Sequence[ExplorationJob]) -> list[TriedSchedule]:
        """The results, in the order of their numbers: so much of what comes next depends on them alone."""
        results = []
        for result in self._workers.run(jobs):
            self.state.runs += 1
            results.append(result)
        return sorted(results, key=lambda tried: tried.number)

    def _look_closer(self, tried: TriedSchedule) -> None:
        """Try again what failed; make small what failed again."""
        for known in self.state.found:
            if set(known.checks) <= set(tried.failed):
                known.times += 1
                self._keep_found()
                return
        [again] = self._tried([self._job(self._number(), tried.faults)])
        self._corpus.append(again.model_copy(update={"repeats": tried.number}))
        checks = [check for check in tried.failed if check in again.failed]
        if not checks:
            self.state.flakes.append(tried)
            return
        count = len(self.state.found) + 1
        path = self._corpus.folder / (f"found-{count}.yaml" if count > 1 else "found.yaml")
        finding = Finding(checks, tried.number, list(tried.faults), str(path), list(again.evidence),
                          runs=self.state.runs)
        self.state.found.append(finding)
        self._write(finding)
        self._make_small(finding)

    def _make_small(self, finding: Finding) -> None:
        """Leave out of its schedule what is not needed for the same checks to fail."""
        def breaks(candidate: Sequence[Document]) -> bool:
            if self._over() or not candidate or not self._ground.possible(candidate):
                return False
            [tried] = self._tried([self._job(self._number(), candidate)])
            if not set(finding.checks) <= set(tried.failed):
                return False
            finding.faults, finding.evidence = list(candidate), list(tried.evidence)
            finding.failed = finding.of = 1
            finding.runs = self.state.runs
            self._write(finding)
            return True
        before = finding.faults
        at = f"{round(_MIDDLE * self._ground.lasts_s * 1000)}ms"
        shrunk(finding.faults, breaks, _SHRINKS, at=at)
        if finding.faults is not before and not self._over():
            [again] = self._tried([self._job(self._number(), finding.faults)])
            finding.of += 1
            finding.failed += set(finding.checks) <= set(again.failed)
        finding.runs = self.state.runs
        self._write(finding)

    def _write(self, finding: Finding) -> None:
        name = Path(finding.file).stem
        write_whole(Path(finding.file), text(
            self._base, finding.faults, name, f"Schedule {finding.number} of an exploration fails "
            f"{', '.join(finding.checks)}: {finding.failed} of {finding.of} runs."))
        self._keep_found()

    def _keep_found(self) -> None:
        documents: list[dict[str, Any]] = [asdict(finding) for finding in self.state.found]
        write_whole(self._corpus.folder / _FOUND, json.dumps(documents, indent=2) + "\n")
