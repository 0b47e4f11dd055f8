"""A run as a trace: slices of nodes, and arrows from answers to merges to receipts."""

import json
from collections import Counter, defaultdict

import pytest

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.report.forms.trace import report_trace
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.record.tape.events import Received
from diloco_chaos.harness.record.tape.reading import Tape
from recorded_events import an_event


@pytest.fixture(scope="module")
def events(results):
    return json.loads(report_trace(results[0].history))["traceEvents"]


def test_every_node_and_every_fault_is_named(events, results):
    names = {one["args"]["name"]: one["pid"] for one in events if one["name"] == "process_name"}
    assert set(names) == {"faults", *results[0].history.plan.cluster.all_nodes}
    assert len(set(names.values())) == len(names)
    faults = [one for one in events if one["ph"] == "X" and one["pid"] == names["faults"]]
    assert [one["name"] for one in faults] == [span.planned.fault.describe() for span in results[0].history.spans]


def test_slices_of_a_thread_follow_each_other_or_lie_within_each_other(events):
    threads = defaultdict(list)
    for one in events:
        if one["ph"] == "X":
            threads[one["pid"], one["tid"]].append((one["ts"], one["ts"] + one["dur"]))
    for spans in threads.values():
        open_until = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_until and open_until[-1] <= start:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            open_until.append(end)


def test_every_merged_answer_has_an_arrow_to_its_merge(events, results):
    ends = Counter(one["id"] for one in events if one["ph"] == "f" and one["name"] == "answer")
    begun = {one["id"] for one in events if one["ph"] == "s"}
    assert sum(ends.values()) == sum(len(merge.contributions) for merge in results[0].history.merges)
    assert ends.keys() <= begun


def test_a_merge_has_an_arrow_to_each_of_its_receipts(events, results):
    made = {(merge.fragment, merge.version) for merge in results[0].history.merges}
    receipts = [event for event in results[0].history.tape.of(Received)
                if (event.fragment, event.version) in made]
    arrows = {phase: [one["id"] for one in events if one["ph"] == phase and one["name"] == "receipt"] for phase in "sf"}
    assert arrows["s"] == arrows["f"]
    assert len(set(arrows["s"])) == len(receipts) > 0


def test_an_arrow_lies_in_a_slice_before_it_ends(events):
    slices = defaultdict(list)
    for one in events:
        if one["ph"] == "X":
            slices[one["pid"], one["tid"]].append((one["ts"], one["ts"] + one["dur"]))
    for one in events:
        if one["ph"] in "sf":
            assert any(start <= one["ts"] < end for start, end in slices[one["pid"], one["tid"]])


def test_a_trainer_that_tells_of_rounds_has_them_in_a_process_of_their_own():
    trainer = {"kind": "commands", "rounds": 9, "nodes": {"w": {"run": "python3 -c 1", "worker": True, "count": 2}},
               "progress": [{"node": "w", "log": r"(?P<round>\d+)"}]}
    plan = freeze(parse(f"diloco_chaos: 1\nname: x\ntrainer: {json.dumps(trainer)}\n"), 0)
    both = [{"learner": name, "incarnation": 0} for name in ("w-1", "w-2")]
    rounds = [an_event(number / 10, "rounds", 0, "merge", {"round": number, "step": number, "version": number,
                                                        "contributions": both}) for number in (1, 2)]
    events = json.loads(report_trace(History(plan, Tape(rounds))))["traceEvents"]
    names = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert sorted(names.values()) == ["faults", "rounds", "w-1", "w-2"]
    assert {names[one["pid"]] for one in events if one["ph"] == "X" and one["args"].get("contributors")} == {"rounds"}
    assert not [one for one in events if one["ph"] in "sf"], "an arrow that begins nowhere"
