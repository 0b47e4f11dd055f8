"""What goes into the image, and what the compose file beside it says, fit the sources."""

import ast
import itertools
import json
import re
import sys
import tomllib
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
ENTRANCES = ("diloco_chaos.harness.trainers.node.process", "diloco_chaos.harness.trainers.node.status",
             "diloco_chaos.harness.trainer.plugin")
"""The trainer is found by its name when a node starts."""
NAMES = {"ruamel": "ruamel.yaml", "toxiproxy": "toxiproxy-python"}


def requirements(lines):
    return {re.match(r"[\w.-]+", line)[0]: line for line in lines if line and not line.startswith("#")}


def source(module):
    path = ROOT / "src" / Path(*module.split("."))
    return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.exists()), None)


def imported(path):
    """Everything that a file imports, also inside functions, but not for type checkers only."""
    def walk(node):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from walk(other)
            return
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        for child in ast.iter_child_nodes(node):
            yield from walk(child)
    return set(walk(ast.parse(path.read_text())))


def needed():
    """Third-party packages that a node's process can come to import."""
    waiting, seen, third = list(ENTRANCES), set(), set()
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        top, _, rest = module.partition(".")
        if top == "diloco_chaos":
            assert rest.partition(".")[0] == "harness", f"a node imports {module}, which is not in its image"
            if path := source(module):
                waiting += imported(path)
        elif top not in sys.stdlib_module_names:
            third.add(NAMES.get(top, top))
    return third


def test_the_image_holds_exactly_the_packages_that_a_node_imports():
    named = requirements((ROOT / "docker" / "requirements.txt").read_text().splitlines())
    assert set(named) == needed()


def test_the_bounds_of_packages_are_the_projects():
    named = requirements((ROOT / "docker" / "requirements.txt").read_text().splitlines())
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    project = requirements(stated["dependencies"] + stated["optional-dependencies"]["trainer"])
    assert named == {name: project[name] for name in named}


def services():
    return YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text())["services"]


def test_every_learner_of_the_compose_file_has_a_link_to_the_syncer():
    links = {link["name"]: link for link in json.loads((ROOT / "docker" / "toxiproxy.json").read_text())}
    learners = {name: one["command"].split() for name, one in services().items() if name.startswith("learner-")}
    syncer = services()["syncer"]["command"].split()
    listens = syncer[syncer.index("--listen") + 1]
    assert set(links) == set(learners) | {"status"}
    assert len({link["listen"] for link in links.values()}) == len(links)
    for name, command in learners.items():
        said = dict(itertools.pairwise(command))
        assert said["--name"] == name
        host, port = said["--connect"].split(":")
        assert host == "toxiproxy"
        assert links[name] == {"name": name, "listen": f"0.0.0.0:{port}", "upstream": f"syncer:{listens}"}


def test_the_status_that_is_published_is_the_syncers():
    links = {link["name"]: link for link in json.loads((ROOT / "docker" / "toxiproxy.json").read_text())}
    syncer = services()["syncer"]["command"].split()
    assert links["status"]["upstream"] == f"syncer:{syncer[syncer.index('--status') + 1]}"
    ports = [port.rpartition(":")[2] for port in services()["toxiproxy"]["ports"]]
    assert links["status"]["listen"].rpartition(":")[2] in ports
    assert all(port.startswith("127.0.0.1:") for port in services()["toxiproxy"]["ports"])


def test_the_trainer_of_the_image_has_as_many_learners_as_the_compose_file():
    settings = json.loads((ROOT / "docker" / "cluster.json").read_text())
    assert settings["learners"] == sum(name.startswith("learner-") for name in services())


def test_the_settings_of_the_image_are_valid():
    from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
    TrainerConfig.model_validate_json((ROOT / "docker" / "cluster.json").read_text())


def test_the_image_is_called_the_same_wherever_it_is_made_and_run():
    named = re.compile(r"diloco-chaos:[^\s}]+")
    files = ("docker/Dockerfile", "docker/offline.sh", "docker-compose.yml", "docker/stack.yml")
    assert [set(named.findall((ROOT / file).read_text())) for file in files] == [{"diloco-chaos:local"}] * 4
