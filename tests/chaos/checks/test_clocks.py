"""Checks that compare times of different machines accuse nobody for what is not known of their clocks."""

from __future__ import annotations

import pytest

from diloco_chaos.chaos.evidence.clocks import TOO_FAR_S


def shifted(story, node, seconds, error):
    """As if a node's machine had a clock that is so much ahead, and the harness knew that as well as it says."""
    told = story.said(0.5, "harness", "clock", target=node, incarnation=0, ahead=0.0, error=error)
    return told.forged(lambda event: event.node == node, later=seconds)


@pytest.mark.parametrize("check", ["end_correct", "learning_rate_correct", "processed_correct"])
def test_a_clock_that_is_wrong_by_less_than_it_is_known_accuses_nobody(calm, check):
    verdict = shifted(calm, "learner-2", -0.04, 0.05).verdict(check)
    assert verdict.verdict == "passed"
    assert verdict.bound.endswith(", give or take 50.0 ms of their clocks")


def test_where_there_is_one_clock_nothing_is_said_of_it(calm):
    assert "clocks" not in calm.verdict("end_correct").bound


def test_one_that_is_wrong_by_more_does(calm):
    assert shifted(calm, "learner-2", -0.04, 0.001).verdict("end_correct").verdict == "failed"


def test_clocks_that_nobody_knows_prove_nothing(calm):
    judgement = shifted(calm, "learner-2", 0.0, 2 * TOO_FAR_S).judged()
    assert judgement.inconclusive == ("clocks of different machines are known too badly to tell what came first: "
                                      "learner-2's to 500 ms")


def test_too_much_by_less_than_clocks_are_known_is_inconclusive_and_says_so(reborn):
    gap = reborn.verdict("no_global_stall").figures[0].value
    tight = reborn.bounded(f"{{no_global_stall: {{max_gap: {gap - 0.03:.3f}s}}}}")
    assert tight.verdict("no_global_stall").verdict == "failed"
    known = tight.said(0.5, "harness", "clock", target="syncer", incarnation=0, ahead=0.0, error=0.05)
    verdict = known.verdict("no_global_stall")
    assert verdict.verdict == "unknown"
    assert verdict.reason == "clocks"
    assert verdict.evidence[0] == ("it is too much by less than the clocks of these machines are known to: syncer's to "
                                   "50 ms")


def test_too_much_by_more_is_a_failure_however_well_they_are_known(reborn):
    gap = reborn.verdict("no_global_stall").figures[0].value
    tight = reborn.bounded(f"{{no_global_stall: {{max_gap: {gap - 0.3:.3f}s}}}}")
    known = tight.said(0.5, "harness", "clock", target="syncer", incarnation=0, ahead=0.0, error=0.05)
    assert known.verdict("no_global_stall").verdict == "failed"
