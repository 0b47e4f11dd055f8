"""The event log of nodes that write none, from their logs."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diloco_chaos.harness.record.tape.events import Failed, Merge, Noticed, Prepared, StaleRound, Step, Warning
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainers.commands.plugin import Commands
from diloco_chaos.harness.trainers.commands.settings import CommandSettings
from diloco_chaos.harness.trainers.commands.witness import LogWitness, wall_ahead
from diloco_chaos.harness.trainers.core.log_lines import lines_of
from recorded_events import an_event

SETTINGS = CommandSettings.model_validate({
    "nodes": {"store": {"listens": True, "run": "s.py"},
              "replica": {"count": 2, "worker": True, "run": "t.py {store}"}},
    "progress": [{"node": "replica", "log": r"^(?P<time>\S+) round=(?P<round>\S+)"}]})


class Folder:
    """A run's folder in which a test plays the processes."""

    def __init__(self, path, settings=SETTINGS):
        self.path, began = path, time.monotonic() - 100.0
        self.epoch = began + 0.123 - (wall_ahead() + began) % 1.0  # no stamp looks as if it were in tenths of a second
        (path / "logs").mkdir()
        (path / "progress").mkdir()
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
        return f"{wall_ahead() + self.epoch + t:.3f}"


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
        "a line that matches tells no round: 'one' is no number"]
    assert [step[2] for step in folder.steps()] == [3]


def test_garbage_and_a_line_without_end_stop_nothing(folder):
    folder.log(b"\xff\xfe\x00 round=\x1b[31m9\n")
    folder.log(b"x" * 200_000)
    folder.witness.look(1.0)
    folder.log("\n0 round=4\n")
    folder.witness.look(2.0)
    assert [step[2] for step in folder.steps()] == [9, 4]


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


def test_what_a_process_said_comes_before_its_end(folder):
    """Also of the others, whose last line may be why it ended."""
    folder.log("0 round=1")
    folder.log("0 round=7\n", "replica-2")
    gone = an_event(2.0, "harness", 0, "exit", {"target": "replica-1", "incarnation": 0, "status": 0, "again": False})
    folder.witness.look(1.9, gone)
    assert sorted(folder.steps()) == [("replica-1", 0, 1, 1.9), ("replica-2", 0, 7, 1.9)]


@pytest.mark.parametrize(("status", "killed", "reasons"), [(1, False, ["KeyError: 3"]), (0, False, []), (1, True, [])])
def test_a_process_that_ends_badly_by_itself_says_why_in_its_last_line(folder, status, killed, reasons):
    folder.log("Traceback (most recent call last):\n  File\nKeyError: 3\n")
    folder.witness.look(1.0, an_event(1.0, "harness", 0, "exit", {
        "target": "replica-1", "incarnation": 0, "status": status, "killed": killed}))
    assert [event.reason for event in Tape.read(folder.path / "tape").of(Failed)] == reasons


# -- logs as they are ------------------------------------------------------------------------------------------------

def test_a_progress_bar_is_read_while_it_moves(folder):
    folder.log("\r0 round=1")
    folder.witness.look(1.0)
    assert folder.steps() == []
    folder.log("\r0 round=2")
    folder.witness.look(2.0)
    assert folder.steps() == [("replica-1", 0, 1, 1.0)], "when its text came"


def test_a_field_that_is_no_number_is_told_and_costs_the_field(tmp_path):
    folder = Folder(tmp_path, CommandSettings.model_validate({
        "nodes": {"w": {"worker": True, "run": "t.py"}},
        "progress": [{"node": "w", "log": r"round=(?P<round>\d+) loss=(?P<loss>\S+)"}]}))
    folder.log("round=1 loss=n/a\nround=2 loss=n/a\nround=3 loss=1,024.5\n", node="w")
    folder.witness.look(1.0)
    tape = Tape.read(tmp_path / "tape")
    assert [(step.step, step.loss) for step in tape.of(Step)] == [(1, None), (2, None), (3, 1024.5)]
    assert [warning.reason for warning in tape.of(Warning)] == ["loss: 'n/a' is no number; the round counts without it"]
    folder.witness.close()


def test_rounds_of_epochs_go_on_after_a_restart_from_a_checkpoint(tmp_path):
    folder = Folder(tmp_path, CommandSettings.model_validate({
        "nodes": {"w": {"worker": True, "run": "t.py"}},
        "progress": [{"node": "w", "log": r"(?P<epoch>\d+): (?P<round>\d+)"}]}))
    folder.log("".join(f"{epoch}: {step}\n" for epoch in range(2) for step in range(1, 11)), node="w")
    folder.harness(2.0, "exit", {"target": "w", "incarnation": 0, "again": True})
    folder.harness(3.0, "spawn", {"target": "w", "incarnation": 1})
    folder.log("1: 6\n1: 7\n", node="w", incarnation=1)
    folder.witness.look(4.0)
    assert [step[1:3] for step in folder.steps()] == [*((0, number) for number in range(1, 21)), (1, 16), (1, 17)]
    folder.witness.close()


def test_rounds_that_begin_again_are_told_with_the_group_for_it(folder):
    folder.log("".join(f"0 round={number}\n" for number in (*range(1, 41), *range(1, 41))))
    folder.witness.look(1.0)
    [warning] = [event for event in Tape.read(folder.path / "tape").of(Warning) if "again" in event.reason]
    assert warning.reason == "its rounds begin again with 1 after 40"
    assert r"`(?P<epoch>\d+)`" in warning.change


def test_no_round_is_before_its_own_process_or_after_it_was_read(tmp_path):
    folder = Folder(tmp_path)
    folder.harness(10.5, "spawn", {"target": "replica-1", "incarnation": 1})
    folder.log(f"{folder.at(10.0)} round=1\n{folder.at(12.0)} round=2\n", incarnation=1)
    folder.witness.look(11.0)
    assert [step[3] for step in folder.steps()] == [10.5, 11.0]
    folder.witness.close()


def test_files_that_a_launcher_redirects_to_are_read(tmp_path):
    (run := tmp_path / "run [1]").mkdir()
    folder = Folder(run, CommandSettings.model_validate({
        "nodes": {"agent": {"worker": True, "run": "torchrun t.py"}},
        "progress": [{"node": "agent", "log": r"round=(?P<round>\d+)", "file": "{run}/tr/*/attempt_*/0/stdout.log"}]}))
    for attempt in (0, 1):
        (file := run / f"tr/none_x/attempt_{attempt}/0/stdout.log").parent.mkdir(parents=True)
        file.write_text(f"round={attempt + 1}\n")
    folder.log("round=99\n", node="agent")
    folder.witness.look(1.0)
    assert sorted(step[2] for step in folder.steps()) == [1, 2]
    folder.witness.close()


def test_output_that_comes_in_bursts_is_told_with_the_remedy(folder):
    folder.log("")
    for second in range(1, 4):
        for look in range(50):
            folder.witness.look(second + look / 50)
        folder.log("".join(f"0 round={second * 100 + number}\n" for number in range(40)))
    folder.witness.look(4.0)
    [warning] = [event for event in Tape.read(folder.path / "tape").of(Warning) if "bursts" in event.reason]
    assert "PYTHONUNBUFFERED" in warning.change


@given(looks=st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.booleans()), max_size=9))
@settings(max_examples=40, deadline=None)
def test_rounds_that_workers_finish_together_have_all_members_however_many_are_read_at_once(tmp_path_factory, looks):
    """A harness that comes late reads many rounds of one worker, and then those of the other."""
    folder, told, made = Folder(tmp_path_factory.mktemp("run")), {"replica-1": 0, "replica-2": 0}, 0
    for t, (more, *ahead) in enumerate([*looks, (1, False, False)], 1):
        made += more
        for node, one_more in zip(told, ahead, strict=True):
            until = max(told[node], made + one_more)
            folder.log("".join(f"0 round={number}\n" for number in range(told[node] + 1, until + 1)), node)
            told[node] = until
        folder.witness.look(t / 10)
    folder.witness.look(100.0)
    folder.witness.close()
    whole = min(told.values())
    merges = [merge for merge in Tape.read(folder.path / "tape").of(Merge) if merge.round <= whole]
    assert [len(merge.contributions) for merge in merges] == [2] * whole


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_run_reads_what_was_written_and_the_linter_the_same(tmp_path_factory, data):
    rounds = data.draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=12).map(sorted))
    text = ""
    for number in rounds:
        spelled = data.draw(st.sampled_from(["{}", "{:,}", "\x1b[1m{}\x1b[0m", "{}.0"])).format(number)
        loss = data.draw(st.sampled_from(["0.5", "nan", "n/a", "1,024", "tensor(0.5)"]))
        text += data.draw(st.sampled_from(["", "[rank0]: ", "noise\n", "\x1b[2K\r", "100%|###| "]))
        text += f"round={spelled} loss={loss}" + data.draw(st.sampled_from(["\n", "\r", "\r\n", "\x1b[K\n"]))
    written = text.encode()
    known = CommandSettings.model_validate({
        "nodes": {"w": {"worker": True, "run": "t.py"}}, "shared": False,
        "progress": [{"node": "w", "log": r"round=(?P<round>[\d,.]+) loss=(?P<loss>\S+)"}]})
    folder = Folder(tmp_path_factory.mktemp("run"), known)
    places = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=8)))
    for t, (start, end) in enumerate(pairwise([0, *places, len(written)]), 1):
        folder.log(written[start:end], node="w")
        folder.witness.look(float(t))
    folder.harness(100.0, "exit", {"target": "w", "incarnation": 0, "again": False})
    folder.witness.close()
    linted = Commands(known).read_log(lines_of(written), "w", datetime.now(UTC))
    assert [step[2] for step in folder.steps()] == [report.round for report in linted.reports] == rounds


def test_what_a_process_told_before_its_successor_was_started_counts_and_what_it_tells_then_is_none_of_the_runs(folder):
    folder.log("0 round=1\n0 round=2\n")
    folder.harness(2.0, "spawn", {"target": "replica-1", "incarnation": 1})
    folder.log("0 round=3\n", incarnation=1)
    folder.witness.look(3.0)
    folder.log("".join(f"0 round={number}\n" for number in range(3, 40)))
    folder.witness.look(4.0)
    assert [(inc, number) for _, inc, number, _ in folder.steps()] == [(0, 1), (0, 2), (1, 3)]
    stale = Tape.read(folder.path / "tape").of(StaleRound)
    twenty = [(0, number) for number in range(3, 23)]
    assert [(event.inc, event.round) for event in stale] == twenty


def test_what_a_process_tells_before_its_successor_tells_of_a_round_is_kept_whole(folder):
    folder.log("0 round=1\n")
    folder.harness(2.0, "spawn", {"target": "replica-1", "incarnation": 1})
    folder.log("".join(f"0 round={number}\n" for number in range(2, 60)))
    folder.witness.look(3.0)
    assert [event.round for event in Tape.read(folder.path / "tape").of(StaleRound)] == [*range(2, 60)]


def notices(folder):
    return [(event.node, event.inc, event.line) for event in Tape.read(folder.path / "tape").of(Noticed)]


@pytest.fixture
def noticing(tmp_path):
    noticed = SETTINGS.model_dump(mode="json") | {"noticed": "missed .* heartbeats"}
    folder = Folder(tmp_path, CommandSettings.model_validate(noticed))
    yield folder
    folder.witness.close()


def test_any_node_may_say_whom_it_misses(noticing):
    noticing.log("0 round=1\nmissed 3 heartbeats of replica-2\n0 round=2\n")
    noticing.log("  replica-2 missed 3 heartbeats\n0 round=7\n", node="store")
    noticing.witness.look(1.0)
    assert notices(noticing) == [("replica-1", 0, "missed 3 heartbeats of replica-2"),
                                 ("store", 0, "replica-2 missed 3 heartbeats")]
    assert [step[:3] for step in noticing.steps()] == [("replica-1", 0, 1), ("replica-1", 0, 2)]


def test_the_last_words_of_a_node_that_does_not_train_are_read_and_of_its_next_process(noticing):
    noticing.log("missed 1 heartbeats", node="store")
    noticing.harness(1.0, "exit", {"target": "store", "incarnation": 0, "again": True})
    noticing.harness(2.0, "spawn", {"target": "store", "incarnation": 1})
    noticing.log("missed 2 heartbeats\n", node="store", incarnation=1)
    noticing.witness.look(3.0)
    assert notices(noticing) == [("store", 0, "missed 1 heartbeats"), ("store", 1, "missed 2 heartbeats")]


def test_who_says_so_again_and_again_is_written_down_a_hundred_times(noticing):
    noticing.log("missed 3 heartbeats\n" * 200)
    noticing.witness.look(1.0)
    assert len(notices(noticing)) == 100


def test_a_worker_may_say_that_it_is_ready(tmp_path):
    ready = SETTINGS.model_dump(mode="json") | {"ready": "^resumed at"}
    folder = Folder(tmp_path, CommandSettings.model_validate(ready))
    folder.log("resumed at step 3\n0 round=1\nit resumed at\n")
    folder.witness.look(1.0)
    folder.witness.close()
    assert [(event.node, event.line) for event in Tape.read(folder.path / "tape").of(Prepared)] == [
        ("replica-1", "resumed at step 3")]


def test_a_plan_without_them_has_no_such_settings():
    assert {"noticed", "ready"}.isdisjoint(SETTINGS.model_dump(mode="json"))
