"""What a schedule has hit: states of the protocol, faults that follow each other, and what processes went through."""

import pytest

from benchmarks.measure.planted import BASE
from diloco_chaos.chaos.exploration import coverage
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.runner.simulate import simulate

KILL = {"kill": "learner-2", "at": "2100ms", "restart_after": "200ms"}


def run(*faults):
    return simulate(plan_of(BASE, list(faults), 0)).history


@pytest.mark.parametrize(("faults", "hit"), [
    ([{"kill": "syncer", "when": {"node": "syncer", "failpoint": "checkpoint.between", "count": 20},
       "restart_after": "200ms"}], ("kill", "syncer saving")),
    ([KILL, {"pause": "syncer", "when": {"node": "syncer", "event": "hello", "count": 1}, "for": "500ms"}],
     ("pause", "syncer greeting")),
    ([{"kill": "syncer", "at": "2s", "restart_after": "200ms"},
      {"kill": "syncer", "when": {"node": "syncer", "event": "resumed", "count": 1}, "restart_after": "200ms"}],
     ("kill", "syncer resumed")),
    ([KILL, {"partition": "learner-2", "after": {"fault": "f1", "wait": "300ms"}, "for": "500ms"}],
     ("partition", "learner starting"))])
def test_a_fault_is_told_with_what_its_target_was_doing(faults, hit):
    assert hit in coverage.pairs(run(*faults))


def test_faults_that_follow_each_other_are_told_by_what_they_do_to_a_node():
    history = run(KILL, {"terminate": "syncer", "when": {"node": "syncer", "event": "hello", "count": 1},
                         "restart_after": "200ms"})
    assert coverage.sequences(history) == {("ends", "ends @ syncer greeting")}
    assert coverage.second_of(("ends", "ends @ syncer greeting")) == ("ends", "syncer greeting")


def test_every_row_that_there_can_be_has_faults_that_can_hit_that_state():
    rows = coverage.possible_sequences({("kill", "syncer saving"), ("straggler", "learner training")})
    assert rows == {(first, second) for first in ("ends", "slow")
                    for second in ("ends @ syncer saving", "slow @ learner training")}


def test_what_processes_went_through_is_told_in_pairs_and_what_happens_all_the_time_counts_once():
    calm, killed = coverage.traces(run()), coverage.traces(run(KILL))
    assert "syncer: trains > finished" in calm
    assert not any("hello new" in trace for trace in calm)
    assert {"learner: trains > exit -9", "syncer: trains > lost closed by the peer"} <= killed
    assert any(trace.endswith("> hello new") for trace in killed)
    assert len(calm) < len(killed) < 60
