"""What a backend says that it can do is what its cluster has; what it lacks is refused with a sentence."""

import pytest

from diloco_chaos.faults import FaultContext
from diloco_chaos.harness.places.base import (
    ABILITIES,
    CAPABILITIES,
    EVERYWHERE,
    ClusterError,
    Power,
)
from diloco_chaos.harness.places.compose.cluster import ComposeCluster
from diloco_chaos.harness.places.compose.place import Compose
from diloco_chaos.harness.places.kubernetes.cluster import KubernetesCluster
from diloco_chaos.harness.places.kubernetes.place import Kubernetes
from diloco_chaos.harness.places.local.cluster import LocalCluster
from diloco_chaos.harness.places.local.place import Local
from diloco_chaos.harness.places.simulated.cluster import SimulatedCluster
from diloco_chaos.harness.places.simulated.place import Simulated
from diloco_chaos.harness.places.slurm.cluster import SlurmCluster
from diloco_chaos.harness.places.slurm.place import Slurm


@pytest.mark.parametrize(("cluster", "place"), [
    (LocalCluster, Local), (ComposeCluster, Compose), (KubernetesCluster, Kubernetes), (SlurmCluster, Slurm),
    (SimulatedCluster, Simulated)])
def test_a_cluster_has_what_its_place_says(cluster, place):
    has = {ability for ability, capability in CAPABILITIES.items() if issubclass(cluster, capability)}
    assert (place.can | place.may) - EVERYWHERE == has


def test_every_ability_is_everywhere_or_a_capability():
    assert set(ABILITIES) == EVERYWHERE | CAPABILITIES.keys()


def test_a_fault_that_asks_for_what_is_not_there_gets_a_sentence():
    hit = FaultContext("f1", object(), *[None] * 6)
    with pytest.raises(ClusterError, match="this backend has no Power"):
        hit.having(Power)
