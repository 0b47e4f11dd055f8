"""A broken node: workers that leave it out, or trust it again, and a spare that takes its place."""

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
{spare}
  progress:
    - {{node: w, log: '^step=(?P<round>\\d+) loss=(?P<loss>\\S+)'}}
  shared: false
  rounds: 300
deadline: 30s
faults:
  - {{lemon: w-2, after_start: 700ms, when: {{node: w-2, event: step, count: 80}}}}
{fault}
checks:
  restarts: {{most: 3}}
  self_healing: {{within: 2s}}
{check}
"""
SPARE = f"""\
    spare:
      worker: true
      spare: true
      run: "{{python}} {JOB} {{run}}/state {{name}}"
"""


def lemon(bug="", spare="", fault=""):
    check = "  blast_radius: off" if spare else ""  # the spare trains on when all others are done
    text = SCENARIO.format(job=JOB, bug=bug, spare=spare, fault=fault, check=check)
    told = "    - {node: spare, log: '^step=(?P<round>\\d+) loss=(?P<loss>\\S+)'}\n"
    return text.replace("  shared: false", f"{told}  shared: false") if spare else text


def test_a_scheduler_that_gives_a_broken_node_up_passes(judged):
    code, found, said = judged(lemon())
    assert (code, found["restarts"], set(found.values())) == (0, "passed", {"passed"}), said
    assert "w-2 failed 2 times" in " ".join(said.split())


def test_a_node_that_is_trusted_again_and_again_is_found(judged):
    code, found, said = judged(lemon("trusts"))
    assert (code, found["restarts"]) == (1, "failed"), said


def test_a_spare_takes_a_broken_nodes_place_and_trains(judged):
    replaced = "  - {replace: w-2 with spare, at: 3500ms}"
    code, found, said = judged(lemon("trusts", SPARE, replaced))
    assert (code, found["reintegration"], set(found.values())) == (0, "passed", {"passed"}), said
