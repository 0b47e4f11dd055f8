"""A partition proves nothing of a trainer that has a connection which passes no link."""

import json
from pathlib import Path

from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze

TRAINER = Path(__file__).parents[2] / "support" / "around_links.py"


def test_a_partition_around_which_rounds_go_on_is_unverified_and_says_why(tmp_path):
    nodes = {name: {"worker": True, "peers": "caught", "run": f"{{python}} {TRAINER} {name} {{run}}/port"}
             for name in ("first", "second")}
    trainer = {"kind": "commands", "rounds": 50, "nodes": nodes,
               "progress": [{"node": name, "log": r"round=(?P<round>\d+)"} for name in nodes]}
    text = (f"diloco_chaos: 1\nname: around\ndeadline: 30s\ntrainer: {json.dumps(trainer)}\nfaults:\n"
            "  - {partition: [first.second, second.first], at: 500ms, for: 1s}\n")
    result = run_plan(freeze(parse(text), 0), tmp_path, NullAudience())
    [verdict] = [one for one in result.judgement.checks if one.name == "faults_verified"]
    assert verdict.verdict == "unknown"
    assert "first and second had a connection that passes no link" in verdict.evidence[0]
    assert "with `--on compose`, `disconnect` cuts such connections" in verdict.evidence[0]
