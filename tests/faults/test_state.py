"""Faults of state: what becomes of the files, and of those who find them."""

from diloco_chaos.harness.trainers.core.memory import Corruption


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


def test_a_write_limit_lies_between_the_tape_and_the_largest_checkpoint(cluster, hit, fault):
    one = fault(kind="write_limit", targets="syncer", **{"for": "2s"})
    observed = one.inject(hit)
    assert cluster.tape < observed["limit_bytes"] < 5120
    assert cluster.calls == [("limit_writes", "syncer", observed["limit_bytes"], 1.0)]


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
