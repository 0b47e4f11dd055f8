"""What is told of a whole log before anything is run."""

from __future__ import annotations

from datetime import UTC, datetime

from diloco_chaos.harness.trainers.commands.lint import lint
from diloco_chaos.harness.trainers.commands.progress import Expression, compiled
from diloco_chaos.harness.trainers.core.round_reports import RoundReport


def found(*rounds, text=r"step=(?P<round>\d+)", now=None):
    return lint([f"step={number}" for number in rounds], [Expression(compiled(text))], now)


def test_a_sound_log_has_no_problems():
    assert found(1, 2, 3) == ([RoundReport(1), RoundReport(2), RoundReport(3)], 3, [], [])


def test_a_log_in_which_nothing_matches_says_so():
    assert found(text=r"round (?P<round>\d+)").problems == [
        "no line tells a round: nothing would be known of this node; it is empty"]
    assert found(7, text=r"round (?P<round>\d+)").problems[0].endswith("; its last line is 'step=7'")


def test_rounds_that_go_back_or_are_left_out_are_told_with_their_line():
    told = found(5, 4, 7).problems
    assert [problem.partition(":")[0] for problem in told] == ["line 2", "line 3"]
    assert "round 4 comes after round 5" in told[0]
    assert "round 7 comes after round 4: 2 are not told" in told[1]


def test_a_clock_that_is_far_off_is_told():
    expression = Expression(compiled(r"(?P<time>\S+) (?P<round>\d+)"))
    line, now = "2023-11-14T22:13:20Z 1", datetime(2023, 11, 14, 23, 13, 20, tzinfo=UTC)
    [told] = lint([line], [expression], now).problems
    assert told.startswith("the last round was at 2023-11-14 22:13:20 UTC by its own clock, and the log was written at "
                           "23:13:20 UTC")
    assert not lint([line], [expression], now.replace(hour=22)).problems
    assert not lint([line], [expression], now.replace(minute=20)).problems, "a log that was copied"


def test_equal_rounds_are_those_of_several_ranks_who_may_be_a_round_apart():
    assert not found(1, 1, 2, 2, 3, 3).problems
    assert not found(1, 2, 1, 2, 3, 4, 3, 4).problems
    assert not found(10, 10, 20, 30, 20, 30, 40, 40).problems


def test_every_tenth_round_is_no_problem_and_what_is_left_out_beyond_is():
    assert not found(1, 10, 20, 30, 40, 45).problems
    assert found(10, 20, 30, 40).notes == ["every 10th round is told: faults and checks see no others"]
    assert found(10, 20, 30, 60).problems == ["line 4: round 60 comes after round 30: 29 are not told"]


def test_rounds_that_begin_again_lead_to_the_group_for_it():
    [told] = found(*range(1, 41), *range(1, 41)).problems
    assert told.startswith("line 41: round 1 comes after round 40: ")
    assert r"add a group `(?P<epoch>\d+)`" in told


def test_rounds_of_epochs_are_numbered_as_a_run_numbers_them():
    lines = [f"{epoch}: {step}" for epoch in range(3) for step in range(1, 41)]
    told = lint(lines, [Expression(compiled(r"(?P<epoch>\d+): (?P<round>\d+)"))])
    assert [report.round for report in told.reports] == list(range(1, 121))
    assert not told.problems


def test_times_in_whole_seconds_are_noted_and_no_problem():
    lines = [f"{1_700_000_000 + step // 20} {step}" for step in range(100)]
    told = lint(lines, [Expression(compiled(r"(?P<time>\S+) (?P<round>\d+)"))])
    assert not told.problems
    assert told.notes == ["the times in its lines are told in whole seconds: within that, the time of reading counts"]
