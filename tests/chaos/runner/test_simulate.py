"""Virtual time: the same plan gives the same tape, and the same verdicts as its folder."""

import hashlib
import json
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.exploration.generate import ByChance, allowing, choose, drawable, plan_of
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.runner.baselines import synchronous
from diloco_chaos.chaos.runner.simulate import data_file, initial_values, performed, record, simulate
from diloco_chaos.chaos.scenario.loading import load, parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.record.tape.events import Failpoint, Refused, Step
from diloco_chaos.harness.record.tape.line import line
from diloco_chaos.harness.trainer.config.schedule import learning_rate
from diloco_chaos.harness.trainer.data_parallel.hub import averaged
from diloco_chaos.harness.trainer.learner.learner import Learner
from diloco_chaos.harness.trainer.model.replica import OPTIMIZER
from diloco_chaos.harness.trainer.runtime.replica_factory import replicas
from diloco_chaos.scenarios import find

SMALL = scenario(learners=2, budget="100 steps", step_time="60ms")
PLANS = 60


def plan(number):
    chance = random.Random(f"determinism/{number}")
    return plan_of(SMALL, choose(ByChance(chance), SMALL, tuple(drawable()), 4), number)


def digest(number):
    tape, _ = record(plan(number))
    return hashlib.sha256(b"".join(map(line, tape.events))).hexdigest()


def main():
    print(json.dumps([digest(number) for number in range(PLANS)]))


def test_the_same_plan_gives_the_same_tape_in_any_process_twice_and_under_another_hash_seed():
    others = [subprocess.Popen([sys.executable, "-c", "import test_simulate; test_simulate.main()"],
                               cwd=os.path.dirname(__file__), stdout=subprocess.PIPE, text=True,
                               env=os.environ | {"PYTHONHASHSEED": seed}) for seed in ("1", "77")]
    here = [digest(number) for number in range(PLANS)]
    assert here[:10] == [digest(number) for number in range(10)]
    assert len(set(here)) > PLANS * 0.9
    for other in others:
        assert json.loads(other.communicate()[0]) == here


def quick(name, seed):
    """A scenario's plan with the model that needs no torch."""
    loaded = load(name)[0]
    changes = {"model": "quadratic", "fragments": min(8, loaded.cluster.fragments)}
    other = loaded.model_copy(update={"cluster": loaded.cluster.model_copy(update=changes)})
    parity = allowing(other).checks.loss_parity  # the margins are meant for the scenario's own model
    return freeze(other.model_copy(update={"checks": other.checks.model_copy(update={"loss_parity": parity})}), seed)


@pytest.mark.parametrize("name", sorted(find()))
def test_the_library_passes_under_virtual_time(name):
    frozen = quick(name, 0)
    # a simulation has none of these
    if name in ("restart-engine", "node-power-loss", "busy-neighbour", "power-loss", "corrupt-link"):
        assert named("simulated").refusals(frozen)
        return
    result = simulate(frozen)
    assert result.outcome.kind == "finished"
    assert {verdict.name: verdict.evidence for verdict in result.judgement.checks if verdict.verdict != "passed"} == {}


@pytest.mark.parametrize("seed", range(8))
def test_poison_gets_its_turn_also_where_the_real_learner_is_ahead_of_all_others(seed):
    verdicts = {verdict.name: verdict for verdict in simulate(quick("poison", seed)).judgement.checks}
    assert verdicts["faults_verified"].verdict == "passed", verdicts["faults_verified"].evidence


@pytest.mark.parametrize("content", ["nan", "inf", "shape"])
def test_poison_is_refused_also_compressed_and_where_peers_bring_it_up_to_date(content):
    other = scenario(learners=3, budget="200 steps", recovery="peer", gradients="int4", broadcasts="int4")
    result = simulate(plan_of(other, [{"poison": "learner-1", "content": content, "count": 2, "at": "2s"}], 0))
    assert {verdict.name: verdict.evidence for verdict in result.judgement.checks if verdict.verdict != "passed"} == {}
    assert {event.reason for event in result.history.tape.of(Refused, node="syncer") if event.first == event.last} \
        == {"wrong shapes" if content == "shape" else "not finite"}


ABORTED = """diloco_chaos: 1
name: aborted
deadline: 60s
cluster: {model: quadratic, fragments: 4, learners: 3, budget: 400, step_time: 60ms}
abort_when: {alive_below: 3}
checks: {self_healing: {within: 8s}}
faults:
  - {kill: learner-2, at: 2s, restart_after: 500ms}
  - {pause: learner-1, when: {node: learner-1, failpoint: upload.half, count: 40}, for: 1s}
"""


def test_a_node_at_a_hold_point_goes_on_where_its_fault_does_not_come_any_more():
    result = simulate(freeze(parse(ABORTED), 0))
    assert result.outcome.kind == "aborted"
    held = result.history.tape.of(Failpoint, node="learner-1")[0]
    assert len([step for step in result.history.tape.of(Step, node="learner-1") if step.t > held.t]) > 40


def test_a_run_on_simulated_leaves_a_folder_that_is_judged_alike(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text("diloco_chaos: 1\nname: small\nextends: base\ncluster: {model: quadratic}\n"
                    "faults:\n  - kill: learner-1\n    at: 5s\n    restart_after: 1s\n")
    done = CliRunner().invoke(application(), ["run", str(file), "--on", "simulated",
                                              "--runs-dir", str(tmp_path / "runs"), "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    in_memory = simulate(freeze(load(str(file))[0], 0))
    assert [check["name"] for check in report["checks"]] == [check.name for check in in_memory.judgement.checks]
    assert report["checks"] == [check.model_dump(mode="json") for check in in_memory.judgement.checks]
    again = CliRunner().invoke(application(), ["check", str(tmp_path / "runs" / report["run"])])
    assert again.exit_code == 0


def test_a_reference_that_a_killed_simulation_left_half_made_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "parity.yaml"
    file.write_text(ABORTED.split("abort_when")[0] + "checks: {loss_parity: {against_synchronous: 50%}}\n")

    def run():
        return CliRunner().invoke(application(), ["run", str(file), "--on", "simulated",
                                                  "--runs-dir", str(tmp_path / "runs")])
    assert run().exit_code == 0
    made = next(path for path in (tmp_path / "cache" / "diloco-chaos" / "references").iterdir() if path.is_dir())
    left = made.rename(made.with_name(f"{made.name}.simulated.work"))
    (left / "tape").mkdir()
    again = run()
    assert again.exit_code == 0, again.output
    assert made.is_dir()
    assert not left.exists()


WARM = freeze(scenario(model="micro", corpus="markov", fragments=4, learners=2, batch=2, budget=8, warm_start=2,
                       snapshots=6), 0)


def test_whoever_begins_where_the_warm_start_ended_could_take_the_synchronous_runs_own_next_step():
    run = performed(synchronous(WARM))
    (_, first), (after, _) = run.snapshots[0], run.snapshots[1]
    start, config = initial_values(WARM), WARM.cluster
    learners = [replicas(config, data_file(WARM), start)(index) for index in range(2)]
    mean = averaged([learner.gradient(2)[1] for learner in learners])
    rates = config.model_copy(update={"mode": "synchronous"})
    for learner in learners:
        learner.apply(mean, learning_rate(rates, first["processed"]))
    assert first["number"] == 0
    assert all(np.array_equal(after[name], array) for name, array in learners[0].read(tuple(after)).items())
    assert run.curve()[0].processed == config.warm_tokens


@pytest.mark.parametrize(("incarnation", "joining", "fresh"), [(0, 0, False), (1, 0, True), (0, 1, True)],
                         ids=["from the beginning", "after another", "later"])
def test_adamw_goes_on_from_the_warm_start_only_in_a_learner_that_is_there_from_the_beginning(incarnation, joining,
                                                                                             fresh):
    config = WARM.cluster.model_copy(update={"joining": joining})
    replica = replicas(config, data_file(WARM), initial_values(WARM))(1)
    core = Learner(config, "learner-2", incarnation, "", replica)
    moments = [array for name, array in core.replica.state().items() if name.startswith(OPTIMIZER)]
    assert len(moments) == 3
    assert [bool(np.any(array)) for array in moments] == [not fresh] * 3
    assert all(np.array_equal(array, initial_values(WARM)[name])
               for name, array in replica.read(tuple(config.spec.shapes())).items())
