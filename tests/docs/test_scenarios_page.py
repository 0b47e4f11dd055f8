"""docs/scenarios.md says of every key what the software says: which there are, and what they are if nobody says."""

import re
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from ruamel.yaml import YAML

from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.scenario.bounds import Bounds
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.faults import FAULTS
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.model.spec import MODELS
from diloco_chaos.harness.trainer.plugin import DecoupledDiLoCo

PAGE = (Path(__file__).parents[2] / "docs" / "scenarios.md").read_text()
NOBODY_WRITES = {"joining", "seed"}
"""A plan's, not a person's."""
IN_WORDS = {"warmup", "speeds"}
"""Their defaults follow from others, or are nothing."""
OF_EVERY_FAULT = {"kind", "targets", "at", "when", "after", "id", "domains"}
BY_FREEZING = {"seed"}


def section(title):
    """What stands below a heading, up to the next of its rank."""
    rank = title.split(" ")[0]
    return re.split(rf"(?m)^#{{1,{len(rank)}}} ", PAGE.split(f"\n{title}\n", 1)[1])[0]


def rows(text):
    """The cells of every table's rows: what stands below its head and the line under that."""
    found, below_head = [], False
    for line in text.splitlines():
        below_head = line.startswith("|") and (below_head or line.startswith("|---"))
        if below_head and not line.startswith("|---"):
            found.append([cell.strip() for cell in line.split("|")[1:-1]])
    return found


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def cluster_rows():
    """(key, default, meaning) of each; a row may be about two."""
    for keys, defaults, meaning in rows(section("## cluster")):
        names = quoted(keys)
        values = [value.strip() for value in defaults.replace(" both", "").split(",")]
        for name, value in zip(names, values * len(names) if len(values) == 1 else values, strict=True):
            yield name, value.strip("`"), meaning


def test_the_page_has_every_key_of_a_scenario():
    assert {name for row in rows(PAGE.split("\n## cluster\n")[0]) for name in quoted(row[0])} == {
        field.alias or name for name, field in Scenario.model_fields.items()}


def test_the_page_has_every_setting_of_the_built_in_trainer_once():
    names = [name for name, _, _ in cluster_rows()]
    assert sorted(names) == sorted(set(TrainerConfig.model_fields) - NOBODY_WRITES)


@pytest.mark.parametrize(("name", "value", "meaning"), [*cluster_rows()], ids=lambda cell: cell[:20])
def test_a_settings_default_is_what_the_page_says(name, value, meaning):
    if name not in IN_WORDS:
        assert getattr(TrainerConfig(**{name: YAML().load(value)}), name) == getattr(TrainerConfig(), name)


@pytest.mark.parametrize(("name", "value", "meaning"), [*cluster_rows()], ids=lambda cell: cell[:20])
def test_what_can_be_chosen_stands_there(name, value, meaning):
    annotation = TrainerConfig.model_fields[name].annotation
    choices = set(get_args(annotation)) if get_origin(annotation) is Literal else set(
        MODELS) - {"quadratic", "quadratic24"} if name == "model" else set()
    assert choices - {"synchronous"} <= {value, *quoted(meaning)}


def fault_rows():
    for row in rows(section("## faults")):
        for kind in quoted(row[0]):
            if kind in FAULTS:
                yield kind, " ".join(row[1:])


def test_the_page_has_every_fault_and_no_other():
    kinds = {kind for kind, _ in fault_rows()} | {"storm"}  # which has a section of its own
    assert kinds == set(FAULTS)


@pytest.mark.parametrize(("kind", "row"), [*fault_rows()], ids=lambda cell: cell[:20])
def test_a_faults_own_keys_stand_in_its_row(kind, row):
    fault = FAULTS[kind]
    keys = {field.alias or name for name, field in fault.model_fields.items()} - OF_EVERY_FAULT - BY_FREEZING
    links = {"for", "direction", "toxicity"} if kind in LINKS else set()  # said once for all of them
    lasts = set() if fault.reversible else {"for"}
    assert keys - links - lasts <= set(quoted(row))


LINKS = {"latency", "bandwidth", "partition", "flapping", "timeout", "reset", "slow_close", "slicer", "limit_data",
         "corrupt_link"}


def test_the_page_has_every_failpoint():
    line = next(line for line in PAGE.splitlines() if line.startswith("Failpoints: "))
    assert set(quoted(line)) - {"recovery: peer"} == set(DecoupledDiLoCo.all_failpoints)


def check_rows():
    return [(quoted(row[0])[0], row[1]) for row in rows(section("## checks"))]


def test_the_page_has_every_check_with_a_bound():
    assert {name for name, _ in check_rows()} == {name for name in Bounds.model_fields if name in CHECKS}


@pytest.mark.parametrize(("name", "cell"), check_rows(), ids=lambda cell: cell[:20])
def test_a_checks_default_is_what_the_page_says(name, cell):
    written = next((text for text in quoted(cell) if text.startswith("{")), "")
    content = YAML(typ="safe").load(written)
    if cell.startswith("none"):
        assert not getattr(Bounds(), name)
        Bounds.model_validate({name: [content] if name == "participation" else content})
    elif "..." not in written:
        assert getattr(Bounds.model_validate({name: content}), name) == getattr(Bounds(), name)
