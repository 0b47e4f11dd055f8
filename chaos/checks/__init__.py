"""All checks, and the judgement that they add up to."""

from __future__ import annotations

import traceback

from pydantic import BaseModel, ConfigDict

from chaos.checks.base import Check, Finding, Unknown, Verdict
from chaos.checks.liveness import (
    blast_radius,
    no_global_stall,
    participation,
    reintegration,
    self_healing,
    uptime,
)
from chaos.checks.outcome import all_undone, faults_verified, goodput, loss_parity
from chaos.checks.preconditions import doubt
from chaos.checks.protocol import (
    exactly_once,
    quorum_respected,
    replica_consistency,
    staleness_bounded,
    weights_correct,
)
from chaos.evidence.history import History
from chaos.evidence.interference import describe, interference, seconds_within
from harness.trainer.config.cluster_config import SYNCHRONOUS

CHECKS: dict[str, Check] = {check.__name__: check for check in (
    no_global_stall, self_healing, reintegration, participation, blast_radius, uptime, goodput, loss_parity,
    exactly_once, replica_consistency, weights_correct, quorum_respected, staleness_bounded, faults_verified,
    all_undone)}

ALWAYS = {check.__name__ for check in (
    exactly_once, replica_consistency, weights_correct, quorum_respected, staleness_bounded, faults_verified,
    all_undone)}
"""Checks that mean the same whether or not a fault was observed and the machine kept its pace."""


OF_FRAGMENTS = {check.__name__ for check in (
    replica_consistency, weights_correct, quorum_respected, staleness_bounded)}
"""Checks of what Decoupled DiLoCo promises, which modes that average gradients don't have."""

CUMULATIVE = {"goodput"}
"""Checks that count what was merged later: a cut takes that away, so they can't even fail."""

EXCUSED = "this machine had other things to do"
"""Marks a verdict that is unknown because others were in the way where it would have failed."""

DOUBTED = "it would have"
"""Marks a verdict that is unknown only because something else makes it doubtful."""


class Judgement(BaseModel):
    """All verdicts of a run."""

    model_config = ConfigDict(frozen=True)

    checks: list[Verdict]
    inconclusive: str = ""
    """Why the run as a whole proves nothing, where it does not."""
    gaps: list[str] = []
    """Where the event log is incomplete: everything was judged up to there."""

    @property
    def exit_code(self) -> int:
        """0 all passed, 1 a check failed, 3 inconclusive."""
        verdicts = {verdict.verdict for verdict in self.checks}
        if "failed" in verdicts:
            return 1
        return 3 if "unknown" in verdicts or self.inconclusive or not self.checks else 0


def judge(history: History) -> Judgement:
    """Run every check that the plan has a use for."""
    mute = OF_FRAGMENTS if history.plan.cluster.mode in SYNCHRONOUS else set[str]()
    verdicts = [verdict for name, check in CHECKS.items()
                if name not in mute and (verdict := _one(name, check, history)) is not None]
    reason, gaps = _soundness(history)
    observed = next((verdict for verdict in verdicts if verdict.name == "faults_verified"), None)
    unverified = "a fault had no measurable effect" if observed is not None and observed.verdict != "passed" else ""
    incomplete = "the event log is incomplete" if gaps else ""
    final = []
    for verdict in verdicts:
        why = incomplete if verdict.verdict == "passed" or verdict.name in CUMULATIVE else ""
        if verdict.name not in ALWAYS:
            why = reason or (unverified if verdict.verdict == "passed" else "") or why
        final.append(verdict if not why or verdict.verdict == "unknown" else verdict.model_copy(
            update={"verdict": "unknown", "evidence": [f"{why}; {DOUBTED} {verdict.verdict}", *verdict.evidence]}))
    excused = next((line for verdict in final for line in verdict.evidence[:1] if line.startswith(EXCUSED)), "")
    return Judgement(checks=final, inconclusive=reason or excused, gaps=gaps)


def _soundness(history: History) -> tuple[str, list[str]]:
    """Why the run as a whole proves nothing, and where its event log is incomplete."""
    try:
        return doubt(history), history.log_gaps
    except (KeyError, TypeError, IndexError) as error:  # an event of the harness lacks a field
        return f"the harness' own tape can't be understood: {type(error).__name__} {error}", []


def _one(name: str, check: Check, history: History) -> Verdict | None:
    try:
        finding = check(history)
    except Unknown as unknown:
        return Verdict(name=name, verdict="unknown", measured="not known", bound="", evidence=[str(unknown)])
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        why = f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"
        return Verdict(name=name, verdict="unknown", measured="the check crashed", bound="",
                       evidence=[f"{why}; please report it with this run's folder"])
    if finding is None:
        return None
    excuse = [] if finding.holds else _excuse(history, finding)
    return Verdict(name=name, verdict="passed" if finding.holds else "unknown" if excuse else "failed",
                   measured=finding.measured, bound=finding.bound, evidence=[*excuse, *finding.evidence])


def _excuse(history: History, finding: Finding) -> list[str]:
    """What else went on on the machine wherever the finding does not hold, if without that time it might have."""
    late = [one for one in finding.late if one.end - one.start > one.allowed]
    found = interference(history) if late else []
    if not late or any(one.end - one.start - seconds_within(found, one.start, one.end) > one.allowed for one in late):
        return []
    start, end, _ = late[0]
    return [f"{EXCUSED}, {describe(found, start, end)} between {start:.1f} s and {end:.1f} s"]
