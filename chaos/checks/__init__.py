"""All checks, and the judgement that they add up to."""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping
from functools import partial

from pydantic import BaseModel, ConfigDict

from diloco_chaos.chaos.checks.base import Bound, Doubt, Finding, Reason, Unknown, Verdict
from diloco_chaos.chaos.checks.preconditions import doubt, ended_early
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.interference import RUN_DELAY, describe, interference, seconds_within
from diloco_chaos.chaos.registry import CHECKS, Check
from diloco_chaos.harness.base.lines import Line, line, text
from diloco_chaos.harness.record.tape.events import End

_AGAIN = "run it again when less else is going on; --retries-inconclusive 2 does so by itself"
_WHOLE = "an event log that is not whole: repeat the run, or copy its folder again"


class Judgement(BaseModel):
    """All verdicts of a run."""

    model_config = ConfigDict(frozen=True)

    checks: list[Verdict]
    why: Line = ()
    """Why the run as a whole proves nothing, where it does not."""
    change: str = ""
    """The one thing to change for it to prove something the next time; empty where that is not known, and where it
    does."""
    gaps: list[str] = []
    """Where the event log is incomplete: everything was judged up to there."""
    out_of_reach: dict[str, list[str]] = {}
    """Evidence that this trainer's event log lacks, as what would bring it -> the checks that need it."""

    @property
    def inconclusive(self) -> str:
        """Return why the run as a whole proves nothing, as text, with moments in seconds since the run began."""
        return text(self.why)

    @property
    def exit_code(self) -> int:
        """0 all passed, 1 a check failed, 3 inconclusive."""
        verdicts = {verdict.verdict for verdict in self.checks}
        if "failed" in verdicts:
            return 1
        return 3 if "unknown" in verdicts or self.why or not self.checks else 0


def judge(history: History, checks: Mapping[str, Check] | None = None) -> Judgement:
    """Run every check that the plan has a use for: all of ours, and those of other packages that it names.

    Args:
        history: the recorded run.
        checks: to choose from; all that there are if not given.
    """
    used = applicable(history, CHECKS if checks is None else checks)
    verdicts = [verdict for check in used.values() if (verdict := _one(check, history)) is not None]
    unsound, early, gaps = _soundness(history)
    observed = next((verdict for verdict in verdicts if verdict.name == "faults_verified"), None)
    unverified = "a fault had no measurable effect" if observed is not None and observed.verdict == "unknown" else ""
    incomplete = "the event log is incomplete" if gaps else ""
    final = []
    for verdict in map(partial(_without_bound, history), verdicts):
        check, holds = used[verdict.name], verdict.verdict == "passed"
        doubts: list[tuple[Reason, str]] = [
            ("unsound", unsound.why if "sound run" in check.needs else ""),
            ("early", early.why if holds and "sound run" in check.needs else ""),
            ("unverified_fault", unverified if holds and check.unverified == "unknown" else ""),
            ("incomplete", incomplete if holds or check.cumulative else "")]
        reason, why = next(((reason, why) for reason, why in doubts if why), (None, ""))
        kept = not reason or verdict.verdict == "unknown" or history.plan.checks.cannot_fail(verdict.name)
        final.append(verdict if kept else verdict.model_copy(update={
            "verdict": "unknown", "reason": reason,
            "lines": [line(f"{why}; it would have {verdict.verdict}"), *verdict.lines]}))
    excused = next((verdict.lines[0] for verdict in final if verdict.reason == "excused"), ())
    changes = [_WHOLE if gaps else "", unsound.change]
    if not unsound:  # what else the checks lack may follow from that alone
        changes += [_AGAIN if excused else "", early.change, *(verdict.change for verdict in final)]
    return Judgement(checks=final, gaps=gaps, why=line(unsound.why or early.why or excused or incomplete),
                     change=next(filter(None, changes), ""),
                     out_of_reach=_out_of_reach(history, CHECKS if checks is None else checks))


def _without_bound(history: History, verdict: Verdict) -> Verdict:
    """A check whose bound holds whatever is measured passes, also where nothing could be."""
    if verdict.verdict != "unknown" or verdict.reason == "crashed" or not history.plan.checks.cannot_fail(verdict.name):
        return verdict
    return verdict.model_copy(update={"verdict": "passed", "reason": None, "change": ""})


def applicable(history: History, checks: Mapping[str, Check]) -> dict[str, Check]:
    """Return those of these checks that the plan has a use for."""
    evidence = history.plan.trainer.evidence
    named, foreign, off = history.plan.checks.foreign, CHECKS.foreign(), history.plan.checks.switched_off
    return {name: check for name, check in checks.items()
            if check.needs - {"sound run"} <= evidence and (name not in foreign or name in named) and name not in off}


def _out_of_reach(history: History, checks: Mapping[str, Check]) -> dict[str, list[str]]:
    wanting = history.plan.trainer.evidence_wanting
    by_reason = {words: [name for name, check in checks.items() if evidence in check.needs]
                 for evidence, words in wanting.items()}
    return {words: names for words, names in by_reason.items() if names}


def _soundness(history: History) -> tuple[Doubt, Doubt, list[str]]:
    """Return why the run as a whole proves nothing, why it proves nothing of what holds, and where its event log has
    gaps."""
    try:
        return doubt(history, stands_still=_stands_still(history)), ended_early(history), history.log_gaps
    except (KeyError, TypeError, IndexError) as error:  # an event of the harness lacks a field
        return Doubt(f"the harness' own tape can't be understood: {type(error).__name__} {error}"), Doubt(), []


def _stands_still(history: History) -> bool:
    """Return whether merges had stopped when the deadline passed, for longer than they may, and the machine is not why.
    What comes after the deadline, stacks and the end of every node, is the harness' doing."""
    ends = history.tape.of(End, node="harness")
    if not ends or ends[-1].outcome != "deadline" or history.outages:
        return False
    passed = min(history.plan.deadline, history.end)
    return any(_lasts_until(history, passed, name) for name in ("no_global_stall", "resumed"))


def _lasts_until(history: History, passed: float, name: str) -> bool:
    """Return whether a check finds that something took too long until the deadline, and nothing came for so long."""
    if history.plan.checks.bound(name) is None:
        return False
    try:
        finding = CHECKS[name](history)
    except Unknown:
        return False
    if finding is None:
        return False
    last = [window for window in finding.late if window.end >= passed and passed - window.start > window.allowed
            and not history.merges_between(passed - window.allowed, passed)]
    return bool(last) and not _excuse(history, finding._replace(late=last))


def _one(check: Check, history: History) -> Verdict | None:
    name = check.name
    try:
        finding = check(history)
    except Unknown as unknown:
        return Verdict(name=name, verdict="unknown", reason="no_evidence", measured="not known", lines=[unknown.line],
                       change=unknown.change)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"
        return Verdict(name=name, verdict="unknown", reason="crashed", measured="the check crashed",
                       lines=[line(f"{why}; please report it with this run's folder")])
    if finding is None:
        return None
    excuses: list[tuple[Reason, Line]] = [] if finding.holds else [
        ("excused", _excuse(history, finding)), ("clocks", _within_clocks(history, finding))]
    reason, excuse = next(((reason, why) for reason, why in excuses if why), (None, ()))
    return Verdict(name=name, verdict="passed" if finding.holds else "unknown" if reason else "failed", reason=reason,
                   measured=finding.measured,
                   allowed=finding.bound if isinstance(finding.bound, Bound) else Bound(str(finding.bound)),
                   lines=[*filter(None, [excuse]), *map(line, finding.evidence)],
                   windows=[] if finding.holds else _windows(finding), figures=list(finding.figures))


def _windows(finding: Finding) -> list[tuple[float, float]]:
    """Return when the check does not hold: (start, end) in seconds, in the order of the finding."""
    return [(window.start, window.end) for window in finding.late if window.end - window.start > window.allowed]


def _within_clocks(history: History, finding: Finding) -> Line:
    """Say so where the finding is beyond its limit by less than the clocks of different machines are known to; else
    return an empty line."""
    beyond = [window.end - window.start - window.allowed for window in finding.late] or [
        figure.value - figure.limit if figure.value is not None else math.inf
        for figure in finding.figures if figure.unit == "s" and figure.best < figure.limit]
    if not beyond or not max(beyond) <= history.clocks.apart or not history.clocks.apart:
        return ()
    return line(f"it is too much by less than the clocks of these machines are known to: {history.clocks.words()}")


def _excuse(history: History, finding: Finding) -> Line:
    """Say what else the machine did while the finding did not hold, if it might have held without that time; else
    return an empty line."""
    late = [window for window in finding.late if window.end - window.start > window.allowed]
    interferences = interference(history) if late else []
    if not late or any(window.end - window.start - seconds_within(interferences, window.start, window.end)
                       > window.allowed for window in late):
        return ()
    start, end, _ = late[0]
    waited = any(each.why == RUN_DELAY and each.within(start, end) for each in interferences)
    others = "" if waited else "this machine had other things to do, "
    return line(f"{others}{describe(interferences, start, end)} between ", start, " and ", end)
