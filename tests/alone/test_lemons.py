"""A broken node, and workers that leave it out, or trust it again."""

from pathlib import Path

JOB = Path(__file__).parents[1] / "support/excluding_job.py"
SCENARIO = """
diloco_chaos: 1
name: lemon
trainer:
  kind: commands
  nodes:
    w:
      count: 3
      worker: true
      run: "{{python}} {job} {{run}}/state {{name}} {bug}"
      restart: on-failure
      restart_delay: 200ms
      exits: [0]
  progress:
    - {{node: w, log: '^step=(?P<round>\\d+) loss=(?P<loss>\\S+)'}}
  shared: false
  rounds: 200
deadline: 30s
faults:
  - {{lemon: w-2, after_start: 300ms, when: {{node: w-2, event: step, count: 50}}}}
checks:
  restarts: {{most: 3}}
  self_healing: {{within: 2s}}
"""


def test_a_scheduler_that_gives_a_broken_node_up_passes(judged):
    code, found, said = judged(SCENARIO.format(job=JOB, bug=""))
    assert (code, found["restarts"], set(found.values())) == (0, "passed", {"passed"}), said
    assert "w-2 failed 2 times" in " ".join(said.split())


def test_a_node_that_is_trusted_again_and_again_is_found(judged):
    code, found, said = judged(SCENARIO.format(job=JOB, bug="trusts"))
    assert (code, found["restarts"]) == (1, "failed"), said
