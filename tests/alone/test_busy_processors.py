"""Two workers of which one gets few of the processors for a while, with and without a bug in how the other waits."""

import os
from pathlib import Path

JOB = Path(__file__).parents[1] / "support/paired_job.py"
SCENARIO = """
diloco_chaos: 1
name: busy
trainer:
  kind: commands
  nodes:
    a: {{worker: true, run: "{{python}} {job} {{run}}/state a b"}}
    b: {{worker: true, run: "{{python}} {job} {{run}}/state b a {bug}"}}
  progress:
    - {{node: a, log: '^step=(?P<round>\\d+) loss=(?P<loss>\\S+) members=(?P<members>\\d+)'}}
    - {{node: b, log: '^step=(?P<round>\\d+) loss=(?P<loss>\\S+) members=(?P<members>\\d+)'}}
  rounds: 50
deadline: 60s
faults:
  - {{cpu_pressure: a, workers: {workers}, when: {{node: b, event: step, count: 12}}, for: 4s}}
checks:
  no_global_stall: {{max_gap: 5s}}
  none_left_out: {{within: 3s}}
  self_healing: off  # the pace is what the processors allow
"""


def busy(bug=""):
    return SCENARIO.format(job=JOB, bug=bug, workers=4 * len(os.sched_getaffinity(0)))


def test_who_waits_for_a_slow_peer_passes(judged):
    code, found, said = judged(busy())
    assert (code, set(found.values())) == (0, {"passed"}), said
    assert "run delay" in said


def test_who_leaves_a_slow_peer_out_for_ever_is_found(judged):
    code, found, said = judged(busy("impatient"))
    assert (code, found["none_left_out"]) == (1, "failed"), said
