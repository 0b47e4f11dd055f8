"""Faults of state: what becomes of the files, and of those who find them."""

from dataclasses import replace

import pytest

from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.trainers.core.memory import Corruption
from diloco_chaos.harness.trainers.core.programs import Program


def test_a_damaged_checkpoint_is_found_after_the_kill_and_its_mirror_is_whole(cluster, hit, fault):
    before = dict(cluster.files)
    observed = fault(kind="corrupt", targets="syncer", seed=3).inject(hit)
    assert cluster.calls[:2] == [("kill", "syncer", 1.0), ("wait_gone", "syncer")]
    changed = [name for name in before if cluster.files[name] != before[name]]
    assert changed == [observed["damaged"]]
    assert ".mirror." not in changed[0]
    assert len(cluster.files[changed[0]]) == len(before[changed[0]])


def test_both_copies_can_be_damaged(cluster, hit, fault):
    before = dict(cluster.files)
    fault(kind="truncate", targets="syncer", mirrors=True, files=2).inject(hit)
    assert all(len(cluster.files[name]) < len(before[name]) for name in before)


def test_an_empty_file_is_not_damaged_any_further(cluster, hit, fault):
    cluster.files = dict.fromkeys(cluster.files, b"")
    for kind in ("corrupt", "truncate"):
        assert fault(kind=kind, targets="syncer", files=2, mirrors=True).inject(hit) == {"damaged": ""}


def test_a_checkpoint_can_be_lost_altogether(cluster, hit, fault):
    observed = fault(kind="delete", targets="syncer").inject(hit)
    assert observed["damaged"] not in cluster.files
    assert len(cluster.files) == 3


def test_the_same_seed_damages_the_same_bytes(cluster, hit, fault):
    one = fault(kind="corrupt", targets="syncer", seed=5)
    before = dict(cluster.files)
    one.inject(hit)
    first, cluster.files = dict(cluster.files), before
    one.inject(hit)
    assert cluster.files == first


@pytest.fixture
def of_command(hit):
    """The same, at a node that is a command."""
    return replace(hit, spec=lambda name: NodeSpec(name, (), program=Program("train", False, 0, 0)))


@pytest.mark.parametrize(("names", "first"), [
    (["step-20.pt", "step-10.pt"], "step-20.pt"),
    (["latest", "step-20.pt", "step-10.pt"], "step-20.pt"),  # it only says which
    (["step-30.pt.tmp", "step-20.pt"], "step-20.pt"),  # it was being written
    ([".step-30.pt.Xy3", "step-20.pt"], "step-20.pt"),
    (["checkpoint-20/trainer_state.json", "checkpoint-20/model.safetensors", "checkpoint-10/model.safetensors"],
     "checkpoint-20/model.safetensors"),
    (["one.tmp"], "one.tmp")])
def test_the_newest_checkpoint_of_a_trainer_of_commands_is_damaged(cluster, of_command, fault, names, first):
    cluster.files = {name: b"x" * (10 if "latest" in name or "json" in name else 1000) for name in names}
    assert fault(kind="corrupt", targets="w").inject(of_command) == {"damaged": first, "watched": True}


@pytest.mark.parametrize(("which", "files", "damaged"), [
    ("newest", 2, "step-20/model, step-10/model"), ("all", 1, "step-20/model, step-20/data, step-10/model"),
    ("step-*/model", 1, "step-20/model"), ("step-*/model", 9, "step-20/model, step-10/model"),
    ("step-10/*", 1, "step-10/model")])
def test_which_files_are_damaged_can_be_said(cluster, of_command, fault, which, files, damaged):
    cluster.files = {"step-20/model": b"x" * 1000, "step-20/data": b"x" * 10, "step-10/model": b"x" * 1000}
    assert fault(kind="truncate", targets="w", which=which, files=files).inject(of_command)["damaged"] == damaged


def test_who_looks_for_what_is_gone_does_not_matter_where_nothing_else_is_left(cluster, of_command, fault):
    cluster.files = {"step-20": b"x", "step-10": b"x"}
    delete = fault(kind="delete", targets="w")
    assert delete.inject(of_command) == {"damaged": "step-20", "watched": True}
    assert delete.inject(of_command) == {"damaged": "step-10"}


def test_a_pattern_that_no_file_matches_damages_nothing_and_says_what_there_is(cluster, of_command, fault):
    cluster.files = {"step-20": b"x"}
    assert fault(kind="truncate", targets="w", which="*.pt").inject(of_command) == {
        "ok": False, "damaged": "", "why": "no file matches '*.pt'; there are step-20"}


def test_the_built_in_trainers_fragments_are_drawn_and_its_own_events_tell_what_it_found(cluster, hit, fault):
    assert "watched" not in fault(kind="corrupt", targets="syncer").inject(hit)


def test_which_is_left_out_of_a_plan_that_does_not_say_it(fault):
    assert "which" not in fault(kind="corrupt", targets="syncer").model_dump(mode="json", by_alias=True)
    assert fault(kind="corrupt", targets="syncer", which="all").model_dump(mode="json")["which"] == "all"


def test_a_write_limit_lies_between_the_tape_and_the_largest_checkpoint(cluster, hit, fault):
    one = fault(kind="write_limit", targets="syncer", **{"for": "2s"})
    observed = one.inject(hit)
    assert cluster.tape < observed["limit_bytes"] < 5120
    assert cluster.calls == [("limit_writes", "syncer", observed["limit_bytes"], 1.0)]


def test_one_write_limit_is_for_one_node(fault):
    with pytest.raises(ValueError, match="write one write_limit for each of a and b"):
        fault(kind="write_limit", targets=["a", "b"], **{"for": "2s"})


def test_the_disk_of_every_target_is_filled(cluster, hit, fault):
    one = fault(kind="full_disk", targets=["a", "b"], **{"for": "1s"})
    assert one.inject(hit) == {"filled_bytes": 2000}
    assert cluster.calls == [("fill_disk", "a", 1.0), ("fill_disk", "b", 1.0)]


def test_a_write_limit_that_would_hit_the_tape_is_not_set_and_says_so(cluster, hit, fault):
    cluster.tape = 4000
    observed = fault(kind="write_limit", targets="syncer", **{"for": "2s"}).inject(hit)
    assert observed["ok"] is False
    assert "fewer fragments" in observed["why"]
    assert cluster.calls == []


def test_memory_fails_in_each_target_by_an_order_that_the_seed_decides(cluster, hit, fault):
    fault(kind="corrupt_memory", targets=["learner-1", "learner-2"], part="moments", content="bits", values=5,
          seed=7).inject(hit)
    order = Corruption("f1", "moments", "bits", 5, 7)
    assert cluster.calls == [("corrupt_memory", "learner-1", order), ("corrupt_memory", "learner-2", order)]


def test_who_holds_for_failing_memory_goes_on(cluster, hit, fault):
    fault(kind="corrupt_memory", targets="learner-1",
          when={"node": "learner-1", "failpoint": "upload.half", "count": 1}).inject(hit)
    assert [call[0] for call in cluster.calls] == ["corrupt_memory", "pause", "resume"]
