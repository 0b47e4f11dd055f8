"""What a place says that it can do is what the parts of its site have; what it lacks is refused with a sentence."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from diloco_chaos.faults import FaultContext
from diloco_chaos.harness.places.base import ABILITIES, EVERYWHERE, ClusterError
from diloco_chaos.harness.places.capabilities import CAPABILITIES, Power
from diloco_chaos.harness.places.cluster import Cluster
from diloco_chaos.harness.places.compose.place import Compose
from diloco_chaos.harness.places.compose.site import ComposeSite
from diloco_chaos.harness.places.kubernetes.place import Kubernetes
from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
from diloco_chaos.harness.places.kubernetes.site import KubernetesSite
from diloco_chaos.harness.places.local.place import Local
from diloco_chaos.harness.places.local.site import LocalSite
from diloco_chaos.harness.places.simulated.place import Simulated
from diloco_chaos.harness.places.simulated.site import SimulatedSite
from diloco_chaos.harness.places.slurm.place import Slurm
from diloco_chaos.harness.places.slurm.settings import SlurmSettings
from diloco_chaos.harness.places.slurm.site import SlurmSite
from diloco_chaos.harness.record.undo_log import NoUndoLog


@pytest.fixture
def site(tmp_path, monkeypatch):
    """site(its class) -> one that is not started; neither an engine nor an API server is asked for anything."""
    for name in ("compose.site.DockerEngine", "compose.site.Project", "kubernetes.site.KubernetesApi"):
        monkeypatch.setattr(f"diloco_chaos.harness.places.{name}", Mock())
    run = tmp_path, Mock(), NoUndoLog("c0ffee" * 4)
    more = {KubernetesSite: [KubernetesSettings(context="c")], SlurmSite: [SlurmSettings()]}
    return lambda which: (SimulatedSite(Mock(), Mock(), *run[1:]) if which is SimulatedSite else
                          which(*run, *more.get(which, [])))


@pytest.mark.parametrize(("which", "place"), [
    (LocalSite, Local), (ComposeSite, Compose), (KubernetesSite, Kubernetes), (SlurmSite, Slurm),
    (SimulatedSite, Simulated)])
def test_a_site_has_what_its_place_says(site, which, place):
    cluster = Cluster(site(which))
    has = {ability for ability, capability in CAPABILITIES.items() if cluster.having(capability) is not None}
    assert (place.can | place.may) - EVERYWHERE == has


def test_every_ability_is_everywhere_or_a_capability():
    assert set(ABILITIES) == EVERYWHERE | CAPABILITIES.keys()


def test_a_fault_that_asks_for_what_is_not_there_gets_a_sentence():
    hit = FaultContext("f1", SimpleNamespace(having=lambda capability: None), *[None] * 6)
    with pytest.raises(ClusterError, match="this backend has no Power"):
        hit.having(Power)
