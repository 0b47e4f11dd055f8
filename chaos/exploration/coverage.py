"""Which moments of the protocol faults have hit: pairs of a fault's kind and what its target was doing. From the tape.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.faults import FAULTS, Fault
from diloco_chaos.harness.record.tape.events import (
    Event,
    Exit,
    Failpoint,
    Hello,
    Lost,
    Merge,
    OuterGradient,
    Ready,
    Received,
    Resumed,
    Spawn,
)
from diloco_chaos.harness.trainers.core.programs import ends

Pair = tuple[str, str]
"""(kind of fault, what its target was doing); or, of faults that follow each other, (family of the first, family of the
second and what its target was doing, as `ends @ syncer resumed`)."""
_AT = " @ "
LEARNER_STATES = ("training", "answered", "uploading", "disconnected", "starting", "down")
SYNCER_STATES = ("idle", "collecting", "grace", "saving", "committed", "greeting", "resumed", "starting", "down")
_ALL_THE_TIME = ("step", "merge", "upload", "outer_gradient", "received", "traffic")
_MOMENT_S = 1e-5
"""Times on the tape are rounded."""


def pairs(history: History) -> set[Pair]:
    """Return all pairs of a run: a fault's kind, and the state of the node that it hit."""
    return {(span.planned.fault.kind, state(history, target, span.injected))
            for span in history.spans if span.injected is not None for target in _nodes(span.planned.fault)}


def _nodes(fault: Fault) -> list[str]:
    """Return the targets that are nodes: a link does nothing."""
    return [target for target in fault.targets if len(ends(target)) == 1]


def family(kind: str) -> str:
    """Return the family of a kind of fault; the kind itself where it has none."""
    drawn = FAULTS[kind].drawn if kind in FAULTS else None
    return drawn.family if drawn is not None and drawn.family else kind


def sequences(history: History) -> set[Pair]:
    """Return the families of faults that followed each other, with the state in which the second met its target."""
    came = sorted(((span.injected, span.planned.fault) for span in history.spans if span.injected is not None),
                  key=lambda pair: pair[0])
    return {(family(first.kind), f"{family(second.kind)}{_AT}{state(history, target, at)}")
            for (_, first), (at, second) in pairwise(came) for target in _nodes(second)}


def traces(history: History) -> set[str]:
    """Return the transitions of the run's processes: each two events of a node that follow each other on its tape.
    Events of training repeat all the time, and count as one."""
    transitions: set[str] = set()
    last: dict[str, str] = {}
    for event in history.tape.events:
        node, word = _word(event)
        if word and last.get(node) != word:
            transitions.add(f"{node.partition('-')[0]}: {last.get(node, '')} > {word}")
            last[node] = word
    return transitions


def _word(event: Event) -> tuple[str, str]:
    """Return the node that an event belongs to, and a word for the event; an empty word: the event doesn't count."""
    if event.node == "harness":
        if isinstance(event, Exit):
            return event.target, f"{event.event} {'' if event.status is None else event.status}"
        return (event.target, f"{event.event} ") if isinstance(event, Spawn) else ("", "")
    if event.event in _ALL_THE_TIME:
        return event.node, "trains"
    details = [str(getattr(event, name)).partition(":")[0].partition(" for ")[0] for name in ("reason", "point", "why")
               if getattr(event, name, None)]
    fresh = "new" if isinstance(event, Hello) and event.incarnation else ""
    return event.node, " ".join(filter(None, [event.event, *details, fresh]))


def possible_sequences(alone: Collection[Pair]) -> set[Pair]:
    """Return all sequences that there can be, by the pairs that there can be."""
    families = {family(kind) for kind, _ in alone}
    seconds = {f"{family(kind)}{_AT}{where}" for kind, where in alone}
    return {(first, second) for first in families for second in seconds}


def second_of(sequence: Pair) -> Pair:
    """Family and state of the second fault."""
    name, _, where = sequence[1].partition(_AT)
    return name, where


def possible(kinds: Mapping[str, str], held: Collection[str]) -> set[Pair]:
    """Return all pairs that there can be. `kinds`: kind -> whom it may hit (any, learner, syncer); `held`: those that a
    node can be held for, which is the only way to meet it in the middle of an upload or before a broadcast."""
    learner = {f"learner {name}" for name in LEARNER_STATES if name != "down"}
    syncer = {f"syncer {name}" for name in SYNCER_STATES if name != "down"}
    states = {"learner": learner, "syncer": syncer, "any": learner | syncer}
    return {(kind, where) for kind, on in kinds.items() for where in states[on]
            if kind in held or where not in ("learner uploading", "syncer committed")}


def state(history: History, target: str, at: float) -> str:
    """Return what a node was doing at a moment."""
    mine = [event for event in history.tape.events if event.node == target and event.t <= at + _MOMENT_S]
    lives = [event for event in history.tape.of(Spawn, Exit, node="harness")
             if event.target == target and event.t < at - _MOMENT_S]  # the fault's own work does not count
    role = "syncer" if target == history.coordinator else "learner"
    spawn = next((event for event in reversed(lives) if isinstance(event, Spawn)), None)
    if spawn and any(isinstance(event, Exit) and event.incarnation == spawn.incarnation for event in lives):
        return f"{role} down"
    born = spawn.t if spawn else 0.0
    mine = [event for event in mine if event.t >= born - _MOMENT_S]
    return f"{role} {_syncer(history, mine, at) if role == 'syncer' else _learner(history, target, mine, at)}"


def _learner(history: History, target: str, mine: list[Event], at: float) -> str:
    if mine and isinstance(mine[-1], Failpoint):
        return "uploading"
    if not any(isinstance(event, Ready) for event in mine):
        return "starting"
    links = [event for event in history.tape.of(Hello, Lost, node=history.recorder)
             if event.learner == target and event.t <= at + _MOMENT_S]
    if links and isinstance(links[-1], Lost):
        return "disconnected"
    waiting: set[int] = set()
    for event in mine:
        if isinstance(event, OuterGradient):
            waiting.add(event.fragment)
        elif isinstance(event, Received):
            waiting.discard(event.fragment)
    return "answered" if waiting else "training"


def _syncer(history: History, mine: list[Event], at: float) -> str:
    last = mine[-1] if mine else None
    if isinstance(last, Failpoint):
        return "committed" if last.point == "commit.before_broadcast" else "saving"
    known = [event for event in mine if isinstance(event, Resumed | Merge | Hello)]
    if known and isinstance(known[0], Resumed) and len(known) <= len(known[0].versions):
        return "resumed"
    if not known or isinstance(known[-1], Resumed):
        return "starting"
    if isinstance(known[-1], Hello) and known[-1].incarnation:
        return "greeting"
    for merge in history.merges:
        if merge.opened <= at <= merge.t:
            if at < merge.quorum_at:
                return "collecting"
            return "grace" if at < merge.closed else "saving"
    return "idle"
