"""Rounds that were counted are not lost beyond what the scenario allows."""

from __future__ import annotations

import json

import pytest

from diloco_chaos.chaos.checks import judge
from diloco_chaos.chaos.checks.base import Unknown
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.base.lines import text
from diloco_chaos.harness.record.tape.reading import Tape
from recorded_events import an_event


def found(*steps, **settings):
    """What the check finds: see `told`."""
    return CHECKS["rounds_never_go_back"](told(*steps, **settings))


def told(*steps, **settings):
    """A run in which these rounds were told, (worker, incarnation, round), a tenth of a second apart."""
    return history([an_event(index / 10, worker, incarnation, "step", {"step": number, "tokens": 0})
                    for index, (worker, incarnation, number) in enumerate(steps)], **settings)


def made(*rounds, **settings):
    """A run with these rounds, (number, members, words of a member), a tenth of a second apart: the steady state is the
    first, and a fault comes at 5 s."""
    merges = [an_event(index / 10, "rounds", 0, "merge", {
        "round": number, "step": number, "version": index, "contributions": [
            {"learner": f"w-{member}", "incarnation": 0, **words} for member in range(1, members + 1)]})
        for index, (number, members, words) in enumerate(rounds)]
    fault = [an_event(5.0, "harness", 0, "injecting", {"fault": "f1", "kind": "pause", "targets": ["w-1"]}),
             an_event(5.0, "harness", 0, "injected", {"fault": "f1"})]
    return history([an_event(0.0, "rounds", 0, "steady", {"step": 0}), *merges, *fault], **settings)


def history(events, checks="{}", shared=True, rounds=9, fault="pause: w-1", ranks=0, count=2, hub=False):
    nodes = {"w": {"run": "ls {hub}" if hub else "ls", "worker": True, "count": count, "ranks": ranks}}
    trainer = {"kind": "commands", "rounds": rounds, "shared": shared,
               "nodes": nodes | ({"hub": {"run": "ls", "listens": True}} if hub else {}),
               "progress": [{"node": "w", "log": r"(?P<rank>\d:)?(?P<round>\d+)"}]}
    plan = freeze(parse(f"diloco_chaos: 1\nname: x\ntrainer: {json.dumps(trainer)}\nchecks: {checks}\n"
                        f"faults: [{{{fault}, at: 5s, for: 1s}}]\n"), 0)
    return History(plan, Tape(sorted(events, key=lambda event: event.t)))


def quiet(*after):
    """A run of which one of two workers is silent and was killed; rounds later have so many members by the word of the
    other, None: it does not say."""
    trainer = {"kind": "commands", "rounds": 99, "nodes": {
        "w": {"run": "ls", "worker": True}, "q": {"run": "ls", "worker": "silent"}},
        "progress": [{"node": "w", "written": True}]}
    plan = freeze(parse(f"diloco_chaos: 1\nname: x\ntrainer: {json.dumps(trainer)}\n"
                        "faults: [{kill: q, at: 2s, restart_after: 1s}]\nchecks: {reintegration: {within: 2s}}\n"), 0)
    told = [2] * 20 + [1] * 10 + list(after)
    merges = [an_event(index / 10, "rounds", 0, "merge", {
        "round": index, "step": index, "version": index, "contributions": [
            {"learner": "w", "incarnation": 0, "members": count}]}) for index, count in enumerate(told)]
    fault = [an_event(0.0, "rounds", 0, "steady", {"step": 0}),
             an_event(2.0, "harness", 0, "injecting", {"fault": "f1", "kind": "kill", "targets": ["q"]}),
             an_event(2.0, "harness", 0, "injected", {"fault": "f1"}),
             an_event(2.0, "harness", 0, "exit", {"target": "q", "incarnation": 0, "status": -9, "killed": True}),
             an_event(3.0, "harness", 0, "spawn", {"target": "q", "incarnation": 1})]
    return CHECKS["reintegration"](History(plan, Tape(sorted([*merges, *fault], key=lambda event: event.t))))


def test_a_silent_worker_is_back_with_the_first_round_of_as_many_members():
    finding = quiet(1, 1, 2, 2)
    assert finding.holds
    assert text(finding.evidence[0]) == "q.1 started at 3.00 s, and the next round of 2 members was at 3.20 s"


def test_a_silent_worker_that_never_comes_back_fails():
    finding = quiet(*[1] * 40)
    assert not finding.holds
    assert text(finding.evidence[0]) == "q.1 started at 3.00 s and no round had 2 members after that"


def test_of_a_silent_worker_in_a_run_that_ends_too_soon_nothing_is_known():
    with pytest.raises(Unknown):
        quiet(1, 1)


def test_rounds_that_go_on_lose_nothing():
    assert found(("w-1", 0, 1), ("w-2", 0, 1), ("w-1", 0, 2), ("w-1", 1, 2), ("w-1", 1, 5)).holds


def test_a_process_that_begins_behind_what_its_predecessor_told_fails():
    lost = found(("w-1", 0, 7), ("w-1", 1, 0))
    assert (lost.holds, lost.measured, str(lost.bound)) == (False, "7 rounds back", "≤ 0")
    assert list(map(text, lost.evidence)) == ["w-1.1 began with round 0 at 0.10 s, when round 7 had been told"]


@pytest.mark.parametrize(("count", "checks", "told_of_it"), [
    (1, "{}", True), (2, "{}", False), (1, "{rounds_never_go_back: {rounds: 7}}", False),
    (1, "{profile: resumable, rounds_never_go_back: {rounds: 0}}", False)])
def test_a_job_of_one_worker_that_goes_back_is_told_of_the_profile_for_that(count, checks, told_of_it):
    lost = found(("w-1", 0, 7), ("w-1", 1, 0), count=count, checks=checks)
    assert any("write `checks: resumable`" in text(words) for words in lost.evidence) is told_of_it


def test_one_that_goes_on_behind_itself_fails():
    lost = found(("w-1", 0, 7), ("w-1", 0, 3))
    assert lost.measured == "4 rounds back"
    assert list(map(text, lost.evidence)) == ["w-1.0 told of round 3 at 0.10 s, when round 7 had been told"]


@pytest.mark.parametrize("shared", [True, False])
def test_others_rounds_count_where_they_are_finished_together(shared):
    assert found(("w-1", 0, 8), ("w-2", 0, 2), shared=shared).holds is not shared


def test_it_may_go_back_by_as_many_as_the_scenario_says():
    steps = [("w-1", 0, 7), ("w-1", 1, 4)]
    assert found(*steps, checks="{rounds_never_go_back: {rounds: 3}}").holds
    assert not found(*steps, checks="{rounds_never_go_back: {rounds: 2}}").holds


def beyond(*numbers, shared=True, every=1, more=(), **settings):
    """What the check finds where both workers told these rounds after a fault that came when they had told round 50."""
    before = [(worker, 0, number) for number in range(every, 51, every) for worker in ("w-1", "w-2")]
    after = [(worker, inc, number) for number in numbers for worker, inc in (("w-2", 0), ("w-1", 1))]
    events = [an_event(5.0 + (index - len(before)) / 100, worker, inc, "step", {"step": number, "tokens": 0})
              for index, (worker, inc, number) in enumerate([*before, *after])]
    fault = [an_event(4.99, "harness", 0, name, {"fault": "f1"}) for name in ("injecting", "injected")]
    return CHECKS["rounds_never_go_back"](history([*events, *fault, *more], shared=shared, **settings))


def test_workers_that_all_go_on_beyond_what_was_made_after_a_fault_fail():
    skipped = beyond(60, 61, 62)
    assert (skipped.holds, skipped.measured) == (False, "0 rounds back, 9 skipped")
    assert text(skipped.evidence[0]) == ("w-2.0 told of round 60 at 5.00 s, when round 50 was the newest of all: "
                                         "9 were skipped")


@pytest.mark.parametrize(("numbers", "every"), [((51, 52), 1), ((52, 53), 1), ((60, 70), 10), ((70, 80), 10)])
def test_rounds_that_follow_by_what_is_usual_between_two_reports_are_not_skipped(numbers, every):
    assert beyond(*numbers, every=every).holds


def test_rounds_that_an_old_process_makes_beside_its_successor_are_not_skipped():
    stale = [an_event(4.995, "w-1", 0, "stale_round", {"round": number}) for number in range(51, 60)]
    assert beyond(60, 61, more=stale).holds


def test_of_lines_that_may_be_in_a_buffer_or_that_a_disk_did_not_take_nothing_is_known():
    buffered = an_event(1.0, "w-1", 0, "warning", {"reason": "in bursts", "kind": "buffered"})
    assert beyond(60, 61, more=[buffered]).holds
    assert beyond(60, 61, fault="io: w-1, path: /x/*, error: ENOSPC").holds


def test_checks_without_their_evidence_are_out_of_reach_and_it_is_said_what_would_bring_it():
    judgement = judge(told(("w-1", 0, 1)))
    names = [name for names in judgement.out_of_reach.values() for name in names]
    assert {"exactly_once", "replica_consistency", "quorum_respected", "end_correct"} <= set(names)
    assert not set(names) & {verdict.name for verdict in judgement.checks}
    assert set(judgement.out_of_reach) == {"what became of every step", "versions of what is merged",
                                           "digests of what is merged, and of what its receivers took",
                                           "its word on who is gone and when training is over"}


def test_what_nobody_told_is_not_known():
    with pytest.raises(Unknown):
        found()


def goodput(*rounds, least="50%", **settings):
    return CHECKS["goodput"](made(*rounds, checks=f"{{goodput: {{at_least: {least}}}}}", **settings))


def test_goodput_is_what_is_made_of_what_its_own_pace_before_the_first_fault_would_make():
    steady, half = [(number, 2, {}) for number in range(50)], [(number, 1, {}) for number in range(50, 100)]
    whole = [(number, 2, {}) for number in range(50, 100)]
    assert goodput(*steady, *whole).measured == "100.0%"
    found = goodput(*steady, *half, least="80%")
    assert (found.holds, found.measured, str(found.bound)) == (False, "75.3%", "≥ 80.0%")


def test_a_round_that_is_made_again_is_no_progress():
    steady, again = [(number, 2, {}) for number in range(50)], [(number, 2, {}) for number in range(50)]
    assert goodput(*steady, *again).measured == "50.5%"


def test_each_makes_its_own_rounds_where_they_are_not_finished_together():
    alone = [(number // 2, 1, {"learner": f"w-{number % 2 + 1}"}) for number in range(100)]
    assert goodput(*alone, shared=False).measured == "100.0%"


def test_goodput_is_judged_where_the_scenario_says_how_much():
    assert CHECKS["goodput"](made((0, 2, {}))) is None


def test_goodput_is_not_known_where_the_fault_comes_at_once():
    late = [event for event in made((0, 2, {})).tape.events if event.event != "steady"]
    with pytest.raises(Unknown, match="too soon"):
        CHECKS["goodput"](history([*late, an_event(4.5, "rounds", 0, "steady", {"step": 0})],
                                  checks="{goodput: {at_least: 50%}}"))


def quorum(*rounds, least=2, **settings):
    return CHECKS["round_quorum"](made(*rounds, checks=f"{{round_quorum: {{at_least: {least}}}}}", **settings))


def test_a_round_with_too_few_members_fails():
    found = quorum((0, 2, {}), (1, 1, {}), (2, 2, {}))
    assert (found.holds, found.measured) == (False, "fewest members 1")
    assert list(map(text, found.evidence)) == ["round 1 at 0.10 s had 1"]
    assert quorum((0, 2, {}), (1, 2, {})).holds


def test_one_who_tells_may_say_how_many_they_were():
    assert quorum((0, 1, {"members": 2}), (1, 1, {"members": 2})).holds
    assert not quorum((0, 1, {"members": 2}), (1, 1, {"members": 1})).holds


@pytest.mark.parametrize(("words", "holds"), [((2, 1, 2), False), ((3, 2, 3), True), ((2, None, 2), True)])
def test_of_members_that_say_different_numbers_the_fewest_count(words, holds):
    parts = [{"learner": f"w-{worker}", "incarnation": 0, "members": count} for worker, count in enumerate(words, 1)]
    merge = an_event(0.5, "rounds", 0, "merge", {"round": 9, "step": 9, "version": 9, "contributions": parts})
    steady = an_event(0.0, "rounds", 0, "steady", {"step": 0})
    finding = CHECKS["round_quorum"](history([steady, merge], checks="{round_quorum: {at_least: 2}}"))
    assert finding.holds is holds
    assert holds or text(finding.evidence[0]) == ("round 9 at 0.50 s had 1 (1 by the word of w-2, 2 by the word of w-1 "
                                                  "and w-3)")


@pytest.mark.parametrize(("words", "gone", "holds"), [
    (2, 4.0, False), (1, 4.0, True), (2, 4.8, True), (2, None, True)],
    ids=["as before", "one fewer", "only a few rounds later", "it lives"])
def test_a_round_has_not_as_many_members_as_ever_while_one_of_them_is_gone(words, gone, holds):
    rounds = [(number, 2, {"members": 2}) for number in range(40)]
    rounds += [(number, 1, {"members": words}) for number in range(40, 52)]
    events = [*made(*rounds).tape.events]
    events = [event for event in events if event.event not in ("injecting", "injected")]
    events += [an_event(3.95, "harness", 0, name, {"fault": "f1"}) for name in ("injecting", "injected")]
    if gone is not None:
        events.append(an_event(gone, "harness", 0, "exit", {"target": "w-2", "incarnation": 0, "status": -9}))
    found = CHECKS["round_quorum"](history(events, checks="{round_quorum: {at_least: 1}}"))
    assert found.holds is holds
    if not holds:
        assert text(found.evidence[0]) == ("round 47 at 4.70 s had 2 by the word of w-1, though w-2 was gone since "
                                           "4.00 s")


def test_members_that_all_say_they_were_alone_had_no_quorum():
    assert not quorum((0, 2, {"members": 2}), (1, 2, {"members": 1})).holds


@pytest.mark.parametrize(("words", "holds"), [(2, True), (1, False)])
def test_members_that_each_say_they_were_alone_have_not_healed(words, holds):
    rounds = [(number, 2, {"members": 2}) for number in range(50)]
    rounds += [(number, 2, {"members": words}) for number in range(50, 250)]
    healed = [an_event(6.0, "harness", 0, "healed", {"fault": "f1"})]
    found = CHECKS["self_healing"](history([*made(*rounds).tape.events, *healed]))
    assert found.holds is holds


def test_who_makes_rounds_alone_has_no_quorum_and_where_none_is_promised_none_is_asked_for():
    with pytest.raises(Unknown, match="finish no round together"):
        quorum((0, 1, {}), shared=False)
    assert CHECKS["round_quorum"](made((0, 1, {}))) is None


@pytest.mark.parametrize(("last", "verdict"), [(11.0, "failed"), (6.0, "unknown")])
def test_what_fails_before_the_workers_end_too_soon_has_failed_and_what_holds_till_then_might_not_have(last, verdict):
    run = made(*[(number, 2, {}) for number in range(1, 50)], rounds=99, checks="{no_global_stall: {max_gap: 5s}}")
    over = [an_event(last, "rounds", 0, "finished", {"step": 49, "processed": 49, "merged": 49}),
            an_event(last, "harness", 0, "end", {"outcome": "finished", "message": ""})]
    found = judge(History(run.plan, Tape([*run.tape.events, *over])))
    stall = next(check for check in found.checks if check.name == "no_global_stall")
    why = "every worker had ended by round 49, before round 99"
    assert (stall.verdict, found.inconclusive, found.exit_code) == (verdict, why, 1 if verdict == "failed" else 3)
    assert (stall.evidence[0] == f"{why}; it would have passed") is (verdict == "unknown")
    assert stall.reason == ("early" if verdict == "unknown" else None)


def test_of_output_that_is_buffered_it_is_not_known_when_rounds_were_made():
    run = made(*[(number, 2, {}) for number in range(1, 50)], rounds=49, checks="{no_global_stall: {max_gap: 5s}}")
    over = [an_event(11.0, "rounds", 0, "finished", {"step": 49, "processed": 49, "merged": 49}),
            an_event(11.0, "harness", 0, "end", {"outcome": "finished", "message": ""})]
    warning = an_event(1.0, "w-1", 0, "warning", {"kind": "buffered", "reason": "its output is buffered",
                                              "change": "flush it"})
    plain, buffered = (judge(History(run.plan, Tape([*run.tape.events, *over, *more]))) for more in ([], [warning]))
    assert [next(check for check in found.checks if check.name == "no_global_stall").verdict
            for found in (plain, buffered)] == ["failed", "unknown"]
    assert (buffered.inconclusive, buffered.change) == ("w-1: its output is buffered", "flush it")


@pytest.mark.parametrize(("moment", "verdict"), [(1.0, "unknown"), (7.0, "failed")])
def test_rounds_that_begin_again_with_each_epoch_accuse_nobody_unless_a_fault_came_before(moment, verdict):
    run = made(*[(number, 2, {}) for number in range(1, 60)], rounds=150)
    steps = [an_event(moment + index / 100, "w-1", 0, "step", {"step": number}) for index, number in enumerate((40, 1))]
    ends = [an_event(9.0, "harness", 0, "exit", {"target": "w-1", "incarnation": 0, "status": 0, "killed": False}),
            an_event(9.1, "rounds", 0, "finished", {"step": 59, "processed": 59, "merged": 59, "early": True}),
            an_event(9.2, "harness", 0, "end", {"outcome": "finished", "message": ""})]
    warning = an_event(moment, "w-1", 0, "warning", {
        "kind": "epochs", "reason": "its rounds begin again with 1 after 40", "change": "add a group"})
    events = sorted([*run.tape.events, *steps, *ends, warning], key=lambda event: event.t)
    judged = judge(History(run.plan, Tape(events)))
    verdicts = {check.name: check.verdict for check in judged.checks}
    assert verdicts["rounds_never_go_back"] == verdict
    assert (verdicts["no_unplanned_exit"] == "failed") is (verdict == "failed")
    assert (judged.change == "add a group") is (verdict == "unknown")


def alone(hit, other, *, fault=(5.0, 10.0), **settings):
    """A run of two workers that count their own rounds and make them at these tenths of a second; a fault hits w-1."""
    told = sorted((moment / 10, worker, number) for worker, moments in (("w-1", hit), ("w-2", other))
                  for number, moment in enumerate(moments, 1))
    steps = [an_event(t, worker, 0, "step", {"step": number, "tokens": 0}) for t, worker, number in told]
    merges = [an_event(t, "rounds", 0, "merge", {
        "round": index, "step": number, "version": index, "contributions": [{"learner": worker, "incarnation": 0}]})
        for index, (t, worker, number) in enumerate(told, 1)]
    start, end = fault
    harness = [an_event(start, "harness", 0, "injecting", {"fault": "f1", "kind": "pause", "targets": ["w-1"]}),
               an_event(start, "harness", 0, "injected", {"fault": "f1"}),
               an_event(end, "harness", 0, "healed", {"fault": "f1"})]
    return history([an_event(0.0, "rounds", 0, "steady", {"step": 0}), *steps, *merges, *harness], shared=False,
                   rounds=250, **settings)


@pytest.mark.parametrize(("last", "holds"), [(250, True), (150, False)])
def test_one_that_has_made_all_its_own_rounds_is_not_missed_and_one_that_stops_before_is(last, holds):
    away = [*range(50), *range(100, 300)]
    assert CHECKS["self_healing"](alone(away, range(last))).holds is holds
    assert CHECKS["goodput"](alone(away, range(last), checks="{goodput: {at_least: 87%}}")).holds is holds


@pytest.mark.parametrize(("last", "holds"), [(250, None), (240, False)])
def test_one_that_has_made_all_its_own_rounds_is_no_bystander(last, holds):
    finding = CHECKS["blast_radius"](alone(range(0, 500, 2), range(last), fault=(30.0, 33.0)))
    assert (finding and finding.holds) is holds


def test_workers_that_end_before_all_have_made_a_round_are_told_as_that():
    over = [an_event(1.0, "rounds", 0, "finished", {"step": 0, "processed": 0, "merged": 0}),
            an_event(1.0, "harness", 0, "end", {"outcome": "finished", "message": ""})]
    assert judge(history(over)).inconclusive == "every worker had ended by round 0, before round 9"


@pytest.mark.parametrize(("status", "inconclusive"), [
    (0, "every worker ended with exit status 0, and none had told of a round. No line of w-1 told of a round"),
    (1, "every worker had ended by round 0, before round 9. No line of w-1 told of a round")])
def test_workers_of_whom_no_round_is_known_may_have_trained_and_it_is_said_how_to_find_out(status, inconclusive):
    over = [an_event(0.1, "harness", 0, "spawn", {"target": "w-1", "incarnation": 0, "pid": 1}),
            an_event(0.2, "w-1", 0, "start", {"role": "learner", "pid": 1, "sources": ""}),
            an_event(0.9, "harness", 0, "exit", {"target": "w-1", "incarnation": 0, "status": status, "killed": False}),
            an_event(1.0, "rounds", 0, "finished", {"step": 0, "processed": 0, "merged": 0}),
            an_event(1.0, "harness", 0, "end", {"outcome": "finished", "message": ""})]
    found = judge(history(over))
    assert found.inconclusive.startswith(inconclusive)
    assert found.exit_code == (1 if status else 3)
    assert found.change.startswith("what keeps the workers" if status else "`progress`, so that it finds the rounds")
    assert "half-close" not in found.inconclusive
    assert judge(history(over, hub=True)).inconclusive.endswith(
        "w-1.0.log; a worker that ends its side of a connection before the answer comes (a half-close) gets none "
        "through a link")


def test_a_worker_that_reports_each_round_too_late_is_named_with_how_late_and_what_to_write():
    merges = [an_event(float(number), "rounds", 0, "merge", {
        "round": number, "step": number, "version": number,
        "contributions": [{"learner": "w-1", "incarnation": 0}]}) for number in range(1, 6)]
    steps = [an_event(number + late, f"w-{worker}", 0, "step", {"step": number, "tokens": 0})
             for number in range(1, 6) for worker, late in ((1, 0.0), (2, 1.5))]
    end = an_event(9.0, "harness", 0, "end", {"outcome": "finished", "message": ""})
    judged = judge(history([*merges, *steps, end], rounds=0))
    assert judged.inconclusive.endswith("w-2 reports a round 1.5 s after the others, which have begun the next "
                                        "after 1.0 s")
    assert judged.change == "`shared: false` beside `progress`, if each worker counts rounds of its own"


def test_a_workers_first_process_has_lost_nothing_though_the_others_began_before_it():
    assert found(("w-1", 0, 1), ("w-1", 0, 2), ("w-2", 0, 1), ("w-2", 0, 2)).holds
    assert not found(("w-1", 0, 1), ("w-1", 0, 2), ("w-2", 1, 1)).holds


# -- none_left_out ---------------------------------------------------------------------------------------------------


def together(last_of_2, until=30.0, *, faulted=(), pace=0.1, ended=None, rounds=999, resumed=None, late=0.0,
             again=None, extra=()):
    """Two workers whose rounds are common until then; the first goes on without the second."""
    events = [an_event(late, "rounds", 0, "steady", {"step": 0}), *extra,
              *(an_event(0.0, "harness", 0, "spawn", {"target": f"w-{worker}", "incarnation": 0}) for worker in (1, 2))]
    for number in range(1, int(until / pace) + 1):
        t = number * pace
        if t < late:
            continue
        both = t <= last_of_2 or (resumed is not None and t >= resumed)
        members = [f"w-{worker}" for worker in ((1, 2) if both else (1,))]
        events.append(an_event(t, "rounds", 0, "merge", {
            "round": number, "step": number, "version": number,
            "contributions": [{"learner": name, "incarnation": 0} for name in members]}))
        events += [an_event(t, name, 0, "step", {"step": number, "tokens": 0}) for name in members]
    if ended is not None:
        events.append(an_event(ended, "harness", 0, "exit", {"target": "w-2", "incarnation": 0, "status": 1}))
    if again is not None:
        events.append(an_event(again, "harness", 0, "spawn", {"target": "w-2", "incarnation": 1}))
    for began, over in faulted:
        events += [an_event(began, "harness", 0, "injecting", {"fault": "f1", "kind": "pause", "targets": ["w-1"]}),
                   an_event(began, "harness", 0, "injected", {"fault": "f1"}),
                   an_event(over, "harness", 0, "healed", {"fault": "f1"})]
    return history([*events, an_event(until, "rounds", 0, "finished", {"step": 1, "processed": 1})], rounds=rounds)


def left_out(*told, **more):
    return CHECKS["none_left_out"](together(*told, **more))


def test_a_worker_that_lives_and_has_no_part_in_any_round_to_the_end_is_left_out():
    finding = left_out(5.0)
    assert not finding.holds
    assert text(finding.evidence[0]) == ("w-2 had no part in 249 rounds from 5.00 s to the end of training, though it "
                                         "lived and no fault had a hold of it")


@pytest.mark.parametrize("told", [
    {"last_of_2": 30.0}, {"last_of_2": 21.0}, {"last_of_2": 5.0, "resumed": 29.0}, {"last_of_2": 5.0, "ended": 6.0},
    {"last_of_2": 15.0, "rounds": 150}], ids=["always", "not long", "came back", "died", "had made its rounds"])
def test_a_worker_that_need_not_take_part_is_not_left_out(told):
    assert left_out(**told).holds


def test_how_long_it_may_take_is_for_the_scenario_to_say():
    story = together(5.0)
    plan = freeze(parse("diloco_chaos: 1\nname: x\n" + json.dumps({
        "kind": "commands", "rounds": 999, "nodes": {"w": {"run": "t", "worker": True, "count": 2}},
        "progress": [{"node": "w", "log": r"(?P<round>\d+)"}]}).join(["trainer: ", "\n"])
        + "checks: {none_left_out: {within: 26s}}\n"), 0)
    assert CHECKS["none_left_out"](History(plan, story.tape)).holds


def test_who_is_slow_between_its_rounds_is_waited_for_twice_as_long_as_ever():
    story = together(8.0, resumed=16.0, until=40.0)  # eight seconds without it, and back
    assert CHECKS["none_left_out"](story).holds
    assert not left_out(8.0, until=40.0).holds


@pytest.mark.parametrize(("late", "holds"), [(9.0, True), (0.0, False)])
def test_a_process_that_was_started_again_has_twice_the_time_that_its_predecessor_took_to_its_first_round(late, holds):
    story = together(8.0, until=25.0, late=late, ended=8.0, again=10.0)
    assert CHECKS["none_left_out"](story).holds == holds


@pytest.mark.parametrize(("waited", "verdict"), [(1.0, "unknown"), (0.1, "failed")])
def test_a_worker_that_the_machine_kept_waiting_is_not_left_out(waited, verdict):
    busy = [an_event(t, "harness", 0, "machine", {
        "seconds": 1.0, "cores": 2, "ours": 0.6, "others": 1.4, "stolen": 0.0, "idle": 0.0, "late": 0.0, "io": 0.0,
        "memory": 0.0, "memory_left": 1.0, "memory_ours": 0.1, "machine": "here", "waited": waited})
        for t in range(1, 30)]
    assert {each.name: each.verdict for each in judge(together(18.0, extra=busy)).checks}["none_left_out"] == verdict


def test_a_run_that_never_was_steady_or_has_one_worker_is_about_nothing():
    assert CHECKS["none_left_out"](history([])) is None


def ranked(*lives, until=30.0, ranks=0):
    """Two workers with two ranks each; of the second these are there, (rank, from, to), and a fault comes at 5 s."""
    events = [an_event(0.0, "rounds", 0, "steady", {"step": 0}),
              an_event(5.0, "harness", 0, "injected", {"fault": "f1"}),
              an_event(5.0, "harness", 0, "injecting", {"fault": "f1", "kind": "pause", "targets": ["w-1"]}),
              an_event(5.1, "harness", 0, "healed", {"fault": "f1"}),
              *(an_event(0.0, "harness", 0, "spawn", {"target": f"w-{worker}", "incarnation": 0}) for worker in (1, 2))]
    for number in range(1, int(until * 10) + 1):
        t = number / 10
        present = [("w-1", "0"), ("w-1", "1"), *(("w-2", rank) for rank, start, end in lives if start <= t <= end)]
        events += [an_event(t, node, 0, "step", {"step": number, "tokens": 0, "rank": rank}) for node, rank in present]
        events.append(an_event(t, "rounds", 0, "merge", {"round": number, "step": number, "contributions": [
            {"learner": node, "incarnation": 0, "rank": rank} for node, rank in present]}))
    return history([*events, an_event(until, "rounds", 0, "finished", {"step": 1, "processed": 1})], rounds=999,
                   ranks=ranks)


def test_a_rank_that_has_no_part_in_rounds_to_the_end_is_left_out_though_its_node_takes_part():
    finding = CHECKS["none_left_out"](ranked(("0", 0, 30), ("1", 0, 8)))
    assert (finding.holds, finding.measured) == (False, "1 of 4 members")
    assert text(finding.evidence[0]) == ("w-2/rank-1 had no part in 219 rounds from 8.00 s to the end of training, "
                                         "though w-2 lived")


@pytest.mark.parametrize("lives", [
    [("0", 0, 30), ("1", 0, 8), ("2", 9, 30)], [("2", 0, 6), ("3", 0, 6), ("0", 7, 12), ("1", 7, 12), ("2", 13, 30),
                                                ("3", 13, 30)]], ids=["another's place", "and back"])
def test_ranks_that_are_numbered_anew_are_not_left_out(lives):
    assert CHECKS["none_left_out"](ranked(*lives)).holds


def test_a_rank_that_the_scenario_speaks_of_and_that_no_line_is_of_is_left_out():
    finding = CHECKS["none_left_out"](ranked(("0", 0, 30), ranks=2))
    assert (finding.holds, finding.measured) == (False, "1 of 4 members")
    assert text(finding.evidence[0]) == ("member 2 of 2 of w-2 (`ranks: 2`) had no part in 299 rounds from 0.00 s to "
                                         "the end of training: w-2/rank-0 told of any")
    assert CHECKS["none_left_out"](ranked(("0", 0, 30))).holds  # nothing is promised


def test_a_rank_that_came_after_the_first_fault_and_left_counts_where_the_scenario_says_how_many_there_are():
    late = [("0", 0, 30), ("1", 6, 9)]
    assert not CHECKS["none_left_out"](ranked(*late, ranks=2)).holds
    assert CHECKS["none_left_out"](ranked(*late)).holds


@pytest.mark.parametrize("lives", [
    [("0", 0, 30), ("1", 0, 30)], [("0", 0, 30), ("1", 0, 8), ("2", 9, 30)], [("0", 0, 30), ("1", 22, 30)]],
    ids=["all there", "numbered anew", "late"])
def test_as_many_ranks_as_the_scenario_says_are_enough(lives):
    assert CHECKS["none_left_out"](ranked(*lives, ranks=2)).holds


def test_a_rank_that_is_a_round_behind_the_others_of_its_node_has_not_gone_back():
    steps = [an_event(t, "w-1", 0, "step", {"step": number, "tokens": 0, "rank": rank})
             for t, rank, number in ((0.1, "0", 1), (0.2, "0", 2), (0.3, "1", 1), (0.4, "0", 3), (0.5, "1", 2))]
    assert CHECKS["rounds_never_go_back"](history(steps, rounds=0)).holds


# -- ranks, and faults of one of them --------------------------------------------------------------------------------

def one_rank_paused(slow=(), missing=(), learner="w-1/rank-0"):
    """One worker with two ranks, and a pause of the second's process at 10 s, of five seconds. `slow`: those that make
    half of the rounds then; `missing`: those that have no part in them."""
    trainer = {"kind": "commands", "rounds": 999, "nodes": {"w-1": {
        "run": "ls", "worker": True, "processes": {"rank": r"RANK=([0-9])"}}},
        "progress": [{"node": "w-1", "log": r"(?P<rank>\d) (?P<round>\d+)"}]}
    plan = freeze(parse(f"diloco_chaos: 1\nname: x\ntrainer: {json.dumps(trainer)}\n"
                        "faults: [{pause: w-1/rank-1, at: 10s, for: 5s}]\nchecks: {blast_radius: {at_least: 80%}, "
                        f"participation: [{{learner: {learner}, at_least: 80%}}]}}\n"), 0)
    events = [an_event(0.0, "rounds", 0, "steady", {"step": 0}),
              an_event(0.0, "harness", 0, "spawn", {"target": "w-1", "incarnation": 0}),
              *(an_event(t, "harness", 0, name, {"fault": "f1"})
                for t, name in ((10.0, "injecting"), (10.0, "injected"), (15.0, "healed")))]
    for number in range(1, 200):
        t, hit = number / 10, 10 <= number / 10 < 15
        present = [rank for rank in "01" if not (hit and (rank in missing or (rank in slow and number % 2)))]
        events += [an_event(t, "w-1", 0, "step", {"step": number, "tokens": 0, "rank": rank}) for rank in present]
        if present:
            events.append(an_event(t, "rounds", 0, "merge", {"round": number, "step": number, "contributions": [
                {"learner": "w-1", "incarnation": 0, "rank": rank} for rank in present]}))
    return History(plan, Tape(sorted(events, key=lambda event: event.t)))


@pytest.mark.parametrize(("gone", "holds"), [({}, True), ({"missing": "1"}, True), ({"slow": "0"}, False)])
def test_a_pause_of_one_rank_is_none_of_the_others(gone, holds):
    finding = CHECKS["blast_radius"](one_rank_paused(**gone))
    assert finding.holds == holds
    assert finding.measured.startswith("w-1/rank-0 at ")


@pytest.mark.parametrize(("learner", "holds"), [("w-1/rank-0", True), ("w-1/rank-1", False), ("w-1", True)])
def test_a_rank_has_its_own_share_of_the_rounds(learner, holds):
    assert CHECKS["participation"](one_rank_paused(missing="1", learner=learner)).holds == holds
