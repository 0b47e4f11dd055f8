"""What a line of a log tells of a round."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from diloco_chaos.harness.trainers.commands.progress import Expression, JsonLines, compiled, lint
from diloco_chaos.harness.trainers.core.round_reports import RoundReport


def read(text, line):
    return Expression(compiled(text)).read(line)


def found(*rounds, text=r"step=(?P<round>\d+)", now=None):
    return lint([f"step={number}" for number in rounds], [Expression(compiled(text))], now)


def test_a_line_tells_its_round_and_what_is_said_of_it():
    text = r"^(?P<time>\S+) step=(?P<round>\d+) n=(?P<members>\d+) x=(?P<samples>\d+) loss=(?P<loss>\S+)"
    assert read(text, "12.5 step=7 n=3 x=640 loss=1e-2") == RoundReport(7, 0.01, 640, 3, 12.5)


def test_a_line_may_name_its_data():
    text = r"step=(?P<round>\d+) batch=(?P<batch>\S+)( of (?P<samples>.*))?"
    assert read(text, "step=7 batch=12") == RoundReport(7, batches=((12, 12),))
    assert read(text, "step=7 batch=12-15 of [3, 4]") == RoundReport(7, samples=2, batches=((12, 15),),
                                                                      named_samples=((3, 4),))


def test_a_key_of_json_names_a_batch_where_that_is_said_of_it():
    line = '{"round": 7, "batch": 64, "samples": [1, 2, 3], "loss": "nan"}'
    told = JsonLines().read(line)
    assert (told.batches, told.samples, told.named_samples, math.isnan(told.loss)) == (None, 3, ((1, 3),), True)
    assert JsonLines({"batch": "batch"}).read(line).batches == ((64, 64),)


def test_what_a_line_does_not_say_is_unknown():
    assert read(r"step=(?P<round>\d+)( loss=(?P<loss>\S+))?", "step=7") == RoundReport(7)


def test_a_line_about_something_else_tells_nothing():
    assert read(r"step=(?P<round>\d+)", "saving a checkpoint") is None


@pytest.mark.parametrize("line", ["step=seven", "step=7 loss=low", "step="])
def test_a_line_that_matches_without_numbers_is_told_in_a_sentence(line):
    assert read(r"step=(?P<round>\S*)( loss=(?P<loss>\S+))?", line).startswith("a line that matches tells no round: ")


@pytest.mark.parametrize(("written", "seconds"), [
    ("1700000000.25", 1700000000.25), ("2023-11-14T22:13:20Z", 1700000000.0),
    ("2023-11-14T22:13:20,500+00:00", 1700000000.5)])
def test_times_are_seconds_or_iso_8601(written, seconds):
    assert read(r"(?P<time>\S+) (?P<round>\d+)", f"{written} 1").time == seconds


@pytest.mark.parametrize(("text", "said"), [
    (r"step=(?P<round>\d+", "no regular expression: missing ), unterminated subpattern at position 5"),
    (r"step=(\d+)", r"it has no group `round`: write (?P<round>\d+)"),
    (r"(?P<round>\d+) (?P<lss>\S+)", "group 'lss' means nothing: groups are round, loss, samples, members, time")])
def test_an_expression_that_finds_no_rounds_is_refused(text, said):
    with pytest.raises(ValueError) as refused:
        compiled(text)
    assert str(refused.value).startswith(said)


def test_a_sound_log_has_no_problems():
    assert found(1, 2, 3) == ([RoundReport(1), RoundReport(2), RoundReport(3)], 3, [])


def test_a_log_in_which_nothing_matches_says_so():
    assert found(text=r"round (?P<round>\d+)").problems == [
        "no line tells a round: nothing would be known of this node; it is empty"]
    assert found(7, text=r"round (?P<round>\d+)").problems[0].endswith("; its last line is 'step=7'")


def test_rounds_that_go_back_or_stand_or_are_left_out_are_told_with_their_line():
    told = found(5, 5, 4, 7).problems
    assert [problem.partition(":")[0] for problem in told] == ["line 2", "line 3", "line 4"]
    assert "round 5 comes after round 5" in told[0]
    assert "round 4 comes after round 5" in told[1]
    assert "round 7 comes after round 4: 2 are not told" in told[2]


def test_a_clock_that_is_far_off_is_told():
    expression = Expression(compiled(r"(?P<time>\S+) (?P<round>\d+)"))
    line, now = "2023-11-14T22:13:20Z 1", datetime(2023, 11, 14, 23, 13, 20, tzinfo=UTC)
    [told] = lint([line], [expression], now).problems
    assert told.startswith("the last round was at 2023-11-14 22:13:20 UTC by its own clock, and the log was written at "
                           "23:13:20 UTC")
    assert not lint([line], [expression], now.replace(hour=22)).problems
    assert not lint([line], [expression], now.replace(minute=20)).problems, "a log that was copied"


# -- objects, one a line ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("keys", "line", "told"), [
    ({}, '{"round": 7, "loss": 0.5, "samples": 64, "members": 2, "time": 12.5}', RoundReport(7, 0.5, 64, 2, 12.5)),
    ({"round": "step", "loss": "train.loss"}, '{"step": 7, "train": {"loss": 1}}', RoundReport(7, 1)),
    ({"round": "step", "loss": "train.loss"}, '{"step": 7.0, "train.loss": 1, "lr": 1e-3}', RoundReport(7, 1)),
    ({"time": "at"}, '{"round": 7, "at": "2023-11-14T22:13:20Z"}', RoundReport(7, time=1700000000.0))])
def test_an_object_tells_what_stands_under_its_keys(keys, line, told):
    assert JsonLines(keys).read(line) == told


@pytest.mark.parametrize("line", ['{"eval": 3}', "", "  ", "[7]", "7", "null"])
def test_an_object_without_a_round_is_about_something_else(line):
    assert JsonLines().read(line) is None


@pytest.mark.parametrize("line", [
    '{"round": 7', "round=7", '{"round": "7"}', '{"round": true}', '{"round": 7.5}', '{"round": 7, "loss": "low"}',
    '{"round": 7, "members": NaN}', '{"round": Infinity}', '{"round": 7, "time": "noon"}', "[" * 100_000])
def test_an_object_with_a_round_that_is_none_is_told_in_a_sentence(line):
    assert JsonLines().read(line).startswith(("a line with a round tells none: ", "a line is no JSON: "))
