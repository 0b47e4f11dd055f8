"""Processes end by a fault, because a successor is there, or because training is over; anything else is a failure."""

import signal

import pytest

CHECK = "no_unplanned_exit"


def ended(story, t, status, target="learner-2", **more):
    """The process ended then, and nothing of it came later."""
    gone = story.without(lambda event: event.node == target and event.t > t).without(
        lambda event: event.event == "exit" and event.target == target)
    if status == 0 and not any(event.t == t for event in gone.all("exit", target)):
        gone = gone.said(t, target, "exit")
    return gone.said(t, "harness", "exit", target=target, incarnation=0, status=status, killed=False, **more)


@pytest.mark.parametrize("run", ["calm", "brief", "storm", "reborn"])
def test_a_sound_run_has_no_other_end(request, run):
    verdict = request.getfixturevalue(run).verdict(CHECK)
    assert (verdict.verdict, verdict.evidence) == ("passed", [])


@pytest.mark.parametrize("status", [1, 2, 7, -signal.SIGSEGV, -signal.SIGABRT, -99])
def test_a_process_that_dies_on_its_own_fails_the_run(calm, status):
    verdict = ended(calm, 5.0, status).verdict(CHECK)
    assert verdict.verdict == "failed"
    assert verdict.evidence[0].startswith("learner-2.0 ended at 5.00 s, before training was over (")


def test_its_own_reason_is_told(calm):
    story = ended(calm.said(5.0, "learner-2", "failed", reason="lost its way"), 5.0, 1)
    assert "exit code 1: lost its way" in story.verdict(CHECK).evidence[0]


def test_a_process_that_leaves_before_training_is_over_fails_the_run(calm):
    assert ended(calm, 5.0, 0).verdict(CHECK).verdict == "failed"


def test_one_that_crashes_after_training_is_over_does_so_too(calm):
    gone = calm.one("exit", "harness", target="learner-2")
    assert calm.forged(gone, status=1).verdict(CHECK).verdict == "failed"


@pytest.mark.parametrize("status", [-signal.SIGTERM, -signal.SIGKILL])
def test_whoever_is_there_after_the_end_is_ended_by_the_harness(calm, status):
    gone = calm.one("exit", "harness", target="learner-2")
    assert calm.forged(gone, status=status).verdict(CHECK).verdict == "passed"


@pytest.mark.parametrize(("status", "more"), [(-signal.SIGKILL, {}), (-signal.SIGTERM, {}), (-signal.SIGQUIT, {}),
                                              (1, {"oom": True})])
def test_what_somebody_else_ended_proves_nothing(calm, status, more):
    verdict = ended(calm, 5.0, status, **more).verdict(CHECK)
    assert verdict.verdict == "unknown"
    assert "somebody else ended it" in verdict.evidence[0]


def test_a_full_disk_that_is_no_fault_of_the_plan_proves_nothing(calm):
    story = ended(calm.said(5.0, "learner-2", "failed", reason="[Errno 28] No space left on device"), 5.0, 1)
    assert story.verdict(CHECK).verdict == "unknown"


@pytest.mark.parametrize(("fault", "target", "verdict"), [("f1", "learner-1", "unknown"),
                                                          ("f2", "learner-2", "failed")], ids=["kill", "straggler"])
def test_a_process_proves_nothing_where_a_fault_that_ends_processes_had_hit_it(storm, fault, target, verdict):
    at = next(event.t for event in storm.all("injected", "harness") if event.fault == fault) + 1
    assert ended(storm, at, 1, target).verdict(CHECK).verdict == verdict


def test_a_process_that_was_superseded_may_end(calm):
    story = ended(calm.said(5.0, "learner-2", "superseded", reason="a newer one"), 5.0, 0)
    assert story.verdict(CHECK).verdict == "passed"


def test_a_process_that_was_told_to_end_did_not_do_so_on_its_own(calm):
    verdict = ended(calm.said(5.0, "learner-2", "exit", told=True), 5.0, 0).verdict(CHECK)
    assert verdict.verdict == "unknown"
    assert "somebody else ended it" in verdict.evidence[0]


def test_where_the_harness_ended_everybody_nobody_ended_before(calm):
    assert calm.without("exit").verdict(CHECK).verdict == "passed"


def test_without_the_harness_end_nothing_is_known(calm):
    assert calm.without("end").verdict(CHECK).verdict == "unknown"


# -- end_correct ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", ["calm", "brief", "storm", "reborn"])
def test_a_sound_run_ends_for_everybody_at_once(request, run):
    verdict = request.getfixturevalue(run).verdict("end_correct")
    assert (verdict.verdict, verdict.evidence) == ("passed", [])


def test_who_does_not_end_by_itself_is_told(calm):
    story = calm.without(lambda event: event.event == "exit" and event.target == "learner-2")
    verdict = story.verdict("end_correct")
    assert verdict.verdict == "failed"
    assert verdict.evidence[0].startswith("learner-2 was told that training is over at ")
    assert verdict.evidence[0].endswith("and was still there 8.0 s later")


def test_who_was_hit_shortly_before_may_not_have_heard_of_it(storm):
    late = storm.bounded(faults=f"[{{pause: learner-2, at: {storm.end - storm.zero - 2}s, for: 1s}}]")
    story = late.said(storm.end - 2, "harness", "injecting", fault="f1", kind="pause", targets=["learner-2"],
                      description="", due=0.0).without(
        lambda event: event.event == "exit" and event.target == "learner-2")
    assert story.verdict("end_correct").verdict == "passed"


def test_who_ends_before_the_syncer_says_so_is_told(calm):
    story = calm.said(5.0, "learner-3", "finished", step=9, tokens=9)
    verdict = story.verdict("end_correct")
    assert verdict.verdict == "failed"
    assert verdict.evidence[0].startswith("learner-3.0 took training to be over at 5.00 s")


def test_a_merge_after_the_end_is_told(calm):
    merge = calm.all("merge")[-1]
    story = calm.said(calm.end + 0.2, "syncer", "merge", **dict(merge.payload()))
    assert "when training was over" in story.verdict("end_correct").evidence[0]


def test_where_nobody_watched_the_end_it_is_not_known(calm):
    assert calm.without(lambda event: event.event == "ending").verdict("end_correct").verdict == "unknown"
