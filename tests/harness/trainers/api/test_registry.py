"""Trainers by name, from whichever package provides them; what a scenario says is read by its trainer."""

from unittest.mock import Mock

import pytest

import diloco_chaos.harness.trainer.plugin
from diloco_chaos.chaos.exploration import scenario_writer as writer
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import written
from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.scenario import plan as plans
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.harness.base.registries import ProviderError
from diloco_chaos.harness.trainers.api.registry import BUILT_IN, TRAINERS
from diloco_chaos.harness.trainers.api.trainer import TrainerError, at
from packages import installed

WALK = """
    import numpy as np
    from diloco_chaos import RoundTrainer, SimpleSettings

    class Settings(SimpleSettings):
        stride: float = 0.5

    class Walk(RoundTrainer):
        name = "walk"
        settings_type = Settings
        def initial(self):
            return {"n": np.zeros(1, np.float32)}
        def step(self, learner, round_, state):
            return {"n": np.full(1, learner, np.float32)}, 0.0
        def merge(self, state, contributions):
            return {"n": state["n"] + sum(one["n"] for one in contributions.values())}
"""
POINTS = "[diloco_chaos.trainers]\nwalk = walking:Walk\n"


def scenario(trainer="walk", cluster="{}", rest=""):
    return parse(f"diloco_chaos: 1\nname: x\ntrainer: {trainer}\ncluster: {cluster}\n{rest}", "x.yaml")


def test_the_built_in_trainer_comes_by_the_same_path():
    assert TRAINERS[BUILT_IN] is diloco_chaos.harness.trainer.plugin.DecoupledDiLoCo
    assert at(freeze(parse("diloco_chaos: 1\nname: x\n"), 0).trainer.path) is TRAINERS[BUILT_IN]


def test_a_scenario_is_read_by_the_trainer_that_it_names(tmp_path):
    with installed(tmp_path, "walkers", POINTS, walking=WALK):
        plan = freeze(scenario(cluster="{stride: 0.25, learners: 2}"), 3)
        assert (plan.cluster.stride, plan.cluster.names, plan.cluster.seed) == (0.25, ["learner-1", "learner-2"], 3)
        assert plan.providers == {"trainer walk": "walkers 1.2"}
        with pytest.raises(ScenarioError, match="4:11: unknown key 'strde'; did you mean 'stride'"):
            scenario(cluster="{strde: 1}")


def test_what_an_exploration_writes_names_the_trainer_and_is_read_as_the_same_again(tmp_path):
    with installed(tmp_path, "walkers", POINTS, walking=WALK):
        base = scenario(cluster="{stride: 0.25, learners: 2}")
        base = base.model_copy(update={"cluster": base.trainer.cheapest()})
        plan = plan_of(base, [{"kill": "learner-1", "at": "1s"}], 0)
        for text in (written(plan), writer.text(base, [{"kill": "learner-1", "at": "1s"}], "found", "")):
            again = parse(text)
            assert (again.trainer.name, again.cluster) == ("walk", base.cluster)


def test_containers_refuse_a_trainer_that_their_image_does_not_have(tmp_path, monkeypatch):
    monkeypatch.setattr("diloco_chaos.harness.places.compose.engine.DockerEngine", Mock())
    with installed(tmp_path, "walkers", POINTS, walking=WALK):
        plan = freeze(scenario(), 0)
        [why] = named("compose").refusals(plan)
        assert "has the built-in trainer only; run it with --on local or --on simulated" in why
        assert named("local").refusals(plan) == []


def test_a_loss_that_there_is_nothing_to_hold_against_is_refused(tmp_path):
    with installed(tmp_path, "walkers", POINTS, walking=WALK), \
            pytest.raises(ScenarioError, match="trainer walk writes no snapshots to take a loss of"):
        scenario(rest="checks: {loss_parity: {against_baseline: 1%}}\n")


def test_a_saved_plan_is_read_again_and_says_what_to_install_where_its_trainer_is_missing(tmp_path):
    with installed(tmp_path / "site", "walkers", POINTS, walking=WALK):
        plan = freeze(scenario(), 0)
        plans.save(plan, tmp_path / "plan.json")
        again = plans.load(tmp_path / "plan.json")
        assert (again, again.digest) == (plan, plan.digest)
    with pytest.raises(ScenarioError, match=r"the trainer 'walk' came from walkers 1\.2, which is not installed"):
        plans.load(tmp_path / "plan.json")


def test_an_unknown_trainer_is_told_with_the_nearest_and_its_section_is_left_alone():
    with pytest.raises(ScenarioError) as told:
        scenario("decoupled-dilocco", "{whatever: 1}", "faults:\n  - {kill: learners, at: 1s}\n")
    [problem] = told.value.problems
    assert "no trainer 'decoupled-dilocco'; did you mean 'decoupled-diloco'?" in problem.message
    assert problem.line == 3


@pytest.mark.parametrize("entry", ["walk = walking:Settings", "other = walking:Walk"], ids=["none", "another"])
def test_an_entry_point_that_names_no_trainer_of_its_name_is_told(tmp_path, entry):
    with installed(tmp_path, "walkers", f"[diloco_chaos.trainers]\n{entry}\n", walking=WALK), \
            pytest.raises(ProviderError, match=r"of walkers 1\.2 provides no trainer"):
        TRAINERS.get("walk")


@pytest.mark.parametrize("settings", ["BaseModel", "TrainerSettings"])
def test_settings_that_lack_what_every_trainer_has_are_told(tmp_path, settings):
    lacking = f"from pydantic import BaseModel\nfrom diloco_chaos import RoundTrainer, TrainerSettings\n" \
              f"class Other({settings}):\n    stride: float = 0.5\n" \
              f"class Walk(RoundTrainer):\n    name = 'walk'\n    settings_type = Other\n"
    with installed(tmp_path, "walkers", POINTS, walking=lacking), \
            pytest.raises(ProviderError, match=r"must be a subclass of .* with the fields learners, joining"):
        TRAINERS.get("walk")


@pytest.mark.parametrize("path", ["", "nowhere:Nobody", "diloco_chaos.harness.trainer.plugin:Nobody",
                                  "diloco_chaos.harness.base.tensors:digest", "os:abort"])
def test_a_path_that_leads_to_no_trainer_is_told(path):
    with pytest.raises(TrainerError):
        at(path)


def test_naming_the_built_in_trainer_makes_no_other_plan():
    text = "diloco_chaos: 1\nname: x\n"
    assert freeze(parse(text), 0).digest == freeze(parse(f"{text}trainer: {BUILT_IN}\n"), 0).digest
