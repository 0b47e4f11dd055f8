"""The phases of a recovery, held against the events that end them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.chaos.evidence.phases import recoveries
from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.record.tape.events import Step
from forged_runs import CALM, calmly, stormy, with_a_syncer_born_again
from recorded_events import an_event
from told_runs import told_run


@pytest.fixture(scope="module")
def storm():
    return stormy()


@pytest.fixture(scope="module")
def killed(storm):
    return next(recovery for recovery in recoveries(storm.history()) if recovery.span.planned.fault.kind == "kill")


def ends(recovery):
    return {phase.name: phase.t for phase in recovery.phases}


def test_without_faults_there_is_none():
    assert recoveries(calmly(CALM).history()) == []


def test_only_faults_that_take_a_node_out_have_one(storm):
    assert [(recovery.span.planned.fault.kind, recovery.target) for recovery in recoveries(storm.history())] == [
        ("kill", "learner-1"), ("partition", "learner-4")]


def test_each_phase_of_a_killed_learner_ends_with_the_event_that_shows_it(storm, killed):
    spawn = storm.all("spawn", "harness", target="learner-1")[-1]
    first = next(merge for merge in storm.all("merge") if any(
        (part.learner, part.incarnation) == ("learner-1", spawn.incarnation) for part in merge.contributions))
    without = next(merge for merge in storm.all("merge")
                   if merge.t > killed.span.began and "learner-1" not in merge.asked)
    assert ends(killed) | {"pace as before": None, "work made good": None} == {
        "noticed": next(event.t for event in storm.all("lost", learner="learner-1") if event.t >= killed.span.began),
        "excluded": without.t, "restarted": spawn.t,
        "ready": next(event.t for event in storm.all("ready", "learner-1") if event.t > spawn.t),
        "first round": first.t, "pace as before": None, "work made good": None}
    assert ends(killed)["pace as before"] >= first.t


def test_phases_are_never_negative_and_add_up_to_the_whole(storm):
    for recovery in recoveries(storm.history()):
        assert all(seconds >= 0 for _, _, seconds in recovery.passed)
        last = max(end for end in ends(recovery).values() if end is not None)
        assert sum(seconds for _, _, seconds in recovery.passed) == pytest.approx(last - recovery.span.began)


def test_what_was_lost_is_made_good_by_as_many_steps_of_the_new_process(storm, killed):
    assert killed.lost_steps > 0
    anew = [event.t for event in storm.all("step", "learner-1") if event.inc == 1]
    assert ends(killed)["work made good"] == anew[killed.lost_steps - 1]


def test_a_partition_ends_by_itself_and_costs_no_process(storm):
    apart = recoveries(storm.history())[-1]
    assert "restarted" not in ends(apart)
    assert ends(apart)["over"] == apart.span.ended
    assert ends(apart)["noticed"] < ends(apart)["over"] < ends(apart)["first round"]


def test_learners_notice_that_the_syncer_is_gone():
    story = with_a_syncer_born_again()
    [recovery] = recoveries(story.history())
    noticed = next(phase for phase in recovery.phases if phase.name == "noticed")
    assert noticed.by.startswith("learner-")
    assert recovery.after("restarted") == pytest.approx(recovery.after("ready"))
    assert recovery.after("ready") < recovery.after("first round") <= recovery.to_recover


def test_a_process_that_is_started_after_a_pause_was_over_is_not_restarted_by_it(storm):
    paused = storm.bounded(faults="[{pause: learner-1, at: 4s, for: 1s}]")
    healed = paused.said(5.0, "harness", "healed", fault="f1", observed={})
    assert list(ends(recoveries(healed.history())[0]))[2] == "over"


def test_the_place_of_a_node_is_taken_by_another_one(tmp_path):
    text = ("diloco_chaos: 1\nname: x\ncluster: {model: micro, learners: 3, quorum: 1, fragments: 2, sync_every: 8, "
            "batch: 1, warmup: 0, step_time: 60ms, budget: 120}\n"
            "faults: [{replace: learner-2, with: learner-3, at: 2s}]")
    history = run_plan(freeze(parse(text), 0), tmp_path, NullAudience(), named("simulated")).history
    [recovery] = recoveries(history)
    assert (recovery.target, recovery.successor) == ("learner-2", "learner-3")
    first = next(merge.t for merge in history.merges if any(part.learner == "learner-3"
                                                            for part in merge.contributions))
    assert ends(recovery)["first round"] == first
    assert None not in ends(recovery).values()


def of_commands(*lines, **trainer):
    """The recovery of w-1, which is paused at 5 s. The other one goes on alone from 5.2 s on, and writes lines:
    (moment, node)."""
    both = [(number / 10, worker) for number in range(1, 50) for worker in ("w-1", "w-2")]
    told = [*both, *((5.2 + number / 10, "w-2") for number in range(20))]
    steps = [Step(step=round(t * 10), tokens=0, began=0.0).stamped(t, worker, 0) for t, worker in told]
    merges = [an_event(t, "rounds", 0, "merge", {"version": round(t * 10), "contributions": [
        {"learner": "w-2", "members": 1 if t > 5 else 2}]}) for t, worker in told if worker == "w-2"]
    lost = an_event(5.05, "rounds", 0, "lost", {"learner": "w-1", "reason": "its process ended"})
    noticed = [an_event(t, node, 0, "noticed", {"line": "no heartbeat of w-1"}) for t, node in lines]
    [recovery] = recoveries(told_run([*steps, *merges, lost, *noticed], "", "{}", True, 2, **trainer))
    return recovery


def test_of_commands_the_first_round_with_fewer_members_tells_who_was_left_out():
    """The harness knows at once that it paused a process: that is no word of the trainer's."""
    recovery = of_commands()
    assert [(phase.name, phase.t) for phase in recovery.phases[:2]] == [("noticed", None), ("excluded", 5.2)]
    assert recovery.to_detect == pytest.approx(0.2)


def test_of_commands_the_first_line_of_another_node_tells_that_it_noticed():
    recovery = of_commands((4.0, "w-2"), (5.01, "w-1"), (5.13, "w-2"), (5.5, "w-2"), noticed="no heartbeat")
    assert (recovery.phases[0].t, recovery.phases[0].by) == (5.13, "w-2")


@pytest.mark.parametrize(("lines", "why", "ending"), [
    ([], "no line of any node matches `noticed`", "untold"), ([(4.0, "w-2")], "no other node said so", "never")])
def test_a_line_that_never_comes_is_told(lines, why, ending):
    noticed = of_commands(*lines, noticed="no heartbeat").phases[0]
    assert (noticed.t, noticed.missing, noticed.ending) == (None, why, ending)


KILL = "[{kill: w-1, at: 5s, restart_after: 1s}]"
MOMENTS = st.integers(0, 100).map(lambda tenths: tenths / 10)
PROCESSES = st.sampled_from([("w-1", 0), ("w-1", 1), ("w-2", 0)])


@st.composite
def made_up_tapes(draw):
    """Steps, rounds, starts and lines at any moments, in any order: what a broken job, or a bad clock, may leave."""
    events = [Step(step=draw(st.integers(0, 40)), tokens=4, began=0.0).stamped(draw(MOMENTS), *process)
              for process in draw(st.lists(PROCESSES, max_size=30))]
    events += [an_event(t, "rounds", 0, "merge", {"version": version, "step": version, "contributions": [
        {"learner": worker, "incarnation": inc, "arrived": max(0.0, t - draw(MOMENTS)), "members": draw(
            st.integers(1, 2))}]})
        for version, (t, (worker, inc)) in enumerate(draw(st.lists(st.tuples(MOMENTS, PROCESSES), max_size=30)))]
    events += [an_event(t, "harness", 0, "spawn", {"target": "w-1", "incarnation": 1})
               for t in draw(st.lists(MOMENTS, max_size=2))]
    return events + [an_event(t, node, inc, name, {"line": "no heartbeat"}) for name in ("noticed", "prepared")
                     for t, (node, inc) in draw(st.lists(st.tuples(MOMENTS, PROCESSES), max_size=3))]


@given(made_up_tapes(), st.sampled_from([KILL, "[{pause: w-1, at: 5s, for: 1s}]"]))
def test_of_any_tape_phases_are_never_negative_and_add_up_to_the_whole(events, faults):
    history = told_run(events, "", "{}", True, 2, faults=faults, noticed="no heartbeat", ready="no heartbeat")
    for recovery in recoveries(history):
        assert all(seconds >= 0 for _, _, seconds in recovery.passed)
        last = max((end for end in ends(recovery).values() if end is not None), default=recovery.span.began)
        assert sum(seconds for _, _, seconds in recovery.passed) == pytest.approx(last - recovery.span.began)


def of_a_killed_worker(line, **trainer):
    """The recovery of w-1, whose new process says at 6.4 s that it is ready, or nothing, and makes its first round at
    7 s."""
    told = [*((number / 10, worker, 0, number) for number in range(1, 50) for worker in ("w-1", "w-2")),
            *((7 + number / 10, worker, inc, 40 + number) for number in range(30)
              for worker, inc in (("w-1", 1), ("w-2", 0)))]
    steps = [Step(step=number, tokens=4, began=0.0).stamped(t, worker, inc) for t, worker, inc, number in told]
    merges = [an_event(t, "rounds", 0, "merge", {"version": version, "step": number, "contributions": [
        {"learner": "w-1", "incarnation": inc, "arrived": t, "members": 2}]})
        for version, (t, worker, inc, number) in enumerate(told) if worker == "w-1"]
    spawn = an_event(6.0, "harness", 0, "spawn", {"target": "w-1", "incarnation": 1})
    said = [an_event(6.4, "w-1", 1, "prepared", {"line": "resumed"})] if line else []
    [recovery] = recoveries(told_run([*steps, *merges, spawn, *said], "", "{}", True, 2, faults=KILL, **trainer))
    return recovery


def test_of_commands_a_line_of_the_new_process_tells_that_it_is_ready():
    recovery = of_a_killed_worker(line=True, ready="resumed")
    assert ends(recovery) | {"pace as before": 0, "noticed": 0, "excluded": 0} == {
        "noticed": 0, "excluded": 0, "restarted": 6.0, "ready": 6.4, "first round": 7.0, "pace as before": 0,
        "work made good": 7.9}
    assert recovery.lost_steps == 10


@pytest.mark.parametrize(("ready", "why", "ending"), [
    (None, "write `ready: REGEX` beside `progress`", "untold"), ("resumed", "it did not say so", "never")])
def test_why_nothing_tells_that_it_is_ready_has_a_reason(ready, why, ending):
    phase = next(phase for phase in of_a_killed_worker(line=False, **({"ready": ready} if ready else {})).phases
                 if phase.name == "ready")
    assert (phase.t, phase.ending) == (None, ending)
    assert why in phase.missing


def test_what_no_event_shows_has_no_time_and_a_reason(storm, killed):
    silent = storm.without(lambda event: event.event == "lost" and event.learner == "learner-1")
    [noticed, *_] = recoveries(silent.history())[0].phases
    assert (noticed.t, noticed.missing) == (None, "nobody said so")
    assert recoveries(silent.history())[0].to_detect == killed.after("excluded")
