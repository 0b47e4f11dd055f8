"""Every batch, or sample, that workers name is trained on once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.chaos.checks.base import Unknown
from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.harness.base.lines import text
from diloco_chaos.harness.record.tape.events import Step
from told_runs import told_run

VALUE = r"(?P<batch>\d+)"


def once(*rounds, kind="batches", checks="{}", shared=True, workers=1):
    """The finding where (worker, incarnation, round, data, epoch) were told, a tenth of a second apart; data: a number,
    or runs of them."""
    steps = [Step(step=number, tokens=0, began=0.0, epoch=epoch[0] if epoch else None,
                  **{kind: [(data, data)] if isinstance(data, int) else data}).stamped(index / 10, worker, inc)
             for index, (worker, inc, number, data, *epoch) in enumerate(rounds)]
    return CHECKS["samples_once"](told_run(steps, VALUE, checks, shared, workers))


def process(inc, first, batches, worker="w-1"):
    return [(worker, inc, number, batch) for number, batch in enumerate(batches, first)]


def test_data_that_go_on_where_they_were_are_trained_on_once():
    finding = once(*process(0, 1, range(5)), *process(1, 6, range(5, 9)))
    assert (finding.holds, finding.measured) == (True, "0 batches trained twice, 0 skipped")


def test_data_that_begin_again_after_a_restart_are_listed():
    finding = once(*process(0, 1, range(5)), *process(1, 6, range(9)))
    assert (finding.holds, finding.measured) == (False, "5 batches trained twice, 0 skipped")
    assert list(map(text, finding.evidence)) == [
        "batches 0 to 4 were trained on by w-1.0, in round 1 at 0.00 s the first of them, and again by w-1.1, in round "
        "6 at 0.50 s"]


def test_data_that_were_left_out_are_listed():
    finding = once(*process(0, 1, range(5)), *process(1, 6, range(8, 12)))
    assert (finding.holds, finding.measured) == (False, "0 batches trained twice, 3 skipped")
    assert list(map(text, finding.evidence)) == ["batches 5 to 7 were not trained on"]


def test_a_round_that_is_lost_and_made_again_repeats_its_data():
    assert once(*process(0, 1, range(9)), *process(1, 6, range(5, 12))).holds
    assert not once(*process(0, 1, range(9)), *process(1, 6, range(6, 12))).holds


def test_so_many_may_be_repeated_or_left_out_as_the_scenario_says():
    rounds = [*process(0, 1, range(5)), *process(1, 6, [3, 4, 7, 8])]
    assert once(*rounds, checks="{samples_once: {again: 2, skipped: 2}}").holds
    assert not once(*rounds, checks="{samples_once: {again: 1, skipped: 2}}").holds
    assert not once(*rounds, checks="{samples_once: {again: 2, skipped: 1}}").holds


def test_the_work_of_one_that_died_is_lost_where_the_others_go_back_behind_it():
    before = [(f"w-{worker}", 0, number, 2 * number + worker) for number in range(6) for worker in (1, 2)]
    assert once(*before, *process(1, 3, range(7, 15)), workers=2).holds  # w-1 goes on from round 3 with all data
    assert not once(*before, *process(1, 3, [7, 9, 11, 13]), workers=2).holds


def test_of_one_that_goes_back_alone_the_others_keep_their_work():
    rounds = [("w-1", 0, 0, 0), ("w-2", 0, 0, 1), ("w-1", 0, 1, 2), ("w-2", 0, 1, 3), ("w-2", 0, 2, 5),
              ("w-1", 1, 1, 2), ("w-2", 0, 3, 7), ("w-1", 1, 2, 4), ("w-1", 1, 3, 6)]
    assert once(*rounds, workers=2).holds
    assert once(*rounds, workers=2, shared=False).holds


def test_two_workers_that_take_the_same_of_what_they_divide_train_on_it_twice():
    apart = [(f"w-{worker}", 0, number, 2 * number + worker) for number in range(4) for worker in (1, 2)]
    finding = once(*apart, ("w-1", 0, 4, 9), ("w-2", 0, 4, 9), workers=2)
    assert finding.measured == "1 batches trained twice, 0 skipped"


def test_numbers_that_workers_have_in_common_from_the_beginning_are_each_ones_own():
    both = [(f"w-{worker}", 0, number, number) for number in range(4) for worker in (1, 2)]
    assert once(*both, workers=2).holds
    assert not once(*both, workers=2, checks="{samples_once: {numbered_by: all}}").holds
    finding = once(*both, ("w-1", 1, 4, 4), ("w-2", 1, 4, 0), ("w-1", 1, 5, 5), ("w-2", 1, 5, 1), workers=2)
    assert finding.measured == "2 batches trained twice, 0 skipped"


def test_between_shards_that_no_worker_has_finished_nothing_is_left_out():
    shards = [(f"w-{worker}", 0, number, 100 * worker + number) for number in range(6) for worker in (1, 2, 3)]
    assert once(*shards, workers=3, shared=False).holds
    assert once(*shards, *process(1, 6, range(206, 216), worker="w-2"), workers=3, shared=False).holds
    finding = once(*shards, *process(1, 6, range(216, 226), worker="w-2"), workers=3, shared=False)
    assert (finding.holds, finding.measured) == (False, "0 batches trained twice, 10 skipped")


def test_what_one_that_died_had_still_before_it_is_left_out_where_others_pass_it():
    leases = [(f"w-{1 + index % 2}", 0, index // 2, [(10 * lease, 10 * lease + 9)])
              for index, lease in enumerate([0, 1, 2, 4, 5, 6])]
    assert once(*leases, workers=2, shared=False).measured == "0 batches trained twice, 10 skipped"


def test_samples_are_of_all_workers():
    both = [(f"w-{worker}", 0, number, [(4 * number, 4 * number + 3)]) for number in range(4) for worker in (1, 2)]
    assert once(*both, workers=2, kind="samples").measured == "16 samples trained twice, 0 skipped"


def test_data_that_begin_again_within_a_process_are_a_new_pass():
    assert once(*process(0, 1, [*range(5), *range(5), *range(3)])).holds
    finding = once(*process(0, 1, [*range(5), *range(2)]), *process(1, 8, [*range(5), *range(5)]))
    assert finding.measured == "2 batches trained twice, 0 skipped"


def test_epochs_that_are_told_are_passes():
    shuffled = [("w-1", 0, number, batch, number // 4) for number, batch in enumerate([3, 0, 2, 1, 1, 3, 0, 2])]
    assert once(*shuffled).holds
    assert once(*shuffled[:-1], ("w-1", 1, 7, 3, 1)).measured == "1 batches trained twice, 0 skipped"
    assert once(*shuffled[1:]).measured == "0 batches trained twice, 1 skipped"


def test_where_a_pass_ends_is_not_known_of_data_in_no_order_without_epochs():
    with pytest.raises(Unknown, match="where a pass over the data ends") as unknown:
        once(*process(0, 1, [3, 0, 2, 1, 1, 3, 3, 2]))
    assert "epoch" in unknown.value.change


def test_data_that_are_shuffled_have_passes_of_one_size_where_a_process_was_seen_to_go_through_all_of_them():
    whole = process(0, 1, [3, 0, 2, 1, 1, 3])
    assert once(*whole, *process(1, 7, [0, 2, 2, 3, 1])).holds
    assert once(*whole, *process(1, 7, [2, 1, 0, 3, 1])).measured == "1 batches trained twice, 1 skipped"
    with pytest.raises(Unknown):
        once(*process(0, 1, [3, 0]), *process(1, 3, [2, 1, 3, 1, 0, 2]))


def test_a_log_of_every_tenth_round_leaves_nothing_out():
    assert once(*[("w-1", 0, 10 * number, 10 * number) for number in range(9)]).holds
    assert once(*[("w-1", 0, 10 * number, [(10 * number, 10 * number + 9)]) for number in range(9)]).holds
    assert not once(*[("w-1", 0, 10 * number, [(10 * number + 50 * (number > 4), 10 * number + 9 + 50 * (number > 4))])
                      for number in range(9)]).holds


@pytest.mark.parametrize("rounds", [
    process(0, 1, [0] * 12), [*process(0, 1, range(9)), *process(1, 8, [7] * 12)],
    [(f"w-{worker}", 0, number, number if worker == 2 else 5) for number in range(12) for worker in (1, 2)]],
    ids=["from the beginning", "since a restart", "one of two"])
def test_the_same_data_for_ever_are_no_passes(rounds):
    finding = once(*rounds, workers=2)
    assert (finding.holds, finding.measured) == (False, "the same batches in 12 rounds in a row")
    assert "in 12 rounds in a row, from round" in text(finding.evidence[0])


def test_workers_that_all_take_the_same_samples_again_and_again_are_found():
    both = [(f"w-{worker}", 0, number, [(8 * worker, 8 * worker + 7)]) for number in range(12) for worker in (1, 2)]
    assert once(*both, workers=2, kind="samples").measured == "the same samples in 12 rounds in a row"


def test_one_number_that_is_all_that_was_told_may_be_the_size_of_a_batch():
    with pytest.raises(Unknown, match="every round names the batch 32: that may be how many samples a batch has"):
        once(*process(0, 1, [32] * 12))


def test_one_batch_in_each_epoch_that_is_told_is_all_there_is():
    assert once(*[("w-1", 0, number, 32, number) for number in range(12)]).holds
    assert not once(*[("w-1", 0, number, 32, number // 4) for number in range(12)]).holds


def test_without_named_data_it_is_left_out_and_not_known_where_it_is_asked_for():
    assert once(("w-1", 0, 1, None)) is None
    with pytest.raises(Unknown, match="no worker named the data"):
        once(("w-1", 0, 1, None), checks="{samples_once: {}}")


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 19)), max_size=4), st.integers(0, 30))
def test_a_trainer_that_keeps_its_place_holds_and_one_that_loses_it_does_not_wherever_it_is_killed(kills, shift):
    """`kills`: rounds until each, and how many of them it goes back."""
    rounds, first = [], 0
    for inc, (made, back) in enumerate([*kills, (25, 0)]):
        rounds += [("w-1", inc, number, number) for number in range(first, first + made)]
        first = max(0, first + made - back)
    assert once(*rounds).holds
    if kills and shift:
        last = rounds[-1][1]
        moved = [(worker, inc, number, batch + (shift if inc == last else 0)) for worker, inc, number, batch in rounds]
        assert once(*moved).holds is (min(number for _, inc, number, _ in rounds if inc == last) == 0)
