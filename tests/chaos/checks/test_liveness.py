"""Whether training went on, whether those who were hit came back, whether nobody else was hit."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from msgspec import structs

from diloco_chaos.chaos.checks import liveness

LAST_HEALED = 14.188  # when the last fault of `storm` was undone


@pytest.mark.parametrize("name", ["no_global_stall", "self_healing", "reintegration", "participation", "blast_radius",
                                  "uptime"])
def test_a_run_that_healed_passes(storm, name):
    assert storm.verdict(name).verdict == "passed"


@pytest.mark.parametrize("name", ["self_healing", "reintegration", "blast_radius", "faults_verified"])
def test_a_plan_without_faults_has_no_use_for_it(calm, name):
    assert name not in calm.describe()


@pytest.mark.parametrize("name", ["no_global_stall", "self_healing", "uptime", "goodput"])
def test_a_cluster_that_never_was_steady_leaves_it_unknown(storm, name):
    verdict = storm.without("steady").verdict(name)
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["the cluster never merged from every learner"]


# -- no_global_stall -----------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("start", "end"), [(3.0, 5.0), (0.2, 2.2), (7.0, 9.1)], ids=["middle", "start", "end"])
def test_a_gap_between_merges_is_a_stall_wherever_it_lies(calm, start, end):
    story = calm.silent("merge", start, end)
    verdict = story.verdict("no_global_stall")
    before = max(merge.t for merge in story.all("merge") if merge.t < start)
    after = min([merge.t for merge in story.all("merge") if merge.t > start] + [story.end])
    assert verdict.verdict == "failed"
    assert verdict.measured == f"longest gap {after - before:.1f} s"
    assert verdict.bound == "≤ 1.0 s"
    assert verdict.evidence == [f"no merge from {before:.2f} s to {after:.2f} s"]


def test_a_gap_is_measured_against_the_twins_where_there_is_one(calm):
    slow = calm.references["fault-free"].model_copy(update={"merge_gap_p99": 0.5})
    verdict = calm.silent("merge", 3, 5).having(references={"fault-free": slow}).verdict("no_global_stall")
    assert (verdict.verdict, verdict.bound) == ("passed", "≤ 2.5 s")


def test_without_a_twin_a_gap_is_measured_against_those_before_the_first_fault(storm):
    verdict = storm.having(references={}).silent("merge", 16, 18).verdict("no_global_stall")
    assert (verdict.verdict, verdict.bound) == ("failed", "≤ 1.0 s")


def test_a_gap_is_unknown_where_nothing_tells_how_long_it_may_be(storm):
    story = storm.having(references={}).silent("merge", 0.9, storm.one("injecting").t).silent("merge", 16, 18)
    verdict = story.verdict("no_global_stall")
    assert verdict.verdict == "unknown"
    assert "too few merges before the first fault" in verdict.evidence[0]
    assert re.search(r"`no_global_stall: \{max_gap: \d+s\}`, or let the first fault come later$", verdict.change)


def test_stalls_before_the_first_fault_excuse_no_later_one(storm):
    # Among few gaps the 99th percentile is the longest but one: two stalls would allow a third five times as long.
    stalled = storm.silent("merge", 0.5, 1.9).silent("merge", 2.0, 3.4)
    story = stalled.having(references={}).silent("merge", 15, 19.5)
    assert story.verdict("no_global_stall").verdict != "passed"


def test_only_the_syncers_merges_end_a_gap(calm):
    # What a learner's tape calls a merge is none: nothing was committed.
    gap = [merge for merge in calm.all("merge") if 3 <= merge.t < 5]
    story = calm.silent("merge", 3, 5).plus(*(structs.replace(merge, node="learner-2") for merge in gap))
    assert story.verdict("no_global_stall").verdict == "failed"


def test_stalls_are_unknown_without_merges_after_the_steady_state(calm):
    verdict = calm.silent("merge", calm.zero, 99).verdict("no_global_stall")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["there are no merges after the steady state"]


def test_a_run_that_stood_still_and_never_finished_is_judged_to_the_last_event(calm):
    verdict = calm.silent("merge", 5, 99).without("finished").verdict("no_global_stall")
    assert verdict.verdict == "failed"
    assert verdict.measured == "longest gap 4.1 s"


# -- uptime --------------------------------------------------------------------------------------------------------

def _late(story, start, end):
    """What was merged from `start` to `end` was merged at `end`, all of it."""
    return story.forged(lambda event: event.event == "merge" and start <= event.t < end, t=end)


def test_a_stall_is_downtime_even_where_all_that_was_learned_in_it_is_merged_afterwards(storm):
    story = _late(storm, 4.0, 17.0)
    assert story.history().accounting.by_fate == storm.history().accounting.by_fate
    before = max(merge.t for merge in storm.all("merge") if merge.t < 4.0)
    verdict = story.verdict("uptime")
    assert (verdict.verdict, verdict.bound) == ("failed", "≥ 95%")
    assert verdict.evidence == [f"no merge from {before:.2f} s to 17.00 s, which is 12.1 s more than the allowed 1.0 s"]
    up = 1 - (17.0 - before - 1.0) / (storm.end - storm.zero)
    assert verdict.measured.startswith(f"{up:.1%} of ")


@pytest.mark.parametrize(("start", "end"), [(0.2, 2.2), (3.0, 5.0), (7.0, 9.1)], ids=["start", "middle", "end"])
def test_what_is_longer_than_the_allowed_gap_is_downtime_wherever_it_lies(calm, start, end):
    assert calm.silent("merge", start, end).verdict("uptime").verdict == "failed"


def test_merges_that_are_within_the_allowed_gap_of_each_other_are_no_downtime(calm):
    verdict = calm.silent("merge", 3.0, 3.8).verdict("uptime")
    assert (verdict.verdict, verdict.measured.split()[0]) == ("passed", "100.0%")


def test_uptime_allows_the_very_gap_that_no_global_stall_allows(calm):
    slow = calm.references["fault-free"].model_copy(update={"merge_gap_p99": 0.5})
    story = calm.silent("merge", 3, 5).having(references={"fault-free": slow})
    assert {story.verdict(name).verdict for name in ("no_global_stall", "uptime")} == {"passed"}
    assert story.bounded("{no_global_stall: {max_gap_vs_baseline: 2}}").verdict("uptime").verdict == "failed"


def test_uptime_keeps_the_scenarios_bound(calm):
    assert calm.bounded("{uptime: {at_least: 70%}}").silent("merge", 3, 5).verdict("uptime").verdict == "passed"


def test_one_learner_is_enough_for_uptime(calm):
    assert calm.unmerged(2.9, 5.6, "learner-1", "learner-2", "learner-3").verdict("uptime").verdict == "passed"


def test_what_data_parallelism_goes_back_behind_was_no_uptime(calm):
    # The last second before it was gone was void, and is part of the time without a merge.
    story = _late(calm, 4.0, 4.9)
    assert story.verdict("uptime").verdict == "passed"
    versions = [merge.version for merge in story.all("merge") if merge.t < 3.0]
    back = story.said(4.8, "syncer", "rolled_back", step=max(versions), processed=0, why="the group broke")
    assert back.verdict("no_global_stall").verdict == "passed"
    assert back.verdict("uptime").verdict == "failed"


def test_uptime_of_less_than_a_second_is_unknown(calm):
    verdict = calm.forged("finished", t=calm.zero + 0.9).verdict("uptime")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["less than a second after the steady state"]


def test_uptime_is_unknown_without_merges_after_the_steady_state(calm):
    verdict = calm.silent("merge", calm.zero, 99).verdict("uptime")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["there are no merges after the steady state"]


def test_uptime_is_unknown_where_nothing_tells_how_long_a_gap_may_be(storm):
    story = storm.having(references={}).silent("merge", 0.9, storm.one("injecting").t).silent("merge", 16, 18)
    verdict = story.verdict("uptime")
    assert verdict.verdict == "unknown"
    assert "too few merges before the first fault" in verdict.evidence[0]


def test_a_stall_before_the_tape_is_cut_off_is_downtime_all_the_same(calm):
    # Nothing that is merged later can make it good.
    verdict = calm.silent("merge", 3, 5).torn_at(7.0, "learner-2").verdict("uptime")
    assert verdict.verdict == "failed"


# -- self_healing --------------------------------------------------------------------------------------------------

def test_learners_that_are_merged_from_no_more_after_a_fault_were_not_healed(storm):
    verdict = storm.unmerged(LAST_HEALED, 99, "learner-3", "learner-4").verdict("self_healing")
    assert (verdict.verdict, verdict.measured) == ("failed", "never")
    assert "at the end: 8.0 merges/s from 2.0 learners" in verdict.evidence[0]


def test_a_merge_rate_that_stays_low_after_a_fault_was_not_healed(storm):
    merges = storm.all("merge")
    story = storm.without(lambda event: event.event == "merge" and event.t > LAST_HEALED
                          and merges.index(event) % 2 == 0)
    verdict = story.verdict("self_healing")
    assert (verdict.verdict, verdict.measured) == ("failed", "never")
    assert "at the end: 4.0 merges/s" in verdict.evidence[0]


def test_a_cluster_that_was_quicker_than_its_pace_before_the_fault_need_not_be_again(storm):
    # Where steps are late now and then, the clock follows whoever is ahead, and is quicker than every learner.
    merges, step_time = storm.all("merge"), storm.plan.cluster.step_time
    slower = storm.without(lambda event: event.event == "merge" and event.t > LAST_HEALED
                           and merges.index(event) % 6 == 0)
    assert slower.verdict("self_healing").verdict == "failed"
    verdict = slower.bounded("{self_healing: {within: 4s}}", step_time=f"{1.2 * step_time}s").verdict("self_healing")
    assert verdict.verdict == "passed"
    assert "before: 8.5 merges/s from 4.0 learners, where their pace makes 6.9" in verdict.evidence[0]


def test_healing_after_the_bound_fails_and_says_when(storm):
    verdict = storm.unmerged(LAST_HEALED, LAST_HEALED + 5, "learner-3", "learner-4").verdict("self_healing")
    assert verdict.verdict == "failed"
    assert verdict.measured == "4.7 s after the last fault"  # the window of 2 s may hold a tenth of poorer rounds
    assert verdict.bound == "≤ 4.0 s"


def test_healing_has_to_last(storm):
    story = storm.unmerged(LAST_HEALED + 2.5, 99, "learner-1", "learner-3", "learner-4")
    assert story.verdict("self_healing").verdict == "failed"


def test_a_learner_that_was_to_stay_dead_is_not_waited_for(storm):
    gone = _without_the_second_life(storm)
    verdict = gone.bounded("{self_healing: {within: 4s}}", "[{kill: learner-1, at: 4s}]").verdict("self_healing")
    assert verdict.verdict == "passed"


def test_a_learner_that_was_to_come_back_and_did_not_is_missed(storm):
    # That nobody started it again must not make the aim smaller.
    assert _without_the_second_life(storm).verdict("self_healing").verdict != "passed"


def test_healing_is_unknown_where_the_first_fault_came_too_soon(storm):
    verdict = storm.forged(storm.one("injecting", fault="f1"), t=storm.zero + 0.5).verdict("self_healing")
    assert verdict.verdict == "unknown"
    assert "came too soon" in verdict.evidence[0]
    assert "500 ms after the steady state, and 1.0 s are needed" in verdict.evidence[0]
    assert verdict.change == "let the first fault come 1.0 s after the steady state, or later (`at`)"


def test_healing_is_unknown_where_nothing_was_merged_before_the_first_fault(storm):
    verdict = storm.silent("merge", storm.zero, storm.one("injecting").t).verdict("self_healing")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["no merges before the first fault"]


def test_healing_is_unknown_where_the_run_ended_before_its_time_was_over(storm):
    story = storm.unmerged(LAST_HEALED, 99, "learner-3", "learner-4").forged("finished", t=LAST_HEALED + 3)
    verdict = story.verdict("self_healing")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["the run ended before the time to heal was over"]


def test_healing_is_unknown_where_no_fault_came(storm):
    assert storm.without("injecting").without("injected").verdict("self_healing").verdict == "unknown"


# -- reintegration -------------------------------------------------------------------------------------------------

def test_reintegration_is_measured_from_the_start_of_the_new_process(storm):
    spawn = storm.one("spawn", target="learner-1", incarnation=1)
    merge = next(merge for merge in storm.all("merge") if any(
        (part.learner, part.incarnation) == ("learner-1", 1) for part in merge.contributions))
    verdict = storm.verdict("reintegration")
    assert verdict.measured == f"{(merge.t - spawn.t) * 1e3:.0f} ms"
    assert verdict.evidence == [f"learner-1.1 started at {spawn.t:.2f} s, first merged from at {merge.t:.2f} s"]


def test_a_learner_that_is_never_merged_from_again_did_not_come_back(storm):
    verdict = storm.unmerged(6.1, 99, "learner-1").verdict("reintegration")
    assert (verdict.verdict, verdict.measured) == ("failed", "never")
    assert verdict.evidence == ["learner-1.1 started at 6.19 s and was never merged from"]


def test_where_nothing_waits_to_be_asked_and_beaten_is_a_return(storm):
    beaten = storm.unmerged(6.1, 99, "learner-1")
    waits = "{reintegration: {within: 5s}}"
    assert beaten.bounded(waits, grace=0.0).verdict("reintegration").verdict == "passed"
    assert beaten.bounded(waits, grace=0.8).verdict("reintegration").verdict == "failed"
    never_asked = beaten.forged("merge", asked=lambda names: [name for name in names if name != "learner-1"])
    assert never_asked.bounded(waits, grace=0.0).verdict("reintegration").verdict == "failed"


def test_a_learner_that_is_merged_from_after_the_bound_came_back_too_late(storm):
    verdict = storm.unmerged(6.1, 11.2, "learner-1").verdict("reintegration")
    assert verdict.verdict == "failed"
    assert verdict.measured == "5.0 s"


def test_a_contribution_on_a_base_older_than_at_its_hello_is_no_return(storm):
    verdict = _second_life(storm, base=0).verdict("reintegration")
    assert (verdict.verdict, verdict.measured) == ("failed", "never")


def test_a_contribution_of_the_dead_incarnation_is_no_return(storm):
    verdict = _second_life(storm, incarnation=0).verdict("reintegration")
    assert (verdict.verdict, verdict.measured) == ("failed", "never")


def test_a_new_process_that_calls_itself_by_the_old_number_is_not_credited_with_what_the_dead_one_did(storm):
    # The cluster numbers it 0 again, and it is never merged from: all that there is was merged before it died.
    story = _without_the_second_life(storm).said(6.188, "harness", "spawn", target="learner-1", incarnation=0, pid=4)
    assert story.verdict("reintegration").verdict != "passed"


def test_a_return_is_unknown_where_no_new_process_was_started(storm):
    verdict = storm.without(storm.one("spawn", target="learner-1", incarnation=1)).verdict("reintegration")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["learner-1 was not started again"]


def test_a_return_is_unknown_where_the_kill_never_came(storm):
    verdict = storm.without(storm.one("injecting", fault="f1")).verdict("reintegration")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["kill learner-1, back after 2.0 s was never injected"]


def test_a_return_is_unknown_where_the_run_ended_before_the_bound(storm):
    verdict = storm.unmerged(6.1, 99, "learner-1").forged("finished", t=9.0).verdict("reintegration")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["learner-1.1 was not merged from before the run ended"]


def test_a_syncer_came_back_when_it_merged_again(reborn):
    verdict = reborn.verdict("reintegration")
    assert verdict.verdict == "passed"
    assert verdict.evidence[0].startswith("syncer.1 started at 4.35 s, first merged again at 4.43 s")


def test_a_syncer_that_merged_no_more_did_not_come_back(reborn):
    story = reborn.bounded("{reintegration: {within: 2s}}").silent("merge", 4.3, 99)
    verdict = story.verdict("reintegration")
    assert (verdict.verdict, verdict.measured) == ("failed", "never")


# -- participation -------------------------------------------------------------------------------------------------

def test_a_far_learner_that_is_left_out_of_most_rounds_is_named(storm):
    verdict = storm.unmerged(7.5, 10, "learner-3").verdict("participation")
    assert verdict.verdict == "failed"
    assert verdict.measured == "learner-3 16%"
    [said] = verdict.evidence
    assert said.startswith("learner-3 contributed to 4 of 25 rounds between ")


def test_rounds_before_and_after_the_distance_do_not_count(storm):
    story = storm.unmerged(0, 7, "learner-3").unmerged(10.3, 99, "learner-3")
    assert story.verdict("participation").verdict == "passed"


def test_a_learner_may_be_bounded_from_above(storm):
    story = storm.bounded("{participation: [{learner: learner-3, at_most: 20%}]}")
    verdict = story.verdict("participation")
    assert (verdict.verdict, verdict.measured, verdict.bound) == ("failed", "learner-3 100%", "≤ 20%")


def test_a_learner_that_nothing_hits_is_counted_over_the_whole_run(calm):
    verdict = calm.unmerged(5, 99, "learner-3").verdict("participation")
    assert verdict.verdict == "failed"
    rounds = [merge for merge in calm.all("merge") if calm.zero <= merge.t < calm.end]
    assert verdict.evidence[0].startswith(f"learner-3 contributed to 41 of {len(rounds)} rounds between ")


def test_participation_is_counted_while_a_fault_of_any_kind_hits_the_learner(storm):
    # docs: "a learner's share of the rounds while the faults that hit it last"; learner-2 limps, and is merged from.
    verdict = storm.bounded("{participation: [{learner: learner-2, at_least: 80%}]}").verdict("participation")
    assert verdict.verdict == "passed"


def test_participation_is_unknown_where_the_distance_never_came(storm):
    verdict = storm.without(storm.one("injecting", fault="f3")).verdict("participation")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["fewer than 8 rounds while learner-3 was far"]


def test_participation_is_unknown_where_there_were_few_rounds(storm):
    assert storm.silent("merge", 7, 9.9).verdict("participation").verdict == "unknown"


# -- blast_radius --------------------------------------------------------------------------------------------------

def test_a_bystander_that_slows_down_is_named(storm):
    mine = [event for event in storm.all("step", "learner-4") if 4.1 <= event.t < 6.2]
    verdict = _dropped_steps(storm, mine[::2]).verdict("blast_radius")
    assert verdict.verdict == "failed"
    assert verdict.measured == "learner-4 at 49% of its pace"
    assert verdict.evidence[0] == "learner-4 at 49% of its pace during: kill learner-1, back after 2.0 s"


def test_a_bystander_that_slows_down_while_a_process_is_being_started_proves_nothing(storm):
    started = storm.said(4.5, "harness", "spawn", 0, target="learner-1", incarnation=7)
    verdict = _busy(started).verdict("blast_radius")
    assert verdict.verdict == "unknown"
    assert "longer to compute than nominal, while learner-1.7 was being started" in verdict.evidence[0]


def test_a_bystander_that_waits_fails_although_a_process_is_being_started(storm):
    started = storm.said(4.5, "harness", "spawn", 0, target="learner-1", incarnation=7)
    mine = [event for event in storm.all("step", "learner-4") if 4.1 <= event.t < 6.2]
    assert _dropped_steps(started, mine[::2]).verdict("blast_radius").verdict == "failed"


@pytest.mark.parametrize("moved", [0.0, 0.03, 0.05, 0.08])
def test_a_learner_that_keeps_its_pace_does_so_wherever_two_seconds_begin_among_its_steps(calm, moved):
    start = calm.history().zero + 1 + moved
    assert calm.history().pace("learner-2", start, start + 2) == pytest.approx(1.0, abs=0.02)


def test_a_bystander_whose_own_steps_became_slow_fails_where_nothing_else_went_on(storm):
    assert _busy(storm).verdict("blast_radius").verdict == "failed"


def test_a_bystander_that_stands_still_fails_however_busy_the_machine_is_for_another(storm):
    # learner-2 takes no step at all; that learner-4's were slow to compute is no excuse for it.
    mine = [event for event in storm.all("step", "learner-2") if 4.1 <= event.t < 6.2]
    verdict = _dropped_steps(_busy(storm), mine).verdict("blast_radius")
    assert verdict.verdict == "failed"
    assert verdict.measured == "learner-2 at 0% of its pace"


def test_a_learner_that_was_hit_a_moment_ago_is_no_bystander(storm):
    # learner-1 came back when learner-2 began to limp: it may still find its feet then.
    mine = [event for event in storm.all("step", "learner-1") if 6.2 <= event.t < 8]
    assert _dropped_steps(storm, mine[::2]).verdict("blast_radius").verdict == "passed"


def test_a_learner_that_is_still_coming_back_is_no_bystander(storm):
    # Its new process was there when others were hit, and took its first step much later: reintegration judges that.
    mine = [event for event in storm.all("step", "learner-1") if 6 <= event.t < 9.5]
    assert _dropped_steps(storm, mine).verdict("blast_radius").verdict == "passed"


def test_a_learner_that_came_back_and_stands_still_again_is_hit_by_somebody_elses_fault(storm):
    mine = [event for event in storm.all("step", "learner-1") if 10.5 <= event.t < 14.5]
    verdict = _dropped_steps(storm, mine).verdict("blast_radius")
    assert verdict.verdict == "failed"
    assert "learner-1 at 0% of its pace during" in verdict.evidence[0]


def test_the_blast_radius_is_unknown_without_pace(storm):
    verdict = storm.bounded(step_time=0).verdict("blast_radius")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["without pace there is no nominal speed"]


def test_the_blast_radius_is_unknown_where_no_fault_came(storm):
    verdict = storm.without("injecting").verdict("blast_radius")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["no learner was left alone long enough to tell"]


def test_there_is_no_blast_radius_where_everybody_was_hit(storm):
    everyone = "[{latency: learners, at: 4s, for: 5s}]"
    assert "blast_radius" not in storm.bounded("{}", everyone).describe()


def test_a_process_that_is_killed_again_before_it_could_be_back_is_not_waited_for(storm):
    again = storm.unmerged(6.1, 99, "learner-1").said(
        7.0, "harness", "exit", target="learner-1", incarnation=1, status=-9, killed=True)
    verdict = again.verdict("reintegration")
    assert verdict.verdict == "unknown"
    assert "killed before it could be back" in verdict.evidence[0]


def _without_the_second_life(storm):
    """learner-1 stays dead: no new process, no words of it, nothing merged from it."""
    return storm.unmerged(6.1, 99, "learner-1").without(
        lambda event: (event.node, event.inc) == ("learner-1", 1)
        or (getattr(event, "target", getattr(event, "learner", "")) == "learner-1" and event.incarnation == 1))


def _second_life(storm, **changes):
    """What was merged from learner-1's second incarnation, changed."""
    def mine(part):
        return (part.learner, part.incarnation) == ("learner-1", 1)
    return storm.forged("merge", contributions=lambda parts: [
        structs.replace(part, **changes) if mine(part) else part for part in parts])


def _dropped_steps(story, steps):
    """Steps as they would be at half the pace: their events moved to after the end, so that their fates stay known."""
    late = {id(event) for event in steps}
    return story.having(events=tuple(structs.replace(event, t=99.0) if id(event) in late else event
                                     for event in story.events))


def _busy(storm):
    """While learner-1 was dead, learner-4 computed 110 ms a step."""
    mine = [event for event in storm.all("step", "learner-4") if 4.1 <= event.t < 6.2]
    for event in mine[1::2]:
        storm = storm.forged(event, began=event.t - 0.11)
    return _dropped_steps(storm, mine[::2])


@pytest.mark.parametrize(("rate", "contributors"), [(0.0, 2.0), (-0.1, 2.0), (1.0, 0.0)])
def test_where_nothing_is_asked_for_nothing_is_lacking(monkeypatch, rate, contributors):
    """Where outages are excused, one merge less than there was may be none."""
    monkeypatch.setattr(liveness, "pulse", lambda *_: (max(0.0, rate), contributors))
    late = liveness._below(None, 2.0, 4.0, rate, contributors)
    assert (late.start, late.end) == (2.0, 4.0)
    assert late.allowed <= 2.0


@pytest.mark.parametrize(("at_once", "merges", "lasts"), [(1, 28, True), (1, 27, False), (4, 25, True), (4, 24, False)])
def test_merges_that_come_at_once_may_just_have_been_before_or_be_due_after(monkeypatch, at_once, merges, lasts):
    """Of 8 a second 90% are 28.8 in 4 s; where four come together, a whole one of these may lie beyond an edge."""
    monkeypatch.setattr(liveness, "pulse", lambda *_: (merges / 4, 3.0))
    cluster = SimpleNamespace(merges_at_once=at_once)
    history = SimpleNamespace(plan=SimpleNamespace(cluster=cluster, checks=SimpleNamespace(excuses_outages=False)))
    assert liveness._lasts(history, 2.0, 10.0, 8.05, 3.0, 2.0) is lasts
