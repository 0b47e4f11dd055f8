"""A run for people's own dashboards: its numbers as a Prometheus text file, its faults and checks as OpenTelemetry
spans. What this needs comes with `diloco-chaos[otel]`."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import UTC, datetime
from random import Random
from typing import Any

from diloco_chaos.chaos.report.costs import SHOWN, CostTold, figures
from diloco_chaos.chaos.report.model import ReportModel, costs_of, phases_of
from diloco_chaos.harness.base.extras import require

_NAME = "diloco_chaos"


def report_prometheus(model: ReportModel) -> str:
    """Return the report in the exposition format, for the textfile collector of a node exporter.

    Raises:
        MissingExtraError: prometheus-client is not installed.
    """
    require("prometheus_client", "otel", "--format prometheus")
    from prometheus_client import CollectorRegistry, Gauge, generate_latest
    registry = CollectorRegistry()
    run = {"scenario": model.scenario, "seed": str(model.seed), "plan": model.plan[:12]}

    def gauge(name: str, words: str, rows: list[tuple[dict[str, str], float | None]]) -> None:
        known = [(labels, value) for labels, value in rows if value is not None]
        if known:
            made = Gauge(f"{_NAME}_{name}", words, [*run, *known[0][0]], registry=registry)
            for labels, value in known:
                made.labels(**run, **labels).set(value)
    gauge("verdict", "1 for what came of the run.", [({"verdict": model.verdict}, 1.0)])
    gauge("run_seconds", "From its start to its end.", [({}, model.took)])
    gauge("check", "1 for what came of a check.", [({"check": check.name, "verdict": check.verdict}, 1.0)
                                                    for check in model.checks])
    figures = [({"check": check.name, "of": figure.of, "unit": figure.unit}, figure)
               for check in model.checks for figure in check.figures]
    gauge("check_value", "What a check measured.", [(labels, figure.value) for labels, figure in figures])
    gauge("check_limit", "What it allows.", [(labels, figure.limit) for labels, figure in figures])
    gauge("phase_seconds", "How long a phase of a recovery took.", [
        ({"fault": fault.id, "target": recovery.target, "phase": phase.name}, phase.seconds)
        for fault, recovery, phase in phases_of(model)])
    for name, shown in SHOWN.items():
        gauge(f"fault_{name}", shown.what, [({"fault": fault}, getattr(cost, name)) for fault, cost in costs_of(model)
                                            if fault])
        gauge(name, shown.what, [({}, getattr(cost, name)) for fault, cost in costs_of(model) if not fault])
    gauge("tokens", "Tokens by what became of them.", [({"fate": fate}, float(count))
                                                       for fate, count in model.tokens.items()])
    gauge("bytes", "At the syncer's sockets.", [
        ({"direction": direction, "purpose": purpose}, float(count))
        for direction, way in (("received", model.bytes_received), ("sent", model.bytes_sent))
        for purpose, count in way.items()])
    gauge("loss", "At the end.", [({"curve": curve.name}, curve.points[-1][1]) for curve in model.curves])
    return generate_latest(registry).decode()


def report_otel(model: ReportModel) -> str:
    """One object of OTLP in its JSON form (opentelemetry.io, "OTLP Specification", JSON Protobuf Encoding), as the
    collector's otlpjsonfile receiver reads it: a span for the run, one below it for each fault and for each stall, and
    below a fault one for each phase of a recovery.

    Raises:
        MissingExtraError: the SDK is not installed.
    """
    for package in ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.common.trace_encoder"):
        require(package, "otel", "--format otel")
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "diloco-chaos"}), id_generator=_ids(model),
                              shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    _record(model, provider.get_tracer(_NAME))
    spans = MessageToDict(encode_spans(kept.get_finished_spans()), use_integers_for_enums=True)  # no names, in OTLP
    return json.dumps(_hexadecimal(spans)) + "\n"


def _record(model: ReportModel, tracer: Any) -> None:
    from opentelemetry.trace import Status, StatusCode, set_span_in_context
    began = _epoch(model)

    def at(seconds: float) -> int:
        return int((began + seconds - model.start) * 1e9)
    root = tracer.start_span(model.scenario, start_time=at(model.start), attributes={
        "run": model.run, "seed": model.seed, "plan": model.plan, "verdict": model.verdict, "trainer": model.trainer,
        **_known(model.cost)})
    root.set_status(Status(StatusCode.ERROR if model.verdict == "FAILED" else StatusCode.OK if model.verdict == "PASSED"
                           else StatusCode.UNSET))
    for check in model.checks:
        root.add_event(f"check {check.name}", timestamp=at(model.end), attributes={
            "verdict": check.verdict, "measured": check.measured, "bound": check.bound})
    below = set_span_in_context(root)
    for fault in model.faults:
        if fault.began is not None:
            span = tracer.start_span(f"fault {fault.kind}", context=below, start_time=at(fault.began), attributes={
                "id": fault.id, "requested": fault.requested, "observed": fault.observed, "verified": fault.verified,
                **_known(fault.cost)})
            span.end(at(model.end if fault.ended is None else fault.ended))
            for recovery in fault.recoveries:
                for phase in recovery.phases:
                    tracer.start_span(f"phase {phase.name}", context=set_span_in_context(span),
                                      start_time=at(phase.end - phase.seconds), attributes={
                                          "target": recovery.target, "by": phase.by}).end(at(phase.end))
    for start, end in model.stalls:
        tracer.start_span("stall", context=below, start_time=at(start)).end(at(end))
    root.end(at(model.end))


def _known(cost: CostTold | None) -> dict[str, float]:
    """Return the figures of a cost that are told."""
    return {} if cost is None else {name: value for name, value in figures(cost).items() if value is not None}


def _epoch(model: ReportModel) -> float:
    """Seconds since 1970 when the run began, as its folder tells."""
    try:
        return datetime.fromisoformat(model.environment.get("created", "")).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0


def _ids(model: ReportModel) -> Any:
    """The same run has the same ids, however often it is told."""
    from opentelemetry.sdk.trace.id_generator import IdGenerator
    chance = Random(model.run)

    class Ids(IdGenerator):
        def generate_span_id(self) -> int:
            return chance.getrandbits(64) or 1

        def generate_trace_id(self) -> int:
            return chance.getrandbits(128) or 1
    return Ids()


def _hexadecimal(content: Any) -> Any:
    """Rewrite ids from the base64 of protobuf's JSON to the hexadecimal of OTLP's JSON."""
    if isinstance(content, list):
        return [_hexadecimal(item) for item in content]
    if isinstance(content, dict):
        return {key: b64decode(value).hex() if key in ("traceId", "spanId", "parentSpanId") else _hexadecimal(value)
                for key, value in content.items()}
    return content
