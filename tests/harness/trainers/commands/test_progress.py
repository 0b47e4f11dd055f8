"""What a line of a log tells of a round."""

from __future__ import annotations

import math

import pytest

from diloco_chaos.harness.trainers.commands.progress import Expression, JsonLines, Reading, Readings, compiled
from diloco_chaos.harness.trainers.core.round_reports import RoundReport


def read(text, line):
    return Expression(compiled(text)).read(line)


def told(text, line):
    reading = read(text, line)
    assert not reading.problems
    return reading.told


def test_a_line_tells_its_round_and_what_is_said_of_it():
    text = r"^(?P<time>\S+) step=(?P<round>\d+) n=(?P<members>\d+) x=(?P<samples>\d+) loss=(?P<loss>\S+)"
    assert told(text, "12.5 step=7 n=3 x=640 loss=1e-2") == RoundReport(7, 0.01, 640, 3, 12.5)


def test_a_line_may_name_its_data():
    text = r"step=(?P<round>\d+) batch=(?P<batch>\S+)( of (?P<samples>.*))?"
    assert told(text, "step=7 batch=12") == RoundReport(7, batches=((12, 12),))
    assert told(text, "step=7 batch=12-15 of [3, 4]") == RoundReport(7, samples=2, batches=((12, 15),),
                                                                     named_samples=((3, 4),))


def test_a_key_of_json_names_a_batch_where_that_is_said_of_it():
    line = '{"round": 7, "batch": 64, "samples": [1, 2, 3], "loss": "nan", "digest": 12}'
    report = JsonLines().read(line).told
    assert (report.batches, report.samples, report.named_samples) == (None, 3, ((1, 3),))
    assert math.isnan(report.loss)
    assert JsonLines({"batch": "batch"}).read(line).told.batches == ((64, 64),)
    assert (report.digest, JsonLines({"digest": "digest"}).read(line).told.digest) == (None, "12")


def test_a_line_may_tell_a_digest_of_the_weights_whatever_it_looks_like():
    text = r"step=(?P<round>\d+) weights=(?P<digest>[^;]*);"
    assert told(text, "step=7 weights=1,024abc;").digest == "1,024abc"
    assert told(text, "step=7 weights=0017;").digest == "0017"
    [problem] = read(text, "step=7 weights=not known;").problems
    assert problem.text == ("digest: 'not known' is no digest: write letters and digits, 128 at most; the round counts "
                            "without it")


def test_a_line_may_tell_which_rank_of_its_node_it_is_of():
    text = r"\[(?P<rank>[^]]*)\] step=(?P<round>\d+)"
    assert [told(text, f"[{rank}] step=7").rank for rank in ("0", "Actor_3", "1.2")] == ["0", "Actor_3", "1.2"]
    [problem] = read(text, "[a/b] step=7").problems
    assert problem.text == ("rank: 'a/b' is no rank: write letters, digits, dots and underscores, 64 at most; the "
                            "round counts without it")
    line = '{"round": 7, "rank": 1}'
    assert (JsonLines().read(line).told.rank, JsonLines({"rank": "rank"}).read(line).told.rank) == (None, "1")


def test_what_a_line_does_not_say_is_unknown():
    assert told(r"step=(?P<round>\d+)( loss=(?P<loss>\S+))?", "step=7") == RoundReport(7)


def test_a_line_about_something_else_tells_nothing():
    assert read(r"step=(?P<round>\d+)", "saving a checkpoint") is None


@pytest.mark.parametrize("line", ["step=seven", "step=-7", "step=7.5", "step="])
def test_a_line_without_the_number_of_its_round_tells_none(line):
    [problem] = read(r"step=(?P<round>\S*)", line).problems
    assert problem.kind == "round"
    assert problem.text.startswith("a line that matches tells no round: ")
    assert read(r"step=(?P<round>\S*)", line).told is None


@pytest.mark.parametrize(("line", "kind", "report"), [
    ("step=7 loss=n/a at=1", "loss", RoundReport(7, time=1.0)), ("step=7 loss=1 at=noon", "time", RoundReport(7, 1.0)),
    ("step=7 loss=-- at=1", "loss", RoundReport(7, time=1.0)), ("step=7 loss=1 at=1e999", "time", RoundReport(7, 1.0))])
def test_a_field_that_is_no_number_costs_that_field_and_not_the_round(line, kind, report):
    told, problems = read(r"step=(?P<round>\d+) loss=(?P<loss>\S+) at=(?P<time>\S+)", line)
    assert told == report
    assert [problem.kind for problem in problems] == [kind]
    assert problems[0].text.endswith("; the round counts without it")


def test_a_loss_that_is_no_number_is_told_as_that():
    loss = told(r"(?P<round>\d+) (?P<loss>\S+)", "7 nan").loss
    assert loss != loss


@pytest.mark.parametrize(("text", "line", "report"), [
    (r"step (?P<round>\d+)", "step 1,024", RoundReport(1024)), (r"step (?P<round>\d+)", "step 7, 640", RoundReport(7)),
    (r"step (?P<round>\d+).*loss (?P<loss>[\d.]+)", "step 1,234,567: loss 1,024.5", RoundReport(1234567, 1024.5)),
    (r"step (?P<round>\d+)", "step 1,0245", RoundReport(1)), (r"step (?P<round>\d+)", "step 7,640,5", RoundReport(7)),
    (r"^(?P<round>\d+),(?P<samples>\d+)", "7,640", RoundReport(7, samples=640)),
    (r"^((?P<round>\d+)),\d+,(?P<loss>\S+)", "7,640,0.5", RoundReport(7, 0.5)),
    (r"^(?P<round>\d+)[;,](?P<loss>[\d.]+)", "7,640 x", RoundReport(7, 640.0)),
    (r"^(?P<round>[)\]\d]+)\,\d+", "7,640", RoundReport(7))])
def test_a_number_with_commas_is_one_unless_the_expression_has_the_comma(text, line, report):
    assert told(text, line) == report


def test_a_match_in_which_the_round_has_no_part_is_about_something_else():
    assert read(r"step=(?P<round>\d+)|saved", "saved") is None


def test_fractions_of_an_epoch_are_rounds_where_the_unit_is_the_epoch():
    expression = Expression(compiled(r"'epoch': '?(?P<round>[0-9.]+)"), "epoch")
    assert expression.read("{'loss': 0.5, 'epoch': 1.25}").told.round == 12_500
    assert expression.read("{'loss': '0.5', 'epoch': '0.03'}").told.round == 300
    assert JsonLines({"round": "epoch"}, "epoch").read('{"epoch": 2}').told.round == 20_000


# -- several lines, long lines ---------------------------------------------------------------------------------------

def rounds(readings, lines):
    return [reading.told for line in lines if (reading := readings.read(line)) is not None]


def test_an_expression_with_newlines_is_for_as_many_lines():
    readings = Readings([Expression(compiled(r"step (?P<round>\d+)\n\s+loss: (?P<loss>\S+)"))])
    assert rounds(readings, ["step 1", "  loss: 0.5", "saved", "step 2", "  loss: 0.25", "step 3", "step 4", " loss: 1"]
                  ) == [RoundReport(1, 0.5), RoundReport(2, 0.25), RoundReport(4, 1.0)]


def test_a_backslash_before_an_n_is_no_newline():
    assert Expression(compiled(r"\\n (?P<round>\d+)")).lines == 1
    assert Expression(compiled(r"\\\n (?P<round>\d+)")).lines == 2


def test_of_a_long_line_each_part_is_read():
    reading = read(r"step=(?P<round>\d+)", "x " * 100_000 + "step=7 " + "y" * 100_000)
    assert reading.told == RoundReport(7)
    assert [problem.kind for problem in reading.problems] == ["long"]
    assert read(r"step=(?P<round>\d+)", "x" * 100_000).told is None


@pytest.mark.parametrize(("text", "said"), [
    (r"step=(?P<round>\d+", "no regular expression: missing ), unterminated subpattern at position 5"),
    (r"step=(\d+)", r"it has no group `round`: write (?P<round>\d+)"),
    (r"(?P<round>\d+) (?P<lss>\S+)", "group 'lss' means nothing: groups are round, loss, samples, members, time, ")])
def test_an_expression_that_finds_no_rounds_is_refused(text, said):
    with pytest.raises(ValueError) as refused:
        compiled(text)
    assert str(refused.value).startswith(said)


# -- objects, one a line ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("keys", "line", "told"), [
    ({}, '{"round": 7, "loss": 0.5, "samples": 64, "members": 2, "time": 12.5}', RoundReport(7, 0.5, 64, 2, 12.5)),
    ({"round": "step", "loss": "train.loss"}, '{"step": 7, "train": {"loss": 1}}', RoundReport(7, 1)),
    ({"round": "step", "loss": "train.loss"}, '{"step": 7.0, "train.loss": 1, "lr": 1e-3}', RoundReport(7, 1)),
    ({"time": "at"}, '{"round": 7, "at": "2023-11-14T22:13:20Z"}', RoundReport(7, time=1700000000.0))])
def test_an_object_tells_what_stands_under_its_keys(keys, line, told):
    assert JsonLines(keys).read(line) == Reading(told)


@pytest.mark.parametrize("line", [
    '[rank0]: {"round": "7", "loss": "0.5"}', '2030-01-01 INFO {x} {"round": 7, "loss": 0.5}',
    '{"ts": 1} {"round": "1,007"}', '{"round": 7.0} done', '\t{"round": "7"}'])
def test_an_object_may_have_something_before_it_and_numbers_as_text(line):
    assert JsonLines().read(line).told.round in (7, 1007)


def test_an_epoch_is_taken_from_an_object_only_where_a_key_is_named():
    assert JsonLines().read('{"round": 7, "epoch": 2}').told == RoundReport(7)
    assert JsonLines({"epoch": "epoch"}).read('{"round": 7, "epoch": 2}').told == RoundReport(7, epoch=2)


@pytest.mark.parametrize("line", ['{"eval": 3}', "", "  ", "[7]", "7", "null", "round=7", "{x}{y}"])
def test_a_line_without_an_object_that_has_a_round_is_about_something_else(line):
    reading = JsonLines().read(line)
    assert reading is None or reading.told is None


@pytest.mark.parametrize(("line", "kind"), [
    ('{"round": 7', "json"), ('{"round": true}', "round"), ('{"round": 7.5}', "round"),
    ('{"round": Infinity}', "round"), ('{"round": "seven"}', "round"), ('{"round": [7]}', "round"),
    ('{"a":' * 100_000, "json"),
    ('{"round": ' + "9" * 400 + "}", "round")])
def test_an_object_that_tells_no_round_is_told_in_a_sentence(line, kind):
    told, problems = JsonLines().read(line)
    assert told is None
    assert [problem.kind for problem in problems] == [kind]


@pytest.mark.parametrize(("line", "kind"), [
    ('{"round": 7, "loss": "low"}', "loss"), ('{"round": 7, "loss": {}}', "loss"),
    ('{"round": 7, "loss": true}', "loss"),
    ('{"round": 7, "members": NaN}', "members"), ('{"round": 7, "samples": 1e300}', "samples"),
    ('{"round": 7, "time": "noon"}', "time"), ('{"round": 7, "time": -1}', "time")])
def test_a_value_that_is_no_number_costs_that_field_and_not_the_round(line, kind):
    told, problems = JsonLines().read(line)
    assert told == RoundReport(7)
    assert [problem.kind for problem in problems] == [kind]
