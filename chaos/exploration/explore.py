"""Thousands of fault schedules under virtual time: which moments they hit, and the smallest one that breaks each check.

Schedules are drawn in rounds, each with the knowledge of the rounds before: so the results depend on the seed alone,
not on how many workers there are, nor on when they die.
"""

from __future__ import annotations

import hashlib
import json
import random
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from chaos.checks import DOUBTED
from chaos.checks.base import Verdict
from chaos.exploration import coverage
from chaos.exploration.coverage import Pair
from chaos.exploration.generate import Document, held_for, plan_of, with_faults
from chaos.exploration.generate import known as known_kinds
from chaos.exploration.guide import draw
from chaos.exploration.scenario_writer import text
from chaos.exploration.shrink import shrunk
from chaos.runner.simulate import simulate
from chaos.scenario.model import Scenario
from faults import FAULTS
from harness.fingerprint import source_digest

ROUND = 48
"""Schedules that are drawn at once."""
CRASHED = "crashed"
_RESULTS = "results.jsonl"
_SETTINGS = "exploration.json"


class ExplorationError(Exception):
    """The corpus folder can't be used; the message says why and what to do."""


class Job(BaseModel):
    """One schedule to be run."""

    model_config = ConfigDict(frozen=True)

    number: int
    scenario: str
    """A scenario without faults, as JSON."""
    faults: tuple[dict[str, Any], ...]


class Tried(BaseModel):
    """One schedule that was run."""

    model_config = ConfigDict(frozen=True)

    number: int
    faults: tuple[dict[str, Any], ...]
    outcome: str
    failed: tuple[str, ...] = ()
    """Checks that failed; `crashed` where the run itself broke."""
    undecided: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()


class Workers(Protocol):
    """Who runs the schedules."""

    def run(self, jobs: Sequence[Job]) -> Iterable[Tried]:
        """The results, in any order. A worker that dies loses none."""
        ...


@dataclass
class Exploration:
    """What has been tried so far."""

    tried: list[Tried] = field(default_factory=list)
    hit: Counter[Pair] = field(default_factory=Counter)
    possible: set[Pair] = field(default_factory=set)
    found: dict[str, tuple[Tried, Path]] = field(default_factory=dict)
    """Check -> the first schedule that broke it, and its file."""
    taken_over: int = 0
    """Results that were in the folder already."""
    under_way: int = 0
    """Results of the round that is not over yet: the order in which they come is nobody's business."""

    def add(self, tried: Tried) -> None:
        """One more."""
        self.tried.append(tried)
        self.hit.update(tried.pairs)

    @property
    def done(self) -> int:
        """Schedules that were run."""
        return len(self.tried) + self.under_way

    @property
    def decided(self) -> int:
        """Schedules that proved something: a check failed, or every one passed."""
        return sum(bool(tried.failed) or not tried.undecided for tried in self.tried)

    @property
    def exit_code(self) -> int:
        """0 nothing broke, 1 something did, 3 more than half of the schedules proved nothing."""
        return 1 if self.found else 3 if 2 * self.decided < len(self.tried) else 0

    @property
    def never(self) -> list[Pair]:
        """Pairs that were never hit."""
        return sorted(self.possible - set(self.hit))


def explore(scenario: Scenario, corpus: Path, workers: Workers, *, runs: int, seed: int = 0, max_faults: int = 6,
            kinds: Sequence[str] | None = None, guided: bool = True,
            tell: Callable[[Exploration], None] = lambda _: None, stop_at: str = "") -> Exploration:
    """Try so many schedules; what was tried before in this folder, with the same settings, is not tried again.

    Args:
        scenario: its cluster and checks are used, its faults are not.
        corpus: where results and failing schedules are kept.
        workers: who runs them.
        runs: how many.
        seed: the random seed of everything that is drawn.
        max_faults: the most in one schedule.
        kinds: of faults to choose from; None: all that can be drawn.
        guided: whether pairs that were not hit yet come first; else chance alone decides.
        tell: called after each result.
        stop_at: end as soon as this check has failed.

    Raises:
        ExplorationError: the folder is another exploration's, or can't be written.
    """
    kinds = known_kinds(kinds)
    bare = scenario.model_copy(update={"faults": ()}).model_dump_json(by_alias=True, exclude_unset=True)
    settings = {"scenario": hashlib.sha256(bare.encode()).hexdigest(), "seed": seed, "max_faults": max_faults,
                "kinds": list(kinds), "guided": guided, "sources": source_digest()}
    results, known = _opened(corpus, settings)
    state = Exploration(possible=coverage.possible({kind: FAULTS[kind].target_role for kind in kinds}, held_for()))
    state.taken_over = len(known)
    base = Scenario.model_validate_json(bare)
    for first in range(0, runs, ROUND):
        numbers = range(first, min(first + ROUND, runs))
        drawn = [tuple(draw(base, random.Random(f"{seed}/{number}"), kinds, max_faults, state.never if guided else ()))
                 for number in numbers]
        jobs = [Job(number=number, scenario=bare, faults=faults)
                for number, faults in zip(numbers, drawn, strict=True)]
        done = {number: known[number] for number in numbers if number in known}
        state.under_way = len(done)
        for tried in workers.run([job for job in jobs if job.number not in done]):
            done[tried.number] = tried
            _append(results, tried)
            state.under_way += 1
            tell(state)
        state.under_way = 0
        for number in numbers:
            state.add(done[number])
            _keep(base, corpus, state, done[number])
        if stop_at and any(stop_at in tried.failed for tried in done.values()):
            break
    tell(state)
    return state


def attempt(job: Job) -> Tried:
    """Run one schedule; never raises."""
    base = Scenario.model_validate_json(job.scenario)
    try:
        result = simulate(plan_of(base, job.faults, 0))
    except Exception as error:  # whatever it is, it is a find
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Tried(number=job.number, faults=job.faults, outcome=CRASHED, failed=(CRASHED,),
                     evidence=(f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})",))
    broken = () if result.outcome.kind == "finished" else (result.outcome.kind,)
    return Tried(
        number=job.number, faults=job.faults, outcome=result.outcome.kind, failed=(*broken, *result.failed),
        undecided=tuple(verdict.name for verdict in result.judgement.checks if _undecided(verdict)),
        evidence=(*([result.outcome.message] if broken else []), *(
            f"{verdict.name}: {verdict.measured} (bound {verdict.bound}): {'; '.join(verdict.evidence[:2])}"
            for verdict in result.judgement.checks if verdict.verdict == "failed")),
        pairs=tuple(sorted(coverage.pairs(result.history))))


def _undecided(verdict: Verdict) -> bool:
    """Whether a check could not be made at all. One that passed was, also where it is doubted because a fault had no
    measurable effect."""
    return verdict.verdict == "unknown" and not (verdict.evidence and DOUBTED in verdict.evidence[0])


def smallest(base: Scenario, faults: Sequence[Document], check: str, most_runs: int = 120) -> list[Document]:
    """The smallest schedule that still breaks this check."""
    bare = base.model_copy(update={"faults": ()}).model_dump_json(by_alias=True, exclude_unset=True)

    def breaks(candidate: Sequence[Document]) -> bool:
        return with_faults(base, candidate) is not None and check in attempt(
            Job(number=0, scenario=bare, faults=tuple(candidate))).failed
    return shrunk(faults, breaks, most_runs)


def _keep(base: Scenario, corpus: Path, state: Exploration, tried: Tried) -> None:
    """Write a failing schedule down; the first one of each check is made as small as can be."""
    for check in tried.failed:
        if check in state.found:
            continue
        path = corpus / f"{check.replace('_', '-')}.yaml"
        if not path.exists():
            small = smallest(base, tried.faults, check)
            name = f"found-{check.replace('_', '-')}"
            _write(path, text(base, small, name, f"Schedule {tried.number} of an exploration breaks {check}."))
        state.found[check] = (tried, path)
    if tried.failed:
        path = corpus / "failing" / f"{tried.number:06d}.yaml"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            _write(path, text(base, tried.faults, f"found-{tried.number}", f"Breaks {', '.join(tried.failed)}."))


def _opened(corpus: Path, settings: dict[str, Any]) -> tuple[Path, dict[int, Tried]]:
    """The file of results, and what is in it. The last line may be torn: whoever wrote it was killed."""
    try:
        corpus.mkdir(parents=True, exist_ok=True)
        told = corpus / _SETTINGS
        if told.exists() and json.loads(told.read_text()) != settings:
            raise ExplorationError(f"{corpus}: holds an exploration with other settings, or of another version; name "
                                   f"another folder with --corpus-dir, or remove this one")
        if not told.exists():
            _write(told, json.dumps(settings, indent=2) + "\n")
        results = corpus / _RESULTS
        known: dict[int, Tried] = {}
        whole = 0
        for line in results.read_bytes().splitlines(keepends=True) if results.exists() else ():
            if not line.endswith(b"\n"):
                break
            try:
                tried = Tried.model_validate_json(line)
            except ValueError:
                raise ExplorationError(f"{results}, line {len(known) + 1}: is no result of an exploration; remove the "
                                       f"line, or name another folder with --corpus-dir") from None
            known[tried.number] = tried
            whole += len(line)
        if results.exists():
            with open(results, "r+b") as file:
                file.truncate(whole)
        return results, known
    except (OSError, ValueError) as error:
        raise ExplorationError(f"{corpus}: can't be used: {error}; name another folder with --corpus-dir") from error


def _append(results: Path, tried: Tried) -> None:
    with open(results, "a", encoding="utf-8") as file:
        file.write(tried.model_dump_json() + "\n")


def _write(path: Path, content: str) -> None:
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(content, encoding="utf-8")
    temporary.replace(path)
