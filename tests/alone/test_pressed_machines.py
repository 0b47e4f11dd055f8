"""Jobs on a machine that is short of memory, or whose disk is busy, with and without a bug that this brings out."""

import tempfile
from pathlib import Path

import pytest

from judging import judged_in

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests/support"
SCENARIO = """
diloco_chaos: 1
name: pressed
trainer:
  kind: commands
  nodes:
    job: {{worker: true, run: "{{python}} {job} {bug}", restart: on-failure, restart_delay: 300ms}}
  progress: [{{node: job, log: '^step=(?P<round>\\d+) loss=(?P<loss>\\S+)'}}]
  rounds: {rounds}
deadline: 60s
faults:
{faults}
checks:
  profile: resumable
  {check}
"""


@pytest.fixture
def pressed():
    """Run a scenario on a disk: in memory, where temporary files may be, no page is read again, and nothing is busy.
    Where this machine has so much that it was never short, the check in question can't tell: the test is skipped."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="pressed-") as folder:
        def run(scenario, check="faults_verified"):
            code, found, said = judged_in(Path(folder), scenario)
            if found[check] == "unknown":
                pytest.skip(next((line.strip() for line in said.splitlines() if "observed:" in line), check))
            return code, found, said
        yield run


def short_of_memory(bug=""):
    return SCENARIO.format(
        job=f"{SUPPORT / 'caching_job.py'} {{run}}/data/{{name}}", bug=bug, rounds=150,
        check="no_global_stall: {max_gap: 2s}",
        faults="  - {memory_pressure: job, size: 1500MB, when: {node: job, event: step, count: 30}, for: 4s}")


def busy_disk(bug=""):
    return SCENARIO.format(
        job=f"{SUPPORT / 'saving_job.py'} {{run}}/state/{{name}}", bug=bug, rounds=100,
        check="resumed: {rounds: 25}",
        faults="  - {io_pressure: job, workers: 64, when: {node: job, event: step, count: 25}, for: 2500ms}\n"
               "  - {kill: job, when: {node: job, event: step, count: 85}, restart_after: 300ms}")


def test_who_gives_memory_back_and_goes_on_passes(pressed):
    code, found, said = pressed(short_of_memory())
    assert (code, set(found.values())) == (0, {"passed"}), said
    assert "major faults" in said


def test_who_waits_for_memory_before_it_goes_on_is_found(pressed):
    code, found, said = pressed(short_of_memory("waits"), "no_global_stall")
    assert (code, found["no_global_stall"]) == (1, "failed"), said


def test_who_saves_on_though_it_takes_long_passes(pressed):
    code, found, said = pressed(busy_disk())
    assert (code, set(found.values())) == (0, {"passed"}), said
    assert "to be on the run's disk" in said


def test_who_never_saves_again_after_a_slow_disk_is_found(pressed):
    code, found, said = pressed(busy_disk("impatient"), "resumed")
    assert (code, found["resumed"]) == (1, "failed"), said
