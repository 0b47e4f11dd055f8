"""What a fault was meant to do beside what was felt of it, for every kind of fault."""

from __future__ import annotations

from typing import NamedTuple

from chaos.history import History, Span
from chaos.scenario import SYNCER
from faults import Kill, Latency, Partition, Straggler
from harness.units import show_seconds

_FACTOR_SLACK = 0.12
"""A duty cycle of a second and steps of tens of milliseconds round a straggler's speed by about so much."""
_PARTIAL_WITHIN_S = 2.0
_LAST_WORDS_S = 0.2


class FeltResult(NamedTuple):
    """Requested and felt, side by side."""

    ok: bool
    requested: str
    felt: str


def measure(history: History, span: Span) -> FeltResult:
    """What one fault felt like, from the tape."""
    fault = span.planned.fault
    if span.injected is None:
        return FeltResult(False, fault.words(), f"never came: {fault.trigger_words()}")
    if not span.felt:
        return FeltResult(False, fault.words(), "the injection was not recorded to its end")
    match fault:
        case Kill():
            return _kill(history, span, fault)
        case Straggler():
            return _straggler(history, span, fault)
        case Latency():
            if "delay_s" not in span.felt:
                return FeltResult(False, fault.words(), f"no probe got through: {span.felt.get('error', '')}")
            rate = span.felt.get("rate_bytes_per_s")
            felt = f"{float(span.felt['delay_s']) * 1e3:.0f} ms each way" + (f", {rate / 1e6:.1f} MB/s" if rate else "")
            return FeltResult(bool(span.felt["ok"]), fault.words(), felt)
        case Partition():
            return _partition(history, span)
        case _:
            return FeltResult(bool(span.felt.get("ok")), fault.words(), "")


def _kill(history: History, span: Span, fault: Kill) -> FeltResult:
    felt = f"exit status {span.felt.get('exit_status')}"
    for target in fault.targets:
        if (ghost := _ghost(history, target, span.injected or 0.0)) is not None:
            return FeltResult(False, fault.words(), f"{felt}, but {target}.{ghost} went on recording")
    if not span.felt.get("ok") or fault.when is None or fault.when.hold != "upload.half":
        return FeltResult(bool(span.felt.get("ok")), fault.words(), felt)
    start = span.injected or 0.0
    partial = next((event for event in history.tape.of("partial_frame", node=SYNCER)
                    if event["peer"] in fault.targets and abs(event.t - start) < _PARTIAL_WITHIN_S), None)
    if partial is None or not 0 < partial["bytes"] < partial["expected"]:
        return FeltResult(False, fault.words(), f"{felt}, but the syncer saw no part of a frame")
    return FeltResult(True, fault.words(), f"{felt}; {partial['bytes']} of {partial['expected']} bytes arrived")


def _ghost(history: History, target: str, killed: float) -> int | None:
    """The incarnation that was killed, where it recorded anything more than a moment later."""
    exits = [event for event in history.tape.of("exit", node="harness") if event["target"] == target
             and event.fields.get("killed") and abs(event.t - killed) < _PARTIAL_WITHIN_S]
    return next((event["incarnation"] for event in exits for later in history.tape.events
                 if (later.node, later.incarnation) == (target, event["incarnation"])
                 and later.t > event.t + _LAST_WORDS_S), None)


def _straggler(history: History, span: Span, fault: Straggler) -> FeltResult:
    start, end = span.injected or 0.0, min(span.ended if span.ended is not None else history.end, history.end)
    if not history.step_time or end <= start:
        return FeltResult(False, fault.words(), "no nominal pace, or no time, to measure it against")
    rates = [history.steps_between(target, start, end) * history.step_time / (end - start) for target in fault.targets]
    near = all(abs(rate - fault.factor) <= _FACTOR_SLACK and 0 < rate < (1 + fault.factor) / 2 for rate in rates)
    return FeltResult(near, fault.words(),
                      ", ".join(f"{rate:.0%} of nominal speed" for rate in rates))


def _partition(history: History, span: Span) -> FeltResult:
    fault, start = span.planned.fault, span.injected or 0.0
    silent: list[float] = []
    for target in fault.targets:
        lost = next((event.t for event in history.tape.of("lost", node=SYNCER)
                     if event["learner"] == target and event.t > start - 0.1), None)
        if lost is None:
            return FeltResult(False, fault.words(), f"the syncer never lost {target}")
        back = next((event.t for event in history.tape.of("hello", node=SYNCER)
                     if event["learner"] == target and event.t > lost), history.end)
        silent.append(back - lost)
    ok = bool(span.felt.get("ok")) and min(silent) >= 0.9 * (fault.duration or 0)
    return FeltResult(ok, fault.words(), f"nothing came through for {show_seconds(min(silent))}")
