"""What a backend says that it can do is what its cluster has; what it lacks is refused with a sentence."""

import pytest

from diloco_chaos.faults import FaultContext
from diloco_chaos.harness.places.base import (
    ABILITIES,
    BY_COMMAND,
    CAPABILITIES,
    CONTAINERS,
    EVERYWHERE,
    KUBERNETES,
    LOCAL,
    SIMULATED,
    SLURM,
    ClusterError,
    Power,
)
from diloco_chaos.harness.places.compose.cluster import ComposeCluster
from diloco_chaos.harness.places.kubernetes.cluster import KubernetesCluster
from diloco_chaos.harness.places.local.cluster import LocalCluster
from diloco_chaos.harness.places.simulated.cluster import SimulatedCluster
from diloco_chaos.harness.places.slurm.cluster import SlurmCluster


@pytest.mark.parametrize(("cluster", "stated"), [
    (LocalCluster, LOCAL), (ComposeCluster, CONTAINERS), (KubernetesCluster, KUBERNETES | BY_COMMAND),
    (SlurmCluster, SLURM | BY_COMMAND), (SimulatedCluster, SIMULATED)])
def test_a_cluster_has_what_its_backend_says(cluster, stated):
    has = {ability for ability, capability in CAPABILITIES.items() if issubclass(cluster, capability)}
    assert stated - EVERYWHERE == has


def test_every_ability_is_everywhere_or_a_capability():
    assert set(ABILITIES) == EVERYWHERE | CAPABILITIES.keys()


def test_a_fault_that_asks_for_what_is_not_there_gets_a_sentence():
    hit = FaultContext("f1", object(), *[None] * 6)
    with pytest.raises(ClusterError, match="this backend has no Power"):
        hit.having(Power)
