"""A run that was ended goes on from a cut as if nothing had happened: whatever had been broken before, and after."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diloco_chaos.chaos.checks import judge
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import plans, scenario
from diloco_chaos.chaos.runner.resume_point import ResumePoint, checkpoints_of
from diloco_chaos.chaos.runner.simulate import data_file, performed
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.record.tape.events import (
    CheckpointBegun,
    CheckpointPart,
    Failpoint,
    Merge,
    RefusedCheckpoint,
    RolledBack,
    Step,
)
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainer.replay.replay import replay
from diloco_chaos.harness.trainer.runtime.replica_factory import replicas

NEVER_BROKEN = {"exactly_once", "replica_consistency", "weights_correct", "processed_correct", "learning_rate_correct",
                "quorum_respected", "staleness_bounded"}
COMPRESSED = {"gradients": "int4", "broadcasts": "int4", "error_feedback": True, "rounding": "stochastic"}


def ended(plan):
    """A run that is over, and its cuts that are still there: as if it had been killed at the very end."""
    done = performed(plan)
    tape = done.stage.tape()
    return done, tape, [cut for cut in checkpoints_of(tape) if cut in done.stage.checkpoints]


def gone_on(plan, origin, parts):
    """The whole run, from its begin through the cut to its end."""
    done = performed(plan, origin=origin, parts=parts)
    assert done.outcome.kind == "finished"
    return History(plan, done.stage.tape(), done.curve())


def plan_with(*faults, **cluster):
    return plan_of(scenario(**{"learners": 3, "budget": "150 steps", "checkpoint_interval": 20} | cluster),
                   list(faults), 0)


def assert_the_same_bit_for_bit(history):
    """Done again from its begin, without anybody having been ended, it comes to the same versions."""
    cluster = history.plan.cluster
    initial = cluster.spec.initial(cluster.seed)
    found = replay(cluster, history, initial, replicas(cluster, data_file(history.plan), initial))
    assert (found.difference, found.missing) == (None, "")
    assert found.versions > 0


@pytest.mark.parametrize("cluster", [
    {}, {"sync_growth": 100, "sync_from": 2, "momentum_ramp": 120},
    {"on_receipt": "overwrite", "anchor": "base"}, {"mode": "diloco"}, {"mode": "streaming"},
    {"overlap": 0, "quorum": 3}, COMPRESSED,
    {"model": "micro", "corpus": "markov", "batch": 2, "fragments": 4}], ids=str)
def test_nothing_is_lost_and_nothing_done_twice(cluster):
    plan = plan_with(**cluster)
    done, tape, cuts = ended(plan)
    assert cuts
    for cut in cuts:
        origin = ResumePoint(plan, tape, "before", cut)
        history = gone_on(plan, origin, done.stage.checkpoints[cut])
        assert_the_same_bit_for_bit(history)
        assert {verdict.name: verdict.verdict for verdict in judge(history).checks} == dict.fromkeys(
            [verdict.name for verdict in judge(history).checks], "passed")
        assert history.accounting.by_fate["crash"] == 0
        for name in plan.cluster.names:
            steps = [event.step for event in history.steps[name, 0]]
            assert steps == list(range(steps[0], steps[-1] + 1))
            positions = [event.position for event in history.steps[name, 0]]
            assert len(set(positions)) == len(positions)


@pytest.mark.parametrize("mode", ["data_parallel", "elastic_data_parallel"])
def test_data_parallelism_goes_on_from_a_checkpoint_of_the_hub_and_comes_to_the_same_model(mode):
    plan = plan_with(mode=mode)
    done, tape, cuts = ended(plan)
    assert len(cuts) > 1
    for cut in cuts:
        origin = ResumePoint(plan, tape, "before", cut)
        assert origin.incarnations == {"syncer": 1, "learner-1": 1, "learner-2": 1, "learner-3": 1}
        history = gone_on(plan, origin, done.stage.checkpoints[cut])
        assert_the_same_bit_for_bit(history)
        assert [back.step for back in history.tape.of(RolledBack)] == [origin.at.step]
        assert kept(history) == kept(History(plan, tape))


def kept(history):
    """Version and digest of every mean gradient that counts."""
    void = {id(merge) for merge in history.rolled_back}
    return [(merge.version, merge.digest) for merge in history.merges if id(merge) not in void]


@pytest.mark.parametrize("cluster", [{}, COMPRESSED, {"mode": "data_parallel"}, {"mode": "elastic_data_parallel"}],
                         ids=["whole", "int4", "data parallelism", "elastic data parallelism"])
@settings(max_examples=20)
@given(data=st.data())
def test_it_goes_on_whatever_was_broken(cluster, data):
    plan = data.draw(plans(learners=3, max_faults=4, budget="100 steps", checkpoint_interval=15, **cluster))
    done, tape, cuts = ended(plan)
    for cut in cuts:
        origin = ResumePoint(plan, tape, "before", cut)
        assert_consistent(origin, done.stage.checkpoints[cut])
        history = gone_on(plan, origin, done.stage.checkpoints[cut])
        assert_the_same_bit_for_bit(history)
        failed = {verdict.name for verdict in judge(history).checks if verdict.verdict == "failed"}
        assert not failed & NEVER_BROKEN


def assert_consistent(origin, parts):
    """Nobody knows of anything that another part does not tell of."""
    fragments = parts["syncer"].meta["fragments"]
    for name, part in parts.items():
        if name == "syncer":
            continue
        for (version, _), committed in zip(part.meta["fragments"], fragments, strict=True):
            assert version <= committed["version"]
            incarnation, merged = committed["merged"].get(name, (-1, 0))
            assert incarnation < part.meta["incarnation"] or merged <= part.meta["step"]
    assert {name for name, _ in origin.parts} == set(parts)


def test_what_is_lost_after_it_is_not_made_good_by_what_is_old():
    plan = freeze(parse("diloco_chaos: 1\nname: x\ndeadline: 60s\n"
                        "cluster: {model: quadratic, learners: 3, fragments: 4, budget: 150 steps,\n"
                        "          checkpoint_interval: 20}\n"
                        "faults:\n  - {delete: syncer, files: 2, mirrors: true, at: 6s}\n"), 0)
    done, tape, cuts = ended(plan)
    again = performed(plan, origin=ResumePoint(plan, tape, "before", cuts[0]), parts=done.stage.checkpoints[cuts[0]])
    assert again.outcome.kind == done.outcome.kind == "broken"
    refused, = again.stage.tape().of(RefusedCheckpoint)
    assert "both copies of fragment-02.safetensors, fragment-03.safetensors are gone" in refused.reason


def behind_a_cut(node, point, counts):
    """Runs in which the fault comes behind a cut that is kept: which they are is a matter of chance."""
    for count in counts:
        plan = plan_with({"kill": node, "when": {"node": node, "failpoint": point, "count": count},
                          "restart_after": "500ms"})
        done, tape, _ = ended(plan)
        came = History(plan, tape).spans[0].injected
        for event in reversed(tape.of(CheckpointBegun)):
            if event.t < came - 0.1 and event.checkpoint in done.stage.checkpoints:
                yield count, plan, done, tape, came, event.checkpoint
                break


@pytest.mark.parametrize(("node", "point", "count"), [("learner-1", "upload.half", 142),
                                                      ("syncer", "checkpoint.before_rename", 124)])
def test_a_fault_at_a_point_of_the_protocol_comes_when_it_would_have(node, point, count):
    count, plan, done, tape, came, cut = next(behind_a_cut(node, point, range(count, count + 10)))
    again = gone_on(plan, ResumePoint(plan, tape, "before", cut), done.stage.checkpoints[cut])
    assert again.tape.of(Failpoint)[0].count == count
    assert again.spans[0].injected == pytest.approx(came, abs=4)  # it takes as long until everybody is there again


def test_what_lay_after_it_is_told():
    plan = plan_with()
    _, tape, cuts = ended(plan)
    origin = ResumePoint(plan, tape, "before", cuts[-1])
    cut = next(event for event in tape.of(CheckpointBegun) if event.checkpoint == cuts[-1])
    for (name, number), (begin, end) in origin.lost.steps.items():
        part = next(event for event in tape.of(CheckpointPart, node=name) if event.checkpoint == cuts[-1])
        assert (number, begin) == (0, part.step + 1)
        assert end == tape.of(Step, node=name)[-1].step
    after = [merge for merge in tape.of(Merge) if merge.t > cut.t]
    assert sum(end - begin + 1 for begin, end in origin.lost.versions.values()) == len(after)
    assert origin.lost.tokens == sum(event.tokens for event in tape.of(Step)) - sum(
        event.tokens for event in origin.events if event.event == "step")


def test_a_fault_that_had_come_and_gone_does_not_come_again_and_one_that_was_on_does():
    faults = [{"pause": "learner-1", "at": "1s", "for": "500ms"}, {"partition": "learner-2", "at": "3s", "for": "2s"},
              {"kill": "learner-3", "at": "6s", "restart_after": "300ms"}]
    plan = plan_with(*faults)
    _, tape, _ = ended(plan)
    cuts = [event for event in tape.of(CheckpointBegun) if event.checkpoint in checkpoints_of(tape)]
    spans = History(plan, tape).spans
    on = next(cut for cut in cuts if spans[1].injected < cut.t < spans[1].ended)
    origin = ResumePoint(plan, tape, "before", on.checkpoint)
    assert origin.over == {"f1"}
    assert not [event for event in origin.events if getattr(event, "fault", "") in ("f2", "f3")]
    assert [words.split(",")[0] for words in origin.lost.faults] == [
        planned.fault.describe().split(",")[0] for planned in plan.faults[1:]]


def test_who_was_gone_for_good_or_had_not_come_yet_is_not_started():
    plan = plan_with({"kill": "learner-1", "at": "1s"}, {"join": "learner-4", "at": "8s"}, learners=4)
    _, tape, _ = ended(plan)
    early = next(event.checkpoint for event in tape.of(CheckpointBegun)
                 if event.checkpoint in checkpoints_of(tape)
                 and History(plan, tape).spans[0].injected < event.t < History(plan, tape).spans[1].injected)
    assert ResumePoint(plan, tape, "before", early).incarnations == {"syncer": 1, "learner-2": 0, "learner-3": 0}


def test_who_was_no_part_of_it_begins_anew_and_its_process_has_crashed():
    plan = plan_with({"partition": "learner-2", "at": "2s", "for": "4s"})
    _, tape, _ = ended(plan)
    cut = next(event.checkpoint for event in tape.of(CheckpointBegun) if "learner-2" not in event.nodes)
    origin = ResumePoint(plan, tape, "before", cut)
    assert origin.incarnations == {"syncer": 1, "learner-1": 0, "learner-2": 1, "learner-3": 0}
    assert origin.ended == [("learner-2", 0), ("syncer", 0)]


def test_a_run_that_went_on_can_go_on_again_from_where_it_did():
    plan = plan_with()
    done, tape, cuts = ended(plan)
    origin = ResumePoint(plan, tape, "before", cuts[-1])
    kept = Tape(origin.begun)
    again = ResumePoint(plan, kept, "second", checkpoints_of(kept)[0])
    assert (again.checkpoint, again.events) == (cuts[-1], origin.events)
    history = gone_on(plan, again, done.stage.checkpoints[cuts[-1]])
    assert_the_same_bit_for_bit(history)
