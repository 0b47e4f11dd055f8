"""A job that is started again goes on from a checkpoint, in a few times the time of its first start."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.chaos.checks import judge
from diloco_chaos.chaos.checks.base import Unknown
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.base.lines import text
from diloco_chaos.harness.record.tape.reading import Tape
from recorded_events import an_event

START_S = 2.0
SILENCE = [0] * 30


def found(*processes, **settings):
    """What the check finds: see `run`."""
    return CHECKS["resumed"](run(*processes, **settings))


def run(*processes, end=None, bound="{}", rounds=200, fault=None, beside=(), kind="{kill: w/rank-1, at: 3s}",
        outcome="finished", deadline=600):
    """A run in which these processes of `w` were started, (moment, rounds that it told): the first of them
    `START_S` after its start, and then ten a second; 0 is none. At `fault` one of its ranks is killed, or comes what
    `kind` says. `beside`: rounds that the first told right before the second told any."""
    events = [an_event(START_S, "rounds", 0, "steady", {"step": 0})]
    events += [an_event(processes[1][0] + START_S - 0.1, "w", 0, "stale_round", {"round": number}) for number in beside]
    for incarnation, (start, numbers) in enumerate(processes):
        events.append(an_event(start, "harness", 0, "spawn", {"target": "w", "incarnation": incarnation, "pid": 1}))
        events += [an_event(start + START_S + index / 10, "w", incarnation, "step", {"step": number, "tokens": 0})
                   for index, number in enumerate(numbers) if number]
    last = max(event.t for event in events)
    if fault is not None:
        events += [an_event(fault, "harness", 0, name, {"fault": "f1"}) for name in ("injecting", "injected")]
    events.append(an_event(last if end is None else end, "harness", 0, "end", {"outcome": outcome, "message": ""}))
    node = {"run": "python3 -c 1", "worker": True, "processes": {"rank": r"RANK=(\d+)"},
            "state": "{run}/w"}
    trainer = {"kind": "commands", "rounds": rounds, "nodes": {"w": node},
               "progress": [{"node": "w", "log": r"(?P<round>\d+)"}]}
    plan = freeze(parse(f"diloco_chaos: 1\nname: x\ntrainer: {json.dumps(trainer)}\ndeadline: {deadline}s\n"
                        f"checks: {{resumed: {bound}, no_global_stall: {{max_gap: 60s}}}}\n"
                        f"faults: [{'' if fault is None else kind}]\n"), 0)
    return History(plan, Tape(sorted(events, key=lambda event: event.t)))


def test_a_job_that_goes_on_from_a_checkpoint_passes():
    finding = found((0, range(1, 36)), (10, range(21, 60)))
    assert (finding.holds, finding.measured) == (True, "1 restart, 15 rounds made again, a new one after 3.5 s")
    assert text(finding.evidence[0]) == ("w.1 started at 10.00 s, went on from round 20 at 12.00 s, and came to round "
                                         "36 at 13.50 s")


def test_a_job_that_was_never_started_again_is_not_judged():
    assert found((0, range(1, 36))) is None


def test_a_job_that_begins_anew_fails():
    finding = found((0, range(1, 36)), (10, range(1, 60)))
    assert not finding.holds
    assert "began anew at 12.00 s, when round 35 had been told" in text(finding.evidence[0])


def test_a_job_may_begin_anew_where_so_many_rounds_may_be_made_again():
    assert found((0, range(1, 6)), (10, range(1, 60)), bound="{rounds: 5}").holds


def test_more_rounds_made_again_than_may_be_fail():
    assert found((0, range(1, 36)), (10, range(21, 60)), bound="{rounds: 15}").holds
    finding = found((0, range(1, 36)), (10, range(20, 60)), bound="{rounds: 15}")
    assert (finding.holds, str(finding.bound)) == (False, "≤ 15 rounds made again")


def test_a_job_that_goes_on_beyond_what_was_made_skips_rounds():
    finding = found((0, range(1, 36)), (10, range(41, 60)))
    assert not finding.holds
    assert text(finding.evidence[0]) == ("w.1 started at 10.00 s, began with round 41 at 12.00 s, when round 35 had "
                                         "been told: 5 were skipped")
    assert not found((0, range(1, 36)), (10, range(21, 60)), (20, range(81, 99))).holds


def test_rounds_that_the_old_process_made_beside_its_successor_are_not_skipped():
    assert found((0, range(1, 36)), (10, range(41, 60)), beside=range(36, 41)).holds
    assert not found((0, range(1, 36)), (10, range(41, 60)), beside=range(36, 38)).holds


@pytest.mark.parametrize(("before", "after"), [(range(1, 36), range(37, 60)), (range(10, 80, 10), range(90, 200, 10)),
                                               ([50], [90, 100])])
def test_a_round_that_was_made_and_not_reported_is_not_skipped(before, after):
    assert found((0, before), (10, after)).holds


def test_a_start_that_takes_much_longer_than_the_first_fails():
    assert not found((0, range(1, 36)), (10, ()), end=31).holds


def test_a_start_that_had_no_time_to_come_to_a_new_round_is_not_known():
    with pytest.raises(Unknown, match="had come to no new round when the run ended"):
        found((0, range(1, 36)), (10, ()), end=13)


@pytest.mark.parametrize(("deadline", "verdict"), [(40, "failed"), (15, "unknown")])
def test_a_job_that_stands_from_a_restart_to_its_deadline_has_failed(deadline, verdict):
    story = run((0, range(1, 36)), (10, range(21, 25)), end=deadline, outcome="deadline", deadline=deadline)
    judged = judge(story, {name: CHECKS[name] for name in ("resumed", "no_global_stall")})
    assert {each.name: each.verdict for each in judged.checks}["resumed"] == verdict


def test_a_process_that_ended_before_its_successor_went_on_does_not_count():
    assert found((0, range(1, 36)), (10, ()), (15, range(21, 60))).holds


def test_a_process_started_when_all_rounds_were_made_has_none_to_make():
    assert found((0, range(1, 36)), (10, ()), end=13, rounds=35).holds


def test_ranks_that_begin_anew_under_a_launcher_that_lives_fail():
    finding = found((0, [*range(1, 36), *SILENCE, *range(1, 60)]), fault=5.3)
    assert not finding.holds
    assert text(finding.evidence[0]) == "w.0 began anew with round 1 at 8.50 s, when round 35 had been told"


def test_ranks_that_go_on_from_a_checkpoint_under_a_launcher_that_lives_pass():
    finding = found((0, [*range(1, 36), *SILENCE, *range(21, 60)]), fault=5.3)
    assert (finding.holds, finding.measured) == (True, "1 restart within a process, 15 rounds made again")
    assert not found((0, [*range(1, 36), *SILENCE, *range(21, 60)]), fault=5.3, bound="{rounds: 14}").holds


def test_ranks_that_begin_anew_fail_also_if_their_launcher_was_started_again():
    finding = found((0, range(1, 36)), (10, [*range(21, 60), *SILENCE, *range(1, 90)]), fault=15.8)
    assert not finding.holds
    assert "w.1 began anew with round 1" in text(finding.evidence[0])


@pytest.mark.parametrize(("silence", "fault"), [([], 5.3), (SILENCE, None), (SILENCE, 2.5)],
                         ids=["no silence", "no fault", "a fault long before"])
def test_rounds_that_begin_again_by_themselves_are_of_another_epoch(silence, fault):
    assert found((0, [*range(1, 36), *silence, *range(1, 36)]), fault=fault) is None


@given(st.integers(1, 20), st.lists(st.integers(0, 60), min_size=1, max_size=5))
def test_what_goes_on_holds_however_often_and_wherever_it_was_killed(every, deaths):
    newest, processes, moment = 40, [(0.0, range(1, 41))], 10.0
    for made in deaths:
        first = newest // every * every + 1
        processes.append((moment, range(first, newest + made + 2)))
        newest, moment = newest + made + 1, moment + 20
    finding = found(*processes, rounds=1000)
    assert finding.holds
    assert finding.measured.startswith(f"{len(deaths)} restart")


def test_a_process_that_saves_no_checkpoint_any_more_fails():
    finding = found((0, range(1, 36)), (10, range(21, 60)), (20, range(21, 80)))
    assert text(finding.evidence[0]) == ("w.2 went back to round 21 at 22.00 s, as w.1 had, which made 39 rounds and "
                                         "saved none, though there was a checkpoint after 20")
    assert not finding.holds


@pytest.mark.parametrize("fault", ["{truncate: w, at: 15s}", "{terminate: w, at: 15s}"])
def test_one_that_may_have_saved_at_a_notice_or_lost_what_it_saved_is_not_accused(fault):
    assert found((0, range(1, 36)), (10, range(21, 60)), (20, range(21, 80)), fault=15, kind=fault).holds


def test_one_that_saves_after_as_many_rounds_as_the_first_may_be_killed_before():
    assert found((0, range(1, 36)), (10, range(21, 41)), (20, range(21, 80))).holds


def test_ranks_that_go_on_beyond_what_was_made_under_a_launcher_that_lives_fail():
    finding = found((0, [*range(1, 36), *SILENCE, *range(46, 60)]), fault=5.3)
    assert text(finding.evidence[0]) == ("w.0 told of round 46 at 8.50 s, when round 35 was the newest of all: "
                                         "10 were skipped")
    assert not finding.holds
