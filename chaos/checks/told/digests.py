"""Do the members of a round have the same weights after it? For trainers whose workers tell a digest of theirs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from diloco_chaos.chaos.checks.base import Finding, Unknown, check, violations
from diloco_chaos.chaos.evidence.accounting.remade import ToldRound
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.bounds import DigestsAgree
from diloco_chaos.harness.base.lines import Line, line

_SHOWN = 3


@check(DigestsAgree, needs={"rounds"}, unverified="judged")
def digests_agree(history: History, bound: DigestsAgree) -> Finding | None:
    """All members of a round tell one digest of their weights after it. What a process told last before it was gone
    counts for nothing: the others may have made that round without it."""
    compared = _compared(history.told_rounds) if history.plan.cluster.blocking else []
    if not compared:
        if "digests_agree" in history.plan.checks.model_fields_set:
            raise Unknown("no two workers told a digest of one round, which they finish together (`shared: true`)",
                          r"a group `(?P<digest>\S+)` in the log's expression")
        return None
    differ = [members for members in compared if len(_digests(members)) > 1]
    evidence = list(map(_apart, differ[:_SHOWN]))
    if len(differ) == len(compared):
        evidence.append(line("they differ in every round: tell a digest of what all members have in common, and of no "
                             "shard of it"))
    return Finding(not differ, f"{len(differ)} of {len(compared)} rounds differ"
                   + (f", from round {differ[0][0].round} on" if differ else ""), "0", evidence,
                   figures=violations(differ))


def _compared(told: Iterable[ToldRound]) -> list[list[ToldRound]]:
    """Return the rounds of which more than one digest may have been told, with those who told them."""
    told = [each for each in told if not each.void and each.digests]
    newest = max((each.round for each in told), default=0)
    last = {each.process: each for each in told}
    rounds: dict[int, list[ToldRound]] = {}
    for each in told:
        if each is not last[each.process] or each.round == newest:
            rounds.setdefault(each.round, []).append(each)
    return [members for _, members in sorted(rounds.items())
            if len({each.worker for each in members}) > 1 or any(len(each.steps) > 1 for each in members)]


def _digests(members: Sequence[ToldRound]) -> Counter[str]:
    return Counter(digest for each in members for digest in each.digests)


def _apart(members: Sequence[ToldRound]) -> Line:
    """Say who told another digest than most."""
    usual = _digests(members).most_common(1)[0][0]
    other = next(each for each in members if each.digests != [usual])
    most = next((each for each in members if each is not other and usual in each.digests), other)
    return line(f"round {other.round}: {most.process} told the digest {usual} at ", most.t,
                f", and {other.process} told {' and '.join(digest for digest in other.digests if digest != usual)} at ",
                other.t)
