"""Whoever writes a word of the first schema is told what it is called now."""

import pytest

from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.problems import ScenarioError

HEAD = "diloco_chaos: 1\nname: x\n"


@pytest.mark.parametrize(("text", "place", "now"), [
    ("cluster: {cut_every: 50}\n", 3, "unknown key 'cut_every': it is called 'checkpoint_interval' now"),
    ("cluster: {silence: 2s}\n", 3, "unknown key 'silence': it is called 'heartbeat_timeout' now"),
    ("cluster: {anchor: own}\n", 3, "'own' is called 'base' now"),
    ("cluster: {anchor: previous}\n", 3, "'previous' is called 'latest' now"),
    ("checks:\n  no_global_stall: {at_least: 2s}\n", 4, "unknown key 'at_least': it is called 'max_gap' now"),
    ("checks:\n  no_global_stall: {times_fault_free: 2}\n", 4, "it is called 'max_gap_vs_baseline' now"),
    ("checks:\n  loss_parity: {against_twin: 1%}\n", 4, "it is called 'against_baseline' now"),
    ("faults:\n  - kill: learner-1\n    when: {node: learner-1, hold: upload.half}\n", 5,
     "unknown key 'hold': it is called 'failpoint' now"),
    ("faults:\n  - kill: learner-1\n    when: {node: learner-1, event: snapshot, count: 3}\n", 4,
     "no event 'snapshot': it is called 'outer_gradient' now")])
def test_an_old_word_is_answered_with_the_new_one_where_it_stands(text, place, now):
    with pytest.raises(ScenarioError) as refused:
        parse(HEAD + text)
    assert [problem.line for problem in refused.value.problems if now in problem.message] == [place]


def test_a_key_that_another_check_still_has_is_no_old_word_there():
    assert parse(HEAD + "checks: {uptime: {at_least: 90%}}\n").checks.uptime.at_least == pytest.approx(0.9)
    with pytest.raises(ScenarioError) as refused:
        parse(HEAD + "checks: {self_healing: {at_least: 2s}}\n")
    assert "is called" not in str(refused.value)
