"""What all verdicts add up to, and what takes a verdict's word away."""

from __future__ import annotations

import pytest

from diloco_chaos.chaos.checks import CHECKS, Judgement, judge
from diloco_chaos.chaos.checks.base import Finding, Unknown, check
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.harness.record.tape.line import line
from diloco_chaos.harness.record.tape.reading import Tape
from forged_runs import ALWAYS

OTHERS = {"arithmetic_correct", "silence_noticed", "noticed_within", "recovered_within", "rounds_never_go_back",
          "resumed", "round_quorum", "restarts", "none_left_out", "losses_are_numbers", "members_agree",
          "rounds_repeat", "samples_once", "left_behind", "same_as_uninterrupted", "digests_agree",
          "inner_steps_correct", "recovered_from_peers"}
"""About the quadratic model, models that AdamW trains, longer silences, bounds that a scenario names, trainers whose
workers number their rounds, recovery by peers, and nodes of commands."""


def test_every_check_has_its_say_in_a_run_with_every_kind_of_fault(storm):
    assert set(storm.describe()) == set(CHECKS) - OTHERS


@pytest.mark.parametrize("run", ["calm", "brief", "paper", "storm", "reborn"])
def test_a_sound_run_passes_everything(request, run):
    judgement = request.getfixturevalue(run).judged()
    assert [verdict for verdict in judgement.checks if verdict.verdict != "passed"] == []
    assert (judgement.exit_code, judgement.inconclusive, judgement.gaps) == (0, "", [])


def test_the_same_folder_always_gets_the_same_judgement(storm):
    assert storm.judged() == storm.judged()


# -- exit codes ----------------------------------------------------------------------------------------------------

def test_one_failed_check_is_exit_code_1(calm):
    judgement = calm.forged(calm.all("received")[30], digest="0").judged()
    assert [verdict.name for verdict in judgement.checks if verdict.verdict == "failed"] == ["replica_consistency"]
    assert judgement.exit_code == 1


def test_one_unknown_check_is_exit_code_3(calm):
    judgement = calm.without("residue").judged()
    assert [verdict.name for verdict in judgement.checks if verdict.verdict == "unknown"] == ["all_undone"]
    assert judgement.exit_code == 3


def test_a_failed_check_outweighs_an_unknown_one(calm):
    assert calm.without("residue").forged(calm.all("received")[30], digest="0").judged().exit_code == 1


def test_no_checks_or_a_reason_to_doubt_the_run_prove_nothing(calm):
    verdict = calm.verdict("uptime")
    assert Judgement(checks=[verdict]).exit_code == 0
    assert Judgement(checks=[]).exit_code == 3
    assert Judgement(checks=[verdict], why=("because of rain",)).exit_code == 3


def test_a_run_without_any_event_is_inconclusive(calm):
    judgement = judge(History(calm.plan, Tape()))
    assert judgement.exit_code == 3
    assert judgement.inconclusive
    assert {verdict.verdict for verdict in judgement.checks} == {"unknown"}
    assert "the check crashed" not in {verdict.measured for verdict in judgement.checks}


# -- faults that had no measurable effect -------------------------------------------------------------------------

def test_a_fault_that_was_not_felt_leaves_what_depends_on_it_unknown_and_says_why(storm):
    judgement = _unfelt(storm).judged()
    for verdict in judgement.checks:
        if verdict.name in ALWAYS:
            assert verdict.verdict == ("unknown" if verdict.name == "faults_verified" else "passed")
        else:
            assert verdict.verdict == "unknown"
            assert verdict.evidence[0] == "a fault had no measurable effect; it would have passed"
            assert (verdict.reason, verdict.doubted) == ("unverified_fault", True)
    assert judgement.exit_code == 3


def test_a_fault_that_was_not_felt_excuses_no_failure(storm):
    # Without the fault it would be no better.
    story = _unfelt(storm).silent("merge", 15, 18)
    assert story.describe()["no_global_stall"] == "failed"
    assert story.judged().exit_code == 1


@pytest.mark.parametrize("name", sorted(set(CHECKS) - OTHERS - {"faults_verified"}))
def test_what_was_measured_stays_in_the_report_of_a_verdict_that_is_taken_back(storm, name):
    sound, doubtful = storm.verdict(name), _unfelt(storm).verdict(name)
    assert (doubtful.measured, doubtful.bound) == (sound.measured, sound.bound)
    assert doubtful.evidence[-len(sound.evidence):] == sound.evidence or not sound.evidence


# -- tapes that are cut off ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("node", ["syncer", "learner-3"])
def test_a_tape_that_is_cut_off_passes_nothing_and_says_where(calm, node):
    judgement = calm.torn_at(5.0, node).judged()
    assert judgement.gaps == [f"{node}.0.jsonl, line 7: the line has no end"]
    assert {verdict.verdict for verdict in judgement.checks} == {"unknown"}
    assert all(verdict.evidence[0] == "the event log is incomplete; it would have passed"
               and (verdict.reason, verdict.doubted) == ("incomplete", True)
               for verdict in judgement.checks if (node, verdict.name) != ("syncer", "end_correct"))
    assert judgement.exit_code == 3


@pytest.mark.parametrize("node", ["syncer", "learner-3"])
def test_a_tape_that_is_cut_off_between_two_lines_is_no_silence(calm, node):
    judgement = calm.without(lambda event: event.node == node and event.t > 5.0).judged()
    [gap] = judgement.gaps
    assert gap.startswith(f"{node}.0 ended in good order, and its tape does not: what it wrote after ")
    assert {verdict.verdict for verdict in judgement.checks} == {"unknown"}
    assert (judgement.inconclusive, judgement.change[:30]) == (
        "the event log is incomplete", "an event log that is not whole")


def test_where_the_syncers_tape_is_missing_nothing_is_known(calm):
    judgement = calm.without(lambda event: event.node == "syncer").judged()
    assert judgement.gaps == ["syncer.0 left no tape"]
    assert {verdict.verdict for verdict in judgement.checks} == {"unknown"}


def test_what_failed_before_the_cut_has_failed(calm):
    judgement = calm.silent("merge", 2, 4).torn_at(6.0, "learner-3").judged()
    assert next(verdict for verdict in judgement.checks if verdict.name == "no_global_stall").verdict == "failed"
    assert judgement.exit_code == 1


def test_what_came_after_the_cut_does_not_count(calm):
    story = calm.silent("merge", 7, 99).torn_at(5.0, "learner-3")
    assert "failed" not in story.describe().values()


@pytest.mark.parametrize("node", ["syncer", "learner-3"])
def test_a_cut_soon_after_the_beginning_is_no_failure(calm, node):
    # What the cut-off merges would have held was not lost: nobody knows.
    words = calm.torn_at(2.0, node).describe()
    assert "failed" not in words.values(), words


def test_a_torn_last_line_of_an_incarnation_that_was_killed_is_normal(storm):
    # Its events stay; only that it ends in half a line is new.
    where = {("learner-1", 0): "learner-1.0.jsonl, line 99: the line has no end"}
    judgement = storm.having(torn=where).judged()
    assert judgement.gaps == []
    assert judgement.exit_code == 0


def test_a_torn_line_of_the_killed_learners_next_incarnation_is_a_cut(storm):
    judgement = storm.torn_at(18.0, "learner-1", 1).judged()
    assert judgement.gaps == ["learner-1.1.jsonl, line 7: the line has no end"]
    assert judgement.exit_code == 3


def test_a_harness_that_died_leaves_a_cut(calm):
    judgement = calm.without("end").judged()
    assert judgement.gaps == ["the harness recorded no end: it died before the run was over"]
    assert {verdict.verdict for verdict in judgement.checks} == {"unknown"}


def test_a_torn_tape_of_the_harness_is_a_cut(storm):
    judgement = storm.torn_at(14.0, "harness").judged()
    assert len(judgement.gaps) == 2
    assert "passed" not in {verdict.verdict for verdict in judgement.checks}


@pytest.mark.parametrize("life", [0, 1], ids=["killed", "finished"])
def test_a_broken_line_in_the_middle_of_a_file_is_a_cut_even_where_its_writer_was_killed(storm, tmp_path, life):
    # Only the last line may be half written; whatever follows a broken one is evidence that is lost.
    for event in storm.events:
        with open(tmp_path / f"{event.node}.{event.inc}.jsonl", "ab") as file:
            file.write(line(event))
    path = tmp_path / f"learner-1.{life}.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    lines[100] = lines[100][:20] + "\n"
    path.write_text("".join(lines))
    judgement = judge(History(storm.plan, Tape.read(tmp_path), storm.curve, storm.references))
    assert [cut for cut in judgement.gaps if f"{path.name}, line 101" in cut]
    assert judgement.exit_code == 3


def test_a_learner_that_left_no_file_is_a_cut(calm):
    judgement = calm.without(lambda event: event.node == "learner-3").judged()
    assert [cut for cut in judgement.gaps if "learner-3" in cut]
    assert judgement.exit_code == 3


# -- runs that prove nothing ---------------------------------------------------------------------------------------

def test_a_run_that_never_was_steady_is_inconclusive(storm):
    judgement = storm.without("steady").judged()
    assert judgement.inconclusive.startswith(
        "there never was a steady state: the cluster never merged from every learner")
    assert judgement.exit_code == 3
    assert {verdict.verdict for verdict in judgement.checks if verdict.name not in ALWAYS} == {"unknown"}


@pytest.mark.parametrize("outcome", ["deadline", "interrupted", "broken"])
def test_a_run_that_did_not_finish_is_inconclusive_and_says_why(calm, outcome):
    judgement = calm.forged("end", outcome=outcome, message="because of rain").judged()
    assert judgement.inconclusive == "because of rain"
    assert judgement.exit_code == 3
    for verdict in judgement.checks:
        assert verdict.verdict == ("passed" if verdict.name in ALWAYS else "unknown")


def test_even_what_failed_proves_nothing_in_a_run_that_did_not_finish(calm):
    judgement = calm.forged("end", outcome="deadline").silent("merge", 3, 5).judged()
    stall = next(verdict for verdict in judgement.checks if verdict.name == "no_global_stall")
    assert stall.verdict == "unknown"
    assert stall.evidence[0] == "deadline; it would have failed"
    assert stall.reason == "unsound"


def test_a_run_that_stands_still_until_its_deadline_has_failed(calm):
    story = calm.without("finished").silent("merge", 4, 99).forged("end", outcome="deadline", message="too late")
    judgement = story.judged()
    assert judgement.inconclusive == ""
    assert {"no_global_stall", "uptime"} <= {one.name for one in judgement.checks if one.verdict == "failed"}


def test_one_that_still_goes_on_at_its_deadline_proves_nothing(calm):
    story = calm.without("finished").silent("merge", 4, 7).forged("end", outcome="deadline", message="too late")
    assert story.judged().inconclusive == "too late"
    assert {story.describe()[name] for name in ("no_global_stall", "uptime", "goodput")} <= {"unknown"}


def test_a_broken_promise_of_the_protocol_fails_in_an_inconclusive_run_too(calm):
    story = calm.forged("end", outcome="deadline").forged(calm.all("received")[30], digest="0")
    assert story.judged().exit_code == 1


def test_a_machine_that_does_not_hold_its_pace_makes_the_run_inconclusive(storm):
    judgement = storm.bounded("{}", step_time="55ms").judged()
    assert "this machine is too busy" in judgement.inconclusive
    assert "took 60 ms a step before the first fault, nominal is 55 ms" in judgement.inconclusive
    assert judgement.change.endswith("--step-time auto")
    assert {verdict.verdict for verdict in judgement.checks if verdict.name not in ALWAYS} == {"unknown"}
    assert judgement.exit_code == 3


def test_a_pace_within_5_percent_is_held(storm):
    assert storm.bounded("{}", step_time="58ms").judged().inconclusive == ""


def test_a_pace_that_is_lost_after_the_first_fault_is_the_faults_doing(storm):
    late = [event.step for event in storm.all("step", "learner-3") if event.t > 15]
    story = storm.without(lambda event: (event.event, event.node) == ("step", "learner-3")
                          and event.step in late[::2])
    assert story.judged().inconclusive == ""


def test_a_learner_that_stands_still_before_the_first_fault_does_not_hold_its_pace(calm):
    # Its last step came at 4 s, and the run went on to 9 s.
    story = calm.without(lambda event: event.node == "learner-3" and event.t > 4)
    assert story.judged().inconclusive


def test_a_run_that_says_it_is_over_before_its_budget_was_spent_fails_and_proves_nothing_else(calm):
    # All that came after is not judged: an early `finished` could hide anything.
    story = calm.forged("finished", t=5.0, processed=calm.plan.cluster.budget_tokens // 2)
    words = story.describe()
    assert words.pop("processed_correct") == "failed"
    assert {words[name] for name in ("uptime", "goodput", "loss_parity")} == {"unknown"}


def test_merges_after_the_end_of_training_do_not_pass_unseen(calm):
    merge = calm.all("merge")[40]
    story = calm.said(calm.end + 0.001, "syncer", "merge", **dict(merge.payload()))
    assert story.judged().exit_code != 0


def test_a_tape_of_another_plan_proves_nothing_about_this_one(storm):
    # `begin` says which plan was performed.
    judgement = storm.forged("begin", plan="0" * 64).judged()
    assert judgement.exit_code == 3


# -- checks that fall over -----------------------------------------------------------------------------------------

def test_a_check_that_raises_is_unknown_and_no_crash(calm):
    @check()
    def uptime(history):
        raise ZeroDivisionError("oh")
    judgement = judge(calm.history(), dict(CHECKS) | {"uptime": uptime})
    verdict = next(verdict for verdict in judgement.checks if verdict.name == "uptime")
    assert (verdict.verdict, verdict.reason, verdict.measured) == ("unknown", "crashed", "the check crashed")
    assert verdict.evidence[0].startswith("ZeroDivisionError: oh (uptime, line ")
    assert judgement.exit_code == 3
    assert all(other.verdict == "passed" for other in judgement.checks if other.name != "uptime")


def test_a_check_that_cannot_tell_says_why(calm):
    verdict = calm.without("residue").verdict("all_undone")
    assert (verdict.measured, verdict.bound, verdict.reason) == ("not known", "", "no_evidence")


WORDS = ["this machine had other things to do, for 2.0 s", "a fault had no measurable effect; it would have passed"]


@pytest.mark.parametrize("words", WORDS)
def test_a_finding_that_says_the_words_of_an_excuse_is_not_excused(calm, words):
    @check()
    def uptime(history):
        return Finding(False, words, "0", [words])
    judgement = judge(calm.history(), dict(CHECKS) | {"uptime": uptime})
    verdict = next(verdict for verdict in judgement.checks if verdict.name == "uptime")
    assert (verdict.verdict, verdict.reason, verdict.doubted) == ("failed", None, False)
    assert (judgement.exit_code, judgement.inconclusive, judgement.change) == (1, "", "")


@pytest.mark.parametrize("words", WORDS)
def test_a_check_that_cannot_tell_in_the_words_of_a_doubt_just_cannot_tell(calm, words):
    @check()
    def uptime(history):
        raise Unknown(words)
    judgement = judge(calm.history(), dict(CHECKS) | {"uptime": uptime})
    verdict = next(verdict for verdict in judgement.checks if verdict.name == "uptime")
    assert (verdict.verdict, verdict.reason, verdict.doubted) == ("unknown", "no_evidence", False)
    assert (judgement.inconclusive, judgement.change) == ("", "")


def _unfelt(story):
    """The probes did not see the distance that was asked for."""
    return story.forged(story.one("injected", fault="f3"), observed={"ok": False, "delay_s": 0.0})
