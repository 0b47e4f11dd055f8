"""Two ways as numbers: what is called, and what becomes of what is missing."""

import pytest

from diloco_chaos.chaos.report.comparison.words import notes, verdicts
from two_ways import compared, quick_and_slow, run


def rows(comparison):
    return {row.name: row for row in comparison.pairings[0].rows}


def test_a_phase_that_ends_far_sooner_is_better_and_what_is_alike_is_not_called():
    told = rows(quick_and_slow())
    assert (told["noticed"].call, told["pace as before"].call) == ("better", "no")
    assert told["noticed"].difference.estimate.mean == pytest.approx(-55, abs=0.5)


def test_seen_from_the_other_side_it_is_worse():
    first, second = (way.runs for way in quick_and_slow().ways)
    assert rows(compared(second, first))["noticed"].call == "worse"


def test_one_run_of_each_tells_nothing_from_chance():
    assert {row.call for row in quick_and_slow(1).pairings[0].rows if row.unit != "rate"} == {"untold"}


def test_a_way_that_never_recovers_is_not_the_quicker_one():
    never = [run(seed, {"pace as before": "never"}) for seed in range(5)]
    ends = [run(seed, {"pace as before": 8.0 + seed / 10}) for seed in range(5)]
    told = rows(compared(ends, never))
    assert told["pace as before"].second.missing == {"never": 5}
    assert told["pace as before"].difference.estimate is None
    assert told["pace as before at all"].call == "worse"
    assert told["pace as before at all"].second.held == (0, 5)


def test_a_pair_that_lacks_a_phase_on_one_side_takes_no_part_and_is_counted():
    first = [run(seed, {"noticed": 3.0}) for seed in range(4)]
    second = [run(seed, {"noticed": "untold" if seed == 2 else 2.0}) for seed in range(4)]
    noticed = rows(compared(first, second))["noticed"]
    assert noticed.difference.estimate.runs == 3
    assert noticed.second.missing == {"untold": 1}


def test_a_phase_that_nothing_tells_in_any_run_has_no_row_and_the_reason():
    pairing = compared([run(0, {"noticed": "untold"})], [run(0, {"noticed": "untold"})]).pairings[0]
    assert pairing.not_told == {"noticed": "noticed is untold"}
    assert "noticed" not in {row.name for row in pairing.rows}


def test_runs_are_paired_by_their_seed():
    pairing = compared([run(seed, {"noticed": 1.0}) for seed in (0, 1, 2)],
                       [run(seed, {"noticed": 1.0}) for seed in (2, 1)]).pairings[0]
    assert pairing.seeds == (1, 2)


def test_training_that_does_not_end_has_taken_no_time_and_a_row_of_its_own():
    told = rows(compared([run(seed, {}) for seed in range(3)], [run(seed, {}, took=None) for seed in range(3)]))
    assert told["took"].second.missing == {"never": 3}
    assert told["training ended"].second.held == (0, 3)


def test_runs_that_prove_nothing_do_not_count_as_passed_or_failed_and_are_told():
    comparison = compared([run(0, {}), run(1, {})], [run(0, {}, verdict="INCONCLUSIVE"), run(1, {}, verdict="FAILED")])
    assert rows(comparison)["runs that passed"].second.held == (0, 1)
    assert verdicts(comparison.pairings[0]) == "passed: naive 2 of 2, prepared 0 of 2 (1 inconclusive)"
    assert notes(comparison.pairings) == ["prepared: seed 0 inconclusive, and the figures count all the same: "]


@pytest.mark.parametrize(("more", "code"), [({}, 0), ({"slower": ("x",)}, 1), ({"interrupted": "x"}, 130)])
def test_exit_codes(more, code):
    runs = [run(seed, {"noticed": 1.0}) for seed in range(2)]
    assert compared(runs, runs, **more).exit_code == code


def test_nothing_to_compare_is_exit_code_3():
    assert compared([], []).exit_code == 3
