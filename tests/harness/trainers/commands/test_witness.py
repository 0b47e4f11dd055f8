"""The event log of nodes that write none, from their logs."""

from __future__ import annotations

import time

import pytest

from diloco_chaos.harness.record.tape.events import StaleRound, Step, Warning
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainers.commands.settings import CommandSettings
from diloco_chaos.harness.trainers.commands.witness import LogWitness
from recorded_events import an_event

SETTINGS = CommandSettings.model_validate({
    "nodes": {"store": {"listens": True, "run": "s.py"},
              "replica": {"count": 2, "worker": True, "run": "t.py {store}"}},
    "progress": [{"node": "replica", "log": r"^(?P<time>\S+) round=(?P<round>\S+)"}]})


class Folder:
    """A run's folder in which a test plays the processes."""

    def __init__(self, path, settings=SETTINGS):
        self.path, self.epoch = path, time.monotonic() - 100.0
        (path / "logs").mkdir()
        self.witness = LogWitness(settings, path, self.epoch)
        for node in settings.all_nodes:
            self.harness(0.0, "spawn", {"target": node, "incarnation": 0})

    def harness(self, t, name, fields):
        """What the harness records."""
        self.witness.on_event(an_event(t, "harness", 0, name, fields), t)

    def log(self, text, node="replica-1", incarnation=0):
        with open(self.path / "logs" / f"{node}.{incarnation}.log", "ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    def steps(self):
        """(node, incarnation, round, when) of each."""
        found = Tape.read(self.path / "tape").of(Step)
        return [(event.node, event.inc, event.step, event.t) for event in found]

    def at(self, t):
        """What a clock on the wall says then."""
        return f"{time.time() - time.monotonic() + self.epoch + t:.3f}"


@pytest.fixture
def folder(tmp_path):
    folder = Folder(tmp_path)
    yield folder
    folder.witness.close()


def test_whole_lines_are_read_as_they_come(folder):
    folder.log("0 round=1\n0 rou")
    folder.witness.look(1.0)
    folder.log("nd=2\n")
    folder.witness.look(2.0)
    assert folder.steps() == [("replica-1", 0, 1, 1.0), ("replica-1", 0, 2, 2.0)]


def test_the_last_line_counts_though_nothing_ends_it_once_its_process_has(folder):
    folder.log("0 round=1")
    folder.witness.look(1.0)
    assert folder.steps() == []
    folder.harness(2.0, "exit", {"target": "replica-1", "incarnation": 0, "again": False})
    assert [step[:3] for step in folder.steps()] == [("replica-1", 0, 1)]


def test_a_round_was_when_its_line_says(folder):
    folder.log(f"{folder.at(7.25)} round=1\n")
    folder.witness.look(8.0)
    [(_, _, _, t)] = folder.steps()
    assert t == pytest.approx(7.25, abs=0.01)


def test_a_clock_that_is_another_one_is_not_believed(folder):
    folder.log(f"{folder.at(7.25 + 3600)} round=1\n")
    folder.witness.look(8.0)
    assert [step[3] for step in folder.steps()] == [8.0]


def test_a_new_process_has_a_log_of_its_own(folder):
    folder.log("0 round=1\n")
    folder.harness(1.0, "exit", {"target": "replica-1", "incarnation": 0, "again": True})
    folder.harness(2.0, "spawn", {"target": "replica-1", "incarnation": 1})
    folder.log("0 round=2\n", incarnation=1)
    folder.witness.look(3.0)
    assert [step[:3] for step in folder.steps()] == [("replica-1", 0, 1), ("replica-1", 1, 2)]


def test_lines_of_nodes_that_do_not_train_are_not_read(folder):
    folder.log("0 round=1\n", node="store")
    folder.witness.look(1.0)
    assert folder.steps() == []


def test_a_number_that_is_none_is_told_once(folder):
    folder.log("0 round=one\n0 round=two\n0 round=3\n")
    folder.witness.look(1.0)
    tape = Tape.read(folder.path / "tape")
    assert [event.reason for event in tape.of(Warning)] == [
        "a line that matches tells no round: invalid literal for int() with base 10: 'one'"]
    assert [step[2] for step in folder.steps()] == [3]


def test_garbage_and_a_line_without_end_stop_nothing(folder):
    folder.log(b"\xff\xfe\x00 round=\x1b[31m9\n")
    folder.log(b"x" * 200_000)
    folder.witness.look(1.0)
    folder.log("\n0 round=4\n")
    folder.witness.look(2.0)
    assert [step[2] for step in folder.steps()] == [4]


# -- files of its own ------------------------------------------------------------------------------------------------

def metrics(path, file, **more):
    """A folder of a trainer that writes metrics."""
    settings = CommandSettings.model_validate({
        "nodes": {"replica": {"count": 2, "worker": True, "run": "t.py", "cwd": str(path)}},
        "progress": [{"node": "replica", "metrics": file, "keys": {"round": "step"}} | more]})
    (path / "run").mkdir()
    return Folder(path / "run", settings)


def test_a_metrics_file_is_read_from_where_it_was_when_the_run_began(tmp_path):
    (tmp_path / "replica-1.jsonl").write_text('{"step": 99}\n')
    folder = metrics(tmp_path, "{name}.jsonl")
    with open(tmp_path / "replica-1.jsonl", "a") as file:
        file.write('{"step": 1}\n{"lr": 3}\n{"step": 2}\n')
    folder.witness.look(1.0)
    assert [step[:3] for step in folder.steps()] == [("replica-1", 0, 1), ("replica-1", 0, 2)]
    folder.witness.close()


def test_a_file_that_a_new_process_goes_on_with_is_its_own_from_there(tmp_path):
    folder = metrics(tmp_path, "{name}.jsonl")
    file = tmp_path / "replica-2.jsonl"
    file.write_text('{"step": 1}\n')
    folder.harness(1.0, "exit", {"target": "replica-2", "incarnation": 0, "again": True})
    folder.harness(2.0, "spawn", {"target": "replica-2", "incarnation": 1})
    file.write_text('{"step": 1}\n{"step": 2}\n')
    folder.witness.look(3.0)
    assert [step[:3] for step in folder.steps()] == [("replica-2", 0, 1), ("replica-2", 1, 2)]
    folder.witness.close()


def test_a_file_that_is_begun_anew_is_read_from_its_beginning(tmp_path):
    folder = metrics(tmp_path, "{name}.jsonl")
    file = tmp_path / "replica-1.jsonl"
    file.write_text('{"step": 100000}\n')
    folder.witness.look(1.0)
    file.write_text('{"step": 2}\n')
    folder.witness.look(2.0)
    assert [step[2] for step in folder.steps()] == [100000, 2]
    folder.witness.close()


def test_a_line_that_two_expressions_know_is_one_round(tmp_path):
    settings = SETTINGS.model_copy(update={"progress": SETTINGS.progress * 2})
    folder = Folder(tmp_path, settings)
    folder.log("0 round=1\n")
    folder.witness.look(1.0)
    assert len(folder.steps()) == 1
    folder.witness.close()


def test_what_a_process_told_before_its_successor_was_started_counts_and_what_it_tells_then_is_none_of_the_runs(folder):
    folder.log("0 round=1\n0 round=2\n")
    folder.harness(2.0, "spawn", {"target": "replica-1", "incarnation": 1})
    folder.log("".join(f"0 round={number}\n" for number in range(3, 40)))
    folder.log("0 round=3\n", incarnation=1)
    folder.witness.look(3.0)
    assert [(inc, number) for _, inc, number, _ in folder.steps()] == [(0, 1), (0, 2), (1, 3)]
    stale = Tape.read(folder.path / "tape").of(StaleRound)
    assert [(event.inc, event.round) for event in stale] == [(0, number) for number in range(3, 23)], "twenty at most"
