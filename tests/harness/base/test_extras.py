"""What lacks a package says which extra brings it, before anything starts."""

import json
import sys
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest

from diloco_chaos.chaos.doctor import examine
from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.harness.base import extras
from diloco_chaos.harness.base.extras import MissingExtraError, installing, lacking, require


@pytest.fixture
def came_from(monkeypatch):
    """came_from(record): what the installer has recorded of where the package came from."""
    def says(record):
        monkeypatch.setattr(extras, "distribution", lambda _: SimpleNamespace(
            read_text=lambda _: json.dumps(record) if record else None))
    return says


@pytest.fixture
def bare(monkeypatch, came_from):
    """As if the package had come from an index, and nothing but what it needs were there."""
    came_from(None)
    for name in ("torch", "docker"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize(("record", "command"), [
    (None, "pip install 'diloco-chaos[ray]'"),
    ({"url": "file:///home/me/my%20clone", "dir_info": {}}, "pip install '/home/me/my clone[ray]'"),
    ({"url": "file:///clone", "dir_info": {"editable": True}}, "pip install --editable '/clone[ray]'"),
    ({"url": "file:///dist/diloco_chaos-1-py3-none-any.whl", "archive_info": {}},
     "pip install 'diloco-chaos[ray] @ file:///dist/diloco_chaos-1-py3-none-any.whl'"),
])
def test_an_extra_is_installed_from_where_the_package_came_from(came_from, record, command):
    came_from(record)
    assert installing("ray") == command


def test_sources_that_were_never_installed_name_the_package(monkeypatch):
    def missing(_):
        raise PackageNotFoundError
    monkeypatch.setattr(extras, "distribution", missing)
    assert installing("png") == "pip install 'diloco-chaos[png]'"


def test_a_package_that_is_there_is_not_missed():
    assert lacking("numpy", "trainer", "anything") == ""
    require("numpy", "trainer", "anything")


def test_one_that_is_not_there_is_named_with_what_brings_it(bare):
    with pytest.raises(MissingExtraError, match=r"^model tiny needs torch, which is not installed: "
                                                r"pip install 'diloco-chaos\[trainer\]'$"):
        require("torch", "trainer", "model tiny")


def test_a_folder_of_its_name_is_no_package(monkeypatch, tmp_path):
    (tmp_path / "shipyard").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert "needs shipyard, which is not installed" in lacking("shipyard", "compose", "anything")


def test_a_plan_whose_model_needs_torch_is_refused_and_a_quadratic_one_is_not(bare):
    plan = freeze(load("kill-one")[0], 0)
    with pytest.raises(ScenarioError, match=r"model tiny needs torch.*diloco-chaos\[trainer\]"):
        named("local").refuse(plan)
    named("local").refuse(plan.model_copy(update={"cluster": plan.cluster.model_copy(update={"model": "quadratic"})}))


def test_containers_need_docker_py(bare):
    with pytest.raises(MissingExtraError, match=r"--on compose needs docker.*diloco-chaos\[compose\]"):
        named("compose")


def test_the_doctor_tells_both(bare):
    advice = {line.name: line.advice for line in examine()}
    assert "diloco-chaos[compose]" in advice["docker"]
    assert {line.state for line in examine() if line.name in ("docker", "torch")} <= {"optional", "ok"}
