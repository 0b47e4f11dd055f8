"""Failures as they come: times, targets and what happens are drawn when a plan is frozen."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from diloco_chaos.faults.base import Fault
from diloco_chaos.faults.composite import MOST_PARTS, Composite, PlannedPart
from diloco_chaos.faults.processes.process import TYPICAL_START_S
from diloco_chaos.faults.registry import FAULTS
from diloco_chaos.harness.base.errors import UserError, first, nearest
from diloco_chaos.harness.base.units import LongSeconds, Part, Seconds, names, show_seconds
from diloco_chaos.harness.failures.process import FailureProcess

_CHOSEN = {"targets", "at", "when", "after", "id", "kind"}
_LIKE = "write it like `- kill: {restart_after: 2s}`"
_LEAST_S = 0.05
_OF: tuple[dict[str, Any], ...] = ({"kill": {"restart_after": "2s"}},)
_REPAIR_S, _REPAIRS = 2.0, 20
"""Mean time of a repair, where nothing is said; so many after a storm the last one is taken to be over."""
_NETWORK = ("nic", "network", "cable", "link", "switch", "port")
_HELD = ("mtbf", "per", "process", "repair", "of")
"""What a trace says."""


class _Failure(NamedTuple):
    """What comes over one target, or over any (the empty name)."""

    at: float
    """Seconds since the storm began."""
    target: str
    choice: Mapping[str, Any] | None = None
    """What happens; None: it is still to be drawn."""
    lasts: float | None = None
    """Seconds; None: what happens says it."""


class Storm(Composite):
    """Failures as they come: independent ones with a mean time between them, ones of a process with a history, or those
    of a trace; all from a seed."""

    spreads_over: ClassVar[str] = "whole_domains"

    kind: Literal["storm"] = "storm"
    mtbf: Seconds = Field(20.0, gt=0)
    """Mean time between failures."""
    per: Literal["node", "cluster"] = "node"
    """Whether that is one target's, or that of all targets together."""
    spacing: Seconds = 0.5
    """Least time between two failures; 0 by default with `process` and `trace`, where several may fail at once."""
    most_down: Annotated[int, Field(ge=1, le=1000)] | None = None
    """So many targets may be down at once; what would be one more does not happen. None: all but one."""
    whole_domains: Part = 0.0
    """The share of failures that take a whole failure domain of the target: one that has no node beside the targets."""
    of: tuple[dict[str, Any], ...] = Field(_OF, min_length=1, strict=False)
    """What may happen, each as likely: kinds with their settings."""
    process: FailureProcess | None = None
    """Failures with a history: some targets are worse, some fail again soon, several at once."""
    repair: Seconds | None = Field(None, gt=0)
    """Mean time for which a failure lasts, of the process's distribution, where `of` does not say it; 2 s by default.
    """
    trace: str = ""
    """A file with a cluster's outages, which come over the targets; its nodes are dealt out to them."""
    trace_nodes: int | None = Field(None, ge=1)
    """Of that cluster; None: those that the file names."""
    speed: float = Field(1.0, gt=0, le=1e9)
    """So many seconds of the trace pass in one of the storm's."""
    begin: LongSeconds | None = None
    """Where in the trace the storm begins; None: anywhere, drawn."""
    longest: Seconds | None = Field(None, gt=0)
    """An outage of the trace lasts no longer here; None: as long as it took, divided by `speed`."""
    classes: dict[str, str | dict[str, Any]] = Field({})
    """A class of the trace -> what happens: a kind, or a kind with its settings. By default what has to do with the
    network is a partition, and everything else a kill."""

    @model_validator(mode="after")
    def _known(self) -> Storm:
        if self.at is None:
            raise ValueError("a storm begins at a time: `at: 5s`")
        if problems := "; ".join(self._contradictions()):
            raise ValueError(problems)
        if self.expected > MOST_PARTS:
            raise ValueError(f"that is a storm of about {self.expected:.0f} failures; {MOST_PARTS} are the most")
        for where, choice in self.choices.items():
            self._check(choice, where)
        return self

    def _contradictions(self) -> Iterator[str]:
        given = self.model_fields_set
        if self.trace:
            yield from (f"{name}: the trace says it: leave out one of them" for name in _HELD if name in given)
            try:
                known = set(_trace(self).kinds)
            except UserError as error:
                yield f"trace: {error}"
                return
            yield from (f"classes: no outage of the trace is of class {name!r}{nearest(name, known)}; it has "
                        f"{', '.join(sorted(known))}" for name in self.classes if name not in known)
        else:
            yield from (f"{name}: it is of a trace: name one (`trace: faults.csv`)" for name in (
                "trace_nodes", "speed", "begin", "longest", "classes") if name in given)
            if self.process is None and self.repair is not None:
                yield "repair: it is of a process: name one (`process: {relapse: 30%}`)"
            if self.process is not None and self.per == "cluster":
                yield "per: a process is one of nodes: leave `per` out"
            if self.process is not None and (why := _impossible(self.process, self.mtbf)):
                yield f"process: {why}"

    def _check(self, choice: Mapping[str, Any], where: str) -> None:
        kind, settings = _only(choice)
        if len(choice) != 1:
            raise ValueError(f"{where}: one kind each, not {len(choice)}; {_LIKE}")
        if kind not in FAULTS or issubclass(FAULTS[kind], Composite):
            raise ValueError(f"{where}: {kind!r} is no single fault; {_LIKE}")
        if not isinstance(settings, Mapping):
            raise ValueError(f"{where}: the settings of {kind} are a mapping, like `- {kind}: {{for: 2s}}`; the storm "
                             f"chooses when and whom")
        if chosen := sorted(_CHOSEN & settings.keys()):
            raise ValueError(f"{where}: the storm itself chooses {', '.join(chosen)}")
        try:
            self._example(choice)
        except ValidationError as error:
            raise ValueError(f"{where}: {kind}: {first(error)}") from error

    @property
    def choices(self) -> dict[str, Mapping[str, Any]]:
        """Return what may happen, by where it is said."""
        if self.trace:
            return {f"classes, {kind}": _what(self, kind) for kind in sorted(set(_trace(self).kinds))}
        of = ({"kill": {}},) if self.process is not None and "of" not in self.model_fields_set else self.of
        return {f"of, entry {number}": choice for number, choice in enumerate(of, 1)}

    @property
    def expected(self) -> float:
        """Return about how many failures that is."""
        lasts = self.duration or 0.0
        if self.trace:
            trace = _trace(self)
            return float(len(trace.kinds) * lasts * self.speed / trace.length_s)
        return lasts / self.mtbf * (len(self.targets) if self.per == "node" else 1)

    def kinds(self) -> frozenset[str]:
        """Whatever may happen."""
        return frozenset(_only(choice)[0] for choice in self.choices.values())

    def starts_beside(self) -> bool:
        """Where one of its choices does."""
        return any(self._example(choice).starts_beside() for choice in self.choices.values())

    def parts(self, name: str, chance: random.Random) -> list[PlannedPart]:
        """Draw the failures of every target, then leave out what comes too close or is one too many."""
        most = self.most_down or max(1, len(self.targets) - 1)
        spacing = 0.0 if self._history and "spacing" not in self.model_fields_set else self.spacing
        of, down = list(self.choices.values()), dict[str, float]()
        parts: list[PlannedPart] = []
        last = -float("inf")
        for failure in self._failures(chance):
            at = failure.at
            target = failure.target if failure.target else chance.choice(list(self.targets))
            choice = chance.choice(of) if failure.choice is None else failure.choice
            hit = self._together(target, chance)
            gone = {target for target in self.targets if down.get(target, 0.0) > at}
            if gone & set(hit) or len(gone) + len(hit) > most or at - last < spacing:
                continue
            part = self._single(at, hit, choice, failure.lasts)
            fault = _made(part)
            outage = fault.expected_duration()
            down |= dict.fromkeys(hit, float("inf") if outage is None else
                                  at + outage + (TYPICAL_START_S if fault.stops_target else 0.0))
            last = at
            parts.append(part)
        return parts

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        kinds = ", ".join(dict.fromkeys(_only(choice)[0] for choice in self.choices.values()))
        whole = f"{self.whole_domains:.0%} of a whole domain, " if self.whole_domains else ""
        if self.trace:
            often = f"as in {Path(self.trace).name}, {self.speed:g} times as fast"
        else:
            per = "each" if self.per == "node" else "together"
            often = f"MTBF {show_seconds(self.mtbf)} {per}{', with a history' if self.process is not None else ''}"
        return f"storm ({kinds}) over {names(self.targets)}, {often}, {whole}{self.describe_duration()}"

    @property
    def within(self) -> list[tuple[str, ...]]:
        """Return the members of every domain that has no node beside the targets."""
        return [members for members in self.domains.values() if set(members) <= set(self.targets)]

    def _together(self, target: str, chance: random.Random) -> list[str]:
        """Draw the targets that fail with this one: for the share asked for, those of a domain that it is in."""
        if not self.whole_domains:
            return [target]  # nothing is drawn: storms from before this setting are what they were
        whole = chance.random() < self.whole_domains
        around = [members for members in self.within if target in members]
        return list(chance.choice(around)) if whole and around else [target]

    def _single(self, at: float, hit: list[str], choice: Mapping[str, Any], lasts: float | None) -> PlannedPart:
        """Return a failure as a plan has it; how long it lasts is its own, unless the choice says it."""
        kind, settings = _only(choice)
        part = {"kind": kind, "targets": hit, "at": f"{round((self.at or 0) + at, 3)!r}s", **settings}
        how_long = ("restart_after" if "restart_after" in FAULTS[kind].model_fields else
                    "for" if FAULTS[kind].reversible else "")
        if lasts is not None and how_long and not {"for", "restart_after"} & part.keys():
            part[how_long] = f"{round(max(_LEAST_S, lasts), 3)!r}s"
        return part

    def _example(self, choice: Mapping[str, Any]) -> Fault:
        return _made(self._single(0.0, [self.targets[0]], choice, _REPAIR_S if self._history else None))

    @property
    def _history(self) -> bool:
        return self.process is not None or bool(self.trace)

    def _failures(self, chance: random.Random) -> list[_Failure]:
        if self.trace:
            return _of_trace(self, chance)
        if self.process is not None:
            return _of_process(self, self.process, chance)
        sources = self.targets if self.per == "node" else ("",)
        return sorted(_Failure(at, target) for target in sources for at in self._times(chance))

    def _times(self, chance: random.Random) -> list[float]:
        times: list[float] = []
        now = chance.expovariate(1 / self.mtbf)
        while now < (self.duration or 0):
            times.append(round(now, 3))
            now += chance.expovariate(1 / self.mtbf)
        return times


def _of_process(storm: Storm, process: FailureProcess, chance: random.Random) -> list[_Failure]:
    """Draw failures with a history, and for how long each lasts."""
    from diloco_chaos.harness.failures.drawing import drawn_by
    repair, lasts = storm.repair or _REPAIR_S, storm.duration or 0.0
    course = drawn_by(process, len(storm.targets), storm.mtbf, repair, 2 * lasts + _REPAIRS * repair,
                      chance.randrange(1 << 31))
    return _by_time([_Failure(round(start, 3), storm.targets[node], None, end - start)
                     for node, start, end in course.outages() if start < lasts], chance)


def _of_trace(storm: Storm, chance: random.Random) -> list[_Failure]:
    """Return what happened to the trace's cluster in so long; its nodes are dealt out to the targets."""
    trace = _trace(storm)
    begin = chance.random() * trace.length_s if storm.begin is None else storm.begin
    failures = []
    for number, start in enumerate(trace.starts.tolist()):
        since = (start - begin) % trace.length_s / storm.speed
        if since < (storm.duration or 0.0):
            target = storm.targets[int(trace.whose[number]) % len(storm.targets)]
            lasts = min(float(trace.repairs[number]) / storm.speed, storm.longest or float("inf"))
            failures.append(_Failure(round(since, 3), target, _what(storm, trace.kinds[number]), lasts))
    return _by_time(failures, chance)


def _by_time(failures: list[_Failure], chance: random.Random) -> list[_Failure]:
    """Return failures by time. Which of those at one moment comes first is drawn: where not all may be down at once, no
    target is hit for all others."""
    return [failure for _, _, failure in sorted((failure.at, chance.random(), failure) for failure in failures)]


def _trace(storm: Storm) -> Any:
    from diloco_chaos.harness.failures.source import trace_of
    return trace_of(Path(storm.trace), storm.trace_nodes)


def _impossible(process: FailureProcess, mtbf: float) -> str:
    from diloco_chaos.harness.failures.drawing import impossible
    return impossible(process, mtbf)


def _what(storm: Storm, kind: str) -> Mapping[str, Any]:
    """Return what happens for a class of the trace."""
    said = storm.classes.get(kind)
    if said is None:
        return {"partition" if any(word in kind.lower() for word in _NETWORK) else "kill": {}}
    return {said: {}} if isinstance(said, str) else said


def _only(choice: Mapping[str, Any]) -> tuple[str, Any]:
    """The one kind that a choice names, and its settings."""
    kind = next(iter(choice), "")
    return kind, choice.get(kind) or {}


def _made(part: PlannedPart) -> Fault:
    """Return the fault that a part is.

    Raises:
        ValidationError: it can't be.
    """
    fault: Fault = TypeAdapter(FAULTS[part["kind"]]).validate_python(part)
    return fault
