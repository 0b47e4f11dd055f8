"""Thousands of fault schedules under virtual time: which moments they hit, and the smallest one that breaks each check.

Schedules are drawn in rounds, each with the knowledge of the rounds before: so the results depend on the seed alone,
not on how many workers there are, nor on when they die.
"""

from __future__ import annotations

import hashlib
import math
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from diloco_chaos.chaos.checks import Judgement, judge
from diloco_chaos.chaos.checks.base import Verdict
from diloco_chaos.chaos.exploration import coverage
from diloco_chaos.chaos.exploration.corpus import ScheduleCorpus, SearchState, Seed, TriedSchedule
from diloco_chaos.chaos.exploration.coverage import Pair
from diloco_chaos.chaos.exploration.generate import (
    VIRTUAL,
    ByChance,
    Document,
    allowing,
    drawn_role,
    held_for,
    plan_of,
    sensible,
    with_faults,
)
from diloco_chaos.chaos.exploration.generate import known as known_kinds
from diloco_chaos.chaos.exploration.guide import Knowledge, draw
from diloco_chaos.chaos.exploration.perform import IN_MEMORY, abilities_of, performed_on
from diloco_chaos.chaos.exploration.scenario_writer import text
from diloco_chaos.chaos.exploration.shrink import shrunk
from diloco_chaos.chaos.exploration.storms import drawn_from, said
from diloco_chaos.chaos.runner.run import Result
from diloco_chaos.chaos.runner.simulate import SimulatedRun
from diloco_chaos.chaos.scenario.model import DOMAIN, Scenario, members_of
from diloco_chaos.faults.storm import Storm
from diloco_chaos.harness.base.errors import UserError
from diloco_chaos.harness.base.fingerprint import source_digest
from diloco_chaos.harness.base.workers import Numbered, Task, Workers
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.record.storage.files import write_whole
from diloco_chaos.harness.record.tape.events import Begin
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainers.api.settings import TrainerSettings

ROUND, FIRST_ROUND = 48, 8
"""Schedules that are drawn at once, at the most, and at first: what breaks at once is told at once."""
CRASHED = "crashed"
_STANDS_S, _TIMES_AS_LONG = 60.0, 2
"""A drawn cluster may be slower than the scenario's: its deadline is so many seconds beyond so many times the budget at
its slowest learner's pace, for all may wait for that one."""
_LATEST, _HEALS_S, _BUDGETS = 0.6, 4.0, (1.0, 1.5, 2.0)
"""Share of the nominal time by which faults have come; seconds that healing takes; budgets, as shares of the
scenario's."""
_SHRINKS, _REAL_SHRINKS = 120, 12
"""Runs that make a schedule smaller, at the most: under virtual time, and at a place whose time is real."""
HEALTHY = -1
"""Number of the run without any fault: what it leaves undecided is no schedule's fault."""


class ExplorationJob(Numbered):
    """One schedule to be run."""

    scenario: str
    """A scenario without faults, as JSON."""
    faults: tuple[dict[str, Any], ...]
    aim: Pair | None = None
    """Faults in a row that it is meant to have."""
    on: str = IN_MEMORY
    """The place where it is tried."""
    runs: str = ""
    """The folder where a real place leaves runs."""


@dataclass(frozen=True)
class Search:
    """The settings of a search: what is tried, and in which order."""

    scenario: Scenario
    """Its cluster and checks are used, its faults are not."""
    seed: int = 0
    """Of everything that is drawn."""
    max_faults: int = 6
    """The most in one schedule."""
    kinds: Sequence[str] | None = None
    """Of faults to choose from; None: all that can be drawn."""
    guided: bool = True
    """Whether pairs that were not hit yet come first; else chance alone decides."""
    draws_clusters: bool = False
    """Whether each schedule has a cluster of its own: the scenario's model, data, budget and pace, all else drawn."""
    on: str = IN_MEMORY
    """The place where schedules are tried: only what can happen there is drawn."""
    runs: str = ""
    """The folder where a real place leaves the runs that broke something."""
    storms: tuple[Storm, ...] = ()
    """What schedules are drawn from; empty: evenly from all moments and kinds."""

    def base(self, number: int) -> Scenario:
        """The scenario of a schedule, without faults."""
        bare = allowing(self.scenario.model_copy(update={"faults": ()}))  # it may name learners that are not drawn
        if self.draws_clusters and number != HEALTHY:
            chooser = ByChance(random.Random(f"{self.seed}/{number}/cluster"))
            cluster = bare.trainer.varied(chooser.pick)
            slowest = max(map(cluster.step_time_of, cluster.names))
            longest = _STANDS_S + _TIMES_AS_LONG * cluster.budget * slowest
            checks = bare.checks.model_copy(update={"loss_parity": None})  # its margins are not meant for any cluster
            bare = bare.model_copy(update={"cluster": cluster, "deadline": max(bare.deadline, longest),
                                           "checks": checks, **_left(bare, cluster)})
        return Scenario.model_validate_json(as_json(bare))

    def again(self, number: int, seed: Seed) -> ExplorationJob:
        """A schedule from before, as far as it still makes sense."""
        base = self.base(seed.number)
        return self._of(number, base, sensible(base, seed.faults, abilities_of(self.on)))

    def job(self, number: int, kinds: Sequence[str], known: Knowledge) -> ExplorationJob:
        """A schedule that is drawn."""
        base = self.base(number)
        if self.storms and number != HEALTHY:
            return self._of(number, base, self.stormy(number, base))
        aim, faults = (None, []) if number == HEALTHY else draw(
            base, random.Random(f"{self.seed}/{number}"), kinds, self.max_faults, known if self.guided else Knowledge(),
            abilities_of(self.on))
        return self._of(number, base, faults, aim)

    def stormy(self, number: int, base: Scenario) -> list[Document]:
        """Return the faults of a schedule that its storms draw."""
        return drawn_from(self.storms, base, f"{self.seed}/{number}", self.max_faults, abilities_of(self.on))

    def _of(self, number: int, base: Scenario, faults: Sequence[Document], aim: Pair | None = None) -> ExplorationJob:
        return ExplorationJob(number=number, scenario=as_json(roomy(base, faults, abilities_of(self.on))),
                              faults=tuple(faults), aim=aim, on=self.on, runs=self.runs)

    def settings(self, kinds: Sequence[str]) -> dict[str, Any]:
        """Return what results depend on."""
        bare = as_json(self.scenario.model_copy(update={"faults": ()}))
        return {"scenario": hashlib.sha256(bare.encode()).hexdigest(), "seed": self.seed,
                "max_faults": self.max_faults, "kinds": list(kinds), "guided": self.guided,
                "draws_clusters": self.draws_clusters, "sources": source_digest(),
                **({} if self.on == IN_MEMORY else {"on": self.on}),
                **({"storms": said(self.storms)} if self.storms else {})}


@dataclass
class Exploration(SearchState):
    """The state of a search: what has been tried so far."""

    tried: list[TriedSchedule] = field(default_factory=list)
    hit: Counter[Pair] = field(default_factory=Counter)
    possible: set[Pair] = field(default_factory=set)
    in_a_row: Counter[Pair] = field(default_factory=Counter)
    possible_in_a_row: set[Pair] = field(default_factory=set)
    aimed: Counter[Pair] = field(default_factory=Counter)
    """How often schedules were meant to have these faults in a row."""
    traces: Counter[str] = field(default_factory=Counter)
    first: dict[str, Sequence[Document]] = field(default_factory=dict)
    """What processes went through -> the first schedule that brought it about."""
    found: dict[str, tuple[TriedSchedule, Path]] = field(default_factory=dict)
    """Check -> the first schedule that broke it, and its file."""
    healthy: TriedSchedule | None = None
    """The run without any fault."""
    on: str = IN_MEMORY
    """The place where schedules are tried."""
    taken_over: int = 0
    """Results that were in the folder already."""
    under_way: int = 0
    """Results of the round that is not over yet: the order in which they come is nobody's business."""

    def add(self, tried: TriedSchedule) -> None:
        """One more."""
        self.tried.append(tried)
        self.hit.update(tried.pairs)
        self.in_a_row.update(tried.sequences)
        self.aimed.update([tried.aim] if tried.aim else ())
        self.traces.update(tried.traces)
        if tried.faults:
            for trace in tried.traces:
                self.first.setdefault(trace, tried.faults)

    @property
    def done(self) -> int:
        """Schedules that were run."""
        return len(self.tried) + self.under_way

    @property
    def never(self) -> list[Pair]:
        """Pairs that were never hit."""
        return sorted(self.possible - set(self.hit))

    @property
    def known(self) -> Knowledge:
        """What is drawn next rests on this."""
        least = min(map(self.aimed.__getitem__, self.possible_in_a_row), default=0)
        rows = sorted(row for row in self.possible_in_a_row if self.aimed[row] <= least)
        return Knowledge(self.never, rows, [(faults, 1 / self.traces[trace]) for trace, faults in
                                            sorted(self.first.items())])


def explore(search: Search, corpus: Path, workers: Workers[ExplorationJob, TriedSchedule], *, runs: int,
            stop: Callable[[Exploration], bool] = lambda _: False,
            tell: Callable[[Exploration], None] = lambda _: None) -> Exploration:
    """Try so many schedules. What was tried before in this folder, with the same settings, is not tried again: one that
    was interrupted goes on to its end, one that was not goes on with so many more. What an earlier version's had found,
    or was the first to bring about, comes first.

    Args:
        search: what is tried.
        corpus: where results and failing schedules are kept.
        workers: who runs them.
        runs: how many, at the most.
        stop: asked after each round whether it is enough.
        tell: called after each result.

    Raises:
        ExplorationError: the folder is another exploration's, or can't be written.
    """
    kinds = known_kinds(search.kinds, abilities_of(search.on), search.scenario)
    kept = ScheduleCorpus(corpus, search.settings(kinds))
    state = Exploration(possible=coverage.possible({kind: drawn_role(kind) for kind in kinds}, held_for()),
                        on=search.on)
    state.possible_in_a_row = coverage.possible_sequences(state.possible)
    state.taken_over = len(kept.known.keys() - {HEALTHY})
    goal = runs if state.taken_over < runs else state.taken_over + runs
    for numbers in rounds(goal):
        known = state.known
        jobs = [search.again(number, kept.seeds[number]) if 0 <= number < len(kept.seeds)
                else search.job(number, kinds, known) for number in ([] if state.tried else [HEALTHY]) + [*numbers]]
        done = {job.number: kept.known[job.number] for job in jobs if job.number in kept.known}
        state.under_way = len(done.keys() - {HEALTHY})
        for tried in workers.run([job for job in jobs if job.number not in done]):
            done[tried.number] = tried
            kept.append(tried)
            state.under_way += tried.number != HEALTHY
            tell(state)
        state.under_way = 0
        state.healthy = done.pop(HEALTHY, state.healthy)
        for number in numbers:
            state.add(done[number])
            _keep(search, kept, state, done[number])
        if stop(state):
            break
    tell(state)
    return state


def rounds(goal: int) -> Iterator[range]:
    """Numbers of the schedules of each round, of which each is as long as all before it together, or `ROUND`."""
    first = 0
    while first < goal:
        last = min(first + max(FIRST_ROUND, min(first, ROUND)), goal)
        yield range(first, last)
        first = last


def attempt(job: ExplorationJob) -> TriedSchedule:
    """Run one schedule. Under virtual time it never raises.

    Raises:
        UserError: a real place can't be used.
    """
    base = Scenario.model_validate_json(job.scenario)
    try:
        with performed_on(job.on, plan_of(base, job.faults, 0, abilities_of(job.on)), job.runs) as result:
            return _tried(job, result)
    except Exception as error:  # whatever it is, it is a find
        if job.on != IN_MEMORY and isinstance(error, UserError):
            raise  # of the place, whatever is tried there
        return crashed(job, error)


def crashed(job: ExplorationJob, error: Exception) -> TriedSchedule:
    """A schedule at which the harness itself broke."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    return TriedSchedule(number=job.number, faults=job.faults, aim=job.aim, outcome=CRASHED, failed=(CRASHED,),
                         evidence=(f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})",))


def _tried(job: ExplorationJob, result: SimulatedRun | Result) -> TriedSchedule:
    told = with_verdicts(job, result, pairs=tuple(sorted(coverage.pairs(result.history))),
                         sequences=tuple(sorted(coverage.sequences(result.history))),
                         traces=tuple(sorted(coverage.traces(result.history))))
    if result.outcome.kind == "finished":
        return told
    return told.model_copy(update={"failed": (result.outcome.kind, *told.failed),
                                   "evidence": (result.outcome.message, *told.evidence)})


def with_verdicts(job: ExplorationJob, result: SimulatedRun | Result, **more: Any) -> TriedSchedule:
    """A schedule that was run, with its verdicts. `more`: what else its run told."""
    checks = _as_it_came(result).checks
    failed = [verdict for verdict in checks if verdict.verdict == "failed"]
    return TriedSchedule(
        number=job.number, faults=job.faults, aim=job.aim, outcome=result.outcome.kind,
        failed=tuple(verdict.name for verdict in failed),
        undecided=tuple((verdict.name, why) for verdict in checks if (why := _undecided(verdict))),
        evidence=tuple(f"{verdict.name}: {verdict.measured} (bound {verdict.bound}): {'; '.join(verdict.evidence[:2])}"
                       for verdict in failed), **more)


SCHEDULES = Task(attempt, ExplorationJob, TriedSchedule)
"""What workers do with a schedule."""


def _as_it_came(result: SimulatedRun | Result) -> Judgement:
    """The verdicts, without the faults whose moment never came: the run is one of the schedule without these."""
    came = tuple(span.planned for span in result.history.spans if span.injected is not None)
    if len(came) == len(result.history.plan.faults):
        return result.judgement
    plan = result.history.plan.model_copy(update={"faults": came})
    events = [structs.replace(event, plan=plan.digest) if isinstance(event, Begin) else event
              for event in result.history.tape.events]
    return judge(replace(result.history, plan=plan, tape=Tape(events)))


def _undecided(verdict: Verdict) -> str:
    """Return why a check could not be made at all; empty where it could. One that passed was made, also where it is
    doubted because a fault had no measurable effect."""
    why = verdict.evidence[0] if verdict.evidence else "it does not say why"
    return why if verdict.verdict == "unknown" and not verdict.doubted else ""


def roomy(base: Scenario, faults: Sequence[Document], abilities: Set[Ability] = VIRTUAL) -> Scenario:
    """The scenario with a budget that leaves time to see how these faults heal: its own, or half as much again, or
    twice as much. What waits for an event is taken to come at the latest moment that faults are drawn for."""
    made = with_faults(base, faults, abilities)
    if made is None or not faults:
        return base
    cluster, ends = base.cluster, dict[str, float]()
    for number, fault in enumerate(made.faults, 1):
        start = fault.at if fault.at is not None else _LATEST * cluster.nominal_s
        if fault.after is not None:
            start = ends[fault.after.fault] + fault.after.wait
        lost = fault.expected_lost_time()
        ends[f"f{number}"] = start + max(fault.expected_duration() or 0.0, lost if math.isfinite(lost) else 0.0)
    needed = (max(ends.values()) + _HEALS_S) / cluster.nominal_s
    times = next((factor for factor in _BUDGETS if factor >= needed), _BUDGETS[-1])
    longer = cluster.model_copy(update={"budget": math.ceil(cluster.budget * times)})
    return base.model_copy(update={"cluster": longer, "deadline": max(base.deadline, times * base.deadline)})


def _left(scenario: Scenario, cluster: TrainerSettings) -> dict[str, Any]:
    """Return a scenario's domains, where it has any, without what this cluster does not have."""
    present = {*cluster.all_nodes, *cluster.link_names}
    left = {domain: tuple(name for name in members if name in present)
            for domain, members in members_of(scenario.domains, scenario.cluster).items()}
    return {"domains": {domain: members for domain, members in left.items() if members}} if left else {}


def smallest(search: Search, base: Scenario, faults: Sequence[Document], check: str) -> list[Document]:
    """The smallest schedule that still breaks this check, as far as so many runs show."""
    bare, abilities = as_json(base), abilities_of(search.on)

    def breaks(candidate: Sequence[Document]) -> bool:
        return with_faults(base, candidate, abilities) is not None and check in attempt(ExplorationJob(
            number=0, scenario=bare, faults=tuple(candidate), on=search.on, runs=search.runs)).failed
    members = {f"{DOMAIN}{domain}": names for domain, names in members_of(base.domains, base.cluster).items()}
    return shrunk(faults, breaks, _SHRINKS if search.on == IN_MEMORY else _REAL_SHRINKS, members)


def as_json(scenario: Scenario) -> str:
    """Return what a job has of a scenario, as JSON."""
    return scenario.model_dump_json(by_alias=True, exclude_unset=True)


def _keep(search: Search, corpus: ScheduleCorpus, state: Exploration, tried: TriedSchedule) -> None:
    """Write a failing schedule down; the first one of each check is made as small as can be."""
    if not tried.failed:
        return
    base = roomy(search.base(corpus.origin(tried.number)), tried.faults, abilities_of(search.on))
    for check in tried.failed:
        if check not in state.found:
            path = corpus.smallest(check)
            if not path.exists():
                small = smallest(search, base, tried.faults, check)
                name = f"found-{check.replace('_', '-')}"
                write_whole(path, text(base, small, name, f"Schedule {tried.number} of an exploration breaks {check}."))
            state.found[check] = (tried, path)
    path = corpus.failing(tried.number)
    if not path.exists():
        write_whole(path, text(base, tried.faults, f"found-{tried.number}", f"Breaks {', '.join(tried.failed)}."))
