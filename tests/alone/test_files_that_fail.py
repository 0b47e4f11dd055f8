"""A job whose disk is full for a while, and that is killed afterwards, with and without bugs in how it saves."""

from pathlib import Path

import pytest

JOB = Path(__file__).parents[1] / "support/saving_job.py"
SCENARIO = """
diloco_chaos: 1
name: full
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
faults:
  - io: job
    path: "{{run}}/state/*"
    error: ENOSPC
    after_bytes: 5kB
    when: {{node: job, event: step, count: 25}}
    for: 2s
  - {{kill: job, after: {{fault: f1, wait: 200ms}}, restart_after: 300ms}}
checks:
  profile: resumable
  no_global_stall: {{max_gap: {gap}}}
"""


def test_who_ends_rather_than_go_on_without_its_state_passes(judged):
    code, found, said = judged(SCENARIO.format(job=JOB, bug="", gap="10s"))
    assert (code, set(found.values())) == (0, {"passed"}), found
    assert "ENOSPC for" in said


@pytest.mark.parametrize(("bug", "gap", "check"), [
    ("swallows", "10s", "no_unplanned_exit"), ("retries", "1s", "no_global_stall")])
def test_a_bug_in_how_it_saves_is_found(judged, bug, gap, check):
    code, found, _ = judged(SCENARIO.format(job=JOB, bug=bug, gap=gap))
    assert (code, found[check]) == (1, "failed"), found
