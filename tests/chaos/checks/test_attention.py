"""Everybody is asked, and who falls silent is missed."""

import pytest

STARVES, SILENCE = "nobody_starves", "silence_noticed"


def unasked(story, learner):
    """It was never asked."""
    return story.unmerged(0, 99, learner).forged(
        "merge", asked=lambda asked: [name for name in asked if name != learner])


@pytest.mark.parametrize("run", ["calm", "storm", "reborn"])
def test_in_a_sound_run_everybody_is_asked(request, run):
    verdict = request.getfixturevalue(run).verdict(STARVES)
    assert (verdict.verdict, verdict.measured) == ("passed", "least 100%")


def test_who_is_never_asked_starves(calm):
    verdict = unasked(calm, "learner-3").verdict(STARVES)
    assert verdict.verdict == "failed"
    assert verdict.evidence[0].startswith("learner-3 was asked in 0% of ")


def test_who_is_asked_and_never_merged_from_starves_where_all_are_alike(calm):
    story = calm.unmerged(0, 99, "learner-3")
    assert story.verdict(STARVES).verdict == "failed"
    assert story.bounded(speeds=[1, 1, 0.3, 1]).verdict(STARVES).verdict == "passed"


def test_where_nobody_came_it_is_not_known(calm):
    assert calm.without(lambda event: event.event == "hello").verdict(STARVES).verdict == "unknown"


def silent(calm, lost, duration="5s"):
    """learner-2 is cut off from 3 s on, and taken for gone then; None: never."""
    story = calm.bounded(faults=f"[{{partition: learner-2, at: 2s, for: {duration}}}]")
    story = story.said(3.0, "harness", "injecting", fault="f1", kind="partition", targets=["learner-2"],
                       description="", due=3.0)
    story = story.said(3.01, "harness", "injected", fault="f1", observed={"ok": True})
    return story if lost is None else story.said(lost, "syncer", "lost", learner="learner-2", incarnation=0,
                                                 reason="silent")


def test_who_is_missed_in_time_was_noticed(calm):
    verdict = silent(calm, 6.2).verdict(SILENCE)
    assert (verdict.verdict, verdict.measured) == ("passed", "3.2 s")


@pytest.mark.parametrize("lost", [None, 8.9])
def test_who_is_missed_too_late_or_never_was_not(calm, lost):
    verdict = silent(calm, lost).verdict(SILENCE)
    assert verdict.verdict == "failed"
    assert verdict.evidence[0].startswith("learner-2: learner-2 partitioned for 5.0 s from 3.00 s on; taken for gone ")


def test_a_silence_that_is_shorter_than_the_timeout_is_none(storm):
    assert "silence_noticed" not in storm.describe()
