"""What a fleet's simulation predicts of a run is what the run measures."""

import pytest

from diloco_chaos.chaos.checks import judge
from diloco_chaos.chaos.checks.outcome import goodput_between
from diloco_chaos.chaos.fleet.as_scenario import WITHIN, scenario_of
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.failures.process import FailureProcess
from diloco_chaos.harness.fleet.closed_forms import goodput
from diloco_chaos.harness.fleet.paper import fitted
from diloco_chaos.harness.fleet.scaled import ScaledError
from diloco_chaos.harness.simulation.parameters import Parameters


@pytest.mark.parametrize(("mode", "chips", "learners"), [
    ("decoupled", 1_200_000, 2), ("decoupled", 2_400_000, 8), ("elastic_data_parallel", 2_400_000, 1),
    ("data_parallel", 1_200_000, 1)])
def test_a_prediction_is_met_within_five_points(mode, chips, learners):
    fleet = fitted().model_copy(update={"mode": mode, "chips": chips, "learners": learners})
    made = scenario_of(fleet, 1.0, str(chips), mode, goodput(fleet))
    plan = freeze(parse(made.text), made.seed)
    history = simulate(plan).history
    measured = goodput_between(history, history.zero, history.end)
    assert measured == pytest.approx(made.goodput, abs=WITHIN)
    assert judge(history).exit_code == 0


HISTORY = FailureProcess.model_validate({"lemons": 1.8, "relapse": "29%", "relapse_shape": 0.37, "burst": "24%",
                                         "burst_size": 2.9, "waves": 2.3, "repair_shape": 0.43})


@pytest.mark.parametrize(("mode", "learners"), [("decoupled", 2), ("elastic_data_parallel", 1), ("data_parallel", 1)])
def test_a_prediction_of_failures_with_a_history_is_met_within_five_points(mode, learners):
    fleet = fitted().model_copy(update={"mode": mode, "chips": 1_200_000, "learners": learners, "process": HISTORY})
    made = scenario_of(fleet, 1.0, "1.2M", mode, 0.5)
    history = simulate(freeze(parse(made.text), made.seed)).history
    assert goodput_between(history, history.zero, history.end) == pytest.approx(made.goodput, abs=WITHIN)
    assert judge(history).exit_code == 0
    assert made.goodput > scenario_of(fleet.model_copy(update={"process": None}), 1.0, "1.2M", mode, 0.5).goodput


def test_a_replayed_trace_is_no_scenario():
    fleet = fitted().model_copy(update={"trace": "faults.csv", "how": "replay"})
    with pytest.raises(ScaledError, match="take --how fitted"):
        scenario_of(fleet, 1.0, "1.2M", "decoupled", 0.5)


def test_the_file_says_what_it_stands_for_and_is_a_scenario_that_a_person_can_read():
    fleet = fitted()
    made = scenario_of(fleet, 1.0, "1.2M", "decoupled, M = 8", goodput(fleet))
    assert "# A fleet of 1.2M chips, decoupled, M = 8, of which each is interrupted once in 1 y." in made.text
    assert f"# With --seed {made.seed} it has as many failures" in made.text
    scenario = parse(made.text)
    assert scenario.name == "fleet-decoupled"
    assert max(map(len, made.text.splitlines())) <= 120


def test_where_processes_start_quicker_than_is_reckoned_with_all_failures_still_come():
    fleet = fitted().model_copy(update={"mode": "data_parallel", "chips": 600_000})
    made = scenario_of(fleet, 1.0, "600k", "data parallel", goodput(fleet))
    done = simulate(freeze(parse(made.text), made.seed), Parameters(start_learner=0.3))
    measured = goodput_between(done.history, done.history.zero, done.history.end)
    assert made.goodput + 0.02 < measured < made.goodput + WITHIN
    assert done.judgement.exit_code == 0
