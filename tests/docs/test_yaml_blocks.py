"""Every piece of YAML in the documentation is valid: as a scenario, where it is one or a part of one.

How a fragment becomes a scenario: a list is its faults; keys of a scenario stand below a head; `nodes` are those of a
trainer of commands whose workers tell their rounds in some way; anything else belongs to a file of another kind.
"""

from textwrap import dedent, indent

import pytest
from pydantic import TypeAdapter
from ruamel.yaml import YAML

from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.scenario.bounds import Bounds
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.model import Scenario, named
from diloco_chaos.faults import FAULTS, AnyEntry
from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
from diloco_chaos.harness.places.slurm.settings import SlurmSettings
from doc_blocks import blocks, in_backticks

HEAD = "diloco_chaos: 1\nname: fragment\n"
BLOCKS = blocks("yaml")


def read(text):
    return YAML(typ="safe").load(text)


def scenario(text):
    """The text of a scenario that this text is, or is a part of; empty where it belongs to another file."""
    if text.startswith("diloco_chaos: 1\n"):
        return text
    text = dedent(text)
    content = read(text)
    if isinstance(content, list):
        return f"{HEAD}faults:\n{indent(text, '  ')}"
    if content.keys() <= {field.alias or name for name, field in Scenario.model_fields.items()}:
        return HEAD + text
    if content.keys() == {"nodes"}:
        workers = [kind for kind, node in content["nodes"].items() if node.get("worker")]
        progress = [f"{{node: {kind}, written: true}}" for kind in workers]
        return f"{HEAD}trainer:\n  kind: commands\n{indent(text, '  ')}  progress: [{', '.join(progress)}]\n"
    return ""


@pytest.mark.parametrize("block", [block for block in BLOCKS if scenario(block.text)], ids=str)
def test_a_scenario_or_a_part_of_one_is_valid(block):
    parse(scenario(block.text), str(block))


@pytest.mark.parametrize("block", [block for block in BLOCKS if not scenario(block.text)], ids=str)
def test_any_other_file_has_the_keys_of_its_kind(block):
    content = YAML(typ="safe", pure=True).load(block.text.replace("\non:", "\n'on':"))
    if content.keys() == {"commands"}:
        for settings in (KubernetesSettings, SlurmSettings):
            settings.model_validate(content)
    elif "jobs" in content:  # a workflow of GitHub's: `actionlint` has looked at its like in .github
        assert content["on"] == ["pull_request"]
        assert content["permissions"] == {"contents": "read"}
        assert all(step.keys() & {"uses", "run"} for job in content["jobs"].values() for step in job["steps"])
    else:  # GitLab's
        assert all(isinstance(line, str) for job in content.values() for line in job["script"])


FAULT: TypeAdapter = TypeAdapter(AnyEntry)


def flow(text):
    """What is written in one line, as YAML; None where it is none."""
    try:
        return read(text)
    except Exception:
        return None


FAULTS_IN_LINES = [code for code in in_backticks(r"\{\w+: [^`]+\}") if "..." not in code.text
                   and next(iter(flow(code.text) or {}), None) in FAULTS]


@pytest.mark.parametrize("code", FAULTS_IN_LINES, ids=str)
def test_a_fault_in_a_line_is_one(code):
    entry = flow(code.text)
    entry |= {} if entry.keys() & {"at", "when", "after"} else {"at": "1s"}
    FAULT.validate_python(named(entry, ["learner-1"]))


BOUNDS_IN_LINES = [code for code in in_backticks(r"\w+: \{[^`]*\}") if "..." not in code.text
                   and next(iter(flow(code.text) or {}), None) in CHECKS]


@pytest.mark.parametrize("code", BOUNDS_IN_LINES, ids=str)
def test_a_bound_in_a_line_is_one(code):
    Bounds.model_validate(flow(code.text))


def test_there_are_lines_of_both_kinds():
    assert len(FAULTS_IN_LINES) >= 3
    assert len(BOUNDS_IN_LINES) > 5
