"""Where schedules are tried: what a real place leaves behind of them."""

from types import SimpleNamespace

import pytest

from diloco_chaos.chaos.exploration import perform
from diloco_chaos.chaos.exploration.explore import ExplorationJob, as_json, attempt
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.perform import performed_on
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.harness.places.base import ClusterError


@pytest.mark.parametrize(("outcome", "verdict", "stays"), [
    ("finished", "passed", False), ("finished", "unknown", False), ("finished", "failed", True),
    ("deadline", "unknown", True)])
def test_the_folder_of_a_real_run_stays_where_something_broke(tmp_path, monkeypatch, outcome, verdict, stays):
    folder = tmp_path / "run"

    def run_plan(plan, runs, audience, backend):
        folder.mkdir()
        return SimpleNamespace(folder=SimpleNamespace(path=folder), outcome=SimpleNamespace(kind=outcome),
                               judgement=SimpleNamespace(checks=[SimpleNamespace(verdict=verdict)]))
    monkeypatch.setattr(perform, "run_plan", run_plan)
    with performed_on("local", plan_of(scenario(), [], 0), str(tmp_path)):
        assert folder.exists()
    assert folder.exists() is stays


def test_a_place_that_can_not_be_used_is_no_find(monkeypatch):
    def run_plan(*_):
        raise ClusterError("there is no engine")
    monkeypatch.setattr(perform, "run_plan", run_plan)
    with pytest.raises(ClusterError, match="there is no engine"):
        attempt(ExplorationJob(number=0, scenario=as_json(scenario()), faults=(), on="local"))
