"""A node that promises to take along what it has started is held to it."""

import json

import pytest

from diloco_chaos.chaos.checks.base import Unknown
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.base.lines import text
from diloco_chaos.harness.record.tape.reading import Tape
from recorded_events import an_event


def found(*ends, says="fail"):
    """What the check finds where nodes ended: (t, node, what each left behind)."""
    kinds = {"w": {"run": "ls", "worker": True, "count": 2, "left_behind": says}, "other": {"run": "ls"}}
    trainer = {"kind": "commands", "nodes": kinds, "progress": [{"node": "w", "written": True}]}
    plan = freeze(parse(f"diloco_chaos: 1\nname: x\ntrainer: {json.dumps(trainer)}\n"
                        "faults: [{terminate: w-1, at: 1s, restart_after: 1s}]\n"), 0)
    events = [an_event(t, "harness", 0, "exit", {"target": node, "incarnation": 0, "status": 0, "left": left})
              for t, node, left in ends]
    return CHECKS["left_behind"](History(plan, Tape([*events, an_event(9, "harness", 0, "end",
                                                                       {"outcome": "finished"})])))


def test_a_node_that_left_nothing_behind_passes():
    finding = found((1.0, "w-1", []), (2.0, "w-2", []))
    assert (finding.holds, finding.measured) == (True, "0 of 2 ends")


def test_a_node_that_left_a_process_behind_fails_with_its_command():
    finding = found((1.0, "w-1", ["17 python loader.py"]), (2.0, "w-2", []))
    assert (finding.holds, finding.measured) == (False, "1 of 2 ends")
    assert text(finding.evidence[0]) == "w-1.0 ended at 1.00 s, and left behind: 17 python loader.py"


def test_a_node_that_promises_nothing_is_not_held_to_it():
    assert found((1.0, "other", ["17 python loader.py"]), (2.0, "w-1", [])).holds


@pytest.mark.parametrize("says", ["end", "keep"])
def test_where_no_node_promises_anything_nothing_is_judged(says):
    assert found((1.0, "w-1", ["17 python loader.py"]), says=says) is None


@pytest.mark.parametrize("ends", [[], [(1.0, "w-1", None)], [(1.0, "other", [])]])
def test_a_node_of_whose_end_nothing_is_known_proves_nothing(ends):
    with pytest.raises(Unknown, match="never ended by itself, or this place does not tell"):
        found(*ends)
