"""A Ray cluster of two nodes: the results are those of one process, also when a node is killed."""

import pytest
from ray.cluster_utils import Cluster

from benchmarks.measure.planted import BASE
from diloco_chaos.chaos.exploration.explore import SCHEDULES, Search, explore
from diloco_chaos.harness.base.workers import InProcess, Ray


def fingerprint(folder):
    return sorted((folder / "results.jsonl").read_text().splitlines())


@pytest.mark.filterwarnings("ignore")
def test_a_node_that_is_killed_in_the_middle_loses_no_result(tmp_path):
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1)
    workers, killed = Ray(SCHEDULES, cluster.address), []

    def kill_once(state):
        if state.done >= 8 and not killed:
            killed.append(second)
            cluster.remove_node(second, allow_graceful=False)
    try:
        explore(Search(BASE, 8), tmp_path / "ray", workers, runs=40, tell=kill_once)
    finally:
        workers.close()
        cluster.shutdown()
    assert killed
    explore(Search(BASE, 8), tmp_path / "here", InProcess(SCHEDULES), runs=40)
    assert fingerprint(tmp_path / "ray") == fingerprint(tmp_path / "here")
