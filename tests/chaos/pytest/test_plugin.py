"""The pytest plugin: takes scenario files and nobody else's, and tells the story of a failure."""

import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest


def collect(folder, *options):
    done = subprocess.run([sys.executable, "-m", "pytest", "--collect-only", "-q", *options, str(folder)],
                          capture_output=True, text=True, cwd=folder, check=False)
    return done.stdout


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine.yaml").write_text("diloco_chaos: 1\nname: mine\ntier: ci\n")
    (tmp_path / "slow.yml").write_text("diloco_chaos: 1  # the header may be followed by a comment\nname: slow\n")
    (tmp_path / "other.yaml").write_text("services:\n  diloco_chaos: 1\n")
    (tmp_path / "later.yaml").write_text("# first\ndiloco_chaos: 1\n")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    return tmp_path


def test_only_files_that_begin_with_the_header_are_taken(folder):
    out = collect(folder)
    assert "mine.yaml::mine" in out
    assert "slow.yml::slow" in out
    assert "other" not in out
    assert "later" not in out
    assert "2 tests collected" in out


def test_a_tier_leaves_the_others_out(folder):
    out = collect(folder, "--chaos-tier", "ci")
    assert "mine.yaml::mine" in out
    assert "slow" not in out


def test_a_scenario_with_problems_fails_with_its_problems_and_no_traceback(tmp_path):
    (tmp_path / "bad.yaml").write_text("diloco_chaos: 1\nname: bad\nclustr: {}\n")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", str(tmp_path)], capture_output=True, text=True,
                          cwd=tmp_path, check=False)
    assert done.returncode == 2, "an error of collection"
    assert "bad.yaml:3:1: unknown key 'clustr'; did you mean 'cluster'?" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_failing_run_prints_its_report_instead_of_a_traceback(tmp_path, scenario_text):
    text = scenario_text("{kill: learner-1, at: 1500ms, restart_after: 1s}", budget=200)
    (tmp_path / "strict.yaml").write_text(text + "checks: {reintegration: {within: 1ms}}\n")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "--chaos-on", "simulated",
                           "--chaos-rerun-inconclusive", "2", str(tmp_path)], capture_output=True, text=True,
                          cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert len(list((tmp_path / "runs").glob("2*"))) == 1, "a run that failed is never repeated"
    assert "✗ reintegration  " in done.stdout
    assert "f1 (kill, 1.5" in done.stdout
    assert re.search(r"\nFAILED strict\.yaml::strict - reintegration .*, limit 1 ms\n", done.stdout)
    assert "repeat  diloco-chaos run --plan" in done.stdout
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize(("seconds", "runs", "said"), [("2s", 3, 2), ("99s", 1, 0)], ids=["inconclusive", "passed"])
def test_a_run_that_proves_nothing_is_repeated_as_often_as_asked_and_that_is_said(tmp_path, seconds, runs, said):
    (tmp_path / "mine.yaml").write_text(f"diloco_chaos: 1\nname: mine\ndeadline: {seconds}\n"
                                        "cluster: {model: quadratic, budget: 60 steps}\n")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "--chaos-on", "simulated",
                           "--chaos-rerun-inconclusive", "2", str(tmp_path)], capture_output=True, text=True,
                          cwd=tmp_path, check=False)
    assert len(list((tmp_path / "runs").glob("2*"))) == runs
    assert done.stdout.count("was inconclusive, and runs again: the deadline of 2 s passed") == said
    assert done.returncode == (1 if said else 0)


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory):
    """One that fails, one that proves nothing, and one that passes."""
    folder = tmp_path_factory.mktemp("scenarios")
    cluster = "cluster: {model: quadratic, learners: 2, budget: 120 steps, step_time: 60ms}\n"
    for name, more in (("fails", "faults: [{kill: learner-1, at: 3s, restart_after: 1s}]\n"
                                 "checks: {reintegration: {within: 1ms}}\n"),
                       ("unsure", "deadline: 2s\n"), ("passes", "")):
        (folder / f"{name}.yaml").write_text(f"diloco_chaos: 1\nname: {name}\n{cluster}{more}")
    return folder


def outcome(folder, *options, ini=""):
    """(exit code, output) of pytest there."""
    (folder / "pytest.ini").write_text(f"[pytest]\nchaos_on = simulated\n{ini}")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-rA", "--color=no", *options], cwd=folder,
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(("options", "ini", "counts"), [
    ((), "", "1 failed, 1 passed, 1 error"), (("--chaos-inconclusive", "fail"), "", "2 failed, 1 passed"),
    ((), "chaos_inconclusive = skip\n", "1 failed, 1 passed, 1 skipped")])
def test_what_proves_nothing_is_told_apart_from_what_failed(scenarios, options, ini, counts):
    code, out = outcome(scenarios, *options, ini=ini)
    assert code == 1
    assert f"\n{counts} in " in out
    assert "Traceback" not in out


def test_one_that_proves_nothing_says_why_in_the_summary(scenarios):
    out = outcome(scenarios, "unsure.yaml")[1]
    assert "\nERROR unsure.yaml::unsure - Failed: the deadline of 2 s passed" in out


def test_several_seeds_are_a_test_each(scenarios):
    code, out = outcome(scenarios, "passes.yaml", "--chaos-seeds", "2", "--chaos-seed", "5")
    assert code == 0
    assert re.findall(r"PASSED (\S+)", out) == ["passes.yaml::passes[seed5]", "passes.yaml::passes[seed6]"]


def test_junit_has_seed_plan_folder_command_and_every_check(scenarios):
    outcome(scenarios, "fails.yaml", "--junitxml", "junit.xml")
    case = ElementTree.parse(scenarios / "junit.xml").getroot().find(".//testcase")
    told = {one.get("name"): one.get("value") for one in case.iter("property")}
    assert told["seed"] == "0"
    assert told["repeat"] == f"diloco-chaos run --plan {told['run']}/plan.json --on simulated"
    assert re.fullmatch(r"failed: .* \(bound ≤ 1 ms\)", told["check reintegration"])
    assert told["check exactly_once"].startswith("passed: 0 violations")


MARKED = """import pytest


@pytest.mark.chaos("mine.yaml", on="simulated", seeds=2)
def test_with_the_run(chaos):
    chaos.sleep("4s")
    chaos.kill("learner-1", restart_after="500ms")
    chaos.wait_rounds(2, within="10s")


@pytest.mark.chaos("mine.yaml", on="simulated")
def test_that_needs_nothing_of_the_run():
    pass
"""


def of_python(folder, scenario, test, *options):
    (folder / "mine.yaml").write_text(scenario)
    (folder / "test_mine.py").write_text(test)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "--strict-markers", *options, "test_mine.py"],
                          capture_output=True, text=True, cwd=folder, check=False)
    return done.returncode, done.stdout


def test_a_marked_test_has_a_run_of_its_scenario_once_a_seed_also_where_it_does_not_ask_for_it(tmp_path, scenario_text):
    code, out = of_python(tmp_path, scenario_text(budget=150), MARKED, "-rA")
    assert code == 0, out
    assert "PASSED test_mine.py::test_with_the_run[seed0]" in out
    assert "PASSED test_mine.py::test_with_the_run[seed1]" in out
    assert "PASSED test_mine.py::test_that_needs_nothing_of_the_run[seed0]" in out
    plans = [(run / "plan.json").read_text() for run in (tmp_path / "runs").glob("2*")]
    assert sorted('"kill"' in plan for plan in plans) == [False, True, True]


def test_a_marked_test_whose_run_did_not_pass_fails_with_its_report(tmp_path, scenario_text):
    strict = scenario_text("{kill: learner-1, at: 1500ms, restart_after: 1s}") + (
        "checks: {reintegration: {within: 1ms}}\n")
    code, out = of_python(tmp_path, strict, MARKED, "-k", "needs_nothing")
    assert code == 1
    assert "✗ reintegration  " in out
    assert "f1 (kill, 1.5" in out
    assert "Traceback" not in out


@pytest.mark.parametrize(("mark", "why"), [
    ('@pytest.mark.chaos("nowhere.yaml")', "no such file, and no scenario of this name"),
    ('@pytest.mark.chaos("mine.yaml", om="simulated")', "a chaos mark takes on, seeds and step_time, not om"),
    ('@pytest.mark.chaos("mine.yaml", step_time="soon")', "soon"),
    ('@pytest.mark.chaos("mine.yaml", seeds=0)', "seeds of a chaos mark is a number of runs, 1 at least, not 0"),
    ("", 'say of which scenario, @pytest.mark.chaos("kill-one")')])
def test_a_mark_that_can_not_be_is_told_in_a_sentence(tmp_path, scenario_text, mark, why):
    code, out = of_python(tmp_path, scenario_text(), f"import pytest\n\n\n{mark}\ndef test_it(chaos):\n    pass\n")
    assert code != 0
    assert why in out
    assert "Traceback" not in out


def modules(tmp_path, *options):
    """What a session of pytest has imported at its end."""
    (tmp_path / "test_mine.py").write_text("def test_mine():\n    pass\n")
    code = ("import sys, pytest\n"
            f"assert pytest.main(['-q', '-p', 'no:cacheprovider', *{options!r}, 'test_mine.py']) == 0\n"
            "print('modules:', *sys.modules)")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    return set(done.stdout.rpartition("modules: ")[2].split())


def test_a_session_without_scenarios_imports_the_plugin_and_nothing_else(tmp_path):
    assert modules(tmp_path) - modules(tmp_path, "-p", "no:diloco-chaos") == {
        "diloco_chaos", "diloco_chaos.chaos", "diloco_chaos.chaos.pytest", "diloco_chaos.chaos.pytest.plugin",
        "diloco_chaos.chaos.pytest.reporting"}
