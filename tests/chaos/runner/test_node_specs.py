"""What a cluster is told of a plan's nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from diloco_chaos.chaos.runner.node_specs import node_specs
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze

OURS = "diloco_chaos: 1\nname: mine\nfaults: [{%s: learner-2, at: 1s}]\n"
COMMANDS = """diloco_chaos: 1
name: theirs
trainer:
  kind: commands
  nodes:
    learner: {count: 2, worker: true, run: "train {name}"}
  progress: [{node: learner, log: 'round=(?P<round>[0-9]+)'}]
  rounds: 10
faults: [{%s: learner-2, at: 1s}]
"""


@pytest.mark.parametrize("text", [OURS, COMMANDS], ids=["ours", "commands"])
@pytest.mark.parametrize(("kind", "alone"), [("node_power_loss", {"learner-2"}), ("drain_node", {"learner-2"}),
                                             ("delete_pod", set())])
def test_who_is_hit_with_its_machine_shares_it_with_no_other(text, kind, alone):
    specs = node_specs(freeze(parse(text % kind), 0), Path("/runs/one"), 0.0)
    assert {spec.name for spec in specs if spec.machine} == alone
