"""Did the algorithm keep its promises? These hold in every run, whatever was broken."""

from __future__ import annotations

from collections import defaultdict

from diloco_chaos.chaos.checks.base import (
    PROMISE,
    Figure,
    Finding,
    Unknown,
    at_most,
    check,
    need,
    rules_of,
    violations,
)
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.model import COORDINATOR
from diloco_chaos.harness.base.lines import Line, line
from diloco_chaos.harness.base.tensors import np
from diloco_chaos.harness.record.tape.events import (
    Continued,
    Hello,
    Initial,
    Merge,
    Resumed,
    Spawn,
)
from diloco_chaos.harness.record.tape.recovered import Made


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
