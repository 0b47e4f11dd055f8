"""The verdict on the sampled inner steps of the real model, under virtual time."""

import base64

import numpy as np
import pytest
import torch

from diloco_chaos.chaos.checks import judge
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner.resume_point import ResumePoint, checkpoints_of
from diloco_chaos.chaos.runner.simulate import data_file, performed, simulate
from diloco_chaos.harness.base.lines import text
from diloco_chaos.harness.record.tape.events import Corrupted, InnerStep, Received, Step
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainer.learner.learner import Learner
from recorded_events import changed

CHECK = "inner_steps_correct"
MICRO = {"model": "micro", "corpus": "markov", "batch": 2, "fragments": 4, "budget": "60 steps", "warmup": "10 steps"}


def plan(*faults, **more):
    torch.set_num_threads(1)
    return plan_of(scenario(**MICRO | more), list(faults), 0)


@pytest.fixture(scope="module")
def history() -> History:
    return simulate(plan()).history


def verdict(history, events=None, data=None):
    told = History(history.plan, Tape(list(history.tape.events if events is None else events)),
                   data=data or history.data)
    return next((one for one in judge(told).checks if one.name == CHECK), None)


def forged(history, where, **fields):
    return verdict(history, [changed(event, **fields) if event is where else event for event in history.tape.events])


def with_value(event, row, factor):
    values = np.frombuffer(base64.b64decode(event.values), "<f4").copy().reshape(7, -1)
    values[row] *= np.float32(factor)
    return base64.b64encode(values.tobytes()).decode()


def test_a_sound_run_is_computed_again_with_its_batches(history):
    found = verdict(history)
    steps = len(history.tape.of(InnerStep))
    assert found.verdict == "passed"
    assert found.evidence == [f"{steps} steps of 3 processes computed again, {steps} batches read again"]


def test_every_process_tells_of_its_first_step_and_of_a_step_on_each_side_of_receipts(history):
    for process, recorded in history.tape.by_process(Step, InnerStep, Received).items():
        events = list(recorded)
        first = next(event.step for event in events if isinstance(event, Step))
        told = {event.step for event in events if isinstance(event, InnerStep)}
        receipts = [event.step for event in events if isinstance(event, Received) and event.step >= first]
        around = {step for before in (*receipts[:1], *receipts[3:4]) for step in (before, before + 1)}
        assert len(around) >= 2
        assert {first, *around} <= told, process
        assert len(told) <= 12


def test_without_the_corpus_batches_are_not_known_and_all_else_is(history, tmp_path):
    found = verdict(history, data=tmp_path / "gone.bin")
    assert found.verdict == "passed"
    assert found.evidence[0].endswith("the corpus is not here: batches are not known")


def test_a_corpus_that_was_changed_proves_nothing_of_batches(history, tmp_path):
    other = tmp_path / history.data.name
    other.write_bytes(b"a" * history.data.stat().st_size)
    assert verdict(history, data=other).verdict == "passed"


def test_a_run_that_told_of_no_step_has_no_such_verdict(history):
    assert verdict(history, [event for event in history.tape.events if not isinstance(event, InnerStep)]) is None


def test_the_quadratic_model_has_none():
    assert verdict(simulate(plan_of(scenario(budget="40 steps"), [], 0)).history) is None


def test_who_tells_of_no_step_while_others_do_fails(history):
    found = verdict(history, [event for event in history.tape.events
                              if not (isinstance(event, InnerStep) and event.node == "learner-2")])
    assert found.verdict == "failed"
    assert "learner-2.0" in text(found.evidence[0])
    assert "told of none of its steps" in text(found.evidence[0])


@pytest.mark.parametrize(("row", "factor", "words"), [
    (0, 1.001, "weights"), (3, 1.01, "are not what AdamW makes of them"), (4, 1.00001, "weights are not"),
    (5, 1.0001, "first moments are not"), (6, 0.999, "second moments are not")])
def test_a_value_that_is_another_fails(history, row, factor, words):
    where = history.tape.of(InnerStep)[4]
    found = forged(history, where, values=with_value(where, row, factor))
    assert found.verdict == "failed"
    assert any(words in text(one) for one in found.evidence)


@pytest.mark.parametrize(("fields", "words"), [
    ({"count": 0}, "AdamW's count went from 0"), ({"counted": 1}, "AdamW's count went"),
    ({"batch": "0" * 32}, "what it was trained on is not batch"), ({"values": "AAAA"}, "can't be read"),
    ({"values": "no base64!"}, "can't be read"), ({"norm": 1e-3}, "norm was 0.001"),
    ({"norm": 1e3}, "are not what AdamW makes of them")])
def test_what_is_told_of_a_step_that_is_not_so_fails(history, fields, words):
    found = forged(history, next(event for event in history.tape.of(InnerStep) if event.count > 2), **fields)
    assert found.verdict == "failed"
    assert any(words in text(one) for one in found.evidence)


def test_a_rate_that_is_not_the_one_of_the_log_fails(history):
    told = history.tape.of(InnerStep)[4]
    step = next(event for event in history.tape.of(Step) if (event.node, event.step) == (told.node, told.step))
    found = forged(history, step, lr=step.lr * 1.001)
    assert found.verdict == "failed"
    assert "are not what AdamW makes of them" in text(found.evidence[0])


def test_moments_that_a_fault_has_changed_need_not_be_those_of_the_step_before():
    fault = {"corrupt_memory": "learner-2", "at": "1s", "part": "moments", "content": "bits", "values": 4000}
    history = simulate(plan(fault)).history
    assert history.tape.of(Corrupted)
    assert verdict(history).verdict == "passed"


# -- checkpoints ---------------------------------------------------------------------------------------------------

def resumed(patch=lambda: None):
    """A run that goes on from the first of its checkpoints that is left."""
    frozen = plan(checkpoint_interval=20)
    done = performed(frozen)
    tape = done.stage.tape()
    cut = next(cut for cut in checkpoints_of(tape) if cut in done.stage.checkpoints)
    patch()
    again = performed(frozen, origin=ResumePoint(frozen, tape, "before", cut), parts=done.stage.checkpoints[cut])
    assert again.outcome.kind == "finished"
    return History(frozen, again.stage.tape(), again.curve(), data=data_file(frozen))


def test_a_learner_goes_on_from_a_checkpoint_with_the_moments_that_were_saved():
    found = verdict(resumed())
    assert found.verdict == "passed"


@pytest.mark.parametrize("lost", ["_first", "_second", "_count"])
def test_a_restored_learner_with_other_moments_fails(monkeypatch, lost):
    usual = Learner.restore

    def restore(self, part):
        usual(self, part)
        getattr(self.replica, lost).zero_()
    found = verdict(resumed(lambda: monkeypatch.setattr(Learner, "restore", restore)))
    assert found.verdict == "failed"
    words = "AdamW's count went from 0" if lost == "_count" else "AdamW's moments are not those after step"
    assert any(words in text(one) for one in found.evidence)
