"""What pytest tells of runs beside its own words."""

import os
import re
import subprocess
import sys

import pytest

CLUSTER = "cluster: {model: quadratic, learners: 2, budget: 120 steps, step_time: 60ms}\n"
FAILS = "faults: [{kill: learner-1, at: 3s, restart_after: 1s}]\nchecks: {reintegration: {within: 1ms}}\n"
SCENARIOS = {"fails": FAILS, "unsure": "deadline: 2s\n", "passes": "", "left-out": "skip: needs a GPU\n",
             "expected": f"xfail: the start is too slow\n{FAILS}", "expected-unsure": "xfail: slow\ndeadline: 2s\n",
             "better": "xfail: the start is too slow\n"}


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenarios")
    for name, more in SCENARIOS.items():
        (folder / f"{name}.yaml").write_text(f"diloco_chaos: 1\nname: {name}\n{CLUSTER}{more}")
    (folder / "test_mine.py").write_text(
        'import pytest\n\n\n@pytest.mark.chaos("fails.yaml")\ndef test_mine(chaos):\n    pass\n')
    (folder / "pytest.ini").write_text("[pytest]\nchaos_on = simulated\n")
    return folder


def run(folder, *options, summary=""):
    done = subprocess.run([sys.executable, "-m", "pytest", "--color=no", *options], cwd=folder, capture_output=True,
                          text=True, check=False, env=os.environ | {"GITHUB_STEP_SUMMARY": summary, "COLUMNS": "200"})
    assert "Traceback" not in done.stdout
    assert "INTERNALERROR" not in done.stdout
    return done.returncode, done.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "xdist"])
def test_the_page_of_ci_has_a_table_of_all_and_the_story_of_those_that_did_not_pass(scenarios, tmp_path, workers):
    summary = tmp_path / "summary.md"
    code, out = run(scenarios, "-q", "fails.yaml", "unsure.yaml", "passes.yaml", "test_mine.py", *workers,
                    summary=str(summary))
    text = summary.read_text()
    assert code == 1
    assert text.count("### 1 of 4 scenarios passed\n") == 1
    table = [line for line in text.splitlines() if line.startswith("| fails |")]
    assert len(table) == 2, "the one in Python, too"
    assert re.fullmatch(r"\| fails \| FAILED \| reintegration far beyond \| \d\.\d s \| \d\d\.\d% \|  \|", table[0])
    assert "| passes | PASSED | " in text
    assert "\n- **unsure**: the deadline of 2 s passed" in text
    assert text.count("### FAILED fails\n") == 2
    assert "### PASSED passes\n" not in text, "the table tells all of it"
    pages = re.findall(r"diloco-chaos: (\w+) (\S+): (\S+/report\.html)\n", out)
    assert [(word, name) for word, name, _ in pages] == [("FAILED", "fails"), ("FAILED", "fails"),
                                                        ("INCONCLUSIVE", "unsure")]
    assert all(os.path.isfile(page) for _, _, page in pages)


def test_verdict_and_folder_stand_behind_a_name(scenarios):
    out = run(scenarios, "-v", "fails.yaml", "passes.yaml", "unsure.yaml")[1]
    for name, word in (("fails", "FAILED"), ("passes", "PASSED"), ("unsure", "INCONCLUSIVE")):
        assert re.search(rf"\n{name}\.yaml::{name} {word} \S+/runs/2\S+-{name}-\w+ +\[", out), out


def test_a_scenario_says_that_it_is_left_out_or_expected_to_fail_and_why(scenarios):
    code, out = run(scenarios, "-q", "-rA", "left-out.yaml", "expected.yaml", "better.yaml", "expected-unsure.yaml")
    assert "SKIPPED [1] left-out.yaml: needs a GPU" in out
    assert "XFAIL expected.yaml::expected - the start is too slow" in out
    assert "XPASS better.yaml::better - the start is too slow" in out
    assert "ERROR expected-unsure.yaml::expected-unsure" in out, "what proves nothing was not expected"
    assert code == 1
    assert run(scenarios, "-q", "left-out.yaml", "expected.yaml")[0] == 0


def test_a_failure_that_was_expected_is_no_news_anywhere(scenarios, tmp_path):
    summary = tmp_path / "summary.md"
    code, out = run(scenarios, "-q", "expected.yaml", "passes.yaml", summary=str(summary))
    assert code == 0
    assert "diloco-chaos: " not in out
    text = summary.read_text()
    assert text.startswith("### 1 of 2 scenarios passed, 1 failed as expected\n")
    assert "| expected | FAILED, as expected | " in text
    assert "\n- **expected**: the start is too slow; reintegration " in text


@pytest.mark.parametrize(("options", "said"), [
    (("-o", "chaos_inconclusive=nope"), "chaos_inconclusive = nope: choose from error, skip, fail"),
    (("-o", "chaos_seeds=abc"), "chaos_seeds = abc: it must be a whole number, 1 at least"),
    (("-o", "chaos_tier=weekly"), "chaos_tier = weekly: choose from ci, full"),
    (("--chaos-seeds", "0"), "argument --chaos-seeds: it must be a whole number, 1 at least")])
def test_an_option_that_can_not_be_is_told_in_a_line_before_anything_runs(scenarios, options, said):
    done = subprocess.run([sys.executable, "-m", "pytest", *options, "passes.yaml"], cwd=scenarios, capture_output=True,
                          text=True, check=False)
    assert (done.returncode, done.stdout) == (4, "")
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) < 8


def test_a_place_that_nobody_knows_is_told_once(scenarios):
    code, out = run(scenarios, "-q", "--chaos-on", "mars", "passes.yaml")
    assert code == 1
    assert "During handling" not in out
    assert out.count("no backend 'mars'") <= 2, "above, and in the summary"


def test_pytest_html_links_the_page_of_a_run(scenarios, tmp_path):
    run(scenarios, "-q", "fails.yaml", f"--html={tmp_path}/out/report.html")
    text = (tmp_path / "out" / "report.html").read_text()
    link = re.search(r"(\.\./[^&]*?/runs/2[^&]*?-fails-\w+/report\.html)", text)
    assert link, "beside the test"
    assert (tmp_path / "out" / link[1]).is_file()


def test_allure_gets_the_page_of_a_run(scenarios, tmp_path):
    run(scenarios, "-q", "fails.yaml", f"--alluredir={tmp_path}")
    pages = [path for path in tmp_path.glob("*-attachment.html") if "<b>FAILED</b> fails" in path.read_text()]
    assert len(pages) == 1
