"""Runs in pods of a Kubernetes that is made up."""

import pytest

from diloco_chaos.harness.places.kubernetes import site as module
from fake_kubernetes import FakeApi, FakeLinks, Ground


@pytest.fixture
def make_ground(tmp_path, monkeypatch):
    (tmp_path / "pods").mkdir()
    api = FakeApi(tmp_path / "pods")
    monkeypatch.setattr(module, "KubernetesApi", lambda context: api)
    monkeypatch.setattr("diloco_chaos.harness.places.kubernetes.toxiproxy.Links", FakeLinks)
    made = []

    def make(**settings):
        made.append(Ground(tmp_path, api, **settings))
        return made[0]
    yield make
    api.away = api.refuses = False
    for ground in made:
        ground.cluster.stop()
        ground.undo_log.close()
    api.close()


@pytest.fixture
def ground(make_ground):
    found = make_ground()
    found.start()
    return found
