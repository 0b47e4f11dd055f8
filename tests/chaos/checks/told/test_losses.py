"""Losses are numbers, the same again when a round is made again, and of one kind in a round."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diloco_chaos.chaos.checks.base import Unknown
from diloco_chaos.chaos.evidence.baseline import LossPoint, Reference
from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.runner.baselines import reported_curve
from diloco_chaos.chaos.scenario.bounds import Bounds
from diloco_chaos.harness.base.lines import text
from diloco_chaos.harness.record.tape.events import Step
from told_runs import told_plan, told_run

VALUE = r"(?P<loss>.*)"
KINDS = ("nan", "inf", "-inf")


def told(*rounds, checks="{}", shared=True, workers=1, fault=5.0, at_once=1):
    """A run in which (worker, incarnation, round, loss) were told, a tenth of a second apart, so many at one time; a
    text is no number."""
    steps = [Step(step=number, tokens=0, began=0.0, **{"no_number" if isinstance(loss, str) else "loss": loss})
             .stamped(index // at_once / 10, worker, inc) for index, (worker, inc, number, loss) in enumerate(rounds)]
    return told_run(steps, VALUE, checks, shared, workers, fault)


def process(inc, first, losses, worker="w-1"):
    return [(worker, inc, number, loss) for number, loss in enumerate(losses, first)]


def lines(finding):
    return list(map(text, finding.evidence))


# -- losses_are_numbers ----------------------------------------------------------------------------------------------

def numbers(*rounds, **settings):
    return CHECKS["losses_are_numbers"](told(*rounds, **settings))


@pytest.mark.parametrize("word", KINDS)
def test_a_process_whose_loss_stays_no_number_fails_with_its_name_and_when(word):
    finding = numbers(*process(0, 1, [1.0, 0.9]), *process(1, 2, [0.9, word, word]))
    assert (finding.holds, finding.measured) == (False, "1 of 2 processes end without a number")
    assert lines(finding) == [f"w-1.1 told the loss {word} from round 3 at 0.30 s on, in 2 rounds to its end"]


def test_a_round_that_recovers_is_told_and_does_not_fail():
    finding = numbers(*process(0, 1, [1.0, "nan", 0.9]))
    assert (finding.holds, finding.measured) == (True, "3 losses, 1 no numbers")
    assert lines(finding) == ["w-1.0 told the loss nan from round 2 at 0.10 s on, in 1 round, and then numbers again"]


def test_a_loss_that_ends_far_beyond_all_before_the_first_fault_is_none():
    early = [(worker, 0, number, 1.0 / number) for number in range(1, 26) for worker in ("w-1", "w-2")]
    finding = numbers(*early, *process(0, 26, [2e4, 0.5, 2e30, 3e30, 2e30]), workers=2)
    assert (finding.holds, finding.measured) == (False, "1 of 2 processes end without a number")
    assert lines(finding) == ["w-1.0 told losses of 2e+30 and the like from round 28 at 5.20 s on, in 3 rounds to its "
                              "end, where none was above 1 before the first fault"]
    assert numbers(*early, *process(0, 26, [2e30, 2e30, 2e30, 0.5]), workers=2).holds
    assert numbers(*early, *process(0, 26, [9e3, 9e3, 9e3]), workers=2).holds
    assert numbers(*process(0, 1, [1.0, 1e30, 1e30, 1e30]), *early, fault=0.0, workers=2).holds


def test_a_loss_that_stands_from_the_first_fault_on_is_not_computed_any_more():
    early, later = [1.0 / number for number in range(1, 21)], [0.04] * 13
    stands = numbers(*process(0, 1, early), *process(1, 15, [0.05, *later]), fault=2.0)
    assert lines(stands) == ["w-1 told the loss 0.04 from round 16 at 2.10 s on, in all 13 rounds to its end, where it "
                             "had been another one in each round before"]
    assert not stands.holds
    assert numbers(*process(0, 1, early), *process(1, 15, [0.05, *later[:9]]), fault=2.0).holds
    assert numbers(*process(0, 1, early), *process(1, 15, [0.05, 0.04, 0.03, *later]), fault=2.0).holds
    assert numbers(*process(0, 1, [*early[:-1], early[-2]]), *process(1, 15, [0.05, *later]), fault=2.0).holds


def test_a_loss_that_is_no_number_to_the_end_is_told_once():
    rounds = process(0, 1, [*(1.0 / number for number in range(1, 21)), *["nan"] * 13])
    assert [words.split(" from ")[0] for words in lines(numbers(*rounds, fault=2.0))] == ["w-1.0 told the loss nan"]


def test_how_many_in_a_row_may_recover_can_be_said():
    rounds = process(0, 1, [1.0, "nan", "nan", 0.9])
    assert numbers(*rounds, checks="{losses_are_numbers: {in_a_row: 2}}").holds
    assert not numbers(*rounds, checks="{losses_are_numbers: {in_a_row: 1}}").holds


def test_a_killed_process_fails_where_more_than_a_round_was_skipped_when_it_was_killed():
    after = process(1, 1, [1.0, 1.0])
    assert numbers(*process(0, 1, [1.0, "nan"]), *after).holds
    assert not numbers(*process(0, 1, [1.0, "nan", "nan", "nan"]), *after).holds


def test_one_rank_of_a_node_without_a_number_counts():
    assert not numbers(("w-1", 0, 1, 1.0), ("w-1", 0, 1, "nan"), ("w-1", 0, 2, "nan"), ("w-1", 0, 2, 1.0)).holds


def test_nothing_but_zero_after_a_restart_stands_for_what_is_no_number():
    finding = numbers(*process(0, 1, [1.0, 0.9, 0.8]), *process(1, 4, [0.0, 0.0, 0.0]))
    assert not finding.holds
    assert "some frameworks print 0.0 for NaN" in lines(finding)[0]


@pytest.mark.parametrize("losses", [[2.0, 1.0, 0.01], [0.0, 0.0, 0.0]])
def test_a_loss_that_had_come_down_to_zero_may_stay_there(losses):
    assert numbers(*process(0, 1, losses), *process(1, 4, [0.0, 0.0, 0.0])).holds


def test_it_is_not_about_workers_that_tell_no_loss():
    assert numbers(*process(0, 1, [None, None])) is None


@given(st.lists(st.one_of(st.floats(-9, 9), st.sampled_from(KINDS)), min_size=1))
def test_the_last_loss_of_a_run_decides(losses):
    assert numbers(*process(0, 1, losses)).holds is not isinstance(losses[-1], str)


# -- rounds_repeat ---------------------------------------------------------------------------------------------------

def repeat(*rounds, **settings):
    return CHECKS["rounds_repeat"](told(*rounds, **settings))


def test_rounds_that_are_made_again_with_the_same_losses_hold():
    finding = repeat(*process(0, 1, [3.0, 2.0, 1.0]), *process(1, 2, [2.0, 1.0, 0.5]))
    assert (finding.holds, finding.measured) == (True, "0 of 2 differ (rounds 2 to 3)")


def test_one_that_has_another_loss_the_second_time_fails():
    finding = repeat(*process(0, 1, [3.0, 2.0, 1.0]), *process(1, 2, [2.0, 1.5, 0.5]))
    assert (finding.holds, finding.measured) == (False, "1 of 2 differ (rounds 2 to 3)")
    assert lines(finding)[0] == "round 3: w-1.0 told the loss 1 at 0.20 s, and w-1.1 told 1.5 at 0.40 s"


def test_what_is_no_number_is_not_the_same_as_a_number():
    assert not repeat(*process(0, 1, [1.0, 1.0]), *process(1, 2, ["nan"])).holds


def test_a_tolerance_and_rounds_after_going_back_that_do_not_count_can_be_given():
    rounds = [*process(0, 1, [3.0, 2.0, 1.0]), *process(1, 2, [2.1, 1.01])]
    assert repeat(*rounds, checks="{rounds_repeat: {tolerance: 6%}}").holds
    assert repeat(*rounds, checks="{rounds_repeat: {after_rounds: 1, tolerance: 1%}}").holds
    assert not repeat(*rounds, checks="{rounds_repeat: {tolerance: 4%}}").holds


def test_without_a_round_made_twice_it_is_left_out_and_not_known_where_it_is_asked_for():
    rounds = [*process(0, 1, [3.0, 2.0]), *process(1, 3, [1.0])]
    assert repeat(*rounds) is None
    with pytest.raises(Unknown, match="no round was made twice") as unknown:
        repeat(*rounds, checks="{rounds_repeat: {}}")
    assert unknown.value.change == "a kill that comes later than a checkpoint (`at`)"


def test_a_round_made_again_by_other_members_proves_nothing():
    both = [(worker, 0, number, 1.0) for number in (1, 2) for worker in ("w-1", "w-2")]
    assert repeat(*both, *process(1, 2, [7.0, 7.0]), workers=2) is None  # w-2 never came back
    with pytest.raises(Unknown, match="by other workers the second time"):
        repeat(*both, *process(1, 2, [7.0, 7.0]), workers=2, checks="{rounds_repeat: {}}")


def test_a_round_after_one_that_other_members_made_proves_nothing():
    both = [(worker, 0, number, 1.0 / number) for number in range(1, 9) for worker in ("w-1", "w-2")]
    alone = [("w-2", 1, number, 2.0) for number in range(1, 4)]  # w-1 is there again from the fourth on
    joined = [(worker, 1, number, 2.0) for number in range(4, 9) for worker in ("w-1", "w-2")]
    again = [(worker, inc + 1, number, loss) for worker, inc, number, loss in joined]
    assert repeat(*both, *alone, *joined, workers=2) is None
    third = repeat(*both, *alone, *joined, *again, workers=2)
    assert third.measured == "0 of 10 differ (rounds 4 to 8)", "the third time is as the second"


def test_workers_that_go_back_together_are_compared_each_with_itself():
    both = [(worker, inc, number, loss) for inc, first in ((0, 1), (1, 2)) for number in range(first, 5)
            for worker, loss in (("w-1", 1.0 / number), ("w-2", 2.0 / number))]
    assert repeat(*both, workers=2).measured == "0 of 6 differ (rounds 2 to 4)"
    assert repeat(*both, workers=2, at_once=2).measured == "0 of 6 differ (rounds 2 to 4)", "lines read at once"
    assert not repeat(*both[:-1], ("w-2", 1, 4, 9.0), workers=2).holds


def test_workers_that_learn_from_each_other_in_between_are_compared_where_that_is_asked_for():
    rounds = [("w-1", 0, 1, 1.0), ("w-2", 0, 1, 1.0), ("w-1", 1, 1, 2.0)]
    assert repeat(*rounds, shared=False, workers=2) is None
    assert not repeat(*rounds, shared=False, workers=2, checks="{rounds_repeat: {}}").holds


def test_ranks_of_a_node_whose_lines_are_mixed_are_not_taken_for_rounds_made_again():
    mixed = [("w-1", 0, number + lag, loss) for number in range(2, 30) for lag, loss in ((1, 1.0), (0, 2.0))]
    assert repeat(*mixed) is None


@given(st.integers(1, 30), st.integers(0, 30), st.data())
def test_a_trainer_whose_loss_follows_from_the_round_holds_wherever_it_was_killed(killed, back, data):
    first = max(1, killed - back)
    losses = data.draw(st.lists(st.one_of(st.floats(-9, 9), st.just("nan")), min_size=60, max_size=60))
    finding = repeat(*process(0, 1, losses[:killed]), *process(1, first, losses[first - 1:]))
    assert finding.holds
    assert finding.measured.startswith(f"0 of {killed - first + 1} differ (round")


# -- members_agree ---------------------------------------------------------------------------------------------------

def members(losses, rounds=60, workers=3, **settings):
    """`losses`: (worker, round) -> loss."""
    return CHECKS["members_agree"](told(*[(f"w-{worker}", 0, number, losses(worker, number)) for number in range(rounds)
                                          for worker in range(1, workers + 1)], workers=workers, **settings))


def test_a_member_far_above_the_others_fails_though_it_was_always_there():
    finding = members(lambda worker, _: 9.0 if worker == 3 else 1.0)
    assert (finding.holds, finding.measured) == (False, "1 of 3 workers apart")
    assert lines(finding) == ["w-3 told losses of 9 from round 0 at 0.20 s to round 59, where the other members told 1"]


def of_ranks(losses):
    """A run of one node whose ranks each tell 60 rounds. `losses`: (rank, round) -> loss."""
    steps = [Step(step=number, tokens=0, began=0.0, rank=str(rank),
                  **{"no_number" if isinstance(loss, str) else "loss": loss})
             .stamped(number / 10 + rank / 100, "w-1", 0)
             for number in range(60) for rank in (0, 1, 2) for loss in [losses(rank, number)]]
    return told_run(steps, VALUE, "{}", True, 1, 2.0)


def test_ranks_of_one_node_are_members_each():
    finding = CHECKS["members_agree"](of_ranks(lambda rank, _: 9.0 if rank == 1 else 1.0))
    assert (finding.holds, finding.measured) == (False, "1 of 3 workers apart")
    assert lines(finding) == ["w-1/rank-1 told losses of 9 from round 0 at 0.01 s to round 59, where the other members "
                              "told 1"]
    finding = CHECKS["losses_are_numbers"](of_ranks(lambda rank, number: "nan" if rank == 1 and number > 50 else 1.0))
    assert lines(finding) == ["w-1/rank-1.0 told the loss nan from round 51 at 5.11 s on, in 9 rounds to its end"]


@pytest.mark.parametrize("workers", [2, 3])
def test_one_that_leaves_the_others_after_the_fault_fails(workers):
    finding = members(lambda worker, number: 2.0 if worker == 2 and number > 30 else 1.0, workers=workers)
    assert (finding.holds, finding.measured) == (False, f"1 of {workers} workers apart")


def test_members_that_told_one_loss_and_then_not_any_more_fail():
    assert not members(lambda worker, number: 1.01 if worker == 2 and number > 30 else 1.0).holds


def test_a_round_that_is_far_is_none_of_a_stretch():
    assert members(lambda worker, number: 9.0 if worker == 2 and number in (20, 31, 44) else 1.0 + worker / 10).holds


def test_a_member_whose_data_were_always_harder_holds():
    assert members(lambda worker, number: (1.0 + worker / 2) / (number + 1) ** 0.5).holds


@pytest.mark.parametrize("level", [0.0, -3.0, 1e-30])
def test_losses_of_nothing_and_below_are_compared_as_well(level):
    assert members(lambda worker, _: level).holds
    assert not members(lambda worker, _: level + 50 * (worker == 2)).holds


def test_workers_that_make_rounds_alone_are_not_compared():
    assert members(lambda worker, _: float(worker ** 9), shared=False) is None
    assert members(lambda worker, _: None) is None


@settings(max_examples=15)
@given(st.integers(0, 10**9), st.integers(2, 5), st.sampled_from(["normal", "even", "skewed"]))
def test_batches_that_differ_by_chance_are_no_finding_and_a_member_nine_times_as_high_is_one(seed, workers, kind):
    chance = random.Random(seed)
    draw = {"normal": lambda: max(0.01, chance.gauss(1.0, 0.3)), "even": lambda: chance.uniform(0.5, 1.5),
            "skewed": lambda: chance.lognormvariate(0.0, 0.5)}[kind]
    curve = {(worker, number): draw() / (number + 1) ** 0.5 for worker in range(1, workers + 1) for number in range(60)}
    assert members(lambda worker, number: curve[worker, number], workers=workers).holds
    assert not members(lambda worker, number: curve[worker, number] * (9 if worker == 1 and number > 30 else 1),
                       workers=workers).holds


# -- against the same nodes without faults -----------------------------------------------------------------------------

def reference(history):
    """What a run left that others are held against."""
    rounds = {}
    for each in history.told_rounds:
        rounds.setdefault(each.worker, []).append((each.round, tuple(each.losses)))
    workers = {worker: [LossPoint(number=point.number, processed=point.round, merged=point.round, t=0.0,
                                  loss=point.loss, error=point.error) for point in points]
               for worker, points in history.plan.trainer.workers_losses(history.tape).items()}
    return {"fault-free": Reference(kind="fault-free", key="k", wall=1.0, workers=workers, rounds=rounds,
                                    curve=reported_curve(history.plan, history.tape))}


def held_against(own, its, check, checks, **settings):
    """The finding of a check in a run of these rounds, against one of those."""
    history = told(*own, checks=checks, **settings)
    history.curve = reported_curve(history.plan, history.tape)
    history.references = reference(told(*its, checks=checks, **settings))
    return CHECKS[check](history)


CONTROLLED = "{rounds_repeat: {control: true}}"


def controlled(whole, *, kill=0.25):
    """A run whose third round is another one the second time, against a whole one without faults."""
    own = [*process(0, 1, [4.0, 3.0, 2.0]), *process(1, 2, [3.0, 2.5, 1.0])]
    return held_against(own, whole, "rounds_repeat", CONTROLLED, fault=kill)


def test_a_trainer_that_makes_the_same_without_faults_is_deterministic_and_fails():
    assert not controlled(process(0, 1, [4.0, 3.0, 2.0, 1.0])).holds


def test_a_trainer_that_differs_without_faults_as_well_is_told_as_not_deterministic():
    with pytest.raises(Unknown, match="without any fault round 2 of w-1 had the loss 3 here") as caught:
        controlled(process(0, 1, [4.0, 3.1, 2.0, 1.0]))
    assert caught.value.change.endswith("these two runs differ by 3.23% at most")


def test_a_control_needs_rounds_before_the_first_fault():
    with pytest.raises(Unknown, match="no round before the first fault"):
        controlled(process(0, 1, [4.0, 3.0]), kill=-1.0)


WHOLE = [8.0 / number for number in range(1, 21)]


def saved_at_once(after, *, before=(), checks=CONTROLLED, fault=1.15, **settings):
    """A run that was asked to end after its twelfth round, saved, and went on with these losses, held against a whole
    one; `before`: what it told instead in its first rounds."""
    own = [*process(0, 1, [*before, *WHOLE[len(before):12]]), *process(1, 13, after)]
    return held_against(own, process(0, 1, WHOLE), "rounds_repeat", checks, fault=fault, **settings)


def test_where_no_round_is_made_again_what_comes_after_is_held_against_the_run_without_faults():
    assert saved_at_once(WHOLE[12:]).measured == "0 of 8 differ from those without faults"
    finding = saved_at_once([0.7, 0.65, *WHOLE[14:]])
    assert (finding.holds, finding.measured) == (False, "2 of 8 differ from those without faults")
    assert lines(finding)[0] == ("round 13: w-1.1 told the loss 0.7 at 1.20 s, and without faults it was 0.61538462; "
                                 "the 12 rounds before the first fault are the same in both")
    assert saved_at_once([0.7], checks="{rounds_repeat: {tolerance: 20%}, loss_parity: {against_baseline: 99%}}").holds


def went_back(after, checks=CONTROLLED):
    """A run that was killed after its twelfth round, went back to its tenth, and told these losses."""
    own = [*process(0, 1, WHOLE[:12]), *process(1, 11, after)]
    return held_against(own, process(0, 1, WHOLE), "rounds_repeat", checks, fault=1.15)


def test_what_comes_after_the_rounds_that_were_made_twice_is_held_against_the_run_without_faults_too():
    assert went_back(WHOLE[10:]).measured == "0 of 2 differ (rounds 11 to 12); 0 of 10 differ from those without faults"
    finding = went_back([*WHOLE[10:15], 0.7, 0.6, *WHOLE[17:]])
    assert (finding.holds, finding.measured) == (False, "2 of 10 differ from those without faults")
    assert lines(finding)[0].startswith("round 16: w-1.1 told the loss 0.7")
    assert went_back([0.75, *WHOLE[11:]], "{rounds_repeat: {control: true, after_rounds: 1}}").holds


def test_a_run_that_differs_before_the_first_fault_as_well_says_nothing_of_what_comes_after():
    with pytest.raises(Unknown, match="no round was made twice"):
        saved_at_once([0.7, 0.65], before=[8.1])
    assert saved_at_once([0.7], before=[8.1], checks="{}") is None
    assert saved_at_once([0.7], checks="{}", fault=0.5) is None, "too few rounds came before"


def test_of_several_workers_nothing_is_said_as_one_may_have_gone_on_alone():
    assert saved_at_once([0.7], checks="{}", workers=2) is None


def same(own, its, checks="{same_as_uninterrupted: {}}"):
    return held_against(own, its, "same_as_uninterrupted", checks)


def test_a_run_that_goes_on_as_if_nothing_had_happened_holds():
    whole = process(0, 1, [4.0, 3.0, 2.0, 1.0])
    assert same([*whole[:3], *process(1, 2, [3.0, 2.0, 1.0])], whole).measured == "0 of 4 differ"


def test_the_first_round_that_differs_is_named():
    whole = process(0, 1, [4.0, 3.0, 2.0, 1.0])
    finding = same([*whole[:2], *process(1, 3, [2.5, "nan"])], whole)
    assert (finding.holds, finding.measured) == (False, "2 of 4 differ, from round 3 on")
    assert lines(finding)[0] == "round 3: w-1.1 told the loss 2.5 at 0.20 s, and without faults it was 2"
    assert same(process(0, 1, [4.0, 3.1]), whole, "{same_as_uninterrupted: {tolerance: 5%}}").holds


def test_without_a_reference_it_is_not_known():
    with pytest.raises(Unknown, match="reference is missing"):
        CHECKS["same_as_uninterrupted"](told(*process(0, 1, [1.0]), checks="{same_as_uninterrupted: {}}"))


def parity(worker_loss, workers=3):
    rounds = {run: [(f"w-{worker}", 0, number, worker_loss(run, worker)) for number in range(1, 1000)
                    for worker in range(1, workers + 1)] for run in ("own", "its")}
    return held_against(rounds["own"], rounds["its"], "loss_parity", "{loss_parity: {against_baseline: 2%}}",
                        workers=workers)


def test_the_worst_worker_counts():
    finding = parity(lambda run, worker: 9.0 if (run, worker) == ("own", 3) else 1.0)
    assert (finding.holds, finding.measured) == (False, "fault-free +0.0%, w-3 +800.0%")
    assert parity(lambda run, worker: float(worker)).holds


def test_what_chance_explains_of_one_workers_loss_is_no_finding():
    chance = random.Random(0)
    assert parity(lambda run, worker: chance.uniform(0.95, 1.05)).holds


@pytest.mark.parametrize("loss", [0.0, 0.6])
def test_a_loss_that_is_better_than_without_faults_fails(loss):
    finding = parity(lambda run, worker: loss if run == "own" else 1.0, workers=1)
    assert not finding.holds
    assert "some frameworks print 0.0 for NaN" in lines(finding)[0]
    assert parity(lambda run, worker: 0.9 if run == "own" else 1.0, workers=1).holds


def test_a_loss_that_is_no_number_at_the_end_fails():
    assert not parity(lambda run, worker: "nan" if run == "own" else 1.0, workers=1).holds


def test_a_check_that_always_runs_is_on_the_plan_where_it_is_named():
    frozen = [told_plan(VALUE, checks, True, 1) for checks in ("{}", "{rounds_repeat: {}}")]
    documents = [each.checks.model_dump(mode="json") for each in frozen]
    assert ["rounds_repeat" in document for document in documents] == [False, True]
    assert ["rounds_repeat" in Bounds.model_validate(document).model_fields_set for document in documents] == [
        False, True]
