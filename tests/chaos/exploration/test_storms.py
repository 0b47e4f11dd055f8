"""Schedules that a scenario's own storms draw."""

import pytest

from benchmarks.measure.planted import PLANTED
from diloco_chaos.chaos.exploration.explore import SCHEDULES, Search, explore
from diloco_chaos.chaos.exploration.storms import drawn_from, kinds_of, storms_of
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.base.workers import InProcess

STORM = """
diloco_chaos: 1
name: stormy
cluster: {{model: quadratic, learners: 4, budget: 150 steps, step_time: 60ms}}
deadline: 120s
faults:
  - {{pause: learner-1, at: 1s, for: 500ms}}
  - {{storm: learners, at: 2s, for: 6s, {says}}}
"""
HISTORY = "mtbf: 8s, repair: 1s, process: {relapse: 30%, burst: 60%, burst_size: 3}"
"""Three learners of four may be down at once."""


def search_in(says, **options):
    scenario = parse(STORM.format(says=says))
    storms = storms_of(scenario)
    return Search(scenario.model_copy(update={"faults": ()}), storms=storms, kinds=kinds_of(storms), max_faults=50,
                  **options)


def drawn(search, count=40):
    return [search.job(number, (), None).faults for number in range(count)]


def moments(schedule):
    return [float(fault["at"].removesuffix("s")) for fault in schedule]


def test_a_schedule_has_the_storms_failures_by_time_and_nothing_else():
    for schedule in drawn(search_in(HISTORY)):
        assert {tuple(sorted(fault)) for fault in schedule} == {("at", "kill", "restart_after")}
        assert moments(schedule) == sorted(moments(schedule))
        assert all(2 <= at < 8 for at in moments(schedule))


def test_failures_come_as_the_process_says():
    together = [len(at) - len(set(at)) for at in map(moments, drawn(search_in(HISTORY)))]
    assert sum(together) > 20, "in bursts"
    alone = [len(at) - len(set(at)) for at in map(moments, drawn(search_in("mtbf: 8s")))]
    assert sum(alone) == 0


def test_each_number_and_each_seed_has_its_own_schedule_and_always_the_same():
    search = search_in(HISTORY)
    assert drawn(search) == drawn(search_in(HISTORY))
    assert len(set(map(str, drawn(search)))) > 35
    assert drawn(search) != drawn(search_in(HISTORY, seed=1))


def test_where_failures_are_rare_a_schedule_has_one_all_the_same():
    assert all(drawn(search_in("mtbf: 200s")))


def test_the_first_failures_count_where_fewer_are_asked_for():
    scenario = parse(STORM.format(says=HISTORY))
    whole, first = (drawn_from(storms_of(scenario), scenario.model_copy(update={"faults": ()}), "4", most)
                    for most in (50, 2))
    assert len(whole) > 2
    assert first == whole[:2]


def test_a_traces_outages_are_drawn_from_wherever_it_begins(tmp_path):
    trace = tmp_path / "faults.csv"
    trace.write_text("node,start,end,class\n" + "".join(
        f"n{day % 4},{day},{day + 0.5},{'nic' if day % 2 else 'gpu'}\n" for day in range(20)))
    search = search_in(f"trace: {trace}, speed: 86400, longest: 1s")
    assert {kind for schedule in drawn(search) for fault in schedule for kind in fault} == {
        "kill", "partition", "at", "restart_after", "for"}
    assert len({moments(schedule)[0] for schedule in drawn(search)}) > 20


def test_a_planted_bug_is_found_by_a_storm_and_shrunk_to_single_faults(tmp_path, monkeypatch):
    check = PLANTED["double_merge"](monkeypatch)
    says = "mtbf: 4s, process: {burst: 30%}, of: [{partition: {for: 300ms, direction: downstream}}]"
    state = explore(search_in(says), tmp_path, InProcess(SCHEDULES), runs=48,
                    stop=lambda state: check in state.found)
    _, path = state.found[check]
    found = parse(path.read_text())
    assert [fault.kind for fault in found.faults] == ["partition"]
    assert check in simulate(freeze(found, 0)).failed


def test_results_are_those_of_the_storm(tmp_path):
    first = search_in(HISTORY).settings(("kill",))
    assert first != search_in(HISTORY.replace("8s", "9s")).settings(("kill",))
    assert first == search_in(HISTORY).settings(("kill",))


@pytest.mark.parametrize(("says", "kinds"), [
    (HISTORY, ("kill",)), ("mtbf: 9s, of: [{kill: {}}, {pause: {for: 1s}}]", ("kill", "pause"))])
def test_moments_are_counted_for_the_kinds_that_it_may_bring(says, kinds):
    assert kinds_of(storms_of(parse(STORM.format(says=says)))) == kinds
