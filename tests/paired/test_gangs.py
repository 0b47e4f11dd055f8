"""Two workers that die together and go on from checkpoints of their own, with and without a bug in how they do that."""

from pathlib import Path

import pytest

JOB = Path(__file__).parents[1] / "support/gang_job.py"
SCENARIO = """
diloco_chaos: 1
name: gang
trainer:
  kind: commands
  nodes:
    serve:
      worker: true
      listens: true
      ready: {{log: ''}}
      run: "{{python}} {job} serve {{port}} {{run}}/state {bug}"
      restart: on-failure
      restart_delay: 200ms
    join:
      worker: true
      run: "{{python}} {job} join {{serve.port}} {{run}}/state {bug}"
      restart: on-failure
      restart_delay: 200ms
  progress:
    - {{node: serve, log: '^round=(?P<round>\\d+) loss=(?P<loss>\\S+)'}}
    - {{node: join, log: '^round=(?P<round>\\d+) loss=(?P<loss>\\S+)'}}
  rounds: 90
deadline: 40s
faults: [{faults}]
checks: resumable
"""
ONE = "{kill: join, when: {node: join, event: step, count: 55}, restart_after: 300ms}"
BOTH = "{kill: [serve, join], when: {node: join, event: step, count: 55}, restart_after: 300ms}"
TWICE = ("{kill: [serve, join], when: {node: join, event: step, count: 25}, restart_after: 300ms}, "
         "{kill: [serve, join], when: {node: join, event: step, count: 70}, restart_after: 300ms}")
BUGS = {
    "ahead": (ONE, "resumed"),
    "older": (BOTH, "rounds_repeat"),
    "unsaved": (TWICE, "resumed"),
}
"""Both go on at a number that is too high; one has older weights; nothing is saved after a restart."""


@pytest.fixture
def run(judged):
    return lambda faults, bug="": judged(SCENARIO.format(job=JOB, bug=bug, faults=faults))


@pytest.mark.parametrize("faults", [ONE, TWICE], ids=["one is killed", "both, twice"])
def test_workers_that_die_together_and_restore_everything_pass(run, faults):
    code, found, _ = run(faults)
    assert (code, found["rounds_repeat"], set(found.values())) == (0, "passed", {"passed"}), found


@pytest.mark.parametrize("bug", BUGS)
def test_what_they_do_not_restore_is_found(run, bug):
    faults, check = BUGS[bug]
    code, found, _ = run(faults, bug)
    assert (code, found[check]) == (1, "failed"), found
