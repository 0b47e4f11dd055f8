"""The report ends with why, the verdict, and what to type next."""

import io
import re
import shutil
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from diloco_chaos.chaos.checks import Judgement, judge
from diloco_chaos.chaos.checks.base import Finding, Unknown, Verdict, at_least, at_most, check
from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.evidence.presence import Presence
from diloco_chaos.chaos.report.causes import causes, why
from diloco_chaos.chaos.report.model import model_of
from diloco_chaos.chaos.report.story import headline
from diloco_chaos.chaos.report.terminal import show
from diloco_chaos.chaos.runner.experiment import RunOutcome
from diloco_chaos.harness.base.lines import line


def shown(result, width=80, verbose=False):
    out = io.StringIO()
    show(result, Console(file=out, width=width, no_color=True), verbose)
    return out.getvalue()


def lines_of(result):
    return [line.strip() for line in shown(result, width=140).splitlines()]


def with_verdict(result, finding):
    """The same run, judged by a check called `mine` that comes to this finding, or can't tell."""
    def mine(history):
        if isinstance(finding, Unknown):
            raise finding
        return finding
    return replace(result, judgement=judge(result.history, {"mine": check()(mine)}))


def test_the_last_lines_name_the_check_the_cause_the_verdict_and_the_next_command(results):
    last = "\n".join(shown(results[0]).splitlines()[-24:])
    assert "✗ no_global_stall  longest gap 5." in last
    assert "  the syncer was away" in last
    assert re.search(r"\n +syncer  gone 18\.0\d s to 2\d\.\d\d s  f3 \(kill, 18\.0\d-22\.\d\d s\)", last)
    assert re.search(r"\nFAILED  mine · 2 of \d+ checks failed: no_global_stall, reintegration · ", last)
    assert f"\nrepeat  diloco-chaos run --plan {results[0].folder.path}/plan.json --on simulated" in last


def test_what_faults_cost_is_a_line_and_on_demand_a_table(results):
    short, whole = shown(results[0], 120), shown(results[0], verbose=True)
    assert re.search(r"\nMTTD \d+ ms · MTTR \d+\.\d s · ETTR \d+\.\d% · idle node-seconds \d+\.\d · ", short)
    assert re.search(r"\nf3 +\d+ ms +\d+\.\d s +\d+\.\d% +\d+\.\d +0 +- *\n", whole)
    assert "f3: lost samples not told: syncer: it trains nothing itself" in whole


def test_the_cause_is_the_quorum_where_too_few_were_there(results):
    zero = results[0].history.zero
    head, *absent = why(Presence(results[0].history), zero + 7.5, zero + 10.5)
    assert head == "7.50-10.50 s  quorum 3 not reachable: 2 of 4 learners available"
    assert all("f2 (partition, 7.0" in line for line in absent)
    assert "learner-2" in " ".join(absent)
    assert "learner-3" in " ".join(absent)


def test_where_enough_were_there_nothing_is_claimed(results):
    zero = results[0].history.zero
    assert why(Presence(results[0].history), zero + 0.5, zero + 2) == [
        "no fault was on, and enough were there: nothing in the event log says why"]
    head, said = why(Presence(results[0].history), zero + 4.0, zero + 5.5)
    assert head == "who was away within 4.00-5.50 s:"
    assert re.match(r"  learner-1  4\.0\d s to 5\.50 s: gone 1\.5 s  f1 \(kill, 4\.0\d-", said)


def test_who_comes_back_one_after_the_other_is_told_with_the_first_and_the_last(results):
    zero = results[0].history.zero
    _, cut_off = why(Presence(results[0].history), zero + 7.5, zero + 10.5)
    assert re.match(r"  learner-2 and learner-3  partitioned 7\.0\d s to 1\d\.\d\d(-1\d\.\d\d)? s  f2 ", cut_off)


def test_whoever_was_away_in_a_part_of_the_time_is_named(results):
    """One died before the others were cut off, and came back meanwhile."""
    zero = results[0].history.zero
    lines = why(Presence(results[0].history), zero + 4.5, zero + 10.5)
    assert {name for line in lines[1:] for name in ("learner-1", "learner-2", "learner-3") if name in line} == {
        "learner-1", "learner-2", "learner-3"}


def test_the_same_cause_is_told_once(results):
    verdicts = [verdict for verdict in results[0].judgement.checks if verdict.verdict == "failed"]
    again = verdicts[0].model_copy(update={"name": "uptime"})
    told = causes(results[0].history, [verdicts[0], again])
    assert told["uptime"] == [f"for the same reason as {verdicts[0].name}"]


@pytest.mark.parametrize("words", ["it would have been too late", "this machine had other things to do"])
def test_a_check_that_cannot_tell_is_shown_with_why_whatever_its_words(results, words):
    """Only what the run makes doubtful is left out, for the reason is that of all."""
    lines = lines_of(with_verdict(results[0], Unknown(words)))
    assert lines[lines.index("? mine  not known") + 1] == words
    assert not any("inconclusive for that reason" in line for line in lines)


def test_what_passed_is_one_paragraph_and_its_figures_are_there_on_demand(results):
    brief, whole = (shown(results[1], verbose=verbose) for verbose in (False, True))
    assert "What went wrong" not in brief
    assert "✓ 2" in brief
    assert "≥" not in brief
    assert len(brief.splitlines()) < 36 < len(whole.splitlines())
    assert brief.split("\n\n")[-2].startswith("PASSED  mine · ")
    assert "≤ 9.0 s" in whole
    assert "million tokens" in whole


def test_stalls_have_a_line_of_their_own_in_the_timeline(results):
    assert "\nstalls " in shown(results[0])
    assert "\nstalls " not in shown(results[1])


@pytest.mark.parametrize("width", [80, 100, 140])
def test_no_line_but_commands_is_wider_than_the_terminal(results, width):
    lines, commands = shown(results[0], width).splitlines(), ("saved", "page", "all", "repeat", "FAILED")
    assert all(len(line) <= width for line in lines if not line.startswith(commands))


def test_there_is_one_clock(results):
    zero = results[0].history.zero
    verdict = next(one for one in results[0].judgement.checks if one.name == "no_global_stall")
    assert isinstance(verdict, Verdict)
    (start, end), *_ = verdict.windows
    assert f"no merge from {start:.2f} s to {end:.2f} s" in verdict.evidence
    moved = [round(t, 2) - zero for t in (start, end)]
    assert f"no merge from {moved[0]:.2f} s to {moved[1]:.2f} s" in shown(results[0])


@pytest.mark.parametrize(("words", "shown_as"), [
    (line("held back by a backoff of 0.50 s from ", 12.34, " on"), "held back by a backoff of 0.50 s from {:.2f} s on"),
    ("a text alone, at 12.34 s", "a text alone, at 12.34 s"), (line(12.3449), "{:.2f} s"),
    ("for 3.5 s, or 2 min 5 s", "for 3.5 s, or 2 min 5 s")])
def test_moments_are_moved_and_durations_are_not(results, words, shown_as):
    at = shown_as.format(12.34 - results[0].history.zero)
    result = with_verdict(results[0], Finding(False, "too long", "none", [words]))
    assert at in lines_of(result)
    assert at in next(check for check in model_of(result).checks if check.name == "mine").evidence


def test_a_deadline_is_no_moment(results):
    passed = "the deadline of 12.25 s passed before training was over"
    result = replace(results[0], judgement=Judgement(checks=[]), outcome=RunOutcome("deadline", passed))
    assert headline(result) == passed
    assert passed in lines_of(result)


@pytest.mark.parametrize(("bound", "shown_as"), [
    (at_least("90%"), "at least 90%"), (at_most("3.0 s"), "limit 3.0 s"), ("all", "limit all"),
    ("≥ 3 as a text", "limit ≥ 3 as a text")])
def test_what_a_check_allows_is_said_by_its_kind(results, bound, shown_as):
    assert f"✗ mine  2; {shown_as}" in lines_of(with_verdict(results[0], Finding(False, "2", bound)))


def test_a_warning_on_the_tape_stands_in_the_report_once(results, tmp_path):
    run = tmp_path / results[1].folder.path.name
    shutil.copytree(results[1].folder.path, run)
    with open(run / "tape/harness.0.jsonl", "a") as file:
        file.write('{"event":"warning","t":1.0,"node":"harness","inc":0,"reason":"its output is buffered"}\n' * 2)
    done = CliRunner().invoke(application(), ["check", str(run)])
    assert done.exit_code == 0
    assert "harness: its output is buffered (2 times)" in done.output


def test_where_what_hangs_stands_is_shown_and_all_of_it_on_demand(results):
    kept = results[1].folder.path / "stacks"
    kept.mkdir()
    try:
        (kept / "w-1.0.txt").write_text("\n".join(["pid 7  train.py  (S)", *(f"  frame {n}" for n in range(20))]))
        short, whole = shown(results[1]), shown(results[1], verbose=True)
        assert "\nw-1.0\n  pid 7  train.py  (S)\n    frame 0\n" in short
        assert "all of them: " in short
        assert "frame 19" not in short
        assert "frame 19" in whole
        assert model_of(results[1]).stacks["w-1.0"][1] == "  frame 0"
    finally:
        shutil.rmtree(kept)
