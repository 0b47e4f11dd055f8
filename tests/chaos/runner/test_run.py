"""Whole runs with real processes: few, small, and each about something that only processes show."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.report.story import story
from diloco_chaos.chaos.runner.run import judged
from diloco_chaos.harness.base.processes import TOKEN
from diloco_chaos.harness.record.tape.events import (
    Healed,
    Injecting,
    Merge,
    PartialFrame,
    RefusedFrame,
    Residue,
    Resumed,
    Step,
)
from diloco_chaos.harness.trainer.protocol.messages import Clock, Hello
from diloco_chaos.harness.trainers.wire.frames import encode


def words(result):
    return {verdict.name: verdict.verdict for verdict in result.judgement.checks}


PROTOCOL = ("exactly_once", "replica_consistency", "weights_correct", "processed_correct", "learning_rate_correct",
            "quorum_respected", "staleness_bounded",
            "all_undone")


def assert_protocol_held(result):
    verdicts = {verdict.name: verdict for verdict in result.judgement.checks}
    for name in PROTOCOL:
        assert verdicts[name].verdict == "passed", verdicts[name]


def test_a_syncer_that_is_killed_between_commit_and_broadcast_goes_on_where_it_was(run_small):
    result = run_small("{kill: syncer, when: {node: syncer, failpoint: commit.before_broadcast, count: 20}, "
                       "restart_after: 1s}", budget=300, deadline="120s")
    assert result.outcome.kind == "finished", result.outcome
    tape = result.history.tape
    resumed = tape.of(Resumed, node="syncer")[0]
    before = {event.fragment: event for event in tape.of(Merge) if event.inc == 0}
    for fragment, event in before.items():
        assert resumed.versions[fragment] == event.version
        assert resumed.digests[fragment] == event.digest
    after = [event for event in tape.of(Merge) if event.inc == 1]
    assert {part.learner for event in after for part in event.contributions} == {
        "learner-1", "learner-2", "learner-3"}
    assert all(event.inc == 0 for event in tape.of(Step)), "a learner did not outlive the outage"
    assert_protocol_held(result)


@pytest.mark.parametrize("point", ["merge.before_commit", "checkpoint.before_rename"])
def test_a_merge_that_was_not_committed_never_happened(run_small, point):
    result = run_small(f"{{kill: syncer, when: {{node: syncer, failpoint: {point}, count: 9}}, restart_after: 1s}}")
    assert result.outcome.kind == "finished", result.outcome
    assert result.history.tape.of(Resumed)
    assert_protocol_held(result)


class Vandal(NullAudience):
    """Throws garbage at the syncer while it trains."""

    def __init__(self):
        self.port = None
        self.thrown = False

    def on_event(self, event):
        if event.event == "listening":
            self.port = event.port
        if event.event == "steady" and not self.thrown:
            self.thrown = True
            oversized = b"DLC1" + (1 << 20).to_bytes(4, "big") + bytes(8)
            stranger = encode(Hello(token="wrong", node="learner-1", incarnation=9, step=0, tokens=0, position=0,
                                    versions=[-1] * 4, steps=[0] * 4))
            for data in (b"GET / HTTP/1.1\r\n\r\n", oversized, stranger, encode(Clock(step=1, tokens=1, steady=True)),
                         stranger[:20]):
                with socket.create_connection(("127.0.0.1", self.port), 2) as link:
                    link.sendall(data)


def test_frames_that_are_garbled_oversized_or_strange_are_refused_and_recorded_and_the_run_goes_on(run_small):
    result = run_small(audience=Vandal())
    assert result.outcome.kind == "finished"
    reasons = [event.reason for event in result.history.tape.of(RefusedFrame)]
    assert any("not a frame" in reason for reason in reasons)
    assert any("oversized" in reason for reason in reasons)
    assert sum("no valid token" in reason for reason in reasons) == 2
    assert result.history.tape.of(PartialFrame)
    assert_protocol_held(result)


class Usurper(NullAudience):
    """Has the run's token, and takes a learner's place."""

    def __init__(self):
        self.port, self.link = None, None

    def on_event(self, event):
        if event.event == "listening":
            self.port = event.port
        if event.event == "steady" and self.link is None:
            token = next(filter(None, (child.environ().get(TOKEN) for child in psutil.Process().children())))
            self.link = socket.create_connection(("127.0.0.1", self.port), 2)
            self.link.sendall(encode(Hello(token=token, node="learner-1", incarnation=7, step=0, tokens=0, position=0,
                                           versions=[-1] * 4, steps=[0] * 4)))


def test_who_took_a_learners_place_and_was_no_process_of_the_run_is_named_before_any_fault_is(run_small):
    usurper = Usurper()
    result = run_small("{straggler: learner-2, at: 3s, for: 2s}", audience=usurper)
    usurper.link.close()
    first, who = story(result)[:2]
    assert first == "somebody else who has this run's token took part; what follows may be their doing"
    assert who.endswith("learner-1.7, which this run never started, took the place of learner-1.0")


def test_a_deadline_ends_the_run_as_inconclusive_with_the_stacks_of_all_nodes(run_small):
    result = run_small(budget=5000, deadline="8s")
    assert result.outcome.kind == "deadline"
    assert "deadline of 8 s passed" in result.judgement.inconclusive
    assert result.judgement.exit_code == 3
    for node in ("syncer", "learner-1"):
        heading, *stack = result.folder.log_tail(node)
        innermost, *outer = [line for line in stack if line != "  Garbage-collecting"]  # Python's, above the frames
        assert heading.endswith("(most recent call first):")
        assert "runpy" not in innermost, "the outermost frame comes last"
        assert all(line.startswith('  File "') for line in [innermost, *outer])


def test_faults_of_many_kinds_at_once_are_felt_on_real_processes_and_the_protocol_holds(run_small):
    result = run_small(
        "{zombie: learner-1, at: 500ms, for: 3s}", "{poison: learner-2, at: 500ms, content: inf}",
        "{slicer: learner-3, at: 500ms, for: 2s, size: 4096, delay: 2ms}", "{reset: learner-2, at: 4s, for: 1500ms}",
        "{limit_data: learner-3, at: 4s, for: 1500ms, size: 20000}", "{bandwidth: learner-1, at: 6s, for: 2s}",
        "{timeout: learner-2, at: 6s, for: 2s}", "{slow_close: learner-3, at: 6s, for: 3s, delay: 200ms}",
        "{pause: learner-1, at: 10s, for: 1s}", "{terminate: learner-3, at: 10s, restart_after: 500ms}",
        "{truncate: syncer, at: 10s}", "{partition: learner-2, direction: upstream, at: 15s, for: 2s}",
        budget=320, deadline="120s")
    assert result.outcome.kind == "finished", result.outcome
    observed = {verdict.name: verdict for verdict in result.judgement.checks}["faults_verified"]
    assert observed.verdict == "passed", observed.evidence
    assert len(observed.evidence) == 12
    assert_protocol_held(result)


def test_an_abort_heals_and_ends_the_run_as_inconclusive(run_small):
    result = run_small("{kill: learner-1, at: 500ms}", "{straggler: learner-2, at: 0s, for: 60s}",
                       "{kill: learner-3, at: 40s}", budget=3000, deadline="60s",
                       more="abort_when: {alive_below: 3}\nchecks: {self_healing: {within: 1s}}")
    assert result.outcome.kind == "aborted"
    assert "2 learners are alive, fewer than 3" in result.judgement.inconclusive
    assert result.judgement.exit_code == 3
    tape = result.history.tape
    assert [event.fault for event in tape.of(Healed)] == ["f2"]
    assert [event.fault for event in tape.of(Injecting)] == ["f2", "f1"]
    assert tape.of(Residue)[0].left == []


def test_a_tape_that_grows_over_its_limit_ends_the_run_with_a_word(run_small):
    result = run_small(budget=3000, more="tape_limit: 100kB")
    assert result.outcome.kind == "broken"
    assert "the tape has grown over 0.1 MB" in result.judgement.inconclusive
    assert result.judgement.exit_code == 3


def test_judging_a_folder_again_gives_the_same_verdicts(run_small):
    result = run_small("{partition: learner-1, at: 1s, for: 1s}")
    first = (result.folder.path / "report.json").read_text()
    assert words(judged(result.folder)) == words(result)
    assert (result.folder.path / "report.json").read_text() == first


def descendants(token):
    """Processes that carry this run's folder on their command line."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(token in part for part in process.info["cmdline"] or []):
            found.append(process)
    return found


def hears_ctrl_c():
    """A shell starts what runs in the background with SIGINT ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def harness(tmp_path, scenario_text):
    """A harness in a process of its own, in the middle of a run."""
    file = tmp_path / "small.yaml"
    file.write_text(scenario_text("{straggler: learner-1, at: 0s, for: 60s}", budget=3000, deadline="100s"))
    process = subprocess.Popen([sys.executable, "-m", "diloco_chaos", "run", str(file), "--runs-dir",
                                str(tmp_path / "runs")],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               preexec_fn=hears_ctrl_c)
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "f1: " in line:
            break
    else:
        pytest.fail("".join(lines))
    yield process, str(tmp_path / "runs")
    process.kill()
    process.wait()


def wait_until_gone(token, seconds=5.0):
    until = time.monotonic() + seconds
    while (left := descendants(token)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def test_killing_the_harness_ends_every_node_even_a_stopped_one(harness):
    process, token = harness
    assert len(descendants(token)) >= 5  # harness, syncer, three learners
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert wait_until_gone(token) == []


def test_ctrl_c_ends_every_process_says_in_five_lines_what_there_is_and_exits_130(harness):
    process, token = harness
    os.kill(process.pid, signal.SIGINT)
    rest = process.stdout.read()
    assert process.wait(20) == 130
    first, *commands = rest[rest.index("INTERRUPTED"):].splitlines()
    assert first.startswith("INTERRUPTED  small · stopped by Ctrl-C · seed 0 · ")
    assert [line.split()[0] for line in commands] in [["saved", "all", "go", "interrupted;"],
                                                      ["saved", "all", "repeat", "interrupted;"]]
    assert "exactly_once" in (Path(commands[0].split()[1]) / "report.json").read_text(), "it is judged all the same"
    assert wait_until_gone(token) == []
