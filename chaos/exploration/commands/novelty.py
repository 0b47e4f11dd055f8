"""What a run of commands brought about, in words that are the same for runs alike: kinds of log lines, exits, files,
and how far recoveries came. A schedule that brings a new one is worth changing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.phases import recoveries
from diloco_chaos.chaos.exploration.commands.lines import kind_of
from diloco_chaos.chaos.exploration.coverage import family
from diloco_chaos.harness.record.tape.events import Exit
from diloco_chaos.harness.trainers.core.programs import ends

_OURS = frozenset({"logs", "progress", "tape", "references", "plan.json", "manifest.json", "report.json", "report.html",
                   "cluster.json", "links.address", "links"})
"""What the harness has in a run's folder."""


def role(target: str) -> str:
    """Return the kind of node that a target is, or the kinds at a link's ends: those that are alike are one."""
    return ".".join(name.rstrip("0123456789").rstrip("-") for name in ends(target))


def traces(history: History, run: Path, lines: Mapping[str, Sequence[str]]) -> set[str]:
    """Return what the run brought about. `lines`: kinds of lines of each node."""
    return {*(line_trace(node, kind) for node, kinds in lines.items() for kind in kinds), *_exits(history),
            *_files(run), *_phases(history)}


def line_trace(node: str, kind: str) -> str:
    """Return the words for a line of this kind at such a node."""
    return f"{role(node)} says {kind}"


def _exits(history: History) -> Iterator[str]:
    for event in history.tape.of(Exit, node="harness"):
        yield f"{role(event.target)} exits with {event.status}"


def _files(run: Path) -> Iterator[str]:
    for path in run.rglob("*"):
        parts = path.relative_to(run).parts
        if parts[0] not in _OURS:
            yield f"file {kind_of('/'.join(parts))}"


def _phases(history: History) -> Iterator[str]:
    """Yield how far the recovery of each target came, and in which phase of one another fault came."""
    for recovery in history.once(recoveries):
        first = recovery.span.planned.fault
        for phase in recovery.phases:
            how = "is over" if phase.t is not None else phase.ending
            yield f"{family(first.kind)} of {role(recovery.target)}: {phase.name} {how}"
        for span in history.spans:
            if span.injected is None or span.id == recovery.span.id or span.injected < recovery.span.began:
                continue
            past = [phase.name for phase, t, _ in recovery.passed if t <= span.injected]
            if len(past) < len(recovery.passed):  # that recovery was not over yet
                yield f"{family(span.planned.fault.kind)} after {past[-1] if past else 'begun'}"
