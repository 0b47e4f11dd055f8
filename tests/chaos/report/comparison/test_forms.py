"""A comparison for people: the first lines, eighty columns, Markdown, a page, and JSON that serves as a baseline."""

import io
import json

import pytest
from rich.console import Console

from diloco_chaos.chaos.report.comparison.markdown import comparison_markdown
from diloco_chaos.chaos.report.comparison.page import comparison_html
from diloco_chaos.chaos.report.comparison.saved import document, write
from diloco_chaos.chaos.report.comparison.terminal import show
from diloco_chaos.chaos.report.comparison.words import headline
from two_ways import compared, quick_and_slow, run


def printed(comparison):
    out = io.StringIO()
    show(comparison, Console(file=out, width=80))
    return out.getvalue()


def test_the_first_lines_say_which_is_better_in_what_by_how_many_runs():
    lines = printed(quick_and_slow()).strip().splitlines()
    assert lines[0].startswith("prepared is better than naive in 1 of ")
    assert lines[1].startswith("5 pairs of runs, seeds 0 to 4, local")
    assert "✓ better: noticed 55.0 s sooner (5.0 s, not 60.0 s)" in lines[:6]


def test_it_fits_eighty_columns_and_nothing_is_cut():
    never = compared([run(seed, {"pace as before": "never"}, lost=58.7) for seed in range(3)],
                     [run(seed, {"pace as before": 8.0 + seed}, lost=5.0) for seed in range(3)])
    for comparison in (quick_and_slow(), never):
        text = printed(comparison)
        assert max(map(len, text.splitlines())) <= 80
        assert "…" not in text
        assert {line.split()[-1] for line in text.splitlines() if " took  " in line} <= {"unclear", "–"}
    assert "3 never" in text
    assert "unclear" in text


@pytest.mark.parametrize(("comparison", "title"), [
    (compared([run(0, {"noticed": 1.0})], []), "naive and prepared: no run of one has a partner of the other"),
    (quick_and_slow(1), "naive and prepared: one run of each tells no difference from chance"),
    (compared([run(seed, {"noticed": 1.0}) for seed in range(3)], [run(seed, {"noticed": 1.0}) for seed in range(3)]),
     "no difference between naive and prepared is shown by 3 runs of each")])
def test_what_few_runs_can_not_tell_is_said_with_what_would(comparison, title):
    told = headline(comparison.pairings[0])
    assert (told.title, told.better, told.advice[:30]) == (title, (), "more runs tell more: --repeat ")


def test_markdown_and_page_say_the_same_first():
    comparison = quick_and_slow()
    title = headline(comparison.pairings[0]).title
    assert comparison_markdown(comparison).startswith(f"### {title}\n")
    assert f"<h1>{title}</h1>" in comparison_html(comparison)


def test_names_of_others_are_text_on_the_page_and_in_markdown():
    comparison = compared([run(0, {"<b>noticed": 1.0}, verdict="FAILED")], [run(0, {})])
    comparison.ways[0].runs[0].checks["<i>|x"] = "failed"
    comparison.ways[1].runs[0].checks["<i>|x"] = "passed"
    again = compared(comparison.ways[0].runs, comparison.ways[1].runs)
    assert "<i>" not in comparison_html(again)
    assert "<i>|x" not in comparison_markdown(again)


def test_all_forms_are_written_and_json_is_the_whole(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    comparison = quick_and_slow()
    write(tmp_path, comparison)
    assert {path.name for path in tmp_path.glob("compare.*")} == {"compare.html", "compare.md", "compare.json"}
    assert json.loads((tmp_path / "compare.json").read_text()) == json.loads(json.dumps(document(comparison)))
    assert (tmp_path / "summary").read_text().startswith("### prepared is better")
