"""Tables of the documentation have every row that the software has, and no other."""

import re
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from diloco_chaos.chaos.pytest.plugin import _OPTIONS as OF_PYTEST
from diloco_chaos.chaos.registry import CHECKS
from diloco_chaos.chaos.report.forms.registry import GROUP as REPORTS
from diloco_chaos.harness.base.extras import Extra
from diloco_chaos.harness.base.registries import points
from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
from diloco_chaos.harness.places.registry import places
from diloco_chaos.harness.places.slurm.settings import SlurmSettings
from diloco_chaos.harness.trainers.commands.node import NodeKind

PLACES = [place.name for place in places()]

ROOT = Path(__file__).parents[2]


def section(page, title):
    """What stands below a heading, up to the next of its rank."""
    rank = title.split(" ")[0]
    text = (ROOT / page).read_text()
    return re.split(rf"(?m)^#{{1,{len(rank)}}} ", text.split(f"\n{title}\n", 1)[1])[0]


def rows(text, head):
    """The cells of each row of the table that begins so."""
    table = text.split(f"\n{head}", 1)[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table if line.startswith("|")]


def quoted(cell):
    return re.findall(r"`([^`]+)`", cell)


def names(table):
    return [name for row in table for name in quoted(row[0])]


@pytest.mark.parametrize(("title", "settings"), [("## Kubernetes", KubernetesSettings), ("## Slurm", SlurmSettings)])
def test_the_settings_of_a_place_are_those_of_the_page(title, settings):
    table = rows(section("docs/beyond-one-host.md", title), "| key |")
    assert sorted(names(table)) == sorted(settings.model_fields)
    for keys, default, _ in table:
        told = YAML(typ="safe").load(f"[{default.replace('`', '')}]")
        for key, value in zip(quoted(keys), told, strict=False):
            if len(told) == len(quoted(keys)) and f"`{value}`" in default:
                assert str(settings.model_fields[key].get_default(call_default_factory=True)) == str(value), key


def test_pytests_options_are_those_of_the_page_with_their_defaults():
    table = rows(section("docs/pytest.md", "## Options"), "| option |")
    assert sorted(names(table)) == sorted(f"--chaos-{name}" for name in OF_PYTEST)
    for options, defaults, _ in table:
        for option, default in zip(quoted(options), defaults.replace("`", "").split(", "), strict=True):
            written = OF_PYTEST[option.removeprefix("--chaos-")].default
            assert default in (str(written), {"": "full" if option.endswith("tier") else "as written"}.get(written))


def test_the_keys_of_a_node_are_those_of_the_page():
    assert sorted(names(rows(section("docs/any-trainer.md", "## Nodes"), "| key |"))) == sorted(NodeKind.model_fields)


def test_the_page_has_every_form_of_report():
    assert sorted(names(rows((ROOT / "docs/reports.md").read_text(), "| `--format` |"))) == sorted(
        point.name for point in points(REPORTS))


def test_the_page_of_evidence_explains_every_check():
    table = rows(section("docs/evidence.md", "## Verdicts"), "| check |")
    assert sorted(row[0] for row in table) == sorted(CHECKS)


def test_the_readme_counts_the_checks_of_the_built_in_trainer():
    of_rounds = [name for name in CHECKS if "rounds" in CHECKS[name].needs]
    assert f"up to {len(CHECKS) - len(of_rounds)} checks" in (ROOT / "README.md").read_text()


def test_the_readme_names_every_extra():
    line = next(line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("The extras: "))
    assert sorted(quoted(line)) == sorted(Extra.__args__)


def test_the_groups_of_entry_points_are_those_of_the_page():
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    listed = names(rows((ROOT / "docs/extending.md").read_text(), "| group |"))
    assert sorted(listed) == sorted(groups.keys() - {"pytest11"})


@pytest.mark.parametrize("page", ["README.md", "docs/glossary.md"])
def test_every_place_is_named(page):
    text = (ROOT / page).read_text()
    assert all(f"`{name}`" in text or f"--on {name}" in text for name in PLACES if name != "local")
