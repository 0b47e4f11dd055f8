"""The most advanced learner dies, stands still or becomes slow: the others go on with what they can do."""

from functools import cache
from itertools import pairwise

import pytest

from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner.simulate import simulate

UNEQUAL = (1.0, 0.82, 0.82, 0.82)
STEP_S = 0.1


def run(*faults, quorum=1, seconds=40, speeds=UNEQUAL):
    usual = {"learners": 4, "quorum": quorum, "budget": f"{round(seconds / STEP_S)} steps", "step_time": f"{STEP_S}s"}
    setting = scenario(**usual, speeds=list(speeds)).model_copy(update={"deadline": 4.0 * seconds})
    result = simulate(plan_of(setting, list(faults), 0))
    assert result.outcome.kind == "finished", result.outcome.message
    return result


@cache
def fault_free(quorum, speeds=UNEQUAL):
    history = run(quorum=quorum, speeds=speeds).history
    return history, p99(history.gaps(history.zero, history.end)[1:-1])


def p99(gaps):
    return sorted(gaps)[int(0.99 * (len(gaps) - 1))]


@pytest.mark.parametrize("restart", [{}, {"restart_after": "2s"}], ids=["for good", "restarted"])
@pytest.mark.parametrize("at", [15, 30, 60])
@pytest.mark.parametrize("quorum", [1, 2, 3])
def test_the_leaders_death_costs_nobody_else_anything(quorum, at, restart):
    result = run({"kill": "learner-1", "at": f"{at}s", **restart}, quorum=quorum, seconds=at + 12)
    history = result.history
    assert max(history.gaps(history.zero + at - 1, history.end)[:-1]) < 3 * fault_free(quorum)[1]
    assert not result.failed


@pytest.mark.parametrize("quorum", [1, 2, 3])
def test_a_straggle_of_all_but_one_leaves_no_debt_when_that_one_dies(quorum):
    alike = (1.0,) * 4
    history = run({"straggler": ["learner-2", "learner-3", "learner-4"], "at": "10s", "for": "10s", "factor": 0.25},
                  {"kill": "learner-1", "at": "20.5s"}, quorum=quorum, speeds=alike).history
    over = max(span.ended for span in history.spans if span.ended is not None)
    assert max(history.gaps(over, history.end)[:-1]) < 3 * fault_free(quorum, alike)[1]


@pytest.mark.parametrize("fault", [{"pause": "learner-1", "for": "2.5s"},
                                   {"straggler": "learner-1", "for": "8s", "factor": 0.25}])
def test_a_leader_that_is_there_and_makes_no_progress_holds_up_nobody(fault):
    history = run(fault | {"at": "15s"}).history
    assert max(history.gaps(history.zero + 14, history.end)[:-1]) < 3 * fault_free(1)[1]


@pytest.mark.parametrize("quorum", [1, 2, 3, 4])
@pytest.mark.parametrize("speeds", [UNEQUAL, (1.0, 1.0, 0.82, 0.82), (1.0, 0.9, 0.7, 0.5)])
def test_every_fragment_is_merged_every_h_steps_of_the_kth_quickest(quorum, speeds):
    history, _ = fault_free(quorum, speeds)
    pace = sorted(speeds, reverse=True)[quorum - 1] / STEP_S
    cluster = history.plan.cluster
    for fragment in range(cluster.fragments):
        times = [merge.t for merge in history.merges if merge.fragment == fragment and merge.t > history.zero + 2]
        between = [later - earlier for earlier, later in pairwise(times)]
        assert sum(between) / len(between) * pace == pytest.approx(cluster.sync_every, rel=0.05)
