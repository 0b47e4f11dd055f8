"""A job whose device fails, with and without a bug. The CUDA runtime is a stub: no GPU is there."""

from pathlib import Path

import pytest

from tests.support.stub_runtime import device, stub_runtime

JOB = Path(__file__).parents[1] / "support/device_job.py"
SCENARIO = """
diloco_chaos: 1
name: device
trainer:
  kind: commands
  nodes:
    job:
      worker: true
      run: "{{python}} {job} {{run}}/{{name}}.json {library} {bug}"
      restart: on-failure
      restart_delay: 200ms
  progress:
    - {{node: job, log: '^step=(?P<round>\\d+) loss=(?P<loss>\\S+)'}}
  rounds: 100
deadline: 25s
faults:
  - {{cuda: job, {what}, when: {{node: job, event: step, count: 25}}, for: 2s}}
checks:
  profile: resumable
  no_global_stall: {{max_gap: 6s}}
  same_as_uninterrupted: {{}}
"""


@pytest.fixture
def run(judged, tmp_path):
    stub_runtime(tmp_path)
    library = device(tmp_path)
    return lambda what, bug="": judged(SCENARIO.format(job=JOB, library=library, what=what, bug=bug))


@pytest.mark.parametrize("what", ["error: ecc", "error: lost", "error: memory", "delay: 100ms", "hang: true"])
def test_a_job_that_ends_at_an_error_and_is_started_again_passes(run, what):
    code, found, _ = run(what)
    assert (code, set(found.values())) == (0, {"passed"}), found


def test_a_job_that_swallows_the_error_is_found_by_a_loss_that_stands(run):
    code, found, _ = run("error: ecc", "swallows")
    assert (code, found["same_as_uninterrupted"], found["faults_verified"]) == (1, "failed", "passed"), found


def test_a_job_that_trusts_a_broken_process_again_is_found(run):
    code, found, _ = run("error: ecc", "retries")
    assert (code, found["no_global_stall"], found["faults_verified"]) == (1, "failed", "passed"), found
