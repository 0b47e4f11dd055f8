"""A run for dashboards: Prometheus' text and OpenTelemetry's spans, read again by their own libraries."""

import base64
import json

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from diloco_chaos.chaos.report.forms.telemetry import report_otel, report_prometheus
from diloco_chaos.chaos.report.model import model_of, phases_of


@pytest.fixture(scope="module")
def model(results):
    return model_of(results[0])


def test_prometheus_reads_every_figure_again(model):
    samples = [sample for family in text_string_to_metric_families(report_prometheus(model))
               for sample in family.samples]
    told = {(sample.labels["check"], sample.labels["of"], sample.labels["unit"]): sample.value
            for sample in samples if sample.name == "diloco_chaos_check_value"}
    assert told == {(check.name, figure.of, figure.unit): figure.value for check in model.checks
                    for figure in check.figures if figure.value is not None}
    verdict = next(sample for sample in samples if sample.name == "diloco_chaos_verdict")
    assert verdict.labels == {"scenario": "mine", "seed": "0", "plan": model.plan[:12], "verdict": "FAILED"}


def _spans(model):
    """As OTLP's own definition reads them; its JSON has ids in hexadecimal."""
    told = json.loads(report_otel(model))
    spans = told["resourceSpans"][0]["scopeSpans"][0]["spans"]
    for span in spans:
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in span:
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    return ParseDict(told, ExportTraceServiceRequest()).resource_spans[0].scope_spans[0].spans


def test_enumerations_are_numbers_as_otlp_wants_them(model):
    spans = json.loads(report_otel(model))["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert {type(span["kind"]) for span in spans} == {int}
    assert {type(span["status"]["code"]) for span in spans if span.get("status")} == {int}


def test_faults_and_stalls_are_spans_below_that_of_the_run(model):
    *others, root = _spans(model)
    below = [span for span in others if not span.name.startswith("phase ")]
    assert root.name == "mine"
    assert {span.parent_span_id for span in below} == {root.span_id}
    assert {span.trace_id for span in below} == {root.trace_id}
    assert [span.name for span in below] == [*(f"fault {fault.kind}" for fault in model.faults),
                                             *["stall"] * len(model.stalls)]
    for span, fault in zip(below, model.faults, strict=False):
        assert (span.start_time_unix_nano - root.start_time_unix_nano) / 1e9 == pytest.approx(
            fault.began - model.start, abs=1e-5)
    assert all(root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
               <= root.end_time_unix_nano for span in below)


def test_phases_of_a_recovery_are_spans_below_that_of_their_fault(model):
    spans = _spans(model)
    ids = {span.span_id: span.name for span in spans}
    told = [(ids[span.parent_span_id], span.name, (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9)
            for span in spans if span.name.startswith("phase ")]
    assert told == [(f"fault {fault.kind}", f"phase {phase.name}", pytest.approx(phase.seconds, abs=1e-5))
                    for fault, _, phase in phases_of(model)]
    assert {name for _, name, _ in told} >= {"phase noticed", "phase restarted", "phase first round"}


def test_prometheus_has_how_long_each_phase_took(model):
    samples = [sample for family in text_string_to_metric_families(report_prometheus(model))
               for sample in family.samples if sample.name == "diloco_chaos_phase_seconds"]
    assert {(sample.labels["fault"], sample.labels["target"], sample.labels["phase"]): sample.value
            for sample in samples} == {(fault.id, recovery.target, phase.name): phase.seconds
                                       for fault, recovery, phase in phases_of(model)}


def test_prometheus_has_what_each_fault_cost_and_all_of_them(model):
    told = {(sample.name, sample.labels.get("fault", "")): sample.value
            for family in text_string_to_metric_families(report_prometheus(model)) for sample in family.samples}
    assert told["diloco_chaos_ettr", ""] == model.cost.ettr
    assert told["diloco_chaos_fault_idle_node_seconds", "f1"] == model.faults[0].cost.idle_node_seconds
    assert ("diloco_chaos_fault_lost_samples", "f3") not in told


def test_the_span_of_a_fault_has_what_it_cost(model):
    *others, root = _spans(model)
    [fault] = [span for span in others if span.name == "fault partition"]
    attributes = {one.key: one.value.double_value for one in fault.attributes}
    assert attributes["ettr"] == model.faults[1].cost.ettr
    assert {one.key: one.value.double_value for one in root.attributes}["ettr"] == model.cost.ettr


def test_the_same_run_has_the_same_ids(model):
    assert report_otel(model) == report_otel(model)
