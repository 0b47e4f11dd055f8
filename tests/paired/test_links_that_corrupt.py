"""Two that exchange values over a link that turns over bits, with and without a look at what came."""

from pathlib import Path

JOB = Path(__file__).parents[1] / "support/exchanging_job.py"
SCENARIO = """
diloco_chaos: 1
name: garbled
trainer:
  kind: commands
  nodes:
    a: {{worker: true, listens: true, ready: {{port: true}}, run: "{{python}} {job} serve {{port}} {bug}"}}
    b: {{worker: true, run: "{{python}} {job} ask {{a.port}} {bug}"}}
  progress:
    - {{node: a, log: '^step=(?P<round>\\d+) loss=(?P<loss>\\S+)'}}
    - {{node: b, log: '^step=(?P<round>\\d+) loss=(?P<loss>\\S+)'}}
  rounds: 60
deadline: 60s
faults:
  - {{corrupt_link: b.a, at: 2s, for: 2s, direction: downstream, every: 2kB}}
checks:
  members_agree: {{}}
  no_global_stall: {{max_gap: 10s}}
"""


def test_who_checks_what_came_asks_again_and_passes(judged):
    code, found, said = judged(SCENARIO.format(job=JOB, bug=""))
    assert (code, set(found.values())) == (0, {"passed"}), said
    assert "turned over" in said


def test_who_trusts_what_came_is_found(judged):
    code, found, said = judged(SCENARIO.format(job=JOB, bug="trusts"))
    assert (code, found["losses_are_numbers"]) == (1, "failed"), said
