"""A check that would fail because others had the machine proves nothing; one that fails anyway fails."""

from __future__ import annotations

import pytest

QUIET = {"seconds": 1.0, "cores": 2, "idle": 0.6, "ours": 1.3, "others": 0.0, "stolen": 0.0, "late": 0.0, "cpu": 0.4,
         "io": 0.0, "memory": 0.0}
LAST_HEALED = 14.188  # when the last fault of `storm` was undone


def watched(story, start, end, until=None, **busy):
    """One sample a second; from start to end with other work on the machine."""
    for second in range(1, int(until or story.end) + 2):
        sample = QUIET | (busy or {"others": 1.0, "idle": 0.0} if start < second <= end else {})
        story = story.said(float(second), "harness", "machine", 0, **sample)
    return story


def test_a_stall_on_a_quiet_machine_fails(calm):
    assert watched(calm.silent("merge", 3, 5), 0, 0).verdict("no_global_stall").verdict == "failed"


def test_a_stall_while_others_had_the_machine_is_inconclusive_and_says_so(calm):
    story = watched(calm.silent("merge", 3, 5), 3, 5)
    verdict = story.verdict("no_global_stall")
    assert (verdict.verdict, verdict.reason) == ("unknown", "excused")
    assert verdict.evidence[0].startswith("this machine had other things to do, for 2.0 s other processes had its "
                                          "processors between")
    assert story.judged().inconclusive == verdict.evidence[0]
    assert story.judged().exit_code == 3


STALLED = {"others": 1.5, "idle": 0.0, "ours": 0.5}


def test_a_stall_for_as_long_as_the_run_waited_for_a_processor_is_inconclusive_and_says_so(calm):
    verdict = watched(calm.silent("merge", 3, 5), 3, 5, **STALLED, waited=0.8).verdict("no_global_stall")
    assert (verdict.verdict, verdict.reason) == ("unknown", "excused")
    assert verdict.evidence[0].startswith("this run waited 1.6 s for a processor (run delay) between")


@pytest.mark.parametrize("waited", [0.0, 0.06, 0.23])
def test_a_stall_in_which_the_run_slept_fails_however_busy_others_are(calm, waited):
    story = watched(calm.silent("merge", 3, 6), 0, 99, **STALLED, waited=waited)
    assert story.verdict("no_global_stall").verdict == "failed"


def test_a_stall_somewhere_else_is_not_excused(calm):
    assert watched(calm.silent("merge", 3, 5), 6, 8).verdict("no_global_stall").verdict == "failed"


def test_a_stall_that_is_longer_than_what_excuses_it_fails(calm):
    assert watched(calm.silent("merge", 3, 6), 3, 4).verdict("no_global_stall").verdict == "failed"


@pytest.mark.parametrize("name", ["no_global_stall", "uptime"])
def test_a_stall_does_not_hide_behind_a_longer_one_that_is_excused(calm, name):
    two = calm.silent("merge", 1.5, 4.5).silent("merge", 6, 8)
    assert watched(two, 1, 5).verdict(name).verdict == "failed"
    assert watched(two, 1, 9).verdict(name).verdict == "unknown"


def test_a_learner_that_burns_the_processors_is_no_excuse(calm):
    story = watched(calm.silent("merge", 3, 5), 3, 5, ours=2.0, idle=0.0)
    assert story.verdict("no_global_stall").verdict == "failed"


def test_what_passes_on_a_busy_machine_passes(storm):
    assert watched(storm, 0, 99).describe() == storm.describe()


def test_a_run_whose_pace_is_lost_to_others_after_it_had_healed_is_inconclusive(storm):
    story = storm.unmerged(storm.end - 3.5, storm.end, "learner-1")
    assert story.verdict("self_healing").verdict == "failed"
    assert watched(story, int(storm.end) - 3, 99).verdict("self_healing").verdict == "unknown"


@pytest.mark.parametrize(("waited", "verdict"), [(0.3, "unknown"), (0.02, "failed")])
def test_a_pace_that_never_comes_back_is_excused_where_the_run_waited_for_half_of_what_it_lacks(storm, waited, verdict):
    kept = iter(range(10**6))
    story = storm.without(lambda event: event.event == "merge" and event.t > LAST_HEALED - 6 and next(kept) % 10 >= 6)
    assert story.verdict("self_healing").measured == "never"
    assert watched(story, 0, 99, **STALLED, waited=waited).verdict("self_healing").verdict == verdict


def test_healing_that_takes_too_long_is_excused_by_as_much_as_others_took(storm):
    story = storm.silent("merge", LAST_HEALED, LAST_HEALED + 5.5)
    assert story.verdict("self_healing").verdict == "failed"
    assert watched(story, 14, 16).verdict("self_healing").verdict == "unknown"
    assert watched(story, 14, 15).verdict("self_healing").verdict == "failed"


def test_a_return_that_takes_too_long_is_excused_where_the_machine_was_busy_then(storm):
    spawn = storm.one("spawn", target="learner-1", incarnation=1)
    story = storm.unmerged(spawn.t, spawn.t + 5.0, "learner-1")
    assert story.verdict("reintegration").verdict == "failed"
    assert watched(story, int(spawn.t), int(spawn.t) + 3).verdict("reintegration").verdict == "unknown"
    assert watched(story, int(storm.end) - 3, 99).verdict("reintegration").verdict == "failed"


def test_goodput_is_excused_only_by_as_much_time_as_is_missing(storm):
    story = storm.bounded("{goodput: {at_least: 99%}}")
    missing = 0.99 - float(story.verdict("goodput").measured.split("%")[0]) / 100
    assert story.verdict("goodput").verdict == "failed"
    needed = int(missing * (story.end - story.zero)) + 2
    assert watched(story, 2, 2 + needed).verdict("goodput").verdict == "unknown"
    assert watched(story, 2, 3).verdict("goodput").verdict == "failed"


@pytest.mark.parametrize("name", ["weights_correct", "replica_consistency", "all_undone"])
def test_no_load_excuses_what_has_nothing_to_do_with_time(calm, name):
    broken = {"weights_correct": lambda: calm.part(calm.all("merge")[9], weight=9.0),
              "replica_consistency": lambda: calm.forged(calm.all("received")[9], digest="0"),
              "all_undone": lambda: calm.forged("residue", left=["a toxic"])}[name]()
    assert broken.verdict(name).verdict == watched(broken, 0, 99).verdict(name).verdict == "failed"


def test_a_machine_that_is_too_busy_before_the_first_fault_says_with_what(storm):
    slow = storm.without(lambda event: event.event == "step" and event.node == "learner-3" and event.step % 2 == 0
                         and event.t < 4)
    assert slow.judged().inconclusive.startswith("this machine is too busy: learner-3 took ")
    assert slow.judged().change == "a pace that this machine holds: --step-time auto"
    busy = watched(slow, 1, 3).judged()
    assert busy.inconclusive.endswith("ms (for 2.0 s other processes had its processors)")
    assert busy.change == "run it when less else is going on"
    stopped = watched(slow, 1, 3, late=1.9)
    assert stopped.judged().inconclusive.endswith("ms (for 2.0 s nothing on it ran, the harness neither)")


def test_steps_that_take_long_on_a_quiet_machine_are_no_weather(calm):
    """All learners burn their processors for four seconds: nobody else was in the way."""
    stalled = calm.without(lambda event: event.event in ("step", "merge") and 3 < event.t < 7)
    assert stalled.judged().inconclusive.startswith("this machine is too busy: ")  # who knows, without having looked?
    seen = watched(stalled, 3, 7, ours=2.0, idle=0.0).judged()
    assert "too busy" not in seen.inconclusive
    assert {verdict.name for verdict in seen.checks if verdict.verdict == "failed"} >= {"no_global_stall"}
    assert watched(stalled, 3, 7).judged().inconclusive.startswith("this machine is too busy: ")
    assert "too busy" not in watched(stalled, 8, 10).judged().inconclusive, "others came later"


def test_a_machine_that_is_too_small_for_the_run_is_told_as_that_though_nobody_else_is_there(calm):
    slow = calm.without(lambda event: event.event == "step" and event.step % 3 != 0)
    assert watched(slow, 0, 99, ours=2.0, idle=0.0).judged().inconclusive.startswith("this machine is too busy: ")


def test_a_run_that_was_stopped_before_the_first_fault_is_told_as_that_and_not_as_a_busy_machine(storm):
    slow = storm.without(lambda event: event.event == "step" and event.node == "learner-3" and event.step % 2 == 0
                         and event.t < 4)
    words = watched(slow, 1, 2, late=1.9, idle=1.9).judged().inconclusive
    assert words.startswith("the run stood still for 1.9 s before the first fault, while this machine had nothing else")


def never_ended(story, *nodes):
    """These were still there when the harness ended the run."""
    return story.without(lambda event: event.event == "exit" and event.target in nodes)


def test_who_is_slow_to_end_while_others_have_the_machine_proves_nothing(calm):
    late = never_ended(calm, "learner-1", "learner-2").said(calm.end + 9.0, "harness", "residue", left=[])
    assert watched(late, 0, 0, until=late.end + 9).verdict("end_correct").verdict == "failed"
    assert watched(late, late.end, late.end + 3, until=late.end + 9).verdict("end_correct").verdict == "failed"
    verdict = watched(late, late.end, late.end + 6, until=late.end + 9).verdict("end_correct")
    assert verdict.verdict == "unknown"
    assert verdict.evidence[0].startswith("this machine had other things to do, for ")


@pytest.mark.parametrize(("busy", "verdict"), [((2, 6), "unknown"), ((0, 0), "failed"), ((7, 9), "failed")])
def test_a_turn_that_is_left_out_while_others_had_the_machine_is_inconclusive(calm, busy, verdict):
    story = calm.without(lambda event: event.event == "merge" and event.fragment == 2 and 3 <= event.t <= 5)
    assert watched(story, *busy).verdict("fragments_in_turn").verdict == verdict


def test_a_learner_that_is_merged_from_seldom_is_excused_where_the_machine_was_busy_for_a_good_part_of_that(calm):
    seldom = calm.unmerged(0, 0.6 * calm.end, "learner-3")
    assert seldom.verdict("nobody_starves").verdict == "failed"
    verdict = watched(seldom, 0, 99).verdict("nobody_starves")
    assert (verdict.verdict, verdict.reason) == ("unknown", "excused")
    never = calm.unmerged(0, 99, "learner-3")
    assert watched(never, 2, 0.4 * calm.end).verdict("nobody_starves").verdict == "failed"
