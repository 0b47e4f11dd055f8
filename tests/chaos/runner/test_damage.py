"""Damaged checkpoints of foreign trainers: what the successor reads is a test, what it passes over is none."""

import json

from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze

TRAINER = '''
import pathlib, sys, time
keep = pathlib.Path(sys.argv[1])
keep.mkdir(parents=True, exist_ok=True)
newest = max(keep.iterdir(), key=lambda file: int(file.suffix[1:]), default=None)
made = int(newest.suffix[1:]) if newest and newest.read_text().endswith("end") else 0
while True:
    made += 1
    print(f"round={made}", flush=True)
    if made % 5 == 0:
        (keep / f"step.{made}").write_text("x" * 1000 + "end")
    time.sleep(0.02)
'''


def verified(tmp_path, fault):
    (tmp_path / "train.py").write_text(TRAINER)
    trainer = {"kind": "commands", "rounds": 60, "progress": [{"node": "w", "log": r"round=(?P<round>\d+)"}],
               "nodes": {"w": {"worker": True, "run": f"{{python}} {tmp_path}/train.py {{run}}/state/w",
                               "state": "{run}/state/w"}}}
    text = (f"diloco_chaos: 1\nname: damage\ndeadline: 30s\ntrainer: {json.dumps(trainer)}\nfaults:\n  - {fault}\n"
            f"checks: {{no_global_stall: {{max_gap: 5s}}, rounds_never_go_back: {{rounds: 60}}}}\n")
    result = run_plan(freeze(parse(text), 0), tmp_path, NullAudience())
    return next(verdict for verdict in result.judgement.checks if verdict.name == "faults_verified")


def test_the_newest_checkpoint_is_damaged_and_the_successor_reads_it(tmp_path):
    verdict = verified(tmp_path, "{truncate: w, at: 500ms, restart_after: 200ms}")
    assert verdict.verdict == "passed"
    assert "read afterwards" in verdict.evidence[0]


def test_damage_to_a_checkpoint_that_the_successor_passes_over_proves_nothing(tmp_path):
    verdict = verified(tmp_path, "{truncate: w, which: step.5, at: 500ms, restart_after: 200ms}")
    assert verdict.verdict == "unknown"
    assert "step.5 damaged, but no process read that afterwards" in verdict.evidence[0]
