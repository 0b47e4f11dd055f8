"""What nodes kept of what they computed with, computed again: of models of which the event log alone is not enough."""

import numpy as np
import pytest

from diloco_chaos.chaos.evidence.run_folder import RunFolder, cache_folder
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner.experiment import Experiment
from diloco_chaos.chaos.runner.run import recorded
from diloco_chaos.chaos.runner.simulate import NullObserver
from diloco_chaos.chaos.runner.virtual_runtime import FolderStage
from diloco_chaos.chaos.scenario import plan as plans
from diloco_chaos.harness.simulation.parameters import Parameters
from diloco_chaos.harness.trainer.algorithm import outer_optimizer
from diloco_chaos.harness.trainer.algorithm.codec import Codec
from diloco_chaos.harness.trainer.coordinator import fragment_state
from diloco_chaos.harness.trainer.data_parallel import hub
from diloco_chaos.harness.trainer.learner import learner
from diloco_chaos.harness.trainers.node.settings import NodeSettings
from diloco_chaos.harness.trainers.storage.workings import WORKINGS

KILLS = [{"kill": "learner-2", "at": "1s", "restart_after": "500ms"},
         {"kill": "syncer", "at": "2500ms", "restart_after": "500ms"}]
CUT_OFF = {"partition": "learner-3", "at": "1s", "for": "1s"}
MICRO = {"model": "micro", "corpus": "markov", "learners": 3, "quorum": 2, "fragments": 4, "budget": "50 steps"}


def run(folder, *faults, evidence="sampled", **cluster):
    """A run of the micro model under virtual time: its history."""
    settings = {**MICRO, **cluster}
    plan = plan_of(scenario(**{name: value for name, value in settings.items() if value is not None}), list(faults), 0)
    place = RunFolder.create(folder, "kept")
    plans.save(plan, place.path / "plan.json")
    data = plan.trainer.prepare(cache_folder() / "corpora").file
    told = NodeSettings(trainer=plan.trainer.path, cluster=plan.cluster, data=data, evidence=evidence)
    stage = FolderStage(plan, Parameters(), told, place)
    assert Experiment(plan, stage, NullObserver()).perform().kind == "finished"
    return recorded(place)


def again(history):
    return history.plan.trainer.recomputed(history)


@pytest.mark.parametrize("cluster", [
    {}, {"on_receipt": "overwrite"}, {"anchor": "base"}, {"merge": "average"}, {"mode": "streaming", "quorum": 3},
    {"batch": [1, 2, 3]}, {"gradients": "int4", "broadcasts": "int8", "error_feedback": True},
    {"gradients": "bfloat16", "broadcasts": "bfloat16"}, {"gradients": "int8", "rounding": "stochastic"}], ids=str)
def test_what_was_kept_of_any_model_agrees_with_the_formulas(tmp_path, cluster):
    history = run(tmp_path, *KILLS, **cluster)
    found = again(history)
    assert (found.difference, found.missing) == (None, "")
    assert found.versions == len({(one.fragment, one.version) for one in [*history.merges,
                                                                               *history.recovered_merges]})
    assert found.answers >= found.versions


@pytest.mark.parametrize("cluster", [{"mode": "data_parallel"}, {"mode": "elastic_data_parallel", "batch": [1, 2, 3]},
                                     {"mode": "data_parallel", "gradients": "bfloat16", "broadcasts": "bfloat16"}],
                         ids=str)
def test_where_gradients_are_averaged_every_mean_is_computed_again(tmp_path, cluster):
    history = run(tmp_path, {"kill": "learner-2", "at": "1s", "restart_after": "500ms"}, quorum=None, fragments=None,
                  **cluster)
    found = again(history)
    assert (found.difference, found.missing) == (None, "")
    assert len(history.merges) >= found.versions > len(history.merges) // 2


# -- bugs ---------------------------------------------------------------------------------------------------------

def heavy_ball(patch):
    usual = outer_optimizer.nesterov

    def nesterov(value, momentum, gradient, step):
        _, buffer = usual(value, momentum, gradient, step)
        return {name: np.asarray(value[name] - buffer[name] * np.float32(step.lr)) for name in value}, buffer
    patch.setattr(outer_optimizer, "nesterov", nesterov)


def equal_weights(patch):
    patch.setattr(fragment_state, "token_weight", lambda tokens, steps: 1.0)


def no_anchor(patch):
    patch.setattr(fragment_state.FragmentState, "_anchored", lambda self, answer, config: answer.tensors)


def carried_twice(patch):
    patch.setattr(learner.arrays, "add", lambda told, more: {name: told[name] + 2 * more[name] for name in told})


def feedback_lost(patch):
    usual = Codec.send
    patch.setattr(Codec, "send", lambda self, tensors, error, key: usual(self, tensors, {}, key))


def another_base(patch):
    usual = learner.Learner._give

    def give(self, request):
        held = self.held[request.fragment]
        if held.base is not None:
            held.base = {name: array + np.float32(1e-3) for name, array in held.base.items()}
        yield from usual(self, request)
    patch.setattr(learner.Learner, "_give", give)


@pytest.mark.parametrize(("plant", "cluster"), [
    (heavy_ball, {}), (equal_weights, {"batch": [1, 2, 3]}), (no_anchor, {"anchor": "latest"}),
    (carried_twice, {"overlap": 3, "quorum": 3, "speeds": [1, 0.7, 0.5]}),
    (feedback_lost, {"gradients": "int4", "error_feedback": True}), (another_base, {})],
    ids=lambda one: getattr(one, "__name__", ""))
def test_a_bug_in_the_arithmetic_is_found_in_a_model_that_nobody_else_could_train(tmp_path, monkeypatch, plant,
                                                                                  cluster):
    plant(monkeypatch)
    assert again(run(tmp_path, CUT_OFF, **cluster)).difference is not None


def test_a_mean_that_leaves_somebody_out_is_found(tmp_path, monkeypatch):
    usual = hub.averaged
    monkeypatch.setattr(hub, "averaged", lambda gradients, tokens: usual(gradients[:-1], tokens[:-1]))
    found = again(run(tmp_path, mode="data_parallel", quorum=None, fragments=None)).difference
    assert "the mean gradient of step 1 is not what the formulas give" in found.words


# -- what is kept ---------------------------------------------------------------------------------------------------

def test_without_evidence_nothing_is_judged(tmp_path):
    assert again(run(tmp_path, evidence="off")) is None


def test_a_folder_from_which_the_records_were_taken_proves_nothing(tmp_path):
    history = run(tmp_path)
    for file in history.workings.folder.iterdir():
        file.unlink()
    assert again(history).missing == "no node kept anything of what it computed with"


@pytest.mark.parametrize("spoil", [lambda data: data[:len(data) // 2 + 7], lambda data: b"\0\0\0\4abcd" + data,
                                   lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], lambda data: b""])
def test_what_is_torn_or_altered_is_nobodys_evidence(tmp_path, spoil):
    history = run(tmp_path)
    whole = again(history)
    file = history.workings.folder / "syncer.0.bin"
    file.write_bytes(spoil(file.read_bytes()))
    found = again(history)
    assert found.difference is None
    assert found.versions < whole.versions


def test_records_of_another_run_are_told_apart(tmp_path):
    history, other = run(tmp_path / "one"), run(tmp_path / "other", batch=2)
    for file in other.workings.folder.iterdir():
        (history.workings.folder / file.name).write_bytes(file.read_bytes())
    assert again(history).difference is not None
    assert history.workings.folder.name == WORKINGS
