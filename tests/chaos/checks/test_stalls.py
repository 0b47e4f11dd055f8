"""Merges go on; where outages are excused, that is asked of the time in which enough were there, and of no other."""

import json

import pytest

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.record.tape.reading import Tape
from recorded_events import an_event

EXCUSED = "{outages: excused}"


def test_the_time_in_which_the_syncer_was_gone_does_not_count_where_it_is_excused(reborn):
    gone = reborn.one("exit", "harness", target="syncer").t
    story = reborn.bounded("{no_global_stall: {max_gap: 500ms, max_gap_vs_baseline: 0.01}}")
    assert story.verdict("no_global_stall").verdict == "failed"
    excused = reborn.bounded("{no_global_stall: {max_gap: 500ms, max_gap_vs_baseline: 0.01}, outages: excused}")
    verdict = excused.verdict("no_global_stall")
    assert verdict.verdict == "passed"
    assert gone > reborn.zero


@pytest.mark.parametrize("check", ["no_global_stall", "uptime"])
def test_a_stall_with_which_no_fault_has_to_do_is_one_all_the_same(calm, check):
    assert calm.bounded(EXCUSED).silent("merge", 3, 5).verdict(check).verdict == "failed"


def test_a_stall_beside_a_fault_that_leaves_a_quorum_is_one_all_the_same(storm):
    assert storm.bounded(EXCUSED).silent("merge", 12.3, 13.8).verdict("no_global_stall").verdict == "failed"


def test_where_all_are_needed_it_is_excused_while_one_is_cut_off(storm):
    story = storm.bounded(EXCUSED, quorum=4).silent("merge", 12.5, 13.9)
    assert story.verdict("no_global_stall").verdict == "passed"


def test_fragments_are_merged_in_turn(calm):
    verdict = calm.verdict("fragments_in_turn")
    assert verdict.verdict == "passed"
    assert verdict.measured == "longest 8 steps"


@pytest.mark.parametrize(("start", "end"), [(3, 6), (0, 99), (6, 99)], ids=["middle", "always", "end"])
def test_a_fragment_whose_turn_is_left_out_is_told(calm, start, end):
    story = calm.without(lambda event: event.event == "merge" and event.fragment == 2 and start <= event.t <= end
                         and event.t > calm.zero)
    verdict = story.verdict("fragments_in_turn")
    assert verdict.verdict == "failed"
    assert verdict.evidence[0].startswith("fragment 2 was not merged between ")


def test_a_clock_that_runs_ahead_of_all_learners_leaves_out_no_turn(calm):
    """A syncer that stood still for a moment hears of many steps at once."""
    late = next(merge for merge in calm.all("merge", fragment=2) if merge.t > 5)
    assert calm.forged(late, step=late.step + 60).verdict("fragments_in_turn").verdict == "passed"


def test_what_waits_while_a_learner_is_hit_and_others_are_enough_is_told(storm):
    story = storm.without(lambda event: event.event == "merge" and event.fragment == 2 and 12 < event.t < 15)
    assert story.verdict("fragments_in_turn").verdict == "failed"


def test_what_waits_while_those_who_are_left_are_no_quorum_is_not_judged(storm):
    story = storm.bounded(quorum=4).without(
        lambda event: event.event == "merge" and event.fragment == 2 and 12 < event.t < 15)
    assert story.verdict("fragments_in_turn").verdict == "passed"


def test_what_waits_while_the_syncer_is_hit_is_not_judged(reborn):
    story = reborn.without(lambda event: event.event == "merge" and event.fragment == 2 and 2 < event.t < 5.4)
    assert story.verdict("fragments_in_turn").verdict == "passed"


def test_without_a_steady_state_nobody_knows_whose_turn_it_is(calm):
    assert calm.without(lambda event: event.event == "steady").verdict("fragments_in_turn").verdict == "unknown"


@pytest.mark.parametrize(("gone", "back", "setting", "holds"), [
    (14.0, 32.0, "{max_gap: 3s}", False), (14.0, 32.0, "{max_gap: 3s, max_gap_vs_start: 5}", True),
    (14.0, 46.0, "{max_gap: 3s, max_gap_vs_start: 5}", False),
    (19.0, 32.0, "{max_gap: 3s, max_gap_vs_start: 5}", False)],
    ids=["as any gap", "a slow start", "far slower than ever", "it had stood before it ended"])
def test_a_gap_in_which_a_worker_is_started_again_follows_from_its_first_start(gone, back, setting, holds):
    events = [an_event(0.0, "harness", 0, "spawn", {"target": "w", "incarnation": 0, "pid": 1}),
              an_event(4.0, "rounds", 0, "steady", {"step": 0}),
              an_event(gone, "harness", 0, "exit", {"target": "w", "incarnation": 0, "status": 1}),
              an_event(20.0, "harness", 0, "spawn", {"target": "w", "incarnation": 1, "pid": 1})]
    moments = [(0, 4.0 + index / 10) for index in range(100)] + [(1, back + index / 10) for index in range(100)]
    for number, (incarnation, t) in enumerate(moments, start=1):
        events += [an_event(t, "w", incarnation, "step", {"step": number, "tokens": 0}),
                   an_event(t, "rounds", 0, "merge", {
                       "round": number, "step": number, "version": number,
                       "contributions": [{"learner": "w", "incarnation": incarnation}]})]
    events.append(an_event(back + 10, "rounds", 0, "finished", {"step": 1, "processed": 1}))
    trainer = {"kind": "commands", "rounds": 200, "nodes": {"w": {"run": "python3 -c 1", "worker": True}},
               "progress": [{"node": "w", "log": r"(?P<round>\d+)"}]}
    plan = freeze(parse(f"diloco_chaos: 1\nname: x\ntrainer: {json.dumps(trainer)}\n"
                        f"checks: {{no_global_stall: {setting}}}\n"), 0)
    finding = CHECKS["no_global_stall"](History(plan, Tape(sorted(events, key=lambda event: event.t))))
    assert finding.holds == holds
