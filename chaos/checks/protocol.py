"""Did the algorithm keep its promises? These hold in every run, whatever was broken."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf, isclose
from operator import itemgetter
from typing import Any

from diloco_chaos.chaos.checks.base import PROMISE, Figure, Finding, Unknown, check, need, rules_of, violations
from diloco_chaos.chaos.evidence.clocks import WRITTEN_S
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.token_accounting import Node, closing_intervals
from diloco_chaos.chaos.scenario.model import SYNCER
from diloco_chaos.faults import ClockJump
from diloco_chaos.faults.byzantine import Impersonation
from diloco_chaos.harness.record.tape.columns import packed
from diloco_chaos.harness.record.tape.event import Event
from diloco_chaos.harness.record.tape.packed import values
from diloco_chaos.harness.trainers.api.settings import FragmentRules

Sent = tuple[Any, ...]
_SENT = itemgetter("digest", "base", "first", "step")
"""Fields of a learner's `snapshot`."""
_MERGED = itemgetter("digest", "base", "first", "last")
"""What they are called in the syncer's `merge`."""
_ALL = object()
_JUMP_S = 0.1
"""A round in which the syncer's clock jumped can't be recomputed."""


@check(needs={"fragments"}, unverified="judged")
def staleness_bounded(history: History) -> Finding:
    """No merged base older than S versions."""
    need(history.merges, "there are no merges")
    bound = rules_of(history).max_staleness
    oldest: Any = None
    words, impossible = "", list[str]()
    for merge in history.merges:
        version = merge["version"]
        for part in merge["contributions"]:
            age = version - 1 - part["base"]
            if oldest is None or age >= oldest or age < 0:
                here = (f"{part['learner']}.{part['incarnation']} on version {part['base']} into version {version} of "
                        f"fragment {merge['fragment']}")
                oldest, words = max((age if oldest is None else oldest, words), (age, here))
                impossible += [here] if age < 0 else []
    need(oldest is not None, "nothing was merged from anybody")
    return Finding(oldest <= bound and not impossible, f"oldest base {oldest} versions", f"≤ {bound}",
                   impossible or [words], figures=[Figure(value=oldest, limit=bound, unit="versions")])


@check(needs={"fragments"}, unverified="judged")
def quorum_respected(history: History) -> Finding:
    """Distinct live learners per merge >= K; the grace window recomputed from the recorded times."""
    need(history.merges, "there are no merges")
    rules = rules_of(history)
    wrong: list[str] = []
    presence = _Presence(history)
    smallest = history.plan.cluster.learners
    jumps = [span.injected for span in history.spans if isinstance(span.planned.fault, ClockJump)
             and SYNCER in span.planned.fault.targets and span.injected is not None]
    for merge in history.merges:
        parts = merge["contributions"]
        names = {part["learner"] for part in parts}
        smallest = min(smallest, len(names))
        where = f"fragment {merge['fragment']} version {merge['version']} at {merge.t:.2f} s"
        if len(names) < rules.quorum or len(names) != len(parts):
            wrong.append(f"{where}: {len(names)} distinct learners in {len(parts)} contributions")
        if any(not presence.there(part["learner"], part["incarnation"], part["arrived"]) for part in parts):
            wrong.append(f"{where}: a contribution from a learner that was not there")
        if not any(merge["opened"] - _JUMP_S <= jump <= merge.t + _JUMP_S for jump in jumps):
            wrong += [f"{where}: {why}" for why in _grace_problems(rules, merge, parts)]
    return Finding(not wrong, f"smallest quorum {smallest}", f"≥ {rules.quorum}, grace as measured", wrong[:5] or [
        f"{len(history.merges)} merges recomputed"], figures=violations(wrong))


class _Presence:
    """Which incarnation of each learner the syncer knew to be there, and when."""

    def __init__(self, history: History) -> None:
        self._times: dict[str, list[float]] = defaultdict(list)
        self._who: dict[str, list[int | None]] = defaultdict(list)
        for event in history.tape.of("hello", "lost", node=SYNCER):
            self._times[event["learner"]].append(event.t)
            self._who[event["learner"]].append(event["incarnation"] if event.event == "hello" else None)

    def there(self, learner: str, incarnation: int, at: float) -> bool:
        """Whether this incarnation was connected; what is written just before or after a moment may come after or
        before it."""
        times, who = self._times[learner], self._who[learner]
        before, after = bisect_right(times, at - WRITTEN_S), bisect_right(times, at + WRITTEN_S)
        return incarnation in who[max(0, before - 1):after]


def _grace_problems(rules: FragmentRules, merge: Event, parts: Sequence[Mapping[str, Any]]) -> list[str]:
    arrivals = sorted(part["arrived"] for part in parts)
    if len(arrivals) < rules.quorum:
        return []
    quorum_at = arrivals[rules.quorum - 1]
    slack = rules.overlap * merge["step_time"] - (quorum_at - merge["opened"]) - merge["sync_time"]
    grace = min(max(rules.grace * slack, 0.0), merge["step_time"])
    names, asked = {part["learner"] for part in parts}, set(merge["asked"])
    waited = asked - names - set(merge["declined"])
    problems = []
    # Written as "not within", so that a time that is no number is never within.
    if not abs(grace - merge["grace"]) <= WRITTEN_S:
        problems.append(f"grace was {merge['grace']:.4f} s, the recorded times give {grace:.4f} s")
    if waited and not merge["closed"] >= quorum_at + grace - WRITTEN_S:
        problems.append(f"closed before the grace window was over, without {', '.join(sorted(waited))}")
    if not arrivals[-1] <= merge["closed"] + WRITTEN_S:
        problems.append("a contribution arrived after the round was closed")
    if not arrivals[-1] <= quorum_at + grace + WRITTEN_S:
        problems.append(f"a contribution arrived {arrivals[-1] - quorum_at - grace:.3f} s after the grace window")
    if names - asked:
        problems.append(f"{', '.join(sorted(names - asked))} was not asked")
    return problems


@check(**PROMISE | {"needs": {"tokens"}})
def exactly_once(history: History) -> Finding:
    """For every fragment no step is merged twice, and none is without a fate; and no process is admitted in whose place
    a newer one had been, for both would go on from the same data."""
    need(history.steps and history.merges, "there are no steps or no merges on the tape")
    for merge in history.merges:
        for part in merge["contributions"]:
            learner, incarnation = part["learner"], part["incarnation"]
            if ((learner, incarnation) not in history.steps and learner in history.plan.cluster.names
                    and incarnation in _spawned(history, learner)):
                raise Unknown(f"{learner}.{incarnation} was merged from, but left no steps")
    accounting = history.accounting
    wrong = accounting.violations + _back_again(history)
    if not wrong:
        _no_version_is_missing(history)
    fates = sum(len(fates) for fates in accounting.fates.values())
    summary = [f"{name}: {count:,} tokens" for name, count in accounting.by_fate.most_common()]
    return Finding(not wrong, f"{len(wrong)} violations in {fates:,} fates", "0", wrong[:5] or summary,
                   figures=violations(wrong))


def _back_again(history: History) -> list[str]:
    """Old processes that were admitted. The syncer of fragments commits that it has heard of a new one before it says
    so; a run that goes on from a checkpoint, and a group whose hub was gone, have forgotten who came after that."""
    newest: dict[str, int] = {}
    found = []
    forgets = {"continued"} if history.plan.cluster.exchanges_fragments else {"continued", "resumed"}
    for event in history.tape.of("hello", *forgets):
        if event.event in forgets:
            newest.clear()
        elif event["incarnation"] < newest.get(event["learner"], 0):
            found.append(f"{event['learner']}.{event['incarnation']} was admitted at {event.t:.2f} s, and "
                         f"{event['learner']}.{newest[event['learner']]} had been before")
        else:
            newest[event["learner"]] = event["incarnation"]
    return found


def _spawned(history: History, learner: str) -> set[int]:
    return {event["incarnation"] for event in history.tape.of("spawn", node="harness") if event["target"] == learner}


def _no_version_is_missing(history: History) -> None:
    """Raise Unknown where a version was made that no merge tells of: what went into it could be merged again unseen."""
    seen: dict[int, set[int]] = defaultdict(set)
    newest: dict[int, int] = defaultdict(int)
    first = {fragment: version for initial in history.tape.of("initial", node=SYNCER)[:1]
             for fragment, version in enumerate(initial["versions"])}
    for merge in history.tape.of("merge", node=SYNCER) + history.recovered_merges:
        seen[merge["fragment"]].add(merge["version"])
        newest[merge["fragment"]] = max(newest[merge["fragment"]], merge["version"])
    for resumed in history.tape.of("resumed", node=SYNCER):
        for fragment, version in enumerate(resumed["versions"]):
            newest[fragment] = max(newest[fragment], version)
    for fragment, version in newest.items():
        known = sorted(one for one in seen[fragment] if first.get(fragment, 0) < one <= version)
        if len(known) < version - first.get(fragment, 0):
            missing = next((expected for expected, one in enumerate(known, first.get(fragment, 0) + 1)
                            if one != expected), first.get(fragment, 0) + len(known) + 1)
            raise Unknown(f"no merge tells of version {missing} of fragment {fragment}")


@check(needs={"fragments"}, unverified="judged")
def replica_consistency(history: History) -> Finding:
    """Digests that the receivers computed equal the syncer's, per fragment and version; versions never go back. What
    the syncer keeps beside a version's value is the same after it was started again."""
    known: dict[tuple[int, int], str] = {}
    states: dict[tuple[int, int], str | None] = {}
    wrong: list[str] = []
    newest: dict[int, int] = defaultdict(int)
    for event in history.tape.of("initial", "resumed", "merge", node=SYNCER):
        for fragment, version, digest, state in _told_of(event):
            if known.setdefault((fragment, version), digest) != digest:
                wrong.append(f"fragment {fragment} version {version} has two contents")
            elif states.setdefault((fragment, version), state) != state:
                wrong.append(f"fragment {fragment} version {version} has two states: its momentum, what rounding has "
                             f"cost or its counts are not those from before")
            if version < newest[fragment]:
                wrong.append(f"fragment {fragment} went back from version {newest[fragment]} to {version}")
            newest[fragment] = max(newest[fragment], version)
    received = [event for event in history.tape.of("received") if event.t <= history.end]
    need(received and known, "nothing was received, or the syncer recorded no version")
    held: dict[tuple[Node, int], int] = {}
    for event in received:
        place = (event["fragment"], event["version"])
        node = (event.node, event.incarnation)
        if place not in known:
            raise Unknown(f"fragment {place[0]} version {place[1]} is not on the syncer's tape")
        if known[place] != event["digest"]:
            wrong.append(f"{event.node}.{event.incarnation} applied other bytes for fragment {place[0]} "
                         f"version {place[1]} at {event.t:.2f} s")
        if place[1] < held.get((node, place[0]), -1):
            wrong.append(f"{event.node}.{event.incarnation} went back to version {place[1]} of fragment {place[0]}")
        held[node, place[0]] = place[1]
    wrong += _older_than_promised(history, received)
    return Finding(not wrong, f"{len(wrong)} of {len(received)} receipts differ", "0", wrong[:5],
                   figures=violations(wrong))


def _told_of(event: Event) -> list[tuple[int, int, str, str | None]]:
    """Of which fragments the syncer tells: version, digest of the value, and of all that is kept of it."""
    if event.event == "merge":
        return [(event["fragment"], event["version"], event["digest"], event.fields.get("state"))]
    versions, digests = event["versions"], event["digests"]
    states = event.fields.get("states", [None] * len(versions))
    return list(zip(range(len(versions)), versions, digests, states, strict=True))


def _older_than_promised(history: History, received: Sequence[Event]) -> list[str]:
    """What new processes received first, where it is older than what the syncer had when they came."""
    forged = {target for planned in history.plan.faults if isinstance(planned.fault, Impersonation)
              for target in planned.fault.targets}
    promised = {(hello["learner"], hello["incarnation"]): hello["versions"]
                for hello in reversed(history.tape.of("hello", node=SYNCER))
                if hello.fields.get("fresh") and hello["learner"] not in forged}
    wrong, begun = [], set[tuple[Node, int]]()
    for event in received:
        node, fragment = (event.node, event.incarnation), event["fragment"]
        if node in promised and (node, fragment) not in begun:
            begun.add((node, fragment))
            if event["version"] < promised[node][fragment]:
                wrong.append(f"{event.node}.{event.incarnation} began with version {event['version']} of fragment "
                             f"{fragment}, and {promised[node][fragment]} was there when it came")
    return wrong


@check(needs={"fragments"}, unverified="judged")
def weights_correct(history: History) -> Finding:
    """Counters rebuilt from the learner's own step and received events give the weight that the syncer used; what was
    merged is what the learner says it sent, with the outer step that the plan has at that count of tokens."""
    need(history.merges, "there are no merges")
    counters = _Counters(history)
    wrong: list[str] = []
    count = 0
    unseen: Counter[str] = Counter()
    rules = rules_of(history)
    for merge in history.merges:
        if wrong_step := _outer_step(rules, merge):
            wrong.append(wrong_step)
        for part in merge["contributions"]:
            if (found := counters.at(part, merge["round"], merge["fragment"])) is None:
                unseen[f"{part['learner']}.{part['incarnation']}"] += 1
                continue
            sent, steps, tokens = found
            weight = tokens * (tokens / steps) if steps else 0.0
            count += 1
            if sent != _MERGED(part):
                wrong.append(f"fragment {merge['fragment']} version {merge['version']}: what was merged from "
                             f"{part['learner']} is not what it sent in round {merge['round']}")
            elif (steps, tokens) != (part["steps"], part["tokens"]) or not abs(
                    weight - part["weight"]) <= 1e-6 * weight:
                wrong.append(f"fragment {merge['fragment']} version {merge['version']}: {part['learner']} weighed "
                             f"{part['weight']:.0f} for {part['steps']} steps; its tape gives {weight:.0f} for {steps}")
    words = [f"{number} of {who} can't be judged: its machine was lost before it had told them"
             for who, number in unseen.items()]
    return Finding(not wrong, f"{len(wrong)} of {count} weights differ", "0", (wrong or words)[:5],
                   figures=violations(wrong))


def _outer_step(rules: FragmentRules, merge: Event) -> str:
    """What is wrong with the rate and the momentum of a merge; empty where nothing is, or nothing was told of them."""
    told = merge.fields.get("outer")
    planned = rules.outer_step(merge["processed"])
    return "" if told is None or all(map(isclose, planned, told)) else (
        f"fragment {merge['fragment']} version {merge['version']}: its outer rate and momentum were "
        f"{', '.join(map(str, told))}; the plan has {', '.join(map(str, planned))} there")


def _answers(events: list[tuple[int, Event]], carry: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """To which round a process answered about one fragment, which of its events tells so, and the step before the
    first that it counts in. `events`: about this fragment, each with its number among all."""
    receipts = {id(receipt): (answer, broken)
                for receipt, answer, broken in closing_intervals([event for _, event in events])}
    closed: int | None = None
    for number, event in events:
        if event.event == "received":
            answer, broken = receipts[id(event)]
            step = event["step"]
            closed = step - (step - answer["step"] if carry and answer is not None and not broken else 0)
        elif event.event == "reset":
            closed = None
        elif event.event == "outer_gradient" and closed is not None:
            yield event["round"], {"number": number, "closed": closed}


class _Answers:
    """What one process sent of one fragment. A long run has hundreds of thousands of answers, so they are packed."""

    def __init__(self, events: Sequence[Event], answers: Iterable[tuple[int, dict[str, Any]]]) -> None:
        """`events`: all of the process; `answers`: see `_answers`."""
        rounds, fields = zip(*answers, strict=True)
        self._events, self._columns = events, packed(fields)
        self._rows = dict(zip(rounds, range(len(rounds)), strict=True))

    def to(self, round_: int) -> tuple[Event, int] | None:
        """The newest answer to a round, and the step before the first that it counts in."""
        row = self._rows.get(round_)
        return None if row is None else (self._events[self._columns["number"][row]], self._columns["closed"][row])


class _Counters:
    """c_steps and c_tokens of every answer, from the learners' tapes alone."""

    def __init__(self, history: History) -> None:
        self._counted, self._ends, self._untold = history.counted, history.tape.ends, history.untold
        self._answers: dict[tuple[Node, int], _Answers] = {}
        carry = rules_of(history).carries
        fragments = len(history.plan.cluster.fragment_table())
        told = history.tape.by_process("outer_gradient", "received", "disconnected", "reset")
        for node, events in told.items():
            streams: dict[int, list[tuple[int, Event]]] = defaultdict(list)
            for number, (event, of) in enumerate(zip(events, values(events, "fragment", _ALL), strict=True)):
                for fragment in range(fragments) if of is _ALL else (of,):
                    streams[fragment].append((number, event))
            for fragment, stream in streams.items():
                if answers := list(_answers(stream, carry)):
                    self._answers[node, fragment] = _Answers(events, answers)

    def at(self, part: Mapping[str, Any], round_: int, fragment: int) -> tuple[Sent, int, int] | None:
        """What the learner says it sent for this contribution, and its (steps, tokens) rebuilt; nothing where its tape
        is whole and has no such answer. None: that was lost with its machine.

        Raises:
            Unknown: the learner's tape ends before it.
        """
        learner, incarnation, arrived = part["learner"], part["incarnation"], part["arrived"]
        node = (learner, incarnation)
        answer = self._answers[node, fragment].to(round_) if (node, fragment) in self._answers else None
        if answer is None:
            if (gone := self._untold.get(node)) is not None and gone.since <= arrived <= gone.until:
                return None
            need(self._ends.get(node, -inf) >= arrived,
                 f"the tape of {learner}.{incarnation} lacks its answer to round {round_}")
            return ("", -1, -1, -1), 0, 0  # it goes on behind that moment: it never answered
        event, closed = answer
        sent = _SENT(event.fields)
        steps, tokens = self._counted.get(node, ([], [0]))
        first, last = bisect_right(steps, closed), bisect_right(steps, sent[-1])
        return sent, max(0, last - first), tokens[last] - tokens[first] if last > first else 0
