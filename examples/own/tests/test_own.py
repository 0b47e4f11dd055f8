"""The trainer passes as it is, and each of six bugs planted in it is found by the check that is named for it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]

# What is replaced, by what, and the checks of which one fails. A worker that starts late shows the first bug before the
# steady state: its rounds begin again as those of another epoch would, and only their losses tell.
BUGS = {
    "whoever has made the fewest rounds gives the weights": (
        "dist.ReduceOp.MAX", "dist.ReduceOp.MIN", "rounds_never_go_back rounds_repeat"),
    "who comes keeps its own weights": (
        "    group.broadcast(weights, int(most) % 1000).wait()\n", "", "digests_agree"),
    "the survivor ends with the one that was killed": (
        "except (Regroup, RuntimeError) as error", "except Regroup as error", "no_unplanned_exit"),
    "a group that trains looks for nobody who wants to come": (
        "if generation(store) != number:", "if made < 20 and generation(store) != number:", "reintegration"),
    "who was left behind stands for five seconds": (
        "{str(error).splitlines()[0]}\")\n            leave(store, number)\n\n",
        "{str(error).splitlines()[0]}\")\n            leave(store, number)\n"
        "            time.sleep(0 if isinstance(error, Regroup) else 5)\n\n", "no_global_stall"),
    "the dead are waited for": (
        "while time.monotonic() - since < QUIET_S:", "while there < 2:", "no_global_stall"),
}


@pytest.fixture
def verdicts(tmp_path):
    """Of a scenario on the trainer with something in it replaced: (exit code, check -> verdict)."""
    def run(old="", new="", *, scenario="kill-one"):
        shutil.copytree(HERE / "scenarios", tmp_path / "scenarios", dirs_exist_ok=True)
        source = (HERE / "train.py").read_text()
        assert source.count(old) == 1 or not old, f"the trainer has changed: {old!r} is not in it once"
        (tmp_path / "train.py").write_text(source.replace(old, new) if old else source)
        done = subprocess.run(
            [Path(sys.executable).with_name("diloco-chaos"), "run", f"scenarios/{scenario}.yaml",
             "--retries-inconclusive", "2"],
            cwd=tmp_path, capture_output=True, text=True, check=False)
        print(done.stdout)  # what pytest shows where a test fails
        report = max(tmp_path.glob("runs/*/report.json"))
        return done.returncode, {check["name"]: check["verdict"] for check in json.loads(report.read_text())["checks"]}
    return run


def test_it_passes_as_it_is(verdicts):
    code, found = verdicts()
    assert (code, set(found.values())) == (0, {"passed"}), found


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(verdicts, bug):
    old, new, checks = BUGS[bug]
    code, found = verdicts(old, new)
    assert (code, "failed" in {found.get(check) for check in checks.split()}) == (1, True), found


def test_a_bit_that_turns_over_on_the_way_is_found(verdicts):
    """One in the numbers leaves two workers that differ, or one without a number; one in a length ends the process, or
    leaves both waiting. Which of them comes first is chance."""
    code, found = verdicts(scenario="garbled")
    assert (code, found["faults_verified"]) == (1, "passed"), found
    failed = {name for name, verdict in found.items() if verdict == "failed"}
    assert failed & {"digests_agree", "losses_are_numbers", "no_unplanned_exit", "no_global_stall"}, found
