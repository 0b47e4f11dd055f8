"""A recorded run is done again from its tape: the same to the last bit, or the first difference is named."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import plans, scenario
from diloco_chaos.chaos.runner.simulate import data_file, initial_values, simulate
from diloco_chaos.harness.record.tape.events import Merge, Resumed, Step
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainer.model.replica import weights
from diloco_chaos.harness.trainer.replay.replay import replay
from diloco_chaos.harness.trainer.runtime.replica_factory import replicas
from recorded_events import changed
from typed import typed


def again(history):
    cluster = history.plan.cluster
    initial = initial_values(history.plan)
    return replay(cluster, history, initial, replicas(cluster, data_file(history.plan), initial))


def altered(history, change):
    """The same run with another tape."""
    events = [change(changed(event)) for event in history.tape.events]
    return History(history.plan, Tape([event for event in events if event is not None]), history.curve)


def small(*faults, **cluster):
    usual = {"learners": 3, "budget": "100 steps", "step_time": "60ms"}
    return simulate(plan_of(scenario(**usual | cluster), list(faults), 0)).history


@pytest.fixture(scope="module")
def history():
    return small({"kill": "learner-1", "at": "1s", "restart_after": "300ms"})


def test_all_versions_are_the_same_again(history):
    found = again(history)
    assert (found.difference, found.missing) == (None, "")
    assert found.versions == len(history.tape.of(Merge)) > 50
    assert found.steps == len(history.tape.of(Step))


@pytest.mark.parametrize("cluster", [
    {"mode": "diloco"}, {"mode": "streaming"}, {"on_receipt": "overwrite"}, {"merge": "average"}, {"quorum": 2},
    {"anchor": "base"},
    {"overlap": 0, "quorum": 3}, {"gradients": "bfloat16"}, {"gradients": "int8", "broadcasts": "bfloat16"},
    {"gradients": "int4", "broadcasts": "int4", "error_feedback": True, "rounding": "stochastic"},
    {"sync_growth": 60, "sync_from": 2, "momentum_ramp": 50},
    {"model": "micro", "corpus": "markov", "batch": 2, "fragments": 4}], ids=str)
def test_it_is_the_same_again_whatever_the_settings(cluster):
    found = again(small({"partition": "learner-2", "at": "1s", "for": "1s"}, **cluster))
    assert (found.difference, found.missing) == (None, "")
    assert found.versions > 20


@pytest.mark.parametrize("mode", ["decoupled", "data_parallel"])
def test_it_is_the_same_again_from_a_warm_start_of_which_adamws_moments_are_a_part(mode):
    history = small({"kill": "learner-1", "at": "1s", "restart_after": "300ms"}, mode=mode, warm_start=25,
                    model="micro", corpus="markov", batch=2, fragments=4)
    found = again(history)
    assert (found.difference, found.missing) == (None, "")
    assert found.versions > 20
    cluster, start = history.plan.cluster, weights(initial_values(history.plan))
    assert replay(cluster, history, start, replicas(cluster, data_file(history.plan), start)).difference is not None


@pytest.mark.parametrize("compressed", [{}, {"gradients": "int4", "broadcasts": "int4", "error_feedback": True}],
                         ids=["whole", "int4"])
@settings(max_examples=60)
@given(data=st.data())
def test_it_is_the_same_again_whatever_was_broken(compressed, data):
    result = simulate(data.draw(plans(learners=3, max_faults=4, budget="80 steps", **compressed)))
    found = again(result.history)
    assert (found.difference, found.missing) == (None, "")
    told = result.history.tape.of(Merge) + result.history.recovered_merges
    assert found.versions == len({(merge.fragment, merge.version) for merge in told})


@pytest.mark.parametrize("ways", [{}, {"gradients": "bfloat16", "broadcasts": "bfloat16"}], ids=["whole", "bfloat16"])
@pytest.mark.parametrize("mode", ["data_parallel", "elastic_data_parallel"])
@settings(max_examples=30)
@given(data=st.data())
def test_averaged_gradients_are_the_same_again_whatever_was_broken(mode, ways, data):
    result = simulate(data.draw(plans(learners=3, max_faults=4, budget="80 steps", mode=mode, **ways)))
    found = again(result.history)
    assert (found.difference, found.missing) == (None, "")
    assert found.versions == len(result.history.tape.of(Merge))


def test_a_mean_gradient_that_is_another_is_named_with_all_that_went_into_it():
    history = small({"kill": "learner-1", "at": "1s", "restart_after": "300ms"}, mode="data_parallel")

    def change(event):
        if event.event == "merge" and event.version == 70:
            event.digest = "f" * 32
        return event
    found = again(altered(history, change))
    assert found.difference.words.startswith(
        f"step 70: the mean gradient of learner-1, learner-2, learner-3 was {'f' * 32}, is ")
    assert found.versions >= 69


def test_of_averaged_gradients_too_the_learner_is_named_that_sent_another_one():
    def change(event):
        if event.event == "merge" and event.version == 70:
            second = event.contributions[1]
            event.contributions = [*event.contributions[:1], structs.replace(second, digest="e" * 32),
                                             *event.contributions[2:]]
            event.digest = "f" * 32
        return event
    found = again(altered(small(mode="data_parallel"), change))
    assert found.difference.words.startswith(f"step 70: learner-2.0's gradient was {'e' * 32}, is ")
    assert "learner-1.0" not in found.difference.words
    assert f"; the mean gradient of learner-1, learner-2, learner-3 was {'f' * 32}, is " in found.difference.words


def test_a_merge_that_the_tape_lacks_is_told():
    history = small(mode="data_parallel")
    found = again(altered(history, lambda event: None if event.event == "merge" and event.version == 5 else event))
    assert (found.versions, found.missing) == (4, "the tape tells of step 6 after step 4")


def test_a_step_that_was_made_otherwise_is_named_with_the_learner(history):
    def change(event):
        if event.event == "step" and (event.node, event.step) == ("learner-2", 40):
            event.lr *= 1.01
        return event
    found = again(altered(history, change))
    step = next(event for event in history.tape.of(Step, node="learner-2") if event.step == 40)
    assert found.difference.words.startswith("learner-2.0: ")
    assert found.difference.t >= step.t
    assert "digest was " in found.difference.words


def test_a_contribution_that_is_another_is_named_with_version_fragment_and_learner(history):
    merges = [event for event in history.tape.of(Merge) if event.fragment == 2]

    def change(event):
        if event.event == "merge" and (event.fragment, event.version) == (2, merges[4].version):
            parts = [structs.replace(part) for part in event.contributions]
            parts[-1].digest = "0" * 32
            event.contributions = parts
        return event
    found = again(altered(history, change))
    part = merges[4].contributions[-1]
    assert found.difference.words == (
        f"fragment 2, version {merges[4].version}: {part.learner}.{part.incarnation} steps {part.first} to "
        f"{part.last}: its contribution was {'0' * 32}, is {part.digest}")


def test_a_version_that_is_another_is_named_with_all_that_went_into_it(history):
    def change(event):
        if event.event == "merge" and (event.fragment, event.version) == (1, 3):
            event.digest = "f" * 32
        return event
    found = again(altered(history, change))
    assert found.difference.words.startswith("fragment 1, version 3: merged of learner-")
    assert f"was version 3 {'f' * 32}, is version 3 " in found.difference.words


def test_the_first_difference_is_the_earliest_on_the_tape(history):
    merges = history.tape.of(Merge)
    for number in (5, 50):
        def change(event, late=merges[number].t):
            if event.event == "merge" and event.t >= late:
                event.digest = "f" * 32
            return event
        assert again(altered(history, change)).difference.t == merges[number].t


def test_what_the_tape_lacks_is_told_and_is_no_difference(history):
    def change(event):
        return None if event.event == "outer_gradient" and event.node == "learner-3" and event.t > 5 else event
    found = again(altered(history, change))
    assert found.difference is None
    assert "was merged from what is not on the tape: learner-3.0 steps " in found.missing
    assert 0 < found.versions < len(history.tape.of(Merge))


def test_a_tape_of_an_earlier_version_is_told_as_that(history):
    def change(event):
        return changed(event, lr=None) if isinstance(event, Step) else event
    found = again(altered(history, change))
    assert (found.versions, found.difference) == (0, None)
    assert "an earlier version wrote it" in found.missing


def test_the_command_replays_a_runs_folder_and_names_a_difference(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text("diloco_chaos: 1\nname: small\ndeadline: 60s\n"
                    "cluster: {model: quadratic, learners: 3, budget: 80 steps, step_time: 60ms}\n")
    typed("run", str(file), "--on", "simulated", "--runs-dir", str(tmp_path / "runs"))
    (run,) = (tmp_path / "runs").glob("2*")
    done = typed("replay", str(run), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["difference"] is None
    assert typed("replay", str(run)).stdout.endswith("all the same, bit for bit\n")
    assert "warning" not in done.stderr
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"trainer": "another", "numpy": "1.0"}))
    warned = " ".join(typed("replay", str(run)).stdout.split())
    assert "it ran with numpy 1.0, this is " in warned
    assert "the trainer's sources are not those that it ran with" in warned
    resumed = {"environments": [manifest | {"numpy": "0.9"}]}
    (run / "manifest.json").write_text(json.dumps(manifest | {"resumed": resumed}))
    warned = " ".join(typed("replay", str(run)).stdout.split())
    assert "it ran with numpy 0.9, this is " in warned
    assert "sources" not in warned
    tape = run / "tape" / "syncer.0.jsonl"
    lines = tape.read_text().splitlines(keepends=True)
    at = next(index for index, line in enumerate(lines) if '"event":"merge"' in line)
    event = json.loads(lines[at])
    lines[at] = json.dumps(event | {"digest": "0" * 32}) + "\n"
    tape.write_text("".join(lines))
    done = typed("replay", str(run))
    assert done.returncode == 1
    assert f"fragment {event['fragment']}, version {event['version']}: merged of" in done.stdout
    (run / "cluster.json").unlink()
    done = typed("replay", str(run))
    assert done.returncode == 2
    assert "run it again: diloco-chaos run --plan" in done.stderr
    assert "Traceback" not in done.stderr


SCHEDULES = {"sync_growth": 40, "sync_from": 2, "momentum_ramp": 50, "warm_start": 20}


def test_an_outer_step_that_the_plan_does_not_have_there_is_named():
    def change(event):
        if event.event == "merge" and (event.fragment, event.version) == (2, 3):
            event.outer = [event.outer[0], event.outer[1] + 0.01]
        return event
    found = again(altered(small(model="micro", corpus="markov", batch=2, fragments=4, **SCHEDULES), change))
    assert "fragment 2, version 3: its outer step was OuterStep(lr=" in found.difference.words


def test_a_version_whose_syncer_was_killed_before_it_wrote_of_it_is_made_with_the_outer_step_that_it_had():
    history = small({"kill": "syncer", "when": {"node": "syncer", "failpoint": "commit.before_broadcast", "count": 6},
                     "restart_after": "300ms"}, momentum_ramp=90)
    resumed, = history.tape.of(Resumed)
    assert all(0 < momentum < history.plan.cluster.outer_momentum for _, momentum in filter(None, resumed.outer))
    found = again(history)
    assert (found.difference, found.missing) == (None, "")
