"""What lacks a package says which extra brings it, before anything starts."""

import sys

import pytest

from diloco_chaos.chaos.doctor import examine
from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.harness.base.extras import MissingExtraError, lacking, require


@pytest.fixture
def bare(monkeypatch):
    """As if nothing but what `pip install diloco-chaos` brings were there."""
    for name in ("torch", "docker"):
        monkeypatch.setitem(sys.modules, name, None)


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
