"""What no single key shows: names that this cluster does not have, faults that can't come, or meet each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.scenario.model import DOMAIN, Scenario, joiners, members_of
from diloco_chaos.chaos.scenario.salvage import KnownCluster, Rest
from diloco_chaos.faults import (
    FAULTS,
    Asked,
    Composite,
    CorruptMemory,
    FailingWrites,
    Fault,
    LinkFault,
    OfProcess,
    Storm,
)
from diloco_chaos.harness.base.errors import nearest
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.record.tape.events import KINDS
from diloco_chaos.harness.trainers.api.settings import TrainerSettings
from diloco_chaos.harness.trainers.core.programs import PlaceholderError, Program, ends, named

Objection = tuple[list[Any], str]
"""Where in the document, and what is wrong."""

_POINT = r"[\w.-]+"
_OF_FILES = ("run", "name", "index")
_FOR_EVER = float("inf")
_INSTANT_S = 1e-6
_AT_MOST = 0.97
"""Share of the nominal run after which a fault can hardly come."""


class Stretch(NamedTuple):
    """The time in which a fault is on, as far as the plan tells."""

    number: int
    fault: Fault
    root: int | None
    """Times count from the steady state, or from when this fault comes, which is not known before."""
    start: float
    end: float
    """Infinite: for ever."""


def validate_semantics(rest: Rest, abilities: Sequence[str]) -> list[Objection]:
    """Return an objection to everything that can't work, as far as the scenario is known."""
    scenario, (places, names) = rest.scenario, rest.numbers
    objections = [*_of_names(scenario)] if rest.known else []
    objections += _of_domains(scenario) if rest.known is KnownCluster.ALL else []
    objections += _of_cluster(scenario) if rest.known is KnownCluster.ALL else _of_texts(scenario) if rest.known else []
    objections += [(["faults", index], f"there is another fault {name!r}") for index, name in enumerate(names)
                   if name in names[:index]]
    objections += [(["faults", index], message) for index, fault in rest.outlines
                   for message in _alone(rest, fault, abilities)]
    ids = {names[place]: index for index, place in enumerate(places)}
    circular = _circular(scenario, ids)
    wrong = [(index, message) for index, fault in enumerate(scenario.faults)
             for message in _alone(rest, fault, abilities)]
    wrong += [(index, "after: this comes after itself, in turn") for index in circular]
    wrong += _held_twice(scenario)
    if rest.known and not circular:
        stretches = _stretches(scenario, ids)
        wrong += [(stretch.number, message) for stretch in stretches
                  for message in (*(_too_late(scenario, stretch) if rest.known is KnownCluster.ALL else ()),
                                  *_in_the_way(stretch, stretches, scenario))]
    return objections + [(["faults", places[index]], message) for index, message in wrong]


def _alone(rest: Rest, fault: Fault, abilities: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with a fault, whatever other faults do."""
    scenario, names = rest.scenario, rest.numbers.names
    if rest.known is KnownCluster.ALL:
        counted = len(rest.numbers.places) == len(names)  # else one that is left out may have joined, too
        yield from (*_targets(scenario, fault), *(_joiners(scenario, fault) if counted else ()),
                    *_after(fault, names), *_phase(scenario, fault), *_when(scenario, fault),
                    *_of_mode(scenario, fault))
    else:
        yield from (*(_strangers(scenario, fault) if rest.known else ()), *_after(fault, names))
    yield from _beyond(fault, abilities)


def objections(scenario: Scenario, fault: Fault, abilities: Sequence[str], names: Sequence[str],
               on: Sequence[Fault]) -> Iterator[str]:
    """Yield why a fault can't be added to a run that goes on. `names`: of the faults that there are; `on`: those that
    last at the moment."""
    yield from _targets(scenario, fault)
    yield from _of_mode(scenario, fault)
    yield from _beyond(fault, abilities)
    if fault.when is not None and fault.when.failpoint is not None:
        yield f"a node holds at a failpoint only for a fault that stands in the scenario: write {fault.kind} there"
    else:
        yield from (*_after(fault, names), *_when(scenario, fault))
    if fault.joining() or "fill_disk" in fault.requires():
        yield f"{fault.kind}: the cluster must be prepared for it: write it in the scenario"
    for other in on:
        if _touch(fault, other, scenario) and _alike(fault, other):
            yield f"{fault.describe()} overlaps with {other.describe()}: one at a time on a target"


def _of_cluster(scenario: Scenario) -> Iterator[Objection]:
    yield from ((["cluster", *where], message)
                for *where, message in scenario.trainer.objections())
    idle = [name for name in scenario.cluster.later(0) if name not in joiners(scenario.faults)]
    yield from ((["cluster", "nodes"], f"{name} is a spare, and no fault starts it; write `- {{replace: "
                                       f"{scenario.cluster.starters[0]} with {name}, at: 12s}}`") for name in idle[:1])
    yield from _parity(scenario)
    yield from _out_of_reach(scenario)
    if "seed" in scenario.cluster.model_fields_set:
        yield ["cluster", "seed"], "seed: a scenario has none; give it with `run --seed 7`"
    if "joining" in scenario.cluster.model_fields_set:
        yield ["cluster", "joining"], "joining: follows from the faults; write `- join: learner-5`"


def _of_texts(scenario: Scenario) -> Iterator[Objection]:
    """Yield what is wrong with single texts of a cluster, as with a placeholder in a command: of one whose other parts
    may not be the file's."""
    document = scenario.cluster.model_dump(mode="json")
    for *where, message in scenario.trainer.objections():
        part: Any = document
        for key in where:
            part = part.get(key) if isinstance(part, dict) else None
        if isinstance(part, str):
            yield ["cluster", *where], message


def _of_names(scenario: Scenario) -> Iterator[Objection]:
    """Yield what is wrong with what is said of learners, outside of faults."""
    learners = scenario.cluster.names
    for index, bound in enumerate(scenario.checks.participation):
        worker, slash, rank = bound.learner.partition("/")
        if slash and worker in learners and not rank.startswith("rank-"):
            yield (["checks", "participation", index, "learner"],
                   f"{bound.learner!r}: a rank of a worker is called {worker}/rank-1, by the group `rank` of "
                   f"`progress`")
        elif worker not in learners:
            yield (["checks", "participation", index, "learner"],
                   f"there is no learner {bound.learner!r} here{nearest(bound.learner, learners)}")
    abort = scenario.abort_when
    if abort is not None and abort.alive_below is not None and abort.alive_below > len(learners):
        yield ["abort_when"], f"there are never more than {len(learners)} learners: this would abort every run at once"


def _parity(scenario: Scenario) -> Iterator[Objection]:
    """What a loss can be held against must be there."""
    bound, trainer = scenario.checks.loss_parity, scenario.trainer
    if bound is not None and not scenario.trainer.last_snapshot:
        yield (["checks", "loss_parity"],
               f"loss_parity: trainer {trainer.name} writes no snapshots to take a loss of")
    elif bound is not None and bound.against_synchronous is not None and trainer.synchronous() is None:
        yield (["checks", "loss_parity", "against_synchronous"],
               f"loss_parity: trainer {trainer.name} has no synchronous run; leave against_synchronous out")


def _out_of_reach(scenario: Scenario) -> Iterator[Objection]:
    """Checks that are named, and that this trainer gives no evidence for."""
    lacking = {"rounds": "of rounds"} | dict(scenario.trainer.evidence_wanting)
    for name in scenario.checks.model_fields_set & set(CHECKS):
        if missing := [lacking[need] for need in sorted(CHECKS[name].needs - {"sound run"} - scenario.trainer.evidence)
                       if need in lacking]:
            yield (["checks", name], f"{name}: out of reach of trainer {scenario.trainer.name}, which does not tell "
                                     f"{' and '.join(missing)}; leave it out")


def _joiners(scenario: Scenario, fault: Fault) -> Iterator[str]:
    """Who joins must not be there yet: the last learners, each once, and not all of them."""
    coming = joiners(scenario.faults)
    last = scenario.cluster.later(len(coming))
    if fault.joining() and (sorted(coming) != sorted(last) or len(coming) >= scenario.cluster.learners):
        which = f"nodes with `spare: true` ({', '.join(last) or 'there is none'}) come" if scenario.trainer.programs() \
            else "the last learners can come"
        yield (f"{fault.kind}: only {which} later, each once, and at least one must be there from the "
               f"beginning; this cluster has {', '.join(scenario.cluster.names)}")
    elif fault.joining() and scenario.cluster.learners_needed > scenario.cluster.learners - len(coming):
        yield (f"{fault.kind}: without {', '.join(coming)} the quorum of {scenario.cluster.learners_needed} is never "
               f"reached")


def _targets(scenario: Scenario, fault: Fault) -> Iterator[str]:
    coordinator = scenario.trainer.coordinator
    valid = list({"any": scenario.nodes, "learner": scenario.cluster.names,
                  "syncer": scenario.trainer.keepers}[fault.target_role])
    links = scenario.cluster.link_names
    for name in fault.targets:
        if _told_at_domain(scenario, fault, name):
            continue
        if name.startswith(DOMAIN):
            yield _no_domain(scenario, fault, name)
            continue
        if name in links:
            if not fault.on_links:
                yield f"{fault.kind}: {name} is a link; nodes are {', '.join(valid)}"
            continue
        if name in scenario.cluster.groups:
            yield _several(scenario, fault, name)
            continue
        if name in scenario.nodes and name not in valid:
            keeper = "the syncer" if valid == [coordinator] else f"a node whose `state` is known ({', '.join(valid)})"
            yield (f"{fault.kind}: only {'a learner' if fault.target_role == 'learner' else keeper} can be hit by it"
                   f"{_by_domain(fault, name)}")
        elif name not in valid and not (fault.on_links and _may_be_link(scenario, name)):
            yield _unknown_target(scenario, fault, name, valid)
    if isinstance(fault, OfProcess):
        yield from _processes(scenario, fault)
    yield from _unlinked(scenario, fault)
    yield from _whole_domains(scenario, fault) if isinstance(fault, Storm) else ()
    commands = _commands(scenario)
    if isinstance(fault, Asked) and fault.signal != "TERM" and commands == {}:
        yield (f"{fault.kind}: nodes of trainer {scenario.trainer.name} end by SIGTERM only: leave `signal` out, or "
               f"give the commands that start your own (`trainer: {{kind: commands}}`)")
    if fault.starts_beside():
        listening = {name for name, program in (commands or {}).items() if program.listens}
        if coordinator and all(FAULTS[kind].target_role == "any" for kind in _kinds(fault)):  # else that is refused
            listening.add(coordinator)
        yield from (f"{fault.kind}: {name} listens on a port, which its old process keeps while it is there: its "
                    f"successor could not start" for name in fault.targets if name in listening)
    for kind in sorted(fault.kinds()) if isinstance(fault, Composite) else ():
        if FAULTS[kind].target_role == "learner" and coordinator in fault.targets:
            yield f"{fault.kind}: {kind} can hit learners only"
        if FAULTS[kind].target_role == "syncer" and set(fault.targets) != {coordinator}:
            yield f"{fault.kind}: {kind} can hit the syncer only"


def _commands(scenario: Scenario) -> Mapping[str, Program] | None:
    """Return the commands that nodes are; None: one of them is wrong, which is told where it stands."""
    try:
        return scenario.trainer.programs()
    except PlaceholderError:
        return None


def _unlinked(scenario: Scenario, fault: Fault) -> Iterator[str]:
    """Yield a problem for a target that has no link, where the fault is about links: a node, or a domain none of whose
    nodes has one."""
    if not (programs := _commands(scenario)) or not any(issubclass(FAULTS[kind], LinkFault) for kind in _kinds(fault)):
        return
    linked = list(dict.fromkeys(end for link in scenario.cluster.link_names for end in ends(link)))
    reached = [member for members in fault.domains.values() if any(set(ends(name)) <= set(linked) for name in members)
               for member in members]
    others = f"hit one that has: {', '.join(linked)}" if linked else \
        "write `listens: true` at a node, and its name in another's command, as in `run: \"... {store}\"`"
    yield from (f"{fault.kind}: {name} has no link{_by_domain(fault, name)}: its command names no other node, and no "
                f"other command names it; {others}" for name in fault.targets
                if name in programs and name not in (*linked, *reached))


def _whole_domains(scenario: Scenario, fault: Storm) -> Iterator[str]:
    """Yield a problem where a storm is to take whole domains, and none is within its targets."""
    if not fault.whole_domains or fault.within:
        return
    if not scenario.domains:
        yield (f"storm: whole_domains: there are no domains here; say what fails together, at the top: "
               f"`domains: {{rack-1: [{', '.join(fault.targets[:2])}]}}`")
    else:
        name, nodes = next(iter(fault.domains.items()), (next(iter(scenario.domains)), ()))
        yield (f"storm: whole_domains: every domain has nodes beside its targets, or links only; aim it at all nodes "
               f"of one ({name} has {', '.join(nodes) or 'none'}), or leave whole_domains out")


def _by_domain(fault: Fault, name: str) -> str:
    """Return the domains that a target is in; empty where the fault is aimed at none of them."""
    domains = [f"domain {domain}" for domain, members in fault.domains.items() if name in members]
    return f" ({name} is in {', '.join(domains)})" if domains else ""


def _may_be_link(scenario: Scenario, name: str) -> bool:
    """Return whether a link may be called so, where a command is wrong and which links there are is not known."""
    return _commands(scenario) is None and len(ends(name)) > 1 and set(ends(name)) <= set(scenario.nodes)


def _strange(scenario: Scenario, members: Iterable[str]) -> list[str]:
    """Return the members of a domain that there are not."""
    known = {*scenario.nodes, *scenario.cluster.link_names}
    return [name for name in members if name not in known and not _may_be_link(scenario, name)]


def _told_at_domain(scenario: Scenario, fault: Fault, target: str) -> bool:
    """Return whether a target comes from a domain whose members there are not, which is told there."""
    if any(target in members for members in fault.domains.values()):
        return bool(_strange(scenario, [target]))
    known = members_of(scenario.domains, scenario.cluster) if target.startswith(DOMAIN) else {}
    return bool(_strange(scenario, known.get(target.removeprefix(DOMAIN), ())))


def _no_domain(scenario: Scenario, fault: Fault, target: str) -> str:
    """Return why a fault can't hit this domain: there is none of that name, or it has links only."""
    name = target.removeprefix(DOMAIN)
    if links := scenario.domains.get(name):
        node = ends(links[0])[0]
        listed = ", ".join(links)
        return (f"{fault.kind}: domain {name} has links only ({listed}), and {fault.kind} hits nodes: add the nodes "
                f"that fail with it, as in `domains: {{{name}: [{node}, {listed}]}}`, or hit its links, as in "
                f"`partition: domain {name}`")
    there = f" (there are {', '.join(scenario.domains)})" if scenario.domains else \
        f"; say what is in it, at the top: `domains: {{{name}: [{', '.join(scenario.cluster.names[:2])}]}}`"
    return f"{fault.kind}: there is no domain {name!r} here{nearest(name, list(scenario.domains))}{there}"


def _of_domains(scenario: Scenario) -> Iterator[Objection]:
    """Yield what is wrong with what is said of failure domains."""
    cluster = scenario.cluster
    known = [*scenario.nodes, *cluster.link_names]
    for domain, members in members_of(scenario.domains, cluster).items():
        for name in _strange(scenario, members):
            inner = scenario.domains.get(name.removeprefix(DOMAIN))
            yield ["domains", domain], (
                f"domain {domain}: {name!r} is a domain itself, and a domain holds nodes and links: write these, "
                f"[{', '.join(inner)}]" if inner else f"domain {domain}: there is no node or link {name!r} here"
                f"{nearest(name, known)} (this cluster has {', '.join(known)})")


def _several(scenario: Scenario, fault: Fault, name: str) -> str:
    return (f"{fault.kind}: {name} is several nodes: name them, [{', '.join(scenario.cluster.groups[name])}], or one "
            f"of them")


def _unknown_target(scenario: Scenario, fault: Fault, name: str, valid: Sequence[str]) -> str:
    links = scenario.cluster.link_names
    known = [*valid, *links] if fault.on_links else valid
    what = "node or link" if links and fault.on_links else "node"
    if name in scenario.domains:
        return f"{fault.kind}: there is no {what} {name!r} here, but a domain: write `{DOMAIN}{name}`"
    if name.partition("/")[0] in known:
        return (f"{fault.kind}: {name} is a process: kill, terminate and pause hit those, one by one: write a fault of "
                f"its own for it")
    return (f"{fault.kind}: there is no {what} {name!r} here{nearest(name, known)} "
            f"(this cluster has {', '.join(known)})")


def _strangers(scenario: Scenario, fault: Fault) -> Iterator[str]:
    """Yield a problem for every target that is not in a cluster of which only its nodes are known, not even its
    links."""
    nodes = scenario.nodes
    for name in fault.targets:
        if name.startswith(DOMAIN):
            yield _no_domain(scenario, fault, name)
        elif name in scenario.cluster.groups:
            yield _several(scenario, fault, name)
        elif not set(ends(name)) <= set(nodes):
            yield _unknown_target(scenario, fault, name, nodes)
    if fault.when is not None:
        yield from _no_node(scenario, fault)


def _processes(scenario: Scenario, fault: OfProcess) -> Iterator[str]:
    """What a process is called must be said where its node is."""
    name = fault.process.rpartition("-")[0]
    for target in fault.targets:
        known = scenario.trainer.process_names(target)
        if name not in known:
            yield (f"{fault.kind}: no process of {target} is called {name!r}{nearest(name, known)}; what they are "
                   f"called stands at their node, as in `processes: {{{name}: 'RANK=(\\d+)'}}`")


def _after(fault: Fault, names: Sequence[str]) -> Iterator[str]:
    if fault.after is not None and fault.after.fault not in names:
        yield (f"after: there is no fault {fault.after.fault!r}{nearest(fault.after.fault, names)} "
               f"(faults are {', '.join(names[:20])})")


def _phase(scenario: Scenario, fault: Fault) -> Iterator[str]:
    """A phase of a recovery of which nobody tells."""
    if fault.after is not None and fault.after.phase == "noticed" and _commands(scenario) \
            and not scenario.trainer.logs_whom_it_misses:
        yield "after: nothing tells when a fault is noticed: write `noticed: REGEX` beside `progress`"


def _no_node(scenario: Scenario, fault: Fault) -> Iterator[str]:
    """A trigger at a node that the cluster does not have."""
    when = fault.when
    if when is not None and when.empty and when.node not in scenario.nodes:
        yield (f"{fault.kind}: there is no node {when.node!r} here{nearest(when.node, scenario.nodes)} "
               f"(this cluster has {', '.join(scenario.nodes)})")


def _when(scenario: Scenario, fault: Fault) -> Iterator[str]:
    """A trigger that never comes."""
    when = fault.when
    if when is None or not when.empty:
        return
    if missing := [*_no_node(scenario, fault)]:
        yield from missing
    elif when.sights:
        yield from _sight(scenario, fault)
    elif when.event:
        yield from _event(scenario, when.node, when.event, when.count)
    else:
        yield from _hold(scenario, fault)


def _event(scenario: Scenario, node: str, event: str, count: int) -> Iterator[str]:
    trainer = scenario.trainer
    mine = trainer.events(trainer.role_of(node))
    every = mine | trainer.events("syncer") | trainer.events("learner") | set(KINDS)
    if event not in every:
        yield f"no event {event!r}{nearest(event, sorted(mine)) or '.'} docs/evidence.md lists them"
    elif event not in mine:
        yield f"{node} never records {event}{trainer.absent(event)}: this would never come"
    elif (most := trainer.most(event)) is not None and count > most:
        yield f"{node} records {event} {most} times at the very most: number {count} would never come"


def _sight(scenario: Scenario, fault: Fault) -> Iterator[str]:
    """A line or a file of which nothing is known here."""
    when = fault.when
    assert when is not None, "asked for faults that wait for a line or a file"
    key = "log" if when.log is not None else "file"
    if (programs := _commands(scenario)) is None:
        return
    if when.node not in programs:
        yield (f"{key}: only nodes that are commands have logs and files to wait for; {when.node} records events: "
               f"write `event:` (docs/evidence.md lists them)")
    elif when.file is not None and not when.file.startswith("{run}/") and not programs[when.node].state:
        yield (f"file: {when.file!r} is looked for in the folder of {when.node}'s state, and nobody knows where that "
               f"is: write `state: \"{{run}}/state/{{name}}\"` at it, or 'file: \"{{run}}/...\"'")
    elif unknown := [name for name in named([when.file or ""]) if name not in _OF_FILES]:
        yield (f"file: {{{unknown[0]}}} stands for nothing here: there are "
               f"{', '.join(f'{{{name}}}' for name in _OF_FILES)}, and `*` for what is not known")


def _hold(scenario: Scenario, fault: Fault) -> Iterator[str]:
    when, names, trainer = fault.when, scenario.cluster.names, scenario.trainer
    assert when is not None, "asked for faults that wait for a failpoint"
    assert when.failpoint is not None, "asked for faults that wait for a failpoint"
    most = trainer.most("upload") or 0
    if not fault.frees or fault.targets != (when.node,):
        yield (f"a node that holds at {when.failpoint} stands still until it is killed, or paused and let go: "
               f"hit {when.node} itself")
    elif trainer.own_failpoints:
        if when.node not in names:
            yield f"only workers hold at failpoints: {', '.join(names)}"
        elif not re.fullmatch(_POINT, when.failpoint):
            yield f"failpoint {when.failpoint!r}: a name has letters, digits, '_', '-' and '.'"
    elif when.failpoint not in trainer.failpoints(trainer.role_of(when.node)):
        syncers, learners = trainer.failpoints("syncer"), trainer.failpoints("learner")
        if when.failpoint in (*syncers, *learners):
            yield f"only {'a learner' if when.node == trainer.coordinator else 'the syncer'} holds at {when.failpoint}"
        elif why := trainer.absent(when.failpoint):
            yield f"nobody comes to {when.failpoint}{why}"
        else:
            points = (*syncers, *learners)
            yield (f"no failpoint {when.failpoint!r}{nearest(when.failpoint, points) or '.'} "
                   f"{'There are ' + ', '.join(points) if points else 'Trainer ' + trainer.name + ' has none'}")
    elif when.count > most:
        yield (f"{when.node} comes to {when.failpoint} {most} times at the very most: number {when.count} would never "
               f"come")


def _held_twice(scenario: Scenario) -> Iterator[tuple[int, str]]:
    """One that stands at a failpoint comes to no other."""
    seen: set[str] = set()
    for index, fault in enumerate(scenario.faults):
        if fault.when is not None and fault.when.failpoint is not None:
            if fault.when.node in seen:
                yield index, (f"{fault.when.node} holds once: another fault waits for it at a failpoint already; "
                              f"use `event:` here")
            seen.add(fault.when.node)


def _before(scenario: Scenario, ids: dict[str, int], index: int) -> set[int]:
    """The faults that must have come before one can."""
    seen: set[int] = set()
    while (after := scenario.faults[index].after) is not None and after.fault in ids and ids[after.fault] not in seen:
        index = ids[after.fault]
        seen.add(index)
    return seen


def _kinds(fault: Fault) -> frozenset[str]:
    """Return the kinds that a fault is made of."""
    return fault.kinds() if isinstance(fault, Composite) else frozenset({fault.kind})


def _of_mode(scenario: Scenario, fault: Fault) -> Iterator[str]:
    """Yield what the trainer has no place for."""
    part = fault.part if isinstance(fault, CorruptMemory) else ""
    refused = (scenario.trainer.refusal(kind, part) for kind in sorted(_kinds(fault)))
    yield from filter(None, refused)


def _beyond(fault: Fault, abilities: Sequence[str]) -> Iterator[str]:
    missing = sorted(fault.requires() - set(abilities))
    if missing:
        yield f"{fault.kind}: this place can't {', '.join(missing)}"


def _circular(scenario: Scenario, ids: dict[str, int]) -> list[int]:
    """Faults that wait for themselves, directly or through others."""
    return [index for index in range(len(scenario.faults)) if index in _before(scenario, ids, index)]


def _stretches(scenario: Scenario, ids: dict[str, int]) -> list[Stretch]:
    known: dict[int, Stretch] = {}

    def of(index: int) -> Stretch:
        if index in known:
            return known[index]
        fault = scenario.faults[index]
        root, start = (None, fault.at) if fault.at is not None else (index, 0.0)
        if fault.after is not None and fault.after.fault in ids:
            before = of(ids[fault.after.fault])
            root = before.root
            early = fault.after.phase in ("begun", "noticed") or before.end == _FOR_EVER  # else at once
            start = (before.start if early else before.end) + fault.after.wait
        outage = fault.expected_duration()
        known[index] = Stretch(index, fault, root, start, _FOR_EVER if outage is None else start + outage)
        return known[index]
    return [of(index) for index in range(len(scenario.faults))]


def longest(cluster: TrainerSettings, faults: Sequence[Fault]) -> float:
    """Seconds from the steady state to the end of training, at the very most: the dead leave the rest more to do."""
    nominal = cluster.nominal_s
    lost = sum(min(fault.expected_lost_time(), nominal) * len(set(fault.targets) & set(cluster.names))
               for fault in faults)
    others = sum(fault.expected_duration() or 0.0 for fault in faults
                 if fault.stops_target and not set(fault.targets) <= set(cluster.names))  # nothing is merged meanwhile
    left = max(1.0, cluster.learners - lost / nominal) if nominal else 1.0
    return nominal * cluster.learners / left + others


def _too_late(scenario: Scenario, stretch: Stretch) -> Iterator[str]:
    over = longest(scenario.cluster, scenario.faults)
    after = "after the steady state" if stretch.root is None else "after the event that it waits for"
    if scenario.cluster.step_time and stretch.start >= _AT_MOST * over:
        yield (f"{stretch.fault.describe()}: training is over about {show_seconds(over)} after the steady state, "
               f"and this would come {show_seconds(stretch.start)} {after}; raise the budget")
    if stretch.start >= scenario.deadline:
        yield f"{stretch.fault.describe()}: the deadline of {show_seconds(scenario.deadline)} has passed by then"


def _in_the_way(stretch: Stretch, stretches: list[Stretch], scenario: Scenario) -> Iterator[str]:
    """Faults that meet another one on the same target which leaves them nothing to do, or would undo them."""
    for other in stretches:
        if other is stretch or stretch.root != other.root or not _touch(stretch.fault, other.fault, scenario):
            continue
        first = (other.start, other.number) < (stretch.start, stretch.number)
        bound = not stretch.fault.on_links and not stretch.fault.joining()
        if first and _downs(other) and bound and stretch.start < other.end - _INSTANT_S:
            yield f"{stretch.fault.describe()}: its target is down by then ({other.fault.describe()})"
        elif stretch.number > other.number and _alike(stretch.fault, other.fault) and _meet(stretch, other):
            yield f"{stretch.fault.describe()} overlaps with {other.fault.describe()}: one at a time on a target"


def _downs(stretch: Stretch) -> bool:
    """Return whether a fault's targets are not there from its beginning to its end."""
    return stretch.fault.stops_target and not isinstance(stretch.fault,
                                                         FailingWrites)  # that one dies some time, or never


def _touch(fault: Fault, other: Fault, scenario: Scenario) -> bool:
    links, learners = scenario.cluster.link_names, scenario.cluster.names
    if links and fault.on_links and other.on_links:
        return bool(_links_of(fault, links) & _links_of(other, links))
    return bool(set(fault.affected_nodes(learners)) & set(other.affected_nodes(learners)))


def _links_of(fault: Fault, links: Sequence[str]) -> set[str]:
    """Return the links that a fault hits, where links have names of their own."""
    return {link for link in links for target in fault.targets if link == target or target in ends(link)}


def _alike(fault: Fault, other: Fault) -> bool:
    """Return whether the end of one fault would end the other, too, or one has nothing to do while the other lasts."""
    if isinstance(fault, OfProcess) and isinstance(other, OfProcess) and fault.process != other.process:
        return False
    return bool(_families(fault) & _families(other))


def _families(fault: Fault) -> set[str]:
    """Return the families of a fault: what it does to its target, so that no other fault may."""
    kinds = _kinds(fault)
    occupied = {FAULTS[kind].occupies or kind for kind in kinds if FAULTS[kind].reversible}
    if isinstance(fault, Storm) and any(FAULTS[kind].stops_target for kind in kinds):
        occupied.add("process")  # a process that a storm may have killed can't be paused
    return occupied


def _meet(stretch: Stretch, other: Stretch) -> bool:
    return stretch.start < other.end - _INSTANT_S and other.start < stretch.end - _INSTANT_S
