"""What faults cost, held against the events of runs."""

import pytest

from diloco_chaos.chaos.evidence.phases import recoveries
from diloco_chaos.chaos.evidence.recovery.costs import costs
from diloco_chaos.harness.record.tape.events import Step
from forged_runs import CALM, calmly, stormy, with_a_syncer_born_again
from recorded_events import an_event
from told_runs import told_run


@pytest.fixture(scope="module")
def storm():
    return stormy().history()


@pytest.fixture(scope="module")
def told(storm):
    return costs(storm)


def test_a_run_without_faults_lost_nothing():
    run = costs(calmly(CALM).history()).run
    assert (run.ettr.value, run.lost_rounds.value, run.lost_samples.value) == (pytest.approx(1.0), 0.0, 0.0)
    assert (run.time_to_detect.value, run.time_to_detect.missing) == (None, "no fault took a node out")


def test_only_faults_that_take_a_node_out_have_a_cost(told):
    assert list(told.faults) == ["f1", "f4"]


def test_the_means_of_a_run_are_those_of_its_recoveries(storm, told):
    seconds = [recovery.to_detect for recovery in recoveries(storm)]
    assert told.run.time_to_detect.value == pytest.approx(sum(seconds) / len(seconds))
    assert told.faults["f1"].time_to_recover.value == recoveries(storm)[0].to_recover


def test_a_fault_is_counted_until_the_pace_is_as_before(storm, told):
    [killed, _] = recoveries(storm)
    assert (told.faults["f1"].start, told.faults["f1"].end) == (
        killed.span.began, pytest.approx(killed.span.began + killed.to_recover))


def test_a_killed_learner_is_idle_until_it_makes_steps_again(storm, told):
    [killed, _] = recoveries(storm)
    last = storm.steps["learner-1", 0][-1].t
    first = storm.steps["learner-1", 1][0].t
    assert told.faults["f1"].idle.value == pytest.approx(first - last, abs=0.2)
    assert killed.lost_steps > 0
    tokens = {step.tokens for step in storm.steps["learner-1", 0]}.pop()
    assert told.faults["f1"].lost_samples.value == pytest.approx(killed.lost_steps * tokens, abs=tokens)


def test_all_together_is_no_less_than_what_one_fault_cost(told):
    assert told.run.idle.value >= max(cost.idle.value for cost in told.faults.values()) - 1e-9
    assert told.run.lost_samples.value == sum(cost.lost_samples.value for cost in told.faults.values())


def test_no_progress_is_made_while_nobody_merges():
    history = with_a_syncer_born_again().history()
    [fault] = costs(history).faults.values()
    [recovery] = recoveries(history)
    assert fault.ettr.value == pytest.approx(0.0, abs=0.1)
    assert costs(history).run.ettr.value < 1
    assert fault.lost_samples.value is None
    assert fault.lost_samples.missing.startswith("syncer: it trains nothing itself")
    assert fault.time_to_recover.value == recovery.to_recover


def of_commands(told, shared=True, fault=5.0, samples=8, of="f1", **trainer):
    """What a fault cost that came to w-1; `told`: (moment, worker, process, round)."""
    steps = [Step(step=number, tokens=samples, began=0.0).stamped(t, worker, process)
             for t, worker, process, number in told]
    by_round, newest = [], -1
    for t, worker, _, number in sorted(told):
        if number > newest or not shared:
            by_round.append(an_event(t, "rounds", 0, "merge", {
                "version": len(by_round) + 1, "step": number, "contributions": [{"learner": worker, "members": 2}]}))
            newest = max(newest, number)
    steady = an_event(0.1, "rounds", 0, "steady", {})
    spawns = [an_event(t, "harness", 0, "spawn", {"target": worker, "incarnation": process})
              for worker, process, t in {(worker, process): (worker, process, t)
                                         for t, worker, process, _ in reversed(told)}.values()]
    history = told_run([*steps, *by_round, steady, *spawns], "", "{}", shared, 2, fault, **trainer)
    told_costs = costs(history)
    return told_costs.run if of == "run" else told_costs.faults[of]


def rounds(worker, start, count, first, process=0, every=0.1):
    return [(start + number * every, worker, process, first + number) for number in range(count)]


def test_a_pause_between_rounds_that_is_longer_than_usual_is_no_progress():
    told = [*rounds("w-1", 0.1, 49, 1), *rounds("w-2", 0.1, 49, 1), *rounds("w-1", 7.0, 31, 50),
            *rounds("w-2", 7.0, 31, 50)]
    cost = of_commands(told)
    assert (1 - cost.ettr.value) * (cost.end - cost.start) == pytest.approx(2.0, abs=0.15)
    assert cost.idle.value == pytest.approx(4.0, abs=0.3)
    assert cost.lost_rounds.value == 0


def test_rounds_that_all_make_again_are_lost():
    told = [*rounds("w-1", 0.1, 49, 1), *rounds("w-2", 0.1, 49, 1), *rounds("w-1", 6.0, 40, 40, process=1),
            *rounds("w-2", 6.0, 40, 40, process=1)]
    cost = of_commands(told)
    assert cost.lost_rounds.value == 10
    # from the fault to the first round that is none that was made before, but for a usual one
    assert (1 - cost.ettr.value) * (cost.end - cost.start) == pytest.approx(2.0, abs=0.15)


def test_a_job_that_stands_for_ever_without_a_fault_makes_no_progress():
    told = [*rounds("w-1", 0.1, 19, 1), *rounds("w-2", 0.1, 19, 1), *rounds("w-1", 90.0, 1, 20)]
    run = of_commands(told, fault=89.0, of="run")
    assert run.ettr.value == pytest.approx(2 / 90, abs=0.01)


def test_all_of_the_time_of_a_calm_run_is_progress_where_all_fragments_are_merged_at_once():
    history = calmly(CALM.replace("quorum: 1, ", "").replace("overlap: 2, ", "mode: diloco, ")).history()
    assert costs(history).run.ettr.value == pytest.approx(1.0)


def test_where_each_counts_its_own_rounds_the_progress_is_the_mean_over_workers():
    told = [*rounds("w-1", 0.1, 49, 1), *rounds("w-2", 0.1, 99, 1), *rounds("w-1", 7.0, 31, 50)]
    cost = of_commands(told, shared=False)
    assert (1 - cost.ettr.value) * (cost.end - cost.start) == pytest.approx(1.0, abs=0.1)
    assert cost.idle.value == pytest.approx(2.0, abs=0.2)


def test_what_a_usual_round_is_must_be_known():
    told = [*rounds("w-1", 0.1, 99, 1), *rounds("w-2", 0.1, 99, 1)]
    early = of_commands(told, fault=0.5)
    assert early.ettr.value is early.idle.value is None
    assert "let the first fault come later (`at`)" in early.ettr.missing


def test_of_a_run_it_is_computed_once(storm):
    assert storm.once(costs) is storm.once(costs)
    assert storm.once(recoveries) is storm.once(recoveries)
