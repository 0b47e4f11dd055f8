"""Trainers that are not ours, as processes: no torch, no import of ours, and a run that is judged like any other."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median

import psutil
import pytest

from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner.baselines import NoReferenceError
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.harness.base.processes import TOKEN
from diloco_chaos.harness.record.tape.events import (
    Exit,
    Failpoint,
    FailpointPassed,
    Injected,
    Merge,
    Observed,
    Sighted,
    StaleRound,
    Steady,
    Step,
    Warning,
)

TOY = Path(__file__).parents[2] / "support" / "elastic_toy.py"
ROUND = r"round=(?P<round>\d+) members=(?P<members>\d+) loss=(?P<loss>\S+)"


def text(*faults, rounds=120, child="", nodes=None, progress=("worker",), shared=True, written=False, parity=False,
         expression=ROUND, deadline="30s", baseline=None, of_workers=None, **hub):
    """A scenario of the toy trainer."""
    nodes = {"hub": {"listens": True, "run": f"{{python}} {TOY} hub {{port}}"} | hub,
             "worker": {"count": 2, "worker": True, "run": f"{{python}} {TOY} worker {{hub}} {child}"}
             | (of_workers or {})} | (nodes or {})
    how = {"written": True} if written else {"log": expression}
    trainer = {"kind": "commands", "nodes": nodes, "progress": [{"node": node, **how} for node in progress],
               "rounds": rounds, "shared": shared, **({"baseline": baseline} if baseline else {})}
    return (f"diloco_chaos: 1\nname: toy\ndeadline: {deadline}\ntrainer: {json.dumps(trainer)}\n"
            + "faults:\n" + "".join(f"  - {fault}\n" for fault in faults or ["{pause: hub, at: 1s, for: 300ms}"])
            + f"checks: {{no_global_stall: {{max_gap: 2s}}{', loss_parity: {against_baseline: 1%}' * parity}}}\n")


def frozen(*faults, **settings):
    return freeze(parse(text(*faults, **settings)), 0)


@pytest.fixture
def run_toy(tmp_path):
    def run(*faults, **settings):
        return run_plan(frozen(*faults, **settings), tmp_path, NullAudience())
    return run


MARK = "DILOCO_CHAOS_TEST_MARK"
_ONE_BY_ONE = "worker-1/rank-1 is a process: kill, terminate and pause hit those, one by one"


def carrying(mark):
    """Processes, other than this one, that were started with this mark: (pid, command)."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            environment = process.environ()
            if environment.get(MARK) == mark and process.pid != os.getpid() and TOKEN in environment:
                found.append((process.pid, process.cmdline()))
    return found


def sleepers(mark):
    """Commands of those that sleep; a process that is just ending has no command any more."""
    return [command for _, command in carrying(mark) if command[:1] == ["sleep"]]


@pytest.fixture
def mark(monkeypatch, tmp_path):
    """In the environment of everything that a test starts."""
    monkeypatch.setenv(MARK, str(tmp_path))
    return str(tmp_path)


def verdicts(result):
    """Of each check; where this machine had other things to do, what it would have been."""
    return {verdict.name: "failed" if verdict.reason == "excused" else verdict.verdict
            for verdict in result.judgement.checks}


def test_a_worker_that_is_killed_comes_back_and_counts(run_toy):
    result = run_toy("{kill: worker-1, at: 1s, restart_after: 500ms}", child="CHILD")
    assert set(verdicts(result)) == {
        "no_global_stall", "self_healing", "reintegration", "blast_radius", "uptime", "rounds_never_go_back",
        "none_left_out", "losses_are_numbers", "members_agree", "no_unplanned_exit", "faults_verified", "all_undone"}
    assert {verdicts(result)[name] for name in ("reintegration", "rounds_never_go_back", "no_unplanned_exit",
                                                "faults_verified", "all_undone")} == {"passed"}
    assert {len(event.contributions) for event in result.history.tape.of(Merge)[-6:-1]} == {2}


def test_a_worker_may_say_so_itself(run_toy):
    result = run_toy("{kill: worker-1, at: 1s, restart_after: 500ms}", written=True)
    assert verdicts(result)["reintegration"] == "passed", result.judgement.checks
    assert {event.inc for event in result.history.tape.of(Step, node="worker-1")} == {0, 1}


def test_a_service_has_come_back_when_the_next_round_is_made(run_toy):
    result = run_toy("{kill: hub, at: 1s, restart_after: 500ms}")
    [verdict] = [one for one in result.judgement.checks if one.name == "reintegration"]
    assert verdict.verdict == "passed"
    assert re.search(r"hub\.1 started at [\d.]+ s, and the next round was at", verdict.evidence[0])


@pytest.mark.parametrize(("may", "verdict"), [({"exits": [0]}, "passed"), ({}, "failed")])
def test_a_node_that_only_prepares_something_may_end_where_the_scenario_says_so(run_toy, may, verdict):
    result = run_toy(rounds=40, nodes={"prepare": {"run": "{python} -c pass"} | may})
    assert verdicts(result)["no_unplanned_exit"] == verdict


RANKS = {"processes": {"rank": r"RANK=(\d+)"}}


def log_of(result, process):
    return (result.folder.path / "logs" / f"{process}.log").read_text()


def test_one_of_the_processes_that_a_node_has_started_is_killed_and_the_others_go_on(run_toy, mark):
    result = run_toy("{kill: worker-1/rank-1, at: 1s}", child="GROUP", of_workers=RANKS)
    assert "rank 1 ended with -9" in log_of(result, "worker-1.0")
    assert "rank 0" not in log_of(result, "worker-1.0"), "it lived until the end"
    assert "rank" not in log_of(result, "worker-2.0")
    assert {event.inc for event in result.history.tape.of(Step, node="worker-1")} == {0}
    assert verdicts(result)["faults_verified"] == "passed"
    assert not carrying(mark)


def test_one_of_them_stands_still_as_long_as_it_is_told(run_toy):
    result = run_toy("{pause: [worker-1/rank-0, worker-2/rank-0], at: 1s, for: 500ms}", child="GROUP",
                     of_workers=RANKS)
    [verdict] = [one for one in result.judgement.checks if one.name == "faults_verified"]
    assert (verdict.verdict, result.outcome.kind) == ("passed", "finished")
    assert re.search(r"SIGSTOP to pid \d+, \d+", verdict.evidence[0])


def test_a_process_that_is_not_there_proves_nothing(run_toy):
    result = run_toy("{terminate: worker-1/rank-7, at: 1s}", child="GROUP", of_workers=RANKS)
    [verdict] = [one for one in result.judgement.checks if one.name == "faults_verified"]
    assert verdict.verdict == "unknown"
    assert "worker-1 had no process rank-7" in verdict.evidence[0]


@pytest.mark.parametrize(("fault", "why"), [
    ("{kill: worker-1/rnk-1, at: 1s}", "no process of worker-1 is called 'rnk'; did you mean 'rank'?"),
    ("{kill: hub/rank-1, at: 1s}", "no process of hub is called 'rank'"),
    ("{kill: worker-9/rank-1, at: 1s}", "there is no node 'worker-9' here"),
    ("{kill: worker-1/rank, at: 1s}", "process: 'rank' is not a process: write NAME-ID, like rank-3"),
    ("{kill: [worker-1/rank-1, worker-2], at: 1s}", _ONE_BY_ONE),
    ("{latency: worker-1/rank-1, at: 1s, for: 1s, delay: 5ms}", _ONE_BY_ONE)])
def test_a_process_that_nobody_can_tell_from_others_is_refused(fault, why):
    with pytest.raises(ScenarioError, match=re.escape(why)):
        frozen(fault, of_workers=RANKS)


KEEPS = {"state": "{run}/state/{name}"}


@pytest.mark.parametrize(("kind", "says"), [
    ("corrupt", "what was kept is damaged"), ("truncate", "what was kept is damaged"), ("delete", "nothing was kept")])
def test_files_of_a_workers_state_are_damaged_where_it_is_said_to_keep_them(run_toy, kind, says):
    result = run_toy(f"{{{kind}: worker-1, at: 1s, restart_after: 500ms}}", child="KEEP {run}/state/{name}",
                     of_workers=KEEPS)
    assert log_of(result, "worker-1.0").count("nothing was kept") == 1, "it was its first process"
    assert says in log_of(result, "worker-1.1")
    [verdict] = [one for one in result.judgement.checks if one.name == "faults_verified"]
    assert verdict.verdict == "passed"
    assert "made damaged" in verdict.evidence[0]


def test_a_state_that_leads_out_of_the_runs_folder_is_not_touched(run_toy, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "made").write_text("1 1")
    link = f"import os, sys; os.makedirs(sys.argv[1]); os.symlink('{outside}', sys.argv[1] + '/worker-1')"
    result = run_toy("{delete: worker-1, at: 1s}", of_workers=KEEPS, nodes={
        "prepare": {"run": f'{{python}} -c "{link}" {{run}}/state', "exits": [0]}})
    assert result.outcome.kind == "broken"
    assert "leads out of the run's" in result.outcome.message
    assert (outside / "made").read_text() == "1 1"


@pytest.mark.parametrize(("state", "why"), [
    ("/etc", "it must be within the run's folder"), ("{run}/../x", "it must be within the run's folder"),
    ("{run}/{host}", "{host} stands for nothing here"), ("", "nobody knows what these nodes keep")])
def test_a_folder_of_state_that_can_not_be_is_refused(state, why):
    with pytest.raises(ScenarioError, match=re.escape(why)):
        frozen("{corrupt: worker-1, at: 1s}", of_workers={"state": state})


def test_only_those_whose_state_is_known_can_be_damaged():
    with pytest.raises(ScenarioError, match=r"only a node whose `state` is known \(worker-1, worker-2\) can be hit"):
        frozen("{corrupt: hub, at: 1s}", of_workers=KEEPS)


def test_files_are_written_before_each_start_with_the_addresses_of_links(run_toy):
    spoils = "import sys; print(open(sys.argv[1]).read()); open(sys.argv[1], 'w').write('spoilt')"
    result = run_toy("{kill: worker-1, at: 1s, restart_after: 300ms}", nodes={
        "reads": {"run": f'{{python}} -c "{spoils}; import time; time.sleep(.2)" {{run}}/files/{{name}}/conf/at.json',
                  "files": {"conf/at.json": '{"hub": "{hub}", "is": {"my": "{name}"}}'}, "exits": [0],
                  "restart": "always", "restart_delay": "500ms"}})
    first, second = (json.loads(log_of(result, f"reads.{number}")) for number in (0, 1))
    assert first == second
    assert first["is"] == {"my": "reads"}
    assert re.fullmatch(r"127\.0\.0\.1:\d+", first["hub"])
    assert "reads.hub" in result.history.plan.cluster.link_names


def test_files_are_not_written_out_of_the_runs_folder(run_toy, tmp_path):
    link = f"import os, sys; os.makedirs(sys.argv[1]); os.symlink('{tmp_path}', sys.argv[1] + '/late')"
    result = run_toy(nodes={
        "prepare": {"run": f'{{python}} -c "{link}; print(1)" {{run}}/files', "exits": [0], "ready": {"log": "1"}},
        "late": {"run": "true", "files": {"x": "text"}, "exits": [0]}})
    assert result.outcome.kind == "broken"
    assert "leads out of the run's folder: nothing is written there" in result.outcome.message
    assert not (tmp_path / "x").exists()


LEAVES = "{terminate: worker-1, at: 1s, restart_after: 300ms}"


@pytest.mark.parametrize("child", ["CHILD", ""])
@pytest.mark.parametrize("what", ["fail", "end"])
def test_what_a_node_leaves_behind_when_it_is_terminated_is_told_and_ended(run_toy, mark, child, what):
    result = run_toy(LEAVES, child=child, of_workers={"left_behind": what})
    gone, = (event for event in result.history.tape.of(Exit, node="harness") if event.killed)
    assert [words.partition(" ")[2] for words in gone.left] == (["sleep 1000"] if child else [])
    assert len(result.history.tape.of(Warning, node="harness")) == bool(child)
    assert verdicts(result).get("left_behind") == {"fail": "failed" if child else "passed", "end": None}[what]
    assert not carrying(mark)


def test_what_is_kept_lives_until_the_run_is_over(tmp_path, mark):
    audience = Watching(mark)
    result = run_plan(frozen(LEAVES, child="CHILD", of_workers={"left_behind": "keep"}), tmp_path, audience)
    assert audience.sleeping == [["sleep", "1000"]] * 2, "that of worker-2, and what worker-1 has left behind"
    assert "lives until the run is over" in result.history.tape.of(Warning, node="harness")[0].reason
    assert not carrying(mark)


QUIET = {"quiet": {"worker": "silent", "run": f"{{python}} {TOY} worker {{hub}}"}}


def test_a_worker_that_tells_of_no_round_has_come_back_when_the_others_have_as_many_members_again(run_toy):
    result = run_toy("{kill: quiet, at: 1s, restart_after: 500ms}", nodes=QUIET)
    [verdict] = [one for one in result.judgement.checks if one.name == "reintegration"]
    assert verdict.verdict == "passed"
    assert re.search(r"quiet\.1 started at [\d.]+ s, and the next round of 3 members was at", verdict.evidence[0])
    assert not result.history.tape.of(Step, node="quiet")


def test_a_worker_that_tells_of_no_round_and_stays_outside_fails(run_toy):
    once = f"f=$0.there; if [ -e $f ]; then sleep 100; else touch $f; exec $1 {TOY} worker $2; fi"
    result = run_toy("{kill: quiet, at: 1s, restart_after: 100ms}", rounds=450, nodes={"quiet": {
        "worker": "silent", "run": f"sh -c '{once}' {{run}}/once {{python}} {{hub}}"}})
    [verdict] = [one for one in result.judgement.checks if one.name == "reintegration"]
    assert verdicts(result)["reintegration"] == "failed"
    assert any("no round had 3 members after that" in words for words in verdict.evidence)


def test_a_worker_that_tells_of_no_round_is_refused_where_nobody_tells_of_members():
    with pytest.raises(ScenarioError, match="nobody says how many take part in a round, so quiet can't be judged"):
        frozen(nodes=QUIET, expression=r"round=(?P<round>\d+)")


def test_a_worker_that_goes_on_beside_its_successor_fails(run_toy):
    result = run_toy("{zombie: worker-1, at: 1s, for: 300ms}", rounds=160)
    [verdict] = [one for one in result.judgement.checks if one.name == "faults_verified"]
    assert verdict.verdict == "failed"
    assert "worker-1.0 came back and went on to train beside worker-1.1: it told of round" in verdict.evidence[0]
    assert {event.inc for event in result.history.tape.of(StaleRound, node="worker-1")} == {0}


AT_POINT = "when: {node: worker-1, failpoint: round.told, count: 5}"


def test_a_worker_is_killed_at_a_point_of_its_own_code(run_toy):
    result = run_toy(f"{{kill: worker-1, {AT_POINT}, restart_after: 500ms}}")
    stood, = result.history.tape.of(Failpoint, node="worker-1")
    assert (stood.inc, stood.point, stood.count) == (0, "round.told", 5)
    assert [event.count for event in result.history.tape.of(FailpointPassed, node="worker-1")] == [1, 2, 3, 4]
    killed = result.history.tape.of(Injected)[0].t
    made = [event for event in result.history.tape.of(Step, node="worker-1") if event.inc == 0]
    assert max(event.t for event in made) <= stood.t < killed, "it stood there until it was killed"
    found = verdicts(result)
    assert "failed" not in found.values()
    assert found["faults_verified"] == found["reintegration"] == "passed"


def test_a_worker_that_stands_at_a_point_goes_on_when_its_pause_is_over(run_toy):
    result = run_toy(f"{{pause: worker-1, {AT_POINT}, for: 300ms}}")
    assert result.outcome.kind == "finished"
    stood, = result.history.tape.of(Failpoint, node="worker-1")
    made = [event.t for event in result.history.tape.of(Step, node="worker-1")]
    assert not [t for t in made if stood.t + 0.05 < t < stood.t + 0.3]
    assert max(made) > stood.t + 0.3
    assert {event.inc for event in result.history.tape.of(Step, node="worker-1")} == {0}


@pytest.mark.parametrize(("fault", "why"), [
    ("{kill: hub, when: {node: hub, failpoint: round.told}, restart_after: 1s}",
     "only workers hold at failpoints: worker-1, worker-2"),
    ("{kill: worker-1, when: {node: worker-1, failpoint: 'a,b'}}", "a name has letters, digits"),
    ("{kill: worker-2, when: {node: worker-1, failpoint: told}}", "hit worker-1 itself")])
def test_a_point_at_which_nobody_can_be_hit_is_refused(fault, why):
    with pytest.raises(ScenarioError, match=why):
        frozen(fault)


@pytest.mark.parametrize("when", ["log: 'round=\\d+ .*', count: 9", "file: 'made', count: 9"])
def test_a_worker_is_killed_at_a_line_of_its_log_or_at_a_file(run_toy, when):
    result = run_toy(f"{{kill: worker-1, when: {{node: worker-1, {when}}}, restart_after: 500ms}}",
                     child="KEEP {run}/state/{name}", of_workers=KEEPS)
    seen, = result.history.tape.of(Sighted)
    assert (seen.fault, seen.target, seen.count) == ("f1", "worker-1", 9)
    killed, = result.history.tape.of(Injected)
    assert killed.t >= seen.t
    assert verdicts(result)["faults_verified"] == "passed"


def test_a_line_that_never_came_is_told_with_those_that_come_near_to_it(run_toy):
    result = run_toy("{kill: worker-1, when: {node: worker-1, log: 'rounds: .* members'}}", rounds=40)
    [verdict] = [one for one in result.judgement.checks if one.name == "faults_verified"]
    assert verdict.verdict == "unknown"
    assert re.search(r"there were 0 since the steady state in the log of worker-1; the nearest there: 'round=\d+ mem",
                     verdict.evidence[0])


@pytest.mark.parametrize(("fault", "why"), [
    ("{kill: hub, when: {node: hub, file: '*.pt'}}", "nobody knows where that is: write `state:"),
    ("{kill: hub, when: {node: hub, file: '{run}/{incarnation}/*.pt'}}", "{incarnation} stands for nothing here"),
    ("{kill: hub, when: {node: hub, file: '../*.pt'}}", "it must be within the run's folder"),
    ("{kill: hub, when: {node: hub, log: 'a('}}", "no regular expression"),
    ("{kill: hub, when: {node: hub, log: a, grows: 1MB}}", "grows: it is said of a `file`"),
    ("{kill: hub, when: {node: hub, file: '{run}/a', grows: 0B}}", "grows: say by how much"),
    ("{kill: hub, when: {node: hub, log: a, event: step}}", "name one of: an event, a failpoint, a line of the log"),
    ("{kill: hub, when: {node: hbu, log: a}}", "there is no node 'hbu' here; did you mean 'hub'?")])
def test_a_line_or_a_file_that_can_not_be_waited_for_is_refused(fault, why):
    with pytest.raises(ScenarioError, match=re.escape(why)):
        frozen(fault)


def test_its_loss_is_held_against_the_same_nodes_without_faults(run_toy, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = run_toy("{kill: worker-1, at: 1s, restart_after: 500ms}", rounds=80, parity=True)
    [verdict] = [one for one in result.judgement.checks if one.name == "loss_parity"]
    # a twentieth of the rounds may have one more or less of them in the middle: losses fall from round to round
    assert verdict.verdict == "passed", verdict
    assert re.fullmatch(r"fault-free [+-]0\.\d%", verdict.measured), verdict
    assert "at equal merged rounds" in verdict.evidence[-1]
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == [], "nobody knows what it depends on"


def alone(folder, loss, rounds=80):
    """A baseline's command that tells this loss at all its rounds."""
    script = folder / "alone.py"
    script.write_text(f"for number in range(1, {rounds + 1}):\n    print('round', number, 'costs', {loss})\n")
    return {"run": f"{{python}} {script}", "log": r"round (?P<round>\d+) costs (?P<loss>\S+)"}


def test_its_loss_is_held_against_a_command_of_the_users_own(run_toy, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    low, high = (run_toy("{kill: worker-1, at: 1s, restart_after: 500ms}", rounds=80, parity=True,
                         baseline=alone(tmp_path, loss)) for loss in (1e-6, 1e6))
    found = [next(one for one in result.judgement.checks if one.name == "loss_parity") for result in (low, high)]
    assert [verdict.verdict for verdict in found] == ["failed", "passed"]
    assert found[1].measured == "baseline -100.0%"
    assert low.history.references["fault-free"].merge_gap_p99 is None, "its rounds say nothing of how long ours take"


def test_a_baseline_that_ends_too_early_is_told_before_the_run_with_what_it_said(run_toy, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(NoReferenceError, match=r"baseline .* ended with round 40 of 80; (.*\n)*.*: round 40 costs"):
        run_toy(rounds=80, parity=True, baseline=alone(tmp_path, 1.0, rounds=40))
    with pytest.raises(NoReferenceError, match=r"ended with round 0 of 80; .*\n  baseline: out of memory"):
        run_toy(rounds=80, parity=True, baseline={
            "run": "{python} -c 'raise SystemExit(\"out of memory\")'", "log": ROUND})


def test_a_port_that_somebody_else_has_is_told_before_anything_starts(run_toy):
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ScenarioError) as refused:
        run_toy(port=taken.getsockname()[1])
    assert re.search(r"hub: port \d+ can't be had \(Address already in use\): end the program that has it",
                     str(refused.value))


def test_workers_that_tell_nothing_are_named_with_what_shows_why(run_toy):
    result = run_toy(deadline="3s", rounds=50, expression=r"rnd=(?P<round>\d+)")
    assert result.judgement.exit_code == 3
    assert "No line of worker-1 and worker-2 told of a round: `diloco-chaos progress" in result.judgement.inconclusive


class Watching(NullAudience):
    """Who sleeps for worker-1's sake when its second process has been started."""

    def __init__(self, mark):
        self.mark, self.sleeping = mark, None

    def on_event(self, event):
        if event.event == "exit" and event.target == "worker-1" and self.sleeping is None:
            self.sleeping = sleepers(self.mark)


def test_a_fault_means_a_workers_children_too(tmp_path, mark):
    audience = Watching(mark)
    run_plan(frozen("{kill: worker-1, at: 1s, restart_after: 500ms}", child="CHILD"), tmp_path, audience)
    assert audience.sleeping == [["sleep", "1000"]], "that of worker-2 alone"
    assert carrying(mark) == []


@pytest.mark.parametrize("target", ["worker-2", "worker-2.hub"])
def test_naming_a_node_makes_a_link_on_which_latency_is_seen(run_toy, target):
    result = run_toy(f"{{latency: {target}, at: 1s, for: 1s, delay: 80ms}}")
    assert verdicts(result)["faults_verified"] == "passed", result.judgement.checks
    [observed] = [event for event in result.history.tape.of(Observed) if event.fault == "f1"]
    assert 0.07 <= observed.observed["delay_s"] <= 0.12


def test_a_fault_on_a_link_that_nobody_uses_proves_nothing(run_toy):
    sulking = {"worker": True, "run": "{python} -c \"import time; [(time.sleep(.03), print(f'round={{n}} "
                                      "members=1 loss=1', flush=True)) for n in range(999)]\" {hub}"}
    result = run_toy("{latency: idle, at: 1s, for: 1s, delay: 80ms}", nodes={"idle": sulking},
                     progress=["worker", "idle"], shared=False)
    [verdict] = [one for one in result.judgement.checks if one.name == "faults_verified"]
    assert verdict.verdict == "unknown"
    assert "nothing ever passed there: nobody uses that link" in verdict.evidence[0]


def met(tmp_path, peers="caught"):
    """The toy whose hub takes any port and writes it to a file: no command names it."""
    where = tmp_path / "hub.address"
    return {"run": f"{{python}} {TOY} hub @{where}", "listens": False, "nodes": {"worker": {
        "count": 2, "worker": True, "run": f"{{python}} {TOY} worker @{where}", "peers": peers}}}


def test_connections_that_no_command_names_are_caught_also_those_made_while_a_fault_lasts(run_toy, tmp_path):
    def run():
        return run_toy("{latency: worker-2.hub, at: 1s, for: 4s, delay: 80ms}",  # a start may take two seconds of them
                       "{kill: worker-2, at: 1200ms, restart_after: 100ms}", "{partition: worker-1, at: 7s, for: 2s}",
                       rounds=345, **met(tmp_path))

    result = run()
    if verdicts(result)["faults_verified"] == "unknown":  # this machine stood still where the probes should have been
        result = run()
    assert verdicts(result)["faults_verified"] == "passed", [
        one.evidence for one in result.judgement.checks if one.name == "faults_verified"]
    assert verdicts(result)["all_undone"] == "passed"
    steady = result.history.tape.of(Steady)[0].t
    rounds = {moment: [later - earlier for earlier, later in pairwise(
        event.t for event in result.history.tape.of(Step, node="worker-2") if event.inc == 1 and
        lower < event.t - steady < upper)] for moment, (lower, upper) in {
            "slow": (1.6, 4.8), "quick": (5.3, 6.9)}.items()}
    assert median(rounds["slow"]) > 0.15 > median(rounds["quick"]), rounds
    cut = result.history.spans[-1]
    alone = [event for event in result.history.tape.of(Merge) if cut.injected + 1 < event.t < cut.ended]
    assert {part.learner for event in alone for part in event.contributions} == {"worker-2"}


def test_connections_that_are_not_caught_pass_no_link(run_toy, tmp_path):
    settings = met(tmp_path, "direct")
    assert freeze(parse(text("{pause: worker-2, at: 1s, for: 300ms}", **settings)), 0).cluster.link_names == []
    with pytest.raises(ScenarioError, match=r"there is no node 'worker-2\.hub' here"):
        frozen("{latency: worker-2.hub, at: 1s, for: 1s, delay: 80ms}", **settings)


def test_the_name_of_a_link_is_that_of_who_connects_and_the_other_one_is_named(run_toy, tmp_path):
    settings = met(tmp_path)
    settings["nodes"]["worker"]["peers"] = "direct"
    result = run_toy("{latency: hub.worker-2, at: 1s, for: 1s, delay: 80ms}", peers="caught", **settings)
    [verdict] = [one for one in result.judgement.checks if one.name == "faults_verified"]
    assert "nothing ever passed there: nobody uses that link (a link is named after who connects; it may be " \
           "worker-2.hub)" in verdict.evidence[0]


def test_a_worker_that_is_cut_off_is_not_waited_for(run_toy):
    result = run_toy("{partition: worker-2, at: 1s, for: 1500ms}", rounds=150)
    assert verdicts(result)["no_global_stall"] == "passed", result.judgement.checks
    alone = [event for event in result.history.tape.of(Merge) if len(event.contributions) == 1]
    assert {part.learner for event in alone[3:-3] for part in event.contributions} == {"worker-1"}


def test_a_hub_that_dies_for_good_fails_the_run(run_toy):
    result = run_toy("{kill: hub, at: 1s}", rounds=150, deadline="8s")
    assert not CHECKS["no_global_stall"](result.history).holds
    assert verdicts(result)["no_global_stall"] == "failed", result.judgement.checks


def test_what_a_scheduler_would_start_again_is_started_again(run_toy, tmp_path):
    once = tmp_path / "once"
    run = f"sh -c 'test -e {once} || {{{{ touch {once}; exit 3; }}}}; exec {sys.executable} {TOY} hub $0' {{port}}"
    result = run_toy(run=run, restart="on-failure", restart_delay="200ms", ready={"port": False})
    [gone] = [event for event in result.history.tape.of(Exit) if event.target == "hub"
              and event.incarnation == 0]
    assert (gone.status, gone.again) == (3, True)
    assert verdicts(result)["no_global_stall"] == "passed", result.judgement.checks


@pytest.mark.parametrize("moment", [0, 1.5])
def test_nothing_is_left_of_a_run_whose_harness_is_killed(tmp_path, mark, moment):
    (tmp_path / "toy.yaml").write_text(text("{pause: worker-1, at: 500ms, for: 20s}", rounds=9999, child="CHILD"))
    harness = subprocess.Popen([Path(sys.executable).with_name("diloco-chaos"), "run", "toy.yaml"], cwd=tmp_path,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 20
    while len(sleepers(mark)) < 2:
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(moment)
    os.kill(harness.pid, signal.SIGKILL)
    harness.wait()
    until = time.monotonic() + 5
    while left := carrying(mark):
        assert time.monotonic() < until, left
        time.sleep(0.05)


def test_where_a_process_stands_that_hangs_at_the_end_is_in_the_folder_of_the_run(tmp_path):
    job = "import time; print('round=1 members=1 loss=1', flush=True); time.sleep(600)"
    trainer = {"kind": "commands",
               "nodes": {"worker": {"count": 1, "worker": True, "run": f"{sys.executable} -c \"{job}\""}},
               "progress": [{"node": "worker", "log": ROUND}], "rounds": 9}
    result = run_plan(freeze(parse(f"diloco_chaos: 1\nname: x\ndeadline: 4s\ntrainer: {json.dumps(trainer)}\n"), 0),
                      tmp_path, NullAudience())
    [(node, lines)] = result.folder.stacks.items()
    assert (result.outcome.kind, node) == ("deadline", "worker-1.0")
    assert any(line.startswith("pid ") and "time.sleep(600)" in line for line in lines)
