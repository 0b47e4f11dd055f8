"""What is measured in one run of a sweep."""

import pytest

from diloco_chaos.chaos.fleet.sweeps.cell import CELLS, Cell, measure, measured
from diloco_chaos.chaos.fleet.sweeps.ways import WAYS, cluster_of, links, words
from diloco_chaos.harness.base.workers import InProcess, WorkerProcesses
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.model.spec import MODELS

STEPS, STEP = 48, 0.1


def cell(way="decoupled", faults=(), deadline=60.0, **more):
    return Cell(cluster=cluster_of(way, 2, STEP, STEPS, 10.0, **more), faults=tuple(faults),
                deadline=deadline)


@pytest.mark.parametrize("way", WAYS)
def test_without_a_network_every_mode_merges_what_its_learners_process(way):
    one = measure(cell(way))
    assert one.finished
    assert one.tokens_per_s == pytest.approx(2 * 1024 / STEP, rel=0.5)
    assert one.curve[0][1] > one.excess > 0


def test_it_is_measured_from_the_first_fault_on():
    later = measure(cell("data_parallel", [{"kill": "learner-2", "at": "1s"}], deadline=12.0))
    assert (later.tokens_per_s, later.finished, later.excess) == (0.0, False, None)
    assert 8 < later.lasted < 10, "it began when two processes had started, and a second later"
    assert later.learned(later.lasted) < 1


def test_all_contribute_where_the_grace_window_is_open_for_them():
    assert measure(cell(grace=0.8)).contributors == pytest.approx(2.0, abs=0.1)
    alone = measure(cell(grace=0.0, variance=0.2, speeds=(1.0, 0.9)))
    assert 1.0 <= alone.contributors < 1.5


def test_a_payload_makes_a_narrow_link_narrower():
    plain = cell("data_parallel", links(0.001, 0.01, 50.0), deadline=50.0)
    wide = measure(plain)
    narrow = measure(plain.model_copy(update={"payload": 20.0}))
    assert 0 < narrow.tokens_per_s < wide.tokens_per_s / 2


def test_what_was_learned_is_the_share_of_the_loss_above_its_floor_that_is_gone():
    one = measure(cell())
    assert one.learned(0.0) <= one.learned(1e9) == pytest.approx(1 - one.excess / one.curve[0][1])


def test_results_are_those_of_their_cells_and_the_same_in_other_processes():
    cells = {"narrow": cell(grace=0.0), "blocking": cell("diloco")}
    workers = WorkerProcesses(CELLS, 2)
    try:
        found = measured(list(cells), cells.__getitem__, workers)
        assert list(found) == ["narrow", "blocking"]
        assert found == measured(list(cells), cells.__getitem__, InProcess(CELLS))
    finally:
        workers.close()


@pytest.mark.parametrize("way", WAYS)
def test_every_way_is_a_mode_of_the_trainer(way):
    assert TrainerConfig.model_validate(cluster_of(way, 4, 2.0, 100, 60.0)).mode == way
    assert words(way)


def test_the_model_is_cut_into_as_many_fragments_of_the_same_size():
    config = TrainerConfig.model_validate(cluster_of("decoupled", 4, 2.0, 100, 60.0))
    assert [fragment.size for fragment in config.fragment_table()] == [64] * 24
    assert config.model in MODELS


def test_links_are_never_quicker_than_a_fault_can_make_them():
    latency, bandwidth = links(8.0, 0.0, 5.0, shared=True)
    assert (latency["delay"], bandwidth["rate"], bandwidth["shared"]) == ("0.001s", "1000000000.0B/s", True)
