"""Faults of links, from the probes that went through them, and from what came through meanwhile."""

from __future__ import annotations

from itertools import pairwise

from chaos.evidence.history import History, Span
from chaos.scenario.model import SYNCER
from faults import LinkFault, Partition
from harness.units import show_seconds

_SILENT = 0.9
"""Share of a partition in which nothing may have come through."""


def probed(history: History, span: Span) -> tuple[bool, str]:
    """What the probes measured, in the toxic's own unit."""
    fault = span.planned.fault
    assert isinstance(fault, LinkFault), "registered for faults of links"
    value = span.observed.get(fault.measures)
    if value is None:
        return False, "no probe noticed it"
    words = _value(fault.measures, float(value))
    if fault.measures == "delay_s":
        words += " each way" if len(fault.streams) == 2 else " one way"
        rate = span.observed.get("rate_bytes_per_s")
        words += f", {float(rate) / 1e6:.1f} MB/s" if rate else ""
    if "hit" in span.observed:
        words += f" on {span.observed['hit']} connections"
    return bool(span.observed.get("ok")), words


def cut(history: History, span: Span) -> tuple[bool, str]:
    """How long nothing came through: from the loss of the connection to the next hello; one way: from one contribution
    to the next."""
    fault, start = span.planned.fault, span.injected or 0.0
    assert isinstance(fault, Partition), "registered for partitions"
    if not span.observed.get("ok"):
        return False, "a probe got through" if "ok" in span.observed else "no probe was made"
    silent = []
    for target in fault.affected_nodes(history.plan.cluster.names):
        if fault.direction != "both":
            silent.append(_between_contributions(history, target, start, span.ended or history.end))
            continue
        lost = next((event.t for event in history.tape.of("lost", node=SYNCER)
                     if event["learner"] == target and event.t > start - 0.1), None)
        if lost is None:
            return False, f"the syncer never lost {target}"
        back = next((event.t for event in history.tape.of("hello", node=SYNCER)
                     if event["learner"] == target and event.t > lost), history.end)
        silent.append(back - lost)
    return min(silent) >= _SILENT * (fault.duration or 0), f"nothing came through for {show_seconds(min(silent))}"


def silenced(history: History, span: Span) -> tuple[bool, str]:
    """How long nothing of a node that was off the network was merged."""
    fault = span.planned.fault
    silent = [_between_contributions(history, target, span.injected or 0.0, span.ended or history.end)
              for target in fault.affected_nodes(history.plan.cluster.names)]
    return min(silent) >= _SILENT * (fault.duration or 0), f"nothing came through for {show_seconds(min(silent))}"


def _between_contributions(history: History, learner: str, start: float, end: float) -> float:
    """The longest time without a contribution that has a part in this span."""
    times = [merge.t for merge in history.merges if any(part["learner"] == learner for part in merge["contributions"])]
    gaps = [later - earlier for earlier, later in pairwise([0.0, *times, history.end])
            if earlier < end and later > start]
    return max(gaps, default=0.0)


def _value(measure: str, value: float) -> str:
    if measure == "rate_bytes_per_s":
        return f"{value / 1e6:.2f} MB/s"
    if measure == "bytes":
        return f"{value:.0f} bytes came back"
    names = {"delay_s": "", "close_s": "closed after ", "silent_s": "no answer in ", "reset_s": "broken after ",
             "pause_s": "a piece every "}
    return names[measure] + (f"{value * 1e3:.1f} ms" if value < 0.0995 else show_seconds(value))
