"""What no single key shows: names that this cluster does not have, faults that can't come, or meet each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from chaos.problems import nearest
from chaos.scenario import SYNCER, Scenario
from faults import Fault, Flapping, Latency, LinkFault, Partition, Pause, Straggler, Zombie
from harness.tape import FIELDS
from harness.trainer.config import TrainerConfig
from harness.units import show_seconds

Objection = tuple[list[Any], str]
"""Where in the document, and what is wrong."""

_SYNCER_ONLY = {"listening", "initial", "resumed", "hello", "lost", "merge", "steady", "partial_frame", "repaired"}
_LEARNER_ONLY = {"step", "snapshot", "upload", "received", "disconnected", "ready", "imported", "superseded"}
_HARNESS_ONLY = {"begin", "end", "spawn", "injecting", "injected", "felt", "healed", "recovered", "residue", "aborted",
                 "not_healed"}
_AT_MOST = 0.97
"""Share of the nominal run after which a fault can hardly come."""


class Stretch(NamedTuple):
    """When a fault is on, as far as the plan tells, in seconds since the steady state."""

    number: int
    fault: Fault
    start: float | None
    end: float | None
    """None: for ever."""


def objections(scenario: Scenario, abilities: Sequence[str]) -> list[Objection]:
    """Everything that can't work."""
    found = list(_of_cluster(scenario))
    ids = {fault.id or f"f{number}": number - 1 for number, fault in enumerate(scenario.faults, 1)}
    if len(ids) != len(scenario.faults):
        found.append((["faults"], "two faults have the same id"))
    for index, fault in enumerate(scenario.faults):
        for message in (*_targets(scenario, fault), *_trigger(scenario, fault, ids), *_beyond(fault, abilities)):
            found.append((["faults", index], message))
    for index in _circular(scenario, ids):
        found.append((["faults", index], "after: this comes after itself, in turn"))
    if not any(where[0] == "faults" for where, _ in found):
        stretches = _stretches(scenario, ids)
        found += [(["faults", stretch.number], message) for stretch in stretches
                  for message in (*_too_late(scenario, stretch), *_in_the_way(stretch, stretches, scenario))]
    return found


def _of_cluster(scenario: Scenario) -> Iterator[Objection]:
    if scenario.cluster.mode != "decoupled":
        yield ["cluster", "mode"], "mode: scenarios run decoupled; the synchronous run is made as a reference"
    if "seed" in scenario.cluster.model_fields_set:
        yield ["cluster", "seed"], "seed: a scenario has none; give it with `run --seed 7`"
    learners = scenario.cluster.names
    for index, bound in enumerate(scenario.checks.participation):
        if bound.learner not in learners:
            yield (["checks", "participation", index, "learner"],
                   f"there is no learner {bound.learner!r} here{nearest(bound.learner, learners)}")
    abort = scenario.abort_when
    if abort is not None and abort.alive_below is not None and abort.alive_below > len(learners):
        yield ["abort_when"], f"there are never more than {len(learners)} learners: this would abort every run at once"


def _targets(scenario: Scenario, fault: Fault) -> Iterator[str]:
    valid = {"any": scenario.nodes, "learner": scenario.cluster.names, "syncer": [SYNCER]}[fault.on]
    for name in fault.targets:
        if name in scenario.nodes and name not in valid:
            yield f"{fault.kind}: only {'a learner' if fault.on == 'learner' else 'the syncer'} can be hit by it"
        elif name not in valid:
            yield (f"{fault.kind}: there is no node {name!r} here{nearest(name, valid)} "
                   f"(this cluster has {', '.join(valid)})")
    if fault.kind == "storm" and SYNCER in fault.targets:
        for choice in getattr(fault, "of", ()):
            if next(iter(choice)) in ("straggler", "zombie", "poison"):
                yield f"storm: {next(iter(choice))} can hit learners only"


def _trigger(scenario: Scenario, fault: Fault, ids: dict[str, int]) -> Iterator[str]:
    if fault.after is not None and fault.after.fault not in ids:
        yield (f"after: there is no fault {fault.after.fault!r}{nearest(fault.after.fault, list(ids))} "
               f"(faults are {', '.join(ids)})")
    when = fault.when
    if when is None or not when.empty:
        return
    if when.node not in scenario.nodes:
        yield (f"{fault.kind}: there is no node {when.node!r} here{nearest(when.node, scenario.nodes)} "
               f"(this cluster has {', '.join(scenario.nodes)})")
        return
    if when.event:
        yield from _event(scenario, when.node, when.event, when.count)
    else:
        yield from _hold(fault)


def _event(scenario: Scenario, node: str, event: str, count: int) -> Iterator[str]:
    mine = set(FIELDS) - _HARNESS_ONLY - (_LEARNER_ONLY if node == SYNCER else _SYNCER_ONLY)
    if event not in FIELDS:
        yield f"no event {event!r}{nearest(event, sorted(mine))} docs/tape.md lists them"
    elif event not in mine:
        yield f"{node} never records {event}: this would never come"
    elif (most := _most(scenario.cluster, event)) is not None and count > most:
        yield f"{node} records {event} {most} times at the very most: number {count} would never come"


def _most(cluster: TrainerConfig, event: str) -> int | None:
    """How often a node can record an event, even if all others are dead; None: nobody knows."""
    steps = (cluster.budget - cluster.warm_start) * cluster.learners
    exchanges = (steps // cluster.sync_every + 2) * cluster.fragments
    return {"step": steps, "snapshot": exchanges, "upload": exchanges, "merge": exchanges}.get(event)


def _hold(fault: Fault) -> Iterator[str]:
    when = fault.when
    assert when is not None, "asked for faults that wait for a hold point"
    assert when.hold is not None, "asked for faults that wait for a hold point"
    frees = fault.downs or isinstance(fault, Pause)
    if not frees or fault.targets != (when.node,):
        yield (f"a node that holds at {when.hold} stands still until it is killed, or paused and let go: "
               f"hit {when.node} itself")
    elif (when.hold == "upload.half") == (when.node == SYNCER):
        yield f"only {'a learner' if when.hold == 'upload.half' else 'the syncer'} holds at {when.hold}"


def _beyond(fault: Fault, abilities: Sequence[str]) -> Iterator[str]:
    missing = sorted(fault.needs - set(abilities))
    if missing:
        yield f"{fault.kind}: this place can't {', '.join(missing)}"


def _circular(scenario: Scenario, ids: dict[str, int]) -> list[int]:
    """Faults that wait for themselves, directly or through others."""
    found = []
    for index in range(len(scenario.faults)):
        seen, here = set(), index
        while (after := scenario.faults[here].after) is not None and after.fault in ids and here not in seen:
            seen.add(here)
            here = ids[after.fault]
        if here == index and seen:
            found.append(index)
    return found


def _stretches(scenario: Scenario, ids: dict[str, int]) -> list[Stretch]:
    known: dict[int, Stretch] = {}

    def of(index: int) -> Stretch:
        if index not in known:
            fault = scenario.faults[index]
            start = fault.at
            if fault.after is not None:
                before = of(ids[fault.after.fault])
                end = before.start if before.end is None else before.end  # after what never ends: at once
                start = None if end is None else end + fault.after.wait
            outage = fault.outage()
            known[index] = Stretch(index, fault, start, None if start is None or outage is None else start + outage)
        return known[index]
    return [of(index) for index in range(len(scenario.faults))]


def longest(cluster: TrainerConfig, faults: Sequence[Fault]) -> float:
    """Seconds from the steady state to the end of training, at the very most: the dead leave the rest more to do."""
    nominal = (cluster.budget - cluster.warm_start) * cluster.step_time
    lost = sum(min(fault.downtime(), nominal) * len(set(fault.targets) & set(cluster.names)) for fault in faults)
    syncer = sum(fault.outage() or 0.0 for fault in faults if fault.downs and SYNCER in fault.targets)
    left = max(1.0, cluster.learners - lost / nominal) if nominal else 1.0
    return nominal * cluster.learners / left + syncer


def _too_late(scenario: Scenario, stretch: Stretch) -> Iterator[str]:
    if stretch.start is None or not scenario.cluster.step_time:
        return
    over = longest(scenario.cluster, scenario.faults)
    if stretch.start >= _AT_MOST * over:
        yield (f"{stretch.fault.words()}: training is over about {show_seconds(over)} after the steady state, "
               f"and this would come {show_seconds(stretch.start)} after it; raise the budget")
    if stretch.start >= scenario.deadline:
        yield f"{stretch.fault.words()}: the deadline of {show_seconds(scenario.deadline)} has passed by then"


def _in_the_way(stretch: Stretch, stretches: list[Stretch], scenario: Scenario) -> Iterator[str]:
    """Faults that meet another one on the same target which leaves them nothing to do, or would undo them."""
    for other in stretches:
        if other is stretch or stretch.start is None or other.start is None:
            continue
        if not _touch(stretch.fault, other.fault, scenario):
            continue
        if other.fault.downs and not stretch.fault.on_links and other.start <= stretch.start and (
                other.end is None or stretch.start < other.end) and (
                stretch.start > other.start or stretch.number > other.number):
            yield f"{stretch.fault.words()}: its target is down by then ({other.fault.words()})"
        elif stretch.number > other.number and _alike(stretch.fault, other.fault) and _meet(stretch, other):
            yield f"{stretch.fault.words()} overlaps with {other.fault.words()}: one at a time on a target"


def _touch(one: Fault, other: Fault, scenario: Scenario) -> bool:
    def hit(fault: Fault) -> set[str]:
        everyone = fault.on_links and SYNCER in fault.targets
        return set(scenario.cluster.names) if everyone else set(fault.targets)
    return bool(hit(one) & hit(other))


def _alike(one: Fault, other: Fault) -> bool:
    """Whether the end of one would be the end of the other, too."""
    for family in ((Pause, Straggler, Zombie), (Partition, Flapping)):
        if isinstance(one, family) and isinstance(other, family):
            return True
    return one.kind == other.kind and one.lasts


def _meet(one: Stretch, other: Stretch) -> bool:
    if one.start is None or other.start is None:
        return False
    return (other.end is None or one.start < other.end) and (one.end is None or other.start < one.end)


def warnings_of(cluster: TrainerConfig, faults: Sequence[Fault]) -> list[str]:
    """What can be run but will not do what a reader may expect."""
    found = []
    window = min(cluster.grace * cluster.overlap, 1.0) * cluster.step_time
    for fault in faults:
        if isinstance(fault, Latency):
            size = max(fragment.size for fragment in cluster.fragment_table()) * 4
            exchange = len(fault.streams) * fault.delay + (2 * size / fault.rate if fault.rate else 0)
            if exchange > window and not set(cluster.names) <= set(fault.targets):  # else nobody answers in time
                found.append(
                    f"{fault.words()}: an exchange takes at least {exchange * 1e3:.0f} ms, but the grace window is at "
                    f"most {window * 1e3:.0f} ms; while others answer in time, its contributions come too late")
        if fault.at is not None and fault.lasts and cluster.step_time:
            over = longest(cluster, faults)
            if fault.at + (fault.duration or 0) > over:
                found.append(f"{fault.words()}: training is over before it is")
        if isinstance(fault, LinkFault) and fault.toxicity < 1:
            found.append(f"{fault.words()}: which connections it hits is drawn by the proxy, not by the plan")
    dead = {target for fault in faults if fault.downs and fault.outage() is None for target in fault.targets}
    if len(set(cluster.names) - dead) < cluster.quorum:
        found.append(f"kills leave fewer than {cluster.quorum} learners: the quorum is never reached again")
    if SYNCER in dead:
        found.append("the syncer is never started again: training can't come to its end")
    return found
