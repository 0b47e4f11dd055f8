"""The counts of a whole run: what all have processed, and the learning rate that follows from it."""

import pytest

from forged_runs import CALM, calmly


def at(story, t):
    """The first merge after this time."""
    return next(merge for merge in story.all("merge") if merge.t > t)


# -- processed_correct ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("run", ["calm", "brief", "paper", "storm", "reborn"])
def test_a_sound_run_has_counted_right(request, run):
    verdict = request.getfixturevalue(run).verdict("processed_correct")
    assert (verdict.verdict, verdict.evidence) == ("passed", [])


def test_tokens_that_nobody_processed_are_found_wherever_they_are_counted(calm):
    step = calm.one("step").tokens
    for merge in (calm.all("merge")[0], calm.all("merge")[50], calm.all("merge")[-1]):
        verdict = calm.forged(merge, processed=lambda count: count + 5 * step).verdict("processed_correct")
        assert verdict.verdict == "failed"
        assert "all together had made" in verdict.evidence[0]


def test_tokens_that_were_merged_and_not_counted_are_found(calm):
    merge = calm.all("merge")[50]
    verdict = calm.forged(merge, processed=lambda count: count // 2).verdict("processed_correct")
    assert verdict.verdict == "failed"
    assert f"at {merge.t:.2f} s" in verdict.evidence[0]
    assert "were merged" in verdict.evidence[0]


def test_a_count_that_leaves_out_a_learner_whose_work_is_not_merged_is_found(calm):
    # All others are, so that the sum of what was merged is not too high.
    mine = {event.t: number for number, event in enumerate(calm.all("step", "learner-4"), 1)}
    step = calm.one("step").tokens
    lonely = calm.unmerged(0, calm.end + 1, "learner-4")

    def without(event):
        return step * sum(1 for t in mine if t <= event.t)
    forged = lonely
    for event in [*lonely.all("merge"), lonely.one("finished", "syncer")]:
        forged = forged.forged(event, processed=lambda count, event=event: count - without(event))
    verdict = forged.forged("finished", processed=calm.plan.cluster.budget_tokens).verdict("processed_correct")
    assert verdict.verdict == "failed"
    assert "who was connected had made" in verdict.evidence[0]


def test_tokens_that_are_said_to_be_in_the_model_and_were_not_merged_are_found(calm):
    # From here on everywhere alike, so that no two merges contradict each other.
    since = calm.all("merge")[50]
    more = calm.forged(lambda event: event.event == "merge" and event.t >= since.t, merged=lambda count: count + 500)
    verdict = more.verdict("processed_correct")
    assert verdict.verdict == "failed"
    assert f"at {since.t:.2f} s" in verdict.evidence[0]
    assert "were said to be in the model" in verdict.evidence[0]
    # Where a merge is missing, what went into it is not known.
    assert more.without(calm.all("merge")[10]).verdict("processed_correct").verdict == "passed"


def test_a_global_clock_that_is_behind_the_learners_is_found(calm):
    verdict = calm.forged("merge", step=lambda step: step // 2).verdict("processed_correct")
    assert verdict.verdict == "failed"
    assert "the learner that drives it made" in verdict.evidence[0]


def test_the_work_of_a_learner_that_is_cut_off_need_not_be_counted_before_it_is_back(storm):
    # learner-4 goes on training for two seconds without a connection (faults f4).
    assert storm.verdict("processed_correct").verdict == "passed"


def test_a_count_of_the_end_that_lacks_tokens_of_the_budget_is_an_early_end(calm):
    last = calm.plan.cluster.budget_tokens - 1
    verdict = calm.forged("finished", processed=last).verdict("processed_correct")
    assert verdict.verdict == "failed"
    assert "training was over" in verdict.evidence[-1]


@pytest.mark.parametrize("count", [float("nan"), -1, 1 << 70])
def test_a_count_that_is_none_is_never_right(calm, count):
    assert calm.forged(calm.all("merge")[30], processed=count).verdict("processed_correct").verdict == "failed"


def test_where_a_learners_tape_is_missing_nothing_is_known_of_the_count(calm):
    verdict = calm.without(lambda event: event.node == "learner-3").verdict("processed_correct")
    assert verdict.verdict == "unknown"
    assert verdict.evidence == ["learner-3.0 was there, but left no tape"]


# -- learning_rate_correct -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("run", ["calm", "brief", "paper", "storm", "reborn"])
def test_a_sound_run_has_the_rates_of_its_schedule(request, run):
    verdict = request.getfixturevalue(run).verdict("learning_rate_correct")
    assert (verdict.verdict, verdict.evidence) == ("passed", [])


@pytest.mark.parametrize("cluster", [{"warmup": 60}, {"warmup": 60, "final_lr": 0.0}, {"batch": (1, 2, 3, 1)}])
def test_other_schedules_are_right_too(cluster):
    story = calmly(CALM, budget=60, **cluster)
    assert story.verdict("learning_rate_correct").verdict == "passed"
    assert story.verdict("processed_correct").verdict == "passed"


@pytest.mark.parametrize("wrong", [lambda rate: rate * 1.05, lambda rate: rate * 0.95, lambda rate: -rate,
                                   lambda rate: 0.0, lambda rate: float("inf")])
def test_one_rate_that_is_off_is_found(calm, wrong):
    step = calm.all("step", "learner-2")[70]
    verdict = calm.forged(step, lr=wrong).verdict("learning_rate_correct")
    assert verdict.verdict == "failed"
    assert verdict.evidence[0].startswith(f"learner-2.0 step {step.step}: ")


def test_rates_of_a_schedule_that_follows_a_learners_own_steps_are_found(storm):
    # learner-1 was killed, and its successor is told where training is; here it begins from the start.
    rates = [event.lr for event in storm.all("step", "learner-2")]
    again = iter(rates)
    forged = storm.forged(lambda event: event.event == "step" and (event.node, event.inc) == ("learner-1", 1),
                          lr=lambda _: next(again))
    assert forged.verdict("learning_rate_correct").verdict == "failed"


def test_rates_that_do_not_decay_are_found(calm):
    first = calm.one("step").lr
    assert calm.forged("step", lr=first).verdict("learning_rate_correct").verdict == "failed"


def test_steps_without_a_rate_tell_nothing_of_it(calm):
    step = calm.all("step", "learner-2")[3]
    gone = {name: value for name, value in dict(step.payload()).items() if name != "lr"}
    verdict = calm.without(step).said(step.t, "learner-2", "step", **gone).verdict("learning_rate_correct")
    assert verdict.verdict == "unknown"
    assert "learner-2.0" in verdict.evidence[0]
