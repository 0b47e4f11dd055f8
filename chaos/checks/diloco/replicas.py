"""Do all replicas hold the same?"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from diloco_chaos.chaos.checks.base import Finding, Unknown, check, need, violations
from diloco_chaos.chaos.evidence.accounting.by_version import ByVersion
from diloco_chaos.chaos.evidence.accounting.token_accounting import Node
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.model import COORDINATOR
from diloco_chaos.harness.base.lines import Line, line, text
from diloco_chaos.harness.base.tensors import np
from diloco_chaos.harness.record.tape.events import (
    Event,
    Grouped,
    Hello,
    Initial,
    Merge,
    Received,
    Refused,
    Replica,
    Resumed,
    RolledBack,
)
from diloco_chaos.harness.record.tape.series import Series, texts


@check(needs={"replicas"}, unverified="judged")
def replica_consistency(history: History) -> Finding:
    """Digests that the receivers computed equal the syncer's, per fragment and version; versions never go back, and
    each has one number for all. What the syncer keeps beside a version's value is the same after it was started again,
    and no learner refuses it twice in a row. Where gradients are averaged: all members of a group hold the same weights
    and moments at every step of which they tell."""
    return _of_fragments(history) if "fragments" in history.plan.trainer.evidence else _of_groups(history)


# -- where gradients are averaged --------------------------------------------------------------------------------------

def _of_groups(history: History) -> Finding:
    groups = _Groups(history)
    need(groups.said, "no worker told what it holds")
    wrong = groups.differences()
    if not wrong and (silent := groups.silent()):
        raise Unknown(f"{silent[0]} gave gradients, and never told what it holds")
    states = len(groups.said)
    return Finding(not wrong, f"{len(wrong)} of {states} states differ", "0", wrong[:5], figures=violations(wrong))


class _Groups:
    """What the members of each group told of what they hold, in the order of the hub's own events."""

    def __init__(self, history: History) -> None:
        self._hub = history.tape.of(Initial, Resumed, RolledBack, Grouped, Merge, node=COORDINATOR)
        self.said = [event for event in history.tape.of(Replica) if event.t <= history.end]
        self._there: dict[tuple[int, int], list[Replica]] = defaultdict(list)
        """(epoch, step) -> what was told there."""
        for event in self.said:
            self._there[event.epoch, event.step].append(event)
        self._known: dict[int, Replica] = {}
        """Training step -> what was first told of it, of steps that are not void."""

    def differences(self) -> list[Line]:
        """Name everybody who holds something else than the others, or than was held at that step before."""
        wrong: list[Line] = []
        epoch = -1
        for event in self._hub:
            step = _step_of(event)
            if not isinstance(event, Merge):
                self._known = {number: told for number, told in self._known.items() if number <= step}
            if isinstance(event, Grouped):
                epoch = event.epoch
            if isinstance(event, Resumed):
                before = self._known.get(step)
                if before is not None and event.digests[0] != before.digest:
                    wrong.append(line("the hub came back at ", event.t, f" with another state of step {step} than "
                                      f"{_name(before)} held"))
            if isinstance(event, Grouped | Merge):
                wrong += self._apart(step, self._there.get((epoch, step), []))
        return wrong

    def _apart(self, step: int, told: Sequence[Replica]) -> Iterable[Line]:
        if not told:
            return
        usual = Counter(each.digest for each in told).most_common(1)[0][0]
        first = self._known.setdefault(step, next(each for each in told if each.digest == usual))
        for each in told:
            if each.digest != first.digest:
                yield line(f"{_name(each)} held other weights or moments at step {step} than {_name(first)} (at ",
                           each.t, ")")

    def silent(self) -> list[str]:
        """Name the processes whose gradients counted in a group, and that never told what they begin it with."""
        told = {(each.epoch, each.node, each.inc) for each in self.said}
        epoch = -1
        silent: dict[str, None] = {}
        for event in self._hub:
            if isinstance(event, Grouped):
                epoch = event.epoch
            elif isinstance(event, Merge):
                silent |= {f"{part.learner}.{part.incarnation}": None for part in event.contributions
                           if (epoch, part.learner, part.incarnation) not in told}
        return list(silent)


def _step_of(event: Event) -> int:
    """Return the training step that the hub stands at with this event."""
    if isinstance(event, Merge):
        return event.version
    assert isinstance(event, Initial | Resumed | RolledBack | Grouped)
    return event.step


def _name(event: Replica) -> str:
    return f"{event.node}.{event.inc}"


# -- where fragments are exchanged -------------------------------------------------------------------------------------

def _of_fragments(history: History) -> Finding:
    known, contradictions = _versions(history)
    contents = {digest: place for place, digest in reversed(known.items())}
    received = {node: series.until(history.end) for node, series in history.tape.series(Received).items()}
    count = sum(map(len, received.values()))
    need(count and known, "nothing was received, or the syncer recorded no version")
    digests = ByVersion(known)
    differing = [problem for series in received.values() for problem in _differences(series, digests, contents)]
    wrong = [*contradictions,
             *(words for _, words in sorted(differing, key=lambda entry: (entry[0], text(entry[1])))),
             *_refused_again_and_again(history), *_older_than_promised(history, received)]
    return Finding(not wrong, f"{len(wrong)} of {count} receipts differ", "0", wrong[:5], figures=violations(wrong))


def _refused_again_and_again(history: History) -> list[Line]:
    """Name the learners that could not use what the syncer sent them of a fragment, more than once in a row: a change
    of a version that they don't hold, or what has another digest than it says."""
    wrong = []
    for (node, inc), events in history.tape.by_process(Refused, Received).items():
        if node not in history.plan.cluster.names:
            continue
        rows: dict[int | None, list[Refused]] = defaultdict(list)
        longest: list[Refused] = []
        for event in events:
            if isinstance(event, Refused):
                rows[event.fragment].append(event)
                longest = max(longest, rows[event.fragment], key=len)
            elif isinstance(event, Received):
                rows[event.fragment] = []
        if len(longest) > 1:
            first = longest[0]
            wrong.append(line(f"{node}.{inc} refused fragment {first.fragment} {len(longest)} times in a row from ",
                              first.t, f" on: {first.reason}"))
    return wrong


def _versions(history: History) -> tuple[dict[tuple[int, int], str], list[str]]:
    """(fragment, version) -> the digest of its value, by the syncer's tape; and what contradicts itself there."""
    known: dict[tuple[int, int], str] = {}
    states: dict[tuple[int, int], str | None] = {}
    wrong: list[str] = []
    newest: dict[int, int] = defaultdict(int)
    for event in history.tape.of(Initial, Resumed, Merge, node=COORDINATOR):
        for fragment, version, digest, state in _kept(event):
            if known.setdefault((fragment, version), digest) != digest:
                wrong.append(f"fragment {fragment} version {version} has two contents")
            elif states.setdefault((fragment, version), state) != state:
                wrong.append(f"fragment {fragment} version {version} has two states: its momentum, what rounding has "
                             f"cost or its counts are not those from before")
            if version < newest[fragment]:
                wrong.append(f"fragment {fragment} went back from version {newest[fragment]} to {version}")
            newest[fragment] = max(newest[fragment], version)
    return known, wrong


def _kept(event: Initial | Resumed | Merge) -> Sequence[tuple[int, int, str, str | None]]:
    """Return the fragments in this event of the syncer: each its number, version, digest of the value, and digest of
    all that is kept of it (None: not recorded)."""
    if isinstance(event, Merge):
        return [(event.fragment, event.version, event.digest, event.state)]
    states: Sequence[str | None] = event.states or [None] * len(event.versions)
    return list(zip(range(len(event.versions)), event.versions, event.digests, states, strict=True))


def _differences(received: Series[Received], known: ByVersion,
                 contents: Mapping[str, tuple[int, int]]) -> list[tuple[float, str | Line]]:
    """Return what one process received that the syncer never had, or in another order than its versions; each with its
    time in seconds. `contents`: digest -> the fragment and the version that the syncer's tape has it under.

    Raises:
        Unknown: a version is not on the syncer's tape.
    """
    name = f"{received.node}.{received.inc}"
    fragments, versions, rows = received.integers("fragment"), received.integers("version"), known.rows(received)
    wrong = _misnamed(received, np.flatnonzero(rows < 0).tolist(), contents)
    if (rows < 0).any() and not wrong:
        place = int((rows < 0).argmax())
        raise Unknown(f"fragment {fragments[place]} version {versions[place]} is not on the syncer's tape")
    differing = np.flatnonzero((rows >= 0) & (texts(received.column("digest")) != texts(known.values)[rows])).tolist()
    wrong += [(event.t, line(f"{name} applied other bytes for fragment {event.fragment} version {event.version} at ",
                             event.t)) for event in map(received.__getitem__, differing)]
    for fragment in np.unique(fragments).tolist():
        mine = np.flatnonzero(fragments == fragment)
        order = versions[mine]
        wrong += [(float(received.t[mine[place + 1]]), f"{name} went back to version {order[place + 1]} of fragment "
                                                       f"{fragment}")
                  for place in np.flatnonzero(order[1:] < order[:-1]).tolist()]
    return wrong


def _misnamed(received: Series[Received], places: Sequence[int],
              contents: Mapping[str, tuple[int, int]]) -> list[tuple[float, str | Line]]:
    """Return which of these receipts, whose versions the syncer's tape lacks, it has under another number. Two versions
    of one content are none, where the process received that one, too."""
    said: dict[tuple[int, int], str] = {}
    if places:
        for fragment, version, digest in zip(received.plain("fragment"), received.plain("version"),
                                             received.plain("digest"), strict=True):
            said.setdefault((fragment, version), digest)
    wrong: list[tuple[float, str | Line]] = []
    for event in map(received.__getitem__, places):
        named = contents.get(event.digest)
        if named is not None and said.get(named) != event.digest:
            wrong.append((event.t, line(
                f"{received.node}.{received.inc} received fragment {event.fragment} version {event.version} at ",
                event.t, f", and the syncer tells of it as fragment {named[0]} version {named[1]}")))
    return wrong


def _older_than_promised(history: History, received: Mapping[Node, Series[Received]]) -> list[str]:
    """Name the processes that first received an older version than the syncer held when they came, each in words."""
    forged = {target for planned in history.plan.faults if planned.fault.impersonates
              for target in planned.fault.targets}
    promised = {process: versions for process, versions in _there_at_hello(history).items() if process[0] not in forged}
    wrong = []
    for (node, inc), series in received.items():
        if (node, inc) in promised:
            fragments, firsts = np.unique(series.integers("fragment"), return_index=True)
            for fragment, first in sorted(zip(fragments.tolist(), firsts.tolist(), strict=True), key=itemgetter(1)):
                begun, held = series[first].version, promised[node, inc][fragment]
                if begun < held:
                    wrong.append(f"{node}.{inc} began with version {begun} of fragment {fragment}, and {held} was "
                                 f"there when it came")
    return wrong


def _there_at_hello(history: History) -> Mapping[Node, list[int]]:
    """Return the version of every fragment that there was when each process first came that held nothing: by the hello
    and by the merges before it, whichever says more."""
    newest: dict[int, int] = defaultdict(int)
    there: dict[Node, list[int]] = {}
    told: Sequence[Event] = history.tape.of(Initial, Resumed, Hello, Merge, node=COORDINATOR)
    for event in told:
        if isinstance(event, Merge):
            newest[event.fragment] = event.version
        elif isinstance(event, Initial | Resumed):
            newest.update(enumerate(event.versions))
        elif isinstance(event, Hello) and event.fresh:
            there.setdefault(event.process, [max(version, newest[fragment])
                                             for fragment, version in enumerate(event.versions)])
    return there
