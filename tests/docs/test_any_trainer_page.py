"""docs/any-trainer.md says of every bound what it is if nobody says."""

import re
from pathlib import Path

from ruamel.yaml import YAML

from diloco_chaos.chaos.scenario.bounds import Bounds

PAGE = (Path(__file__).parents[2] / "docs" / "any-trainer.md").read_text()


def test_the_bounds_that_hold_if_nothing_is_said_are_those_of_the_software():
    line = next(line for line in PAGE.splitlines() if line.startswith("Defaults: `no_global_stall"))
    for written in re.findall(r"`([^`]+)`", line):
        (name, bound), = YAML(typ="safe").load(written).items()
        assert getattr(Bounds.model_validate({name: bound}), name) == getattr(Bounds(), name)
