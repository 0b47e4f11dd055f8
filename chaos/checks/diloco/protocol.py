"""Did the algorithm keep its promises? These hold in every run, whatever was broken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import itemgetter

from diloco_chaos.chaos.checks.base import (
    PROMISE,
    Figure,
    Finding,
    Unknown,
    at_least,
    at_most,
    check,
    need,
    rules_of,
    violations,
)
from diloco_chaos.chaos.evidence.accounting.by_version import ByVersion
from diloco_chaos.chaos.evidence.accounting.token_accounting import Node
from diloco_chaos.chaos.evidence.clocks import WRITTEN_S
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.model import COORDINATOR
from diloco_chaos.harness.base.lines import Line, line, text
from diloco_chaos.harness.base.tensors import np
from diloco_chaos.harness.record.tape.events import (
    Continued,
    Hello,
    Initial,
    Lost,
    Merge,
    Received,
    Resumed,
    Spawn,
)
from diloco_chaos.harness.record.tape.recovered import Made
from diloco_chaos.harness.record.tape.series import Series, texts
from diloco_chaos.harness.trainers.api.settings import FragmentRules

_JUMP_S = 0.1
"""A round in which the syncer's clock jumped can't be recomputed."""


@check(needs={"fragments"}, unverified="judged")
def staleness_bounded(history: History) -> Finding:
    """No merged base older than S versions."""
    need(history.merges, "there are no merges")
    bound, parts = rules_of(history).max_staleness, history.parts
    need(len(parts.merge), "nothing was merged from any learner")
    ages = np.asarray(parts.of_merge("version"), np.int64) - 1 - parts.integers("base")
    oldest = int(ages.max())

    def words(row: int) -> str:
        merge, part = history.merges[int(parts.merge[row])], parts.part(row)
        return (f"{part.learner}.{part.incarnation} on version {part.base} into version {merge.version} of fragment "
                f"{merge.fragment}")
    impossible = [words(row) for row in np.flatnonzero(ages < 0).tolist()]
    worst = words(int(ages.argmax()))
    return Finding(oldest <= bound and not impossible, f"oldest base {oldest} versions", at_most(bound),
                   impossible or [worst], figures=[Figure(value=oldest, limit=bound, unit="versions")])


# -- quorum --------------------------------------------------------------------------------------------------------

@check(needs={"fragments"}, unverified="judged")
def quorum_respected(history: History) -> Finding:
    """Distinct live learners per merge >= K; the grace window recomputed from the recorded times."""
    need(history.merges, "there are no merges")
    rules = rules_of(history)
    wrong: list[Line] = []
    parts, smallest = history.parts, history.plan.cluster.learners
    learners, arrivals, absent = parts.plain("learner"), parts.plain("arrived"), _absent(history)
    jumps = [span.injected for span in history.spans if span.planned.fault.moves_clock
             and COORDINATOR in span.planned.fault.targets and span.injected is not None]
    for number, (merge, begin, count) in enumerate(zip(history.merges, parts.begins.tolist(), parts.counts.tolist(),
                                                       strict=True)):
        names = set(learners[begin:begin + count])
        smallest = min(smallest, len(names))
        problems = []
        if len(names) < rules.quorum or len(names) != count:
            problems.append(f"{len(names)} distinct learners in {count} contributions")
        if number in absent:
            problems.append("a contribution from a learner that was not there")
        if not any(merge.opened - _JUMP_S <= jump <= merge.t + _JUMP_S for jump in jumps):
            problems += _grace_problems(rules, merge, sorted(arrivals[begin:begin + count]), names)
        wrong += [line(f"fragment {merge.fragment} version {merge.version} at ", merge.t, f": {why}")
                  for why in problems]
    return Finding(not wrong, f"smallest quorum {smallest}", at_least(f"{rules.quorum}, grace as measured"),
                   wrong[:5] or [f"{len(history.merges)} merges recomputed"], figures=violations(wrong))


def _absent(history: History) -> set[int]:
    """Return the numbers of merges with a part of a process that was not connected when the part arrived. What is
    written just before or after a moment may come after or before it."""
    changes: dict[str, list[tuple[float, int | None]]] = defaultdict(list)
    for event in history.tape.of(Hello, Lost, node=COORDINATOR):
        changes[event.learner].append((event.t, event.incarnation if isinstance(event, Hello) else None))
    arrived = history.parts.numbers("arrived")
    processes, process = history.parts.processes
    absent: set[int] = set()
    for number, (learner, incarnation) in enumerate(processes):
        mine = np.flatnonzero(process == number)
        times = [t for t, _ in changes[learner]]
        connected = np.cumsum([0, *(newest == incarnation for _, newest in changes[learner])])
        first = np.maximum(np.searchsorted(times, arrived[mine] - WRITTEN_S, "right") - 1, 0)
        last = np.searchsorted(times, arrived[mine] + WRITTEN_S, "right")
        absent.update(history.parts.merge[mine[connected[last] <= connected[first]]].tolist())
    return absent


def _grace_problems(rules: FragmentRules, merge: Merge, arrivals: list[float], names: set[str]) -> list[str]:
    if len(arrivals) < rules.quorum:
        return []
    quorum_at = arrivals[rules.quorum - 1]
    slack = rules.overlap * merge.step_time - (quorum_at - merge.opened) - merge.sync_time
    grace = min(max(rules.grace * slack, 0.0), merge.step_time)
    asked = set(merge.asked)
    waited = asked - names - set(merge.declined)
    problems = []
    # Written as "not within", so that a time that is no number is never within.
    if not abs(grace - merge.grace) <= WRITTEN_S:
        problems.append(f"grace was {merge.grace:.4f} s, the recorded times give {grace:.4f} s")
    if waited and not merge.closed >= quorum_at + grace - WRITTEN_S:
        problems.append(f"closed before the grace window was over, without {', '.join(sorted(waited))}")
    if not arrivals[-1] <= merge.closed + WRITTEN_S:
        problems.append("a contribution arrived after the round was closed")
    if not arrivals[-1] <= quorum_at + grace + WRITTEN_S:
        problems.append(f"a contribution arrived {arrivals[-1] - quorum_at - grace:.3f} s after the grace window")
    if names - asked:
        problems.append(f"{', '.join(sorted(names - asked))} was not asked")
    return problems


# -- exactly once --------------------------------------------------------------------------------------------------

@check(**PROMISE | {"needs": {"tokens"}})
def exactly_once(history: History) -> Finding:
    """For every fragment no step is merged twice, and none is without a fate; and no process is admitted in whose place
    a newer one had been, for both would go on from the same data."""
    need(history.steps and history.merges, "there are no steps or no merges on the tape")
    for learner, incarnation in history.parts.processes[0]:
        if ((learner, incarnation) not in history.steps and learner in history.plan.cluster.names
                and incarnation in _spawned(history, learner)):
            raise Unknown(f"{learner}.{incarnation} was merged from, but left no steps")
    accounting = history.accounting
    wrong: list[str | Line] = [*accounting.violations, *_back_again(history)]
    if not wrong:
        _no_version_is_missing(history)
    fates = sum(len(fates) for fates in accounting.fates.values())
    summary = [f"{name}: {count:,} tokens" for name, count in accounting.by_fate.most_common()]
    return Finding(not wrong, f"{len(wrong)} violations in {fates:,} fates", "0", wrong[:5] or summary,
                   figures=violations(wrong))


def _back_again(history: History) -> list[Line]:
    """Old processes that were admitted. The syncer of fragments commits that it has heard of a new one before it says
    so; a run that goes on from a checkpoint, and a group whose hub was gone, have forgotten who came after that."""
    newest: dict[str, int] = {}
    wrong = []
    forgetful = not history.plan.cluster.exchanges_fragments
    for event in history.tape.of(Hello, Continued, Resumed):
        if not isinstance(event, Hello):
            if isinstance(event, Continued) or forgetful:
                newest.clear()
        elif event.incarnation < newest.get(event.learner, 0):
            wrong.append(line(f"{event.learner}.{event.incarnation} was admitted at ", event.t,
                              f", and {event.learner}.{newest[event.learner]} had been before"))
        else:
            newest[event.learner] = event.incarnation
    return wrong


def _spawned(history: History, learner: str) -> set[int]:
    return {spawn.incarnation for spawn in history.tape.of(Spawn, node="harness") if spawn.target == learner}


def _no_version_is_missing(history: History) -> None:
    """Raise Unknown where a version was made that no merge tells of: what went into it could be merged again unseen."""
    seen: dict[int, set[int]] = defaultdict(set)
    newest: dict[int, int] = defaultdict(int)
    first = {fragment: version for initial in history.tape.of(Initial, node=COORDINATOR)[:1]
             for fragment, version in enumerate(initial.versions)}
    made: list[Made] = [*history.tape.of(Merge, node=COORDINATOR), *history.recovered_merges]
    for merge in made:
        seen[merge.fragment].add(merge.version)
        newest[merge.fragment] = max(newest[merge.fragment], merge.version)
    for resumed in history.tape.of(Resumed, node=COORDINATOR):
        for fragment, version in enumerate(resumed.versions):
            newest[fragment] = max(newest[fragment], version)
    for fragment, version in newest.items():
        known = sorted(each for each in seen[fragment] if first.get(fragment, 0) < each <= version)
        if len(known) < version - first.get(fragment, 0):
            missing = next((expected for expected, each in enumerate(known, first.get(fragment, 0) + 1)
                            if each != expected), first.get(fragment, 0) + len(known) + 1)
            raise Unknown(f"no merge tells of version {missing} of fragment {fragment}")


# -- replicas ------------------------------------------------------------------------------------------------------

@check(needs={"fragments"}, unverified="judged")
def replica_consistency(history: History) -> Finding:
    """Digests that the receivers computed equal the syncer's, per fragment and version; versions never go back. What
    the syncer keeps beside a version's value is the same after it was started again."""
    known, contradictions = _versions(history)
    received = {node: series.until(history.end) for node, series in history.tape.series(Received).items()}
    count = sum(map(len, received.values()))
    need(count and known, "nothing was received, or the syncer recorded no version")
    digests = ByVersion(known)
    differing = [problem for series in received.values() for problem in _differences(series, digests)]
    wrong = [*contradictions,
             *(words for _, words in sorted(differing, key=lambda entry: (entry[0], text(entry[1])))),
             *_older_than_promised(history, received)]
    return Finding(not wrong, f"{len(wrong)} of {count} receipts differ", "0", wrong[:5], figures=violations(wrong))


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


def _differences(received: Series[Received], known: ByVersion) -> list[tuple[float, str | Line]]:
    """Return what one process received that the syncer never had, or in another order than its versions; each with its
    time in seconds.

    Raises:
        Unknown: a version is not on the syncer's tape.
    """
    name = f"{received.node}.{received.inc}"
    fragments, versions, rows = received.integers("fragment"), received.integers("version"), known.rows(received)
    if (rows < 0).any():
        place = int((rows < 0).argmax())
        raise Unknown(f"fragment {fragments[place]} version {versions[place]} is not on the syncer's tape")
    differing = np.flatnonzero(texts(received.column("digest")) != texts(known.values)[rows]).tolist()
    wrong: list[tuple[float, str | Line]] = [
        (event.t, line(f"{name} applied other bytes for fragment {event.fragment} version {event.version} at ",
                       event.t)) for event in map(received.__getitem__, differing)]
    for fragment in np.unique(fragments).tolist():
        mine = np.flatnonzero(fragments == fragment)
        order = versions[mine]
        wrong += [(float(received.t[mine[place + 1]]), f"{name} went back to version {order[place + 1]} of fragment "
                                                       f"{fragment}")
                  for place in np.flatnonzero(order[1:] < order[:-1]).tolist()]
    return wrong


def _older_than_promised(history: History, received: Mapping[Node, Series[Received]]) -> list[str]:
    """Name the processes that first received an older version than the syncer held when they came, each in words."""
    forged = {target for planned in history.plan.faults if planned.fault.impersonates
              for target in planned.fault.targets}
    promised = {hello.process: hello.versions for hello in reversed(history.tape.of(Hello, node=COORDINATOR))
                if hello.fresh and hello.learner not in forged}
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
