"""A job with a watchdog whose main thread stands for a while, with and without a bug in who feeds the watchdog."""

from pathlib import Path

import pytest

JOB = Path(__file__).parents[1] / "support/watched_job.py"
SCENARIO = """
diloco_chaos: 1
name: watched
trainer:
  kind: commands
  nodes:
    job:
      worker: true
      run: "{{python}} {job} {{run}}/{{name}}.json {bug}"
      restart: on-failure
      restart_delay: 200ms
  progress:
    - {{node: job, log: '^step=(?P<round>\\d+) loss=(?P<loss>\\S+)'}}
  rounds: 140
deadline: 30s
faults:
  - {{hang: job, {how}, when: {{node: job, event: step, count: 25}}, for: 4s}}
checks:
  profile: resumable
  no_global_stall: {{max_gap: 3s}}
"""


@pytest.fixture(params=["holding: nothing", "in: network"])
def how(request):
    """Where its main thread stands."""
    return request.param


def test_a_watchdog_that_ends_a_job_whose_main_thread_hangs_passes(judged, how):
    code, found, _ = judged(SCENARIO.format(job=JOB, bug="", how=how))
    assert (code, found["restarts"], set(found.values())) == (0, "passed", {"passed"}), found


def test_a_watchdog_that_another_thread_feeds_is_found(judged, how):
    code, found, _ = judged(SCENARIO.format(job=JOB, bug="wrong-thread", how=how))
    assert (code, found["no_global_stall"]) == (1, "failed"), found
