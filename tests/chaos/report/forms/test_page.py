"""A run on one page, and in Markdown: all that the folder tells, and nothing of it as more than text."""

import json
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import jsonschema
import pytest
from typer.testing import CliRunner

from diloco_chaos.chaos.checks.base import Verdict, at_least
from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.chaos.report.forms.drawing import Axis, fault_marks, rate
from diloco_chaos.chaos.report.forms.markdown import escaped, report_markdown
from diloco_chaos.chaos.report.forms.page import report_html, timeline_svg
from diloco_chaos.chaos.report.forms.registry import find
from diloco_chaos.chaos.report.model import ReportModel, model_of
from diloco_chaos.chaos.report.past import Past
from diloco_chaos.chaos.report.saved import kept
from diloco_chaos.chaos.runner.run import judged
from diloco_chaos.harness.base.extras import MissingExtraError

_VOID = {"meta", "link", "br", "input"}


class Page(HTMLParser):
    """Elements, texts and links, and whether every element is closed."""

    def __init__(self, text):
        super().__init__()
        self.opened, self.tags, self.links, self.texts = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "action")]
        if tag not in _VOID:
            self.opened.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.opened.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def pages(results):
    return [(result.folder.path / "report.html").read_text() for result in results]


def test_what_hung_at_the_end_is_named_and_its_stacks_are_on_the_page(results):
    model = model_of(results[0]).model_copy(update={"stacks": {"w-1.0": ["pid 7  <train>", "  wait  threading.py:3"]}})
    assert "Hung at the end: w-1.0; " in report_markdown(model)
    assert "pid 7  &lt;train&gt;\n  wait  threading.py:3" in report_html(model)


def test_what_faults_cost_is_told_and_why_what_is_not_told_is_not(pages, results):
    cost = model_of(results[0]).cost
    assert f'<td class="n">{cost.ettr:.1%}</td>' in pages[0]
    assert "f3: lost samples not told: syncer: it trains nothing itself" in pages[0]
    assert f"ETTR {cost.ettr:.1%}" in report_markdown(model_of(results[0])).replace("\\", "")


def test_the_page_is_well_formed_and_small_and_needs_nothing_else(pages):
    for text in pages:
        page = Page(text)
        assert page.opened == []
        assert page.links == ["data:,"]
        assert "url(" not in text
        assert len(text) < 1_000_000


def test_the_banner_has_a_sentence_for_every_failure_with_its_cause_and_the_commands(pages):
    banner = pages[0].partition("</header>")[0]
    texts = " ".join(" ".join(Page(banner).texts).split())
    assert "FAILED mine" in texts
    assert re.search(r"✗ no_global_stall longest gap 5\.\d s .* the syncer was away", texts)
    assert re.search(r"✗ reintegration .* quorum 3 not reachable: 2 of 4 learners available", texts)
    assert "diloco-chaos run --plan" in texts
    assert "✗" not in pages[1].partition("</header>")[0]


def test_stalls_lanes_and_faults_are_drawn(pages, results):
    assert pages[0].count("<title>no merge from") == len(model_of(results[0]).stalls) > 0
    assert [fault.planned for fault in model_of(results[0]).faults] == [(4.0, 6.0), (7.0, 11.0), (18.0, 22.0)]
    for words in ("f2 as planned: 7.00 to 11.00 s", "learner-2 partitioned 7.0", "syncer killed 18.0",
                  "f3: kill syncer"):
        assert f"<title>{words}" in pages[0]


def test_text_of_others_is_text(pages, results):
    assert Page(pages[0]).tags.count("script") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in pages[0]
    assert escaped("<b> [x](y) | `z`\n# w") == r"\<b\> \[x\](y) \| \`z\` \# w"
    hostile = model_of(results[0]).model_copy(update={"scenario": "<img src=x>", "why": "</pre><script>", "logs": {
        "learner-1": ["<script>alert(2)</script>", "${7*7} {{ 7*7 }}"]}})
    page = Page(report_html(hostile))
    assert (page.tags.count("script"), page.tags.count("img")) == (1, 0)
    assert "{{ 7*7 }}" in "".join(page.texts)
    assert r"\<img src=x\>" in report_markdown(hostile)


def test_markdown_is_under_60_lines_and_names_check_cause_and_command(results):
    text = report_markdown(model_of(results[0]))
    assert len(text.splitlines()) < 60
    assert text.startswith("### FAILED mine\n")
    model = model_of(results[0])
    told = model.checks[0].model_copy(update={"verdict": "failed", "causes": ["because"] * 9, "evidence": ["so"] * 9})
    crowded = report_markdown(model.model_copy(update={
        "checks": [told] * 20, "faults": model.faults * 20, "why": "it is so", "change": "that"}))
    assert len(crowded.splitlines()) < 60
    assert crowded.count("- because") >= 8
    assert re.search(r"\n- \d+\.\d\d-\d+\.\d\d s quorum 3 not reachable: 2 of 4 learners available\n", text)
    assert f"\ndiloco-chaos run --plan {results[0].folder.path}/plan.json --on simulated\n" in text


def test_the_model_has_a_schema_and_is_the_same_when_it_is_read_again(results):
    told = model_of(results[0]).model_dump_json()
    jsonschema.validate(json.loads(told), ReportModel.model_json_schema())
    assert ReportModel.model_validate_json(told).model_dump_json() == told


def test_time_zero_is_the_steady_state(results):
    model = model_of(results[0])
    assert (model.start, model.end) == (-results[0].history.zero, results[0].history.end - results[0].history.zero)
    assert [round(fault.began or 0.0, 1) for fault in model.faults] == [4.0, 7.0, 18.0]


def test_a_page_of_ci_gets_the_markdown_after_what_it_has(results, tmp_path, monkeypatch):
    (tmp_path / "summary.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    kept(results[0])
    assert (tmp_path / "summary.md").read_text().startswith("before\n### FAILED mine\n")


def test_what_can_not_be_written_is_told_and_the_result_stays(results, monkeypatch, capsys):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/nowhere/summary.md")
    assert kept(results[0]) is results[0]
    assert capsys.readouterr().err == "warning: /nowhere/summary.md can't be written: No such file or directory\n"


@pytest.mark.parametrize("spoil", ["tape", "one", "torn", "logs", "manifest.json", "curve.json"])
def test_of_a_folder_that_is_not_whole_there_is_a_report_that_says_so(results, tmp_path, spoil):
    folder = tmp_path / "run"
    shutil.copytree(results[0].folder.path, folder)
    tape = folder / "tape"
    if spoil in ("logs", "manifest.json", "curve.json"):
        shutil.rmtree(folder / spoil, ignore_errors=True)
        (folder / spoil).unlink(missing_ok=True)
    elif spoil == "tape":
        for file in tape.iterdir():
            file.unlink()
    elif spoil == "one":
        (tape / "syncer.1.jsonl").unlink()
    else:
        whole = (tape / "syncer.1.jsonl").read_bytes()
        (tape / "syncer.1.jsonl").write_bytes(whole[:len(whole) // 2])
    model = model_of(judged(RunFolder.open(folder)))
    assert Page(report_html(model)).opened == []
    assert bool(model.gaps) == (spoil in ("tape", "one", "torn"))
    assert "event log is incomplete" in report_html(model) or not model.gaps


def test_a_page_that_is_older_than_its_event_log_is_made_again_before_it_is_opened(results, tmp_path):
    folder = tmp_path / results[1].folder.path.name
    shutil.copytree(results[1].folder.path, folder)
    (folder / "tape" / "syncer.1.jsonl").write_text("")
    done = CliRunner().invoke(application(), ["open", "--print", str(folder)])
    assert (done.exit_code, done.stdout) == (0, f"{folder / 'report.html'}\n")
    assert "<title>INCONCLUSIVE mine" in (folder / "report.html").read_text()
    whole = (folder / "report.html").read_bytes()
    CliRunner().invoke(application(), ["open", "--print", str(folder)])
    assert (folder / "report.html").read_bytes() == whole
    (folder / "report.html").unlink()
    CliRunner().invoke(application(), ["open", "--print", str(folder)])
    assert (folder / "report.html").exists()


def test_a_replay_of_a_log_whose_end_is_missing_says_so(results, tmp_path):
    folder = tmp_path / results[1].folder.path.name
    shutil.copytree(results[1].folder.path, folder)
    lines = (folder / "tape" / "syncer.1.jsonl").read_text().splitlines(keepends=True)
    (folder / "tape" / "syncer.1.jsonl").write_text("".join(lines[:len(lines) // 2]))
    done = CliRunner().invoke(application(), ["replay", str(folder)])
    assert done.exit_code == 3
    assert "the event log is incomplete: syncer.1 ended in good order, and its tape does not" in done.stdout


def test_the_command_writes_every_form(results, tmp_path):
    folder = str(results[1].folder.path)
    for form, begins in (("md", "### PASSED mine"), ("html", "<!doctype html>"), ("json", "{\n"), ("model", "{\n"),
                         ("junit", "<?xml"), ("svg", "<svg"), ("perfetto", "{"), ("otel", "{"),
                         ("prometheus", "# HELP")):
        done = CliRunner().invoke(application(), ["report", folder, "--format", form])
        assert done.stdout.startswith(begins), done
    done = CliRunner().invoke(application(), ["report", folder, "--out", str(tmp_path / "x.md")])
    assert (done.stdout, (tmp_path / "x.md").read_text()[:15]) == ("", "### PASSED mine")


def test_many_nodes_have_a_lane_each(run_text):
    result = run_text("diloco_chaos: 1\nname: many\ncluster: {model: quadratic, fragments: 4, learners: 64, "
                      "budget: 40, step_time: 60ms}\n")
    text = report_html(model_of(result))
    assert all(f">learner-{number}</text>" in text for number in range(1, 65))
    assert len(text) < 1_000_000


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-4.0, 31.0), (2.1, 2.2), (0.0, 1e6), (5.0, 5.0)])
def test_ticks_are_few_round_and_within(low, high):
    axis = Axis(low, high, 100.0, 900.0)
    ticks = axis.ticks()
    assert 1 <= len(ticks) <= 9
    assert all(100 <= tick.at <= 900 for tick in ticks)


def test_how_much_of_its_room_a_check_used_is_drawn_and_what_came_of_it_before(results):
    model = model_of(results[1])
    then = Past("20260101-120000-mine-0000aaaa", "mine", "", 0, 1, "", {"uptime": Verdict(
        name="uptime", verdict="failed", measured="12%", allowed=at_least("20%"))})
    text = report_html(model, [then])
    assert Page(text).opened == []
    assert 'title="failed: 12%, 20260101-120000-mine-0000aaaa"' in text
    drawn = [check for check in model.checks if check.tightest is not None]
    assert text.count('<svg class="bar"') == len(drawn) > 3


def test_the_timeline_is_a_drawing_of_its_own(results):
    for result in results:
        text = timeline_svg(model_of(result))
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in text
        assert [one.text for one in root.iter() if (one.text or "").startswith("f3 kill syncer, back")]


def test_labels_of_faults_do_not_cover_each_other(results):
    model = model_of(results[0])
    crowded = [fault.model_copy(update={"id": f"f{number}", "began": 4.0 + number / 4, "planned": None})
               for number, fault in enumerate(model.faults * 4)]
    marks = fault_marks(model.model_copy(update={"faults": crowded}), Axis(model.start, model.end, 100.0, 1000.0))
    assert len(marks) == 12
    for row in {mark.row for mark in marks}:
        spans = sorted((mark.at, mark.at + 6.4 * len(mark.label)) for mark in marks if mark.row == row)
        assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_nobody_seems_to_take_part_while_nothing_is_merged(results):
    model = model_of(results[0])
    drawn = rate(model, Axis(model.start, model.end, 100.0, 1000.0)).contributors
    assert drawn.count("M") > len(model.stalls) > 0, "the line ends at a stall, and begins again"


def test_a_png_is_one_or_says_what_it_lacks(results):
    try:
        assert find("png")(results[0]).startswith(b"\x89PNG")
    except MissingExtraError as error:
        assert "fonts" in str(error)


def test_a_steady_rate_is_a_level_line_and_no_merge_is_counted_twice(results):
    """Slices have room for five merges, or for six, and nothing has changed."""
    model = model_of(results[0])
    calm = [one.rate for one in model.merges if one.start >= 0.5 and one.end <= 3.5]
    assert len(calm) > 3
    assert max(calm) - min(calm) < 0.05 * max(calm)
    total = sum(one.rate * (one.end - one.start) for one in model.merges)
    made = sum(merge.t + model.start <= model.merges[-1].end for merge in results[0].history.merges)
    assert abs(total - made) < 1
