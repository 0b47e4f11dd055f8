"""Bounds of single phases of a recovery."""

import pytest

from diloco_chaos.chaos.scenario.loading import ScenarioError, parse

NOTICED = "{noticed_within: {within: 1s}}"


def recovered(phase, seconds):
    return f"{{recovered_within: {{{phase}: {seconds}}}}}"


def test_where_no_bound_is_named_nothing_is_judged(storm):
    assert {"noticed_within", "recovered_within"}.isdisjoint(verdict.name for verdict in storm.judged().checks)


def test_a_fault_that_is_noticed_in_time_passes(storm):
    verdict = storm.bounded(NOTICED).verdict("noticed_within")
    assert (verdict.verdict, verdict.bound) == ("passed", "≤ 1.0 s")


def test_a_fault_that_is_noticed_late_fails_with_its_target(storm):
    late = storm.without(lambda event: event.event == "merge" and event.t > 4).forged(
        lambda event: event.event == "lost" and event.learner == "learner-1", later=2.0)
    verdict = late.bounded(NOTICED).verdict("noticed_within")
    assert (verdict.verdict, verdict.measured) == ("failed", "2.0 s, learner-1")
    assert "noticed, by syncer, at " in str(verdict.evidence[0])


def test_a_fault_that_nobody_ever_notices_fails(storm):
    nobody = storm.without(lambda event: event.event in ("lost", "merge") and event.t > 4)
    assert nobody.bounded(NOTICED).verdict("noticed_within").verdict == "failed"


@pytest.mark.parametrize("phase", ["excluded", "restarted", "ready", "first_round", "pace_as_before", "work_made_good"])
def test_each_phase_has_a_bound_of_its_own(storm, phase):
    assert storm.bounded(recovered(phase, "15s")).verdict("recovered_within").verdict == "passed"
    verdict = storm.bounded(recovered(phase, "1ms")).verdict("recovered_within")
    assert verdict.verdict == "failed"
    assert f"; {phase.replace('_', ' ')}, by " in str(verdict.evidence[0])


def test_who_never_has_part_in_a_round_again_fails(storm):
    spawn = storm.all("spawn", "harness", target="learner-1")[-1].t
    alone = storm.unmerged(spawn, storm.end, "learner-1")
    verdict = alone.bounded(recovered("first_round", "4s")).verdict("recovered_within")
    assert (verdict.verdict, verdict.measured) == ("failed", "never, learner-1")


def test_a_run_that_ends_before_the_bound_is_over_proves_nothing(storm):
    spawn = storm.all("spawn", "harness", target="learner-1")[-1].t
    alone = storm.unmerged(spawn, storm.end, "learner-1")
    verdict = alone.bounded(recovered("first_round", "1m")).verdict("recovered_within")
    assert verdict.verdict == "unknown"
    assert "the run ended before the 60.0 s of learner-1 were over" in str(verdict.evidence[0])


def test_what_is_not_told_proves_nothing(storm):
    silent = storm.without(lambda event: event.event == "ready" and event.inc == 1)
    verdict = silent.bounded(recovered("ready", "4s")).verdict("recovered_within")
    assert (verdict.verdict, verdict.evidence) == ("unknown", ["learner-1, ready: it did not say so"])


def test_without_a_phase_there_is_no_bound():
    with pytest.raises(ScenarioError, match="name a phase: `first_round: 10s`"):
        parse("diloco_chaos: 1\nname: x\nchecks: {recovered_within: {}}\n")
