"""Runs of jobs that sleep for most of a round: `make test` runs these tests two at a time. Most plant a bug in such a
job, and it must be found."""

from pathlib import Path

import pytest

_SAVING = """
diloco_chaos: 1
name: saving
trainer:
  kind: commands
  nodes:
    job:
      worker: true
      run: "{{python}} {job} {{run}}/state/{{name}} {bug}"
      state: "{{run}}/state/{{name}}"
      restart: on-failure
      restart_delay: 300ms
  progress:
    - {{node: job, log: '^step=(?P<round>\\d+) loss=(?P<loss>\\S+)'}}
  rounds: 100
deadline: 20s
"""


@pytest.fixture
def saving(judged):
    """Run the job that saves its state every ten rounds, with a bug in that, and with these faults and checks."""
    job = Path(__file__).parents[1] / "support/saving_job.py"
    return lambda rest, bug="": judged(_SAVING.format(job=job, bug=bug) + rest)
