"""A schedule as a scenario file that a person can read, keep and repeat."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from ruamel.yaml import YAML

from diloco_chaos.chaos.exploration.generate import Document, with_faults
from diloco_chaos.chaos.scenario.document import HEADER
from diloco_chaos.chaos.scenario.model import DOMAIN, Scenario
from diloco_chaos.harness.places.base import ABILITIES


def text(scenario: Scenario, faults: Sequence[Document], name: str, description: str) -> str:
    """The scenario with these faults, as YAML."""
    made = with_faults(scenario, faults, frozenset(ABILITIES))
    assert made is not None, "only what was run is written"
    whole = made.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    content = {"name": name, "description": description, "trainer": whole.get("trainer", {}),
               "cluster": whole.get("cluster", {}), "deadline": f"{scenario.deadline:g}s",
               "domains": whole.get("domains", {}) if _at_domains(faults) else {},
               "faults": [dict(fault) for fault in faults], "checks": whole.get("checks", {})}
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 110
    out = StringIO()
    out.write(HEADER + "\n")
    yaml.dump({key: value for key, value in content.items() if value not in ({}, [])}, out)
    return out.getvalue()


def _at_domains(faults: Sequence[Document]) -> bool:
    """Return whether one of these is aimed at a failure domain."""
    return any(isinstance(value, str) and value.startswith(DOMAIN) for fault in faults for value in fault.values())
