"""Ends of processes whose rounds are read from what they print: by themselves, by a fault, in a loop."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.chaos.checks import judge
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.base.lines import text
from diloco_chaos.harness.record.tape.reading import Tape
from recorded_events import an_event


def run(*events, rounds=0, shared=True, faults="[]", checks="{}", outcome="finished", **node):
    """A run of two workers with these events, which was finished unless they say otherwise."""
    kind = {"run": "python3 -c 1", "worker": True, "count": 2, "processes": {"rank": r"RANK=(\d+)"}, **node}
    trainer = {"kind": "commands", "rounds": rounds, "shared": shared, "nodes": {"w": kind, "s": {"run": "s"}},
               "progress": [{"node": "w", "log": r"(?P<round>\d+)"}]}
    plan = frozen(f"diloco_chaos: 1\nname: x\ntrainer: {json.dumps(trainer)}\nchecks: {checks}\nfaults: {faults}\n")
    end = an_event(900.0, "harness", 0, "end", {"outcome": outcome, "message": ""})
    return History(plan, Tape(sorted([*events, end], key=lambda event: event.t)))


@cache
def frozen(scenario):
    return freeze(parse(scenario), 0)


def trained(node, until, *, inc=0, first=1, began=0.0, pace=0.1, pid=None):
    """A process that was started then and reported these rounds."""
    return [an_event(began, "harness", 0, "spawn", {"target": node, "incarnation": inc, "pid": pid}),
            *(an_event(began + (number - first + 1) * pace, node, inc, "step", {"step": number, "tokens": 0})
              for number in range(first, until + 1))]


def ended(t, node, status=0, *, inc=0, **more):
    return an_event(t, "harness", 0, "exit", {"target": node, "incarnation": inc, "status": status, **more})


def over(t, early=False):
    return an_event(t, "rounds", 0, "finished", {"step": 9, "processed": 9, "early": early})


def hit(t, fault="f1", kind="kill", **observed):
    return [an_event(t, "harness", 0, "injecting", {"fault": fault, "kind": kind, "targets": ["w-1"]}),
            an_event(t, "harness", 0, "injected", {"fault": fault, "observed": observed})]


def verdict(history, name="no_unplanned_exit"):
    return next(verdict for verdict in judge(history, {name: CHECKS[name]}).checks)


# -- the end that is documented --------------------------------------------------------------------------------------


@given(st.integers(1, 200), st.floats(0.01, 3.0), st.floats(-0.01, 0.4))
def test_who_ends_right_after_its_last_line_ends_by_itself_whatever_the_order_of_stamps(rounds, pace, later):
    end = rounds * pace
    history = run(*trained("w-1", rounds, pace=pace), *trained("w-2", rounds, pace=pace), ended(end - 1e-4, "w-1"),
                  ended(end - 1e-4, "w-2"), ended(end - 1e-4, "s"), over(end + later), rounds=rounds)
    assert verdict(history).verdict == "passed"


def test_with_budgets_of_their_own_status_0_is_the_end_of_training():
    history = run(*trained("w-1", 100), *trained("w-2", 99), ended(10.01, "w-2"), ended(10.02, "w-1"), over(10.02))
    assert verdict(history).verdict == "passed"


def test_a_worker_that_trained_as_long_as_the_others_made_as_many_rounds_as_it_could():
    history = run(*trained("w-1", 100), *trained("w-2", 20, pace=0.5), ended(10.01, "w-2"), ended(10.02, "w-1"),
                  over(10.02), shared=False)
    assert verdict(history).verdict == "passed"


@given(st.integers(10, 200), st.floats(0.01, 0.85))
def test_a_worker_that_ends_long_before_the_others_leaves_them(rounds, share):
    left = max(1, int(rounds * share))
    history = run(*trained("w-1", rounds, pace=1.0), *trained("w-2", left, pace=1.0), ended(left + 0.01, "w-2"),
                  ended(rounds + 0.02, "w-1"), over(rounds + 0.02))
    assert verdict(history).verdict == "failed"
    assert verdict(history).evidence[0].startswith("w-2.0 ended at ")


def test_a_worker_that_has_made_its_rounds_need_not_wait_for_the_others():
    history = run(*trained("w-1", 9), *trained("w-2", 9, pace=2.0), ended(1.0, "w-1"), over(18.0), rounds=9,
                  shared=False)
    assert verdict(history).verdict == "passed"


def test_a_worker_that_ends_before_its_rounds_are_made_has_died():
    history = run(*trained("w-1", 5), *trained("w-2", 9), ended(0.6, "w-1"), over(0.9), rounds=9)
    assert verdict(history).verdict == "failed"


def test_status_1_is_no_end_of_training():
    history = run(*trained("w-1", 9), *trained("w-2", 9), ended(0.8, "w-1", 1), over(0.9), rounds=9)
    assert verdict(history).verdict == "failed"


# -- what a fault brought about --------------------------------------------------------------------------------------

KILL = "[{kill: w-1, at: 1s, restart_after: 1s}]"
KILL_PROCESS = "[{kill: w-1/rank-0, at: 1s}]"


def test_a_new_process_that_crashes_at_once_was_hit_by_no_fault():
    history = run(*trained("w-1", 10), *trained("w-2", 90), *hit(1.0), ended(1.0, "w-1", -9, killed=True),
                  *trained("w-1", 12, inc=1, first=11, began=2.0), ended(2.5, "w-1", 1, inc=1), over(9.0), rounds=90,
                  faults=KILL)
    assert verdict(history).verdict == "failed"
    assert verdict(history).evidence[0].startswith("w-1.1 ended at 2.50 s")


def test_an_end_of_the_process_that_a_fault_hit_proves_nothing():
    history = run(*trained("w-1", 10), *trained("w-2", 90), *hit(1.0), ended(1.1, "w-1", 1), over(9.0), rounds=90,
                  faults=KILL)
    assert verdict(history).evidence[0].endswith("fault f1 had hit it")


@pytest.mark.parametrize(("status", "more", "result"), [
    (-9, {}, "passed"), (137, {}, "passed"), (1, {"again": True}, "passed"), (1, {}, "failed")],
    ids=["the signal itself", "passed on", "its scheduler restarts it", "it gave up"])
def test_what_the_signal_of_a_fault_ended_is_that_faults(status, more, result):
    history = run(*trained("w-1", 10), *trained("w-2", 90), *hit(1.0, kind="kill_process", ok=True, pids="77"),
                  ended(1.3, "w-1", status, **more), over(9.0), rounds=90, faults=KILL_PROCESS)
    assert verdict(history).verdict == result


@pytest.mark.parametrize(("rounds", "more", "result"), [
    (10, {"again": True}, "passed"), (10, {}, "failed"), (90, {"again": True}, "unknown")],
    ids=["it stood still", "it is not started again", "it had gone on"])
def test_who_stands_still_from_a_fault_of_one_of_its_processes_ends_by_that_however_late(rounds, more, result):
    history = run(*trained("w-1", rounds), *trained("w-2", 200), *hit(1.0, kind="kill_process", ok=True, pids="77"),
                  ended(14.7, "w-1", -2, **more), over(20.0), rounds=200, faults=KILL_PROCESS)
    assert verdict(history).verdict == result


@pytest.mark.parametrize(("more", "result"), [({"again": True}, "passed"), ({}, "failed")])
def test_who_ends_because_one_of_its_processes_hangs_is_judged_by_whether_it_is_started_again(more, result):
    history = run(*trained("w-1", 10), *trained("w-2", 90), *hit(1.0, kind="hang_process", ok=True, pids="77"),
                  ended(1.3, "w-1", 1, **more), over(9.0), rounds=90,
                  faults="[{hang: w-1/rank-0, at: 1s, for: 2s}]")
    assert verdict(history).verdict == result


def test_a_node_whose_own_process_a_fault_signalled_was_ended_by_nobody_else():
    history = run(*trained("w-1", 10, pid=77), *trained("w-2", 90), *hit(1.0, kind="kill_process", ok=True, pids="77"),
                  ended(8.0, "w-1", -9), over(9.0), rounds=90, faults=KILL_PROCESS)
    assert verdict(history).verdict == "passed"


IO = "[{io: w-1, path: '*', error: ENOSPC, at: 1s, for: 3s}]"


@pytest.mark.parametrize(("inc", "began", "t", "again", "result"), [
    (0, 0.0, 1.4, True, "passed"), (1, 2.4, 3.0, True, "passed"), (1, 3.9, 6.0, True, "passed"),
    (1, 3.9, 9.5, True, "failed"), (1, 5.0, 6.0, True, "failed"), (0, 0.0, 1.4, False, "failed"),
    (0, 0.0, 0.9, True, "failed")],
    ids=["by it", "while it lasts", "soon after it", "long after it", "begun after it", "for good", "before it"])
def test_who_can_not_write_may_end_if_its_scheduler_starts_it_again(inc, began, t, again, result):
    history = run(*trained("w-2", 150), *trained("w-1", 5, inc=inc, began=began), *hit(1.0, kind="io"),
                  an_event(4.0, "harness", 0, "healed", {"fault": "f1"}), ended(t, "w-1", 1, inc=inc, again=again),
                  over(15.0), rounds=150, faults=IO)
    assert verdict(history).verdict == result


@pytest.mark.parametrize(("rounds", "result"), [(13, "passed"), (60, "failed")], ids=["it stood", "it had gone on"])
def test_who_could_not_write_and_stands_still_may_end_long_after_it(rounds, result):
    history = run(*trained("w-2", 150), *trained("w-1", rounds), *hit(1.0, kind="io"),
                  an_event(4.0, "harness", 0, "healed", {"fault": "f1"}), ended(12.0, "w-1", 1, again=True),
                  over(15.0), rounds=150, faults=IO)
    assert verdict(history).verdict == result


# -- restarts --------------------------------------------------------------------------------------------------------


def loop(*rounds, why=lambda number: f"RuntimeError: 0x{number}f at step {number}", statuses=None, more=(),
         **settings):
    """A worker that ended by itself and was started again, having come to these rounds."""
    events = [*trained("w-2", 90)]
    for inc, made in enumerate(rounds):
        events += [*trained("w-1", made, inc=inc, first=max(1, made - 1), began=10.0 * inc),
                   an_event(10.0 * inc + 5, "w-1", inc, "failed", {"reason": why(inc)}),
                   ended(10.0 * inc + 5, "w-1", statuses[inc] if statuses else 1, inc=inc, again=True)]
    return run(*events, *more, over(99.0), **settings)


@pytest.mark.parametrize(("over_at", "result"), [(35.0, "passed"), (9.0, "failed")])
def test_who_can_not_write_ends_as_often_as_it_is_started(over_at, result):
    io = "[{io: w-1, path: '*', error: ENOSPC, at: 1s, for: 40s}]"
    healed = an_event(over_at, "harness", 0, "healed", {"fault": "f1"})
    history = loop(5, 5, 5, 5, more=[*hit(1.0, kind="io"), healed], faults=io)
    assert verdict(history, "restarts").verdict == result


@pytest.mark.parametrize("rounds", [(5, 5, 5), (5, 0, 0), (3, 9, 9, 9), (9, 5, 7, 9, 4)])
def test_the_same_end_three_times_without_a_new_round_is_a_crash_loop(rounds):
    judged = verdict(loop(*rounds), "restarts")
    assert judged.verdict == "failed"
    assert "in the same way" in judged.evidence[0]
    assert "RuntimeError: 0x" in judged.evidence[0]


def test_a_crash_loop_is_one_though_the_deadline_came():
    assert verdict(loop(5, 5, 5, outcome="deadline"), "restarts").verdict == "failed"


@pytest.mark.parametrize("settings", [{}, {"checks": "{restarts: {most: 3}}"}])
def test_restarts_that_lead_on_are_counted_and_told(settings):
    judged = verdict(loop(5, 9, 13, **settings), "restarts")
    assert (judged.verdict, judged.measured) == ("passed", "3 restarts")
    assert judged.evidence == ["started again by its scheduler: w-1 3"]


def test_more_restarts_than_allowed_fail():
    judged = verdict(loop(5, 9, 13, checks="{restarts: {most: 2}}"), "restarts")
    assert (judged.verdict, judged.bound, judged.evidence) == ("failed", "≤ 2", ["w-1 was started again 3 times"])


@pytest.mark.parametrize(("trusted", "result"), [(True, "failed"), (False, "passed")])
def test_who_trusts_a_broken_node_starts_it_again_though_a_fault_ended_it(trusted, result):
    ends = [event for inc in range(4) for event in (
        *trained("w-1", 3, inc=inc, began=float(inc)), ended(inc + 0.5, "w-1", -9, inc=inc, killed=True, again=True,
                                                            trusted=trusted))]
    history = run(*ends, *trained("w-2", 90), over(99.0), checks="{restarts: {most: 3}}")
    assert verdict(history, "restarts").verdict == result


@pytest.mark.parametrize("told", [
    {"why": lambda number: "ABC"[number]}, {"statuses": (1, 2, 1)}, {"exits": [1]}],
    ids=["other words", "other statuses", "allowed"])
def test_ends_that_differ_or_are_allowed_are_no_loop(told):
    assert verdict(loop(5, 5, 5, **told), "restarts").verdict == "passed"


def test_who_was_never_started_again_by_its_scheduler_is_not_judged():
    assert CHECKS["restarts"](run(*trained("w-1", 9), ended(0.9, "w-1"), over(1.0))) is None
    assert text(CHECKS["restarts"](run(over(1.0), checks="{restarts: {most: 0}}")).measured) == "0 restarts"


@pytest.mark.parametrize(("checks", "again", "t", "inc", "found"), [
    ("resumable", True, 6.0, 0, "passed"), ("resumable", True, 30.0, 0, "passed"), ("{}", True, 6.0, 0, "failed"),
    ("resumable", False, 6.0, 0, "failed"), ("resumable", True, 8.0, 1, "failed")],
    ids=["with its peer", "after a time-out", "no job that dies as a whole", "nobody starts it again", "a successor"])
def test_a_worker_of_a_job_that_dies_as_a_whole_may_end_with_another(checks, again, t, inc, found):
    events = [*trained("w-1", 50), *trained("w-2", 50), *hit(5.0), ended(5.0, "w-1", -9, killed=True)]
    if inc:
        events += [ended(5.5, "w-2", 1, again=True), *trained("w-2", 20, inc=1, first=11, began=6.0)]
    run_ = run(*events, ended(t, "w-2", 1, inc=inc, again=again), rounds=99, faults="[{kill: w-1, at: 5s}]",
               checks=json.dumps(checks) if checks == "resumable" else checks)
    assert verdict(run_).verdict == found


@pytest.mark.parametrize(("back", "rounds", "found"), [(9.0, 0, "passed"), (5.8, 0, "failed"), (9.0, 3, "failed")],
                         ids=["its peer is not back", "its peer is there", "it had part in rounds"])
def test_a_worker_that_comes_before_its_peer_may_end_once_more(back, rounds, found):
    began = 6.0
    events = [*trained("w-1", 50), *trained("w-2", 50), *hit(5.0), ended(5.0, "w-1", -9, killed=True),
              ended(5.5, "w-2", 1, again=True), *trained("w-2", rounds, inc=1, began=began),
              an_event(began, "w-2", 1, "start"), ended(7.5, "w-2", 1, inc=1, again=True),
              *trained("w-1", 99, inc=1, first=41, began=back),
              *trained("w-2", 99, inc=2, first=41, began=9.0)]
    ends = [ended(20.0, worker, 0, inc=inc) for worker, inc in (("w-1", 1), ("w-2", 2))]
    run_ = run(*events, *ends, over(20.0), rounds=99, faults="[{kill: w-1, at: 5s, restart_after: 1s}]",
               checks='"resumable"')
    assert verdict(run_).verdict == found
