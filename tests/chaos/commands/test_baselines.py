"""`run --baseline`: what got slower since earlier runs of the same scenario, for CI."""

import json
import shutil

import pytest

from typed import typed

SCENARIO = """
diloco_chaos: 1
name: small
cluster: {model: quadratic, learners: 3, budget: 120 steps, step_time: 60ms, quorum: 1}
deadline: 30s
faults:
  - {kill: learner-1, at: 2s, restart_after: 2s}
checks: {}
"""


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """A scenario's file, and three runs of it."""
    folder = tmp_path_factory.mktemp("before")
    (folder / "small.yaml").write_text(SCENARIO.lstrip())
    done = typed("run", folder / "small.yaml", "--repeat", 3, "--on", "simulated", "--runs-dir", folder / "baseline",
                 "--json", timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def run(folder, *arguments, scenario="small.yaml"):
    return typed("run", folder / scenario, "--on", "simulated", "--runs-dir", folder / "now", *arguments, timeout=200)


def test_the_same_again_is_not_slower_and_runs_the_seeds_that_the_baseline_has(before):
    done = run(before, "--baseline", before / "baseline", "--json")
    told = json.loads(done.stdout)
    assert [each["seed"] for each in told["seeds"]] == [0, 1, 2]
    comparison = told["comparison"]
    assert [way["name"] for way in comparison["ways"]] == ["baseline", "now"]
    assert comparison["slower"] == []
    assert (done.returncode, told["exit_code"]) == (0, 0)


@pytest.fixture(scope="module")
def heavier(before):
    """The baseline as if everything had taken half of the time: runs of today are slower."""
    done = run(before, "--baseline", before / "baseline", "--json")
    content = json.loads(done.stdout)["comparison"]
    for way in content["ways"]:
        for each in way["runs"]:
            for phases in each["recoveries"].values():
                for phase in phases.values():
                    phase["seconds"] = phase["seconds"] and phase["seconds"] / 2
    (before / "quick.json").write_text(json.dumps(content | {"ways": content["ways"][1:]}))
    return before / "quick.json"


def test_a_phase_that_got_slower_fails_with_a_sentence_each(before, heavier):
    done = run(before, "--repeat", 2, "--baseline", heavier, "--slower-by", "20%")
    assert done.returncode == 1, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("✗ ")]
    assert any("got slower" in line for line in said)
    assert "compare.json for --baseline" in done.stdout
    again = run(before, "--repeat", 2, "--baseline", heavier, "--slower-by", "200%")
    assert again.returncode == 0, again.stdout + again.stderr


@pytest.mark.parametrize(("change", "arguments", "message"), [
    (("small", "tiny"), [], "has runs of small, and none of scenario tiny: make one with `diloco-chaos run "),
    (("learner-1", "learner-2"), [], "and seed 0 can't be compared: they have other faults: "),
    (("", ""), ["--repeat", 4], "has no run of seed 3: it has 0, 1 and 2; leave --seed and --repeat out to run those"),
    (("", ""), ["--seed", 1], "one run only is taken of it, which tells nothing of the noise: give --repeat 5, or"),
    (("", ""), ["--retries-inconclusive", 1], "--retries-inconclusive: every seed of --baseline runs once; "),
    (("", ""), ["--slower-by", "fast"], "--slower-by: 'fast' is not a share")])
def test_what_is_no_baseline_gets_a_sentence_and_nothing_runs(before, change, arguments, message):
    (before / "other.yaml").write_text(SCENARIO.lstrip().replace(*change))
    shutil.rmtree(before / "now", ignore_errors=True)
    done = run(before, "--baseline", before / "baseline", *arguments, scenario="other.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (before / "now").exists()


def test_runs_of_another_place_are_no_baseline(before):
    done = typed("run", before / "small.yaml", "--runs-dir", before / "now", "--baseline", before / "baseline")
    assert (done.returncode, done.stdout) == (2, "")
    assert "was made on simulated, and these runs would be on local: type --on simulated, or make one" in done.stderr


def test_slower_than_nothing_and_a_frozen_plan_get_a_sentence(before):
    done = run(before, "--slower-by", "20%")
    assert (done.returncode, done.stderr) == (2, "--slower-by: slower than what? Give --baseline, too\n")
    plan = next((before / "baseline").glob("*/plan.json"))
    done = typed("run", "--plan", plan, "--baseline", before / "baseline")
    assert done.returncode == 2
    assert done.stderr.startswith("--baseline: a frozen plan is one run, which tells nothing of the noise; ")
