"""A node's log: the tape in words for people, and never a reason to fail."""

import pytest

from diloco_chaos.harness.record.tape import writing
from diloco_chaos.harness.record.tape.events import KINDS, Exit, Failed, Refused, Step, Upload
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.record.tape.writing import TapeWriter
from diloco_chaos.harness.trainers.node import log
from diloco_chaos.harness.trainers.node.log import Logged, in_words
from recorded_events import an_event

MERGE = {"round": 4, "fragment": 2, "version": 7, "digest": "ab", "step": 12, "processed": 100, "merged": 90,
         "opened": 1.0, "quorum_at": 1.1, "closed": 1.2, "grace": 0.1, "step_time": 0.06, "sync_time": 0.2, "asked": [],
         "declined": [], "contributions": [{"learner": "learner-1"}, {"learner": "learner-3"}]}
REAL = [
    ("start", {"role": "syncer", "pid": 7, "sources": "ab"}, "starting"),
    ("listening", {"host": "0.0.0.0", "port": 7000}, "listening on port 7000"),
    ("resumed", {"versions": [1], "digests": ["a"], "step": 9, "processed": 4}, "going on from step 9"),
    ("initial", {"versions": [], "digests": [], "step": 0, "processed": 0}, "a fresh model"),
    ("steady", {"step": 3, "processed": 5}, "every learner has been merged: the cluster is steady"),
    ("hello", {"learner": "learner-1", "incarnation": 2, "fresh": True, "step": 0, "versions": []},
     "learner-1 is here (incarnation 2)"),
    ("hello", {"learner": "learner-1", "incarnation": 0}, "learner-1 is here (incarnation 0)"),
    ("lost", {"learner": "learner-2", "incarnation": 0, "reason": "closed by the peer"},
     "lost learner-2: closed by the peer"),
    ("disconnected", {"reason": "reset", "step": 4}, "lost the syncer: reset"),
    ("disconnected", {}, "lost the syncer: no reason"),
    ("refused", {"learner": "learner-1", "reason": "no such fragment"},
     "refused a contribution of learner-1: no such fragment"),
    ("repaired", {"file": "f1.safetensors", "reason": "digest"},
     "f1.safetensors was damaged (digest); made good from its copy"),
    ("superseded", {"reason": "a newer incarnation"}, "superseded: a newer incarnation"),
    ("failpoint", {"point": "upload.half", "count": 1}, "stopped at failpoint upload.half"),
    ("finished", {"step": 60, "processed": 6, "merged": 5}, "training is over at step 60"),
    ("finished", {"step": 60, "tokens": 6}, "training is over at step 60"),
    ("failed", {"reason": "no space"}, "failed: no space"),
    ("refused_checkpoint", {"reason": "torn"}, "refusing to go on: torn"),
    ("exit", {}, "bye"),
    ("step", {"step": 40, "tokens": 8, "loss": 1.23456, "position": 39, "began": 1.0}, "step 40, loss 1.235"),
    ("step", {"step": 0, "tokens": 8, "loss": float("nan"), "position": 0, "began": 1.0}, "step 0, loss nan"),
    ("merge", MERGE, "step 12: fragment 2 version 7 from learner-1, learner-3"),
    ("received", {"fragment": 1, "version": 2, "step": 3, "digest": "a", "closed": 0, "carried": 0},
     "received fragment 1 version 2 at step 3"),
    ("outer_gradient", {"round": 1, "fragment": 5, "base": 0, "first": 1, "step": 20, "steps": 20, "tokens": 8,
                        "digest": ""},
     "gave 20 steps of fragment 5"),
]


@pytest.mark.parametrize(("event", "fields", "words"), REAL)
def test_an_event_is_told_in_words(event, fields, words):
    assert in_words(an_event(1.0, "a", 0, event, fields)) == words


def test_everything_that_is_ever_told_has_been_tried():
    assert set(log._WORDS) <= {event for event, _, _ in REAL}


@pytest.mark.parametrize("step", [1, 19, 21, 39])
def test_steps_are_told_now_and_then(step):
    assert in_words(Step(step=step, loss=1.0, tokens=1, began=0.0)) == ""


@pytest.mark.parametrize("event", ["upload", "ready", "imported", "partial_frame", "refused_frame", "no such", ""])
def test_what_nobody_has_words_for_gives_no_line(event):
    assert in_words(an_event(1.0, "a", 0, event)) == ""


@pytest.mark.parametrize("event", sorted(KINDS))
def test_the_fields_of_the_contract_are_enough_for_words(event):
    in_words(an_event(1.0, "a", 0, event))


@pytest.mark.parametrize("reason", ["{step}", "{0}", "%s {", "a\nb"])
def test_braces_in_a_reason_are_no_templates(reason):
    assert reason.splitlines()[0] in in_words(Failed(reason=reason))


def test_one_event_is_one_line(tmp_path, capsys):
    Logged(tmp_path, "syncer", 0, 0.0).record(Failed(reason="first\nsecond"))
    assert len(capsys.readouterr().out.splitlines()) == 1, "a log is read line by line"


def test_a_learner_that_refuses_a_value_does_not_speak_of_contributions():
    words = in_words(Refused(fragment=1, version=2, reason="wrong digest"))
    assert "wrong digest" in words
    assert "unknown peer" not in words


def test_the_tape_is_written_as_ever_and_told(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(writing.time, "monotonic", lambda: 105.25)
    for kind, name in ((TapeWriter, "plain"), (Logged, "told")):
        writer = kind(tmp_path / name, "syncer", 3, 100.0)
        for event, fields, _ in REAL:
            if fields.get("loss") == fields.get("loss"):
                writer.record(an_event(0.0, "", 0, event, fields))
        writer.record(Upload(bytes=3))
        writer.close()
    plain, told = ((tmp_path / name / "syncer.3.jsonl").read_bytes() for name in ("plain", "told"))
    assert told == plain
    assert plain.count(b"\n") > 20
    assert capsys.readouterr().out.splitlines() == [
        words for _, fields, words in REAL if fields.get("loss") == fields.get("loss")]


def test_a_log_that_nobody_can_write_does_not_end_the_training(tmp_path, monkeypatch):
    class Full:
        def write(self, text):
            raise OSError(28, "No space left on device")

        def flush(self):
            raise OSError(28, "No space left on device")
    writer = Logged(tmp_path, "syncer", 0, 0.0)
    monkeypatch.setattr("sys.stdout", Full())
    writer.record(Exit())
    assert [event.event for event in Tape.read(tmp_path).events] == ["exit"]
