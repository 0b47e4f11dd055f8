"""Checkpoints: whole or not at all, and never trusted blindly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diloco_chaos.harness.base.tensors import digest
from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.record.storage.checkpoint import CheckpointError, load, save, saving_both
from diloco_chaos.harness.record.storage.disk import Content, FolderDisk
from diloco_chaos.harness.record.tape.events import Event
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.coordinator.fragment_state import (
    FragmentState,
    ProgressCounters,
    fragment_file,
    restore,
)
from diloco_chaos.harness.trainer.coordinator.syncer import Syncer
from diloco_chaos.harness.trainer.protocol.messages import OuterGradient
from diloco_chaos.harness.trainers.core.effects import Commit


def save_both(path, tensors, meta):
    for _ in saving_both(FolderDisk(path.parent), path.name, Content(tensors, meta)):
        pass


def load_either(path):
    disk = FolderDisk(path.parent)
    content, damaged = checkpoint.load_either(disk, path.name, disk.names())
    return content.tensors, content.meta, damaged


def copies(path):
    return [path.with_name(name) for name in checkpoint.copies(path.name)]


TENSORS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(2, np.float32)}


def test_what_was_saved_is_loaded(tmp_path):
    save(tmp_path / "x", TENSORS, {"version": 3})
    tensors, meta = load(tmp_path / "x")
    assert meta == {"version": 3}
    assert all(np.array_equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_a_crash_at_any_moment_of_a_write_leaves_the_old_content_or_the_new(tmp_path):
    path = tmp_path / "x.safetensors"
    for crash in range(8):
        save_both(path, TENSORS, {"version": 1})
        steps = saving_both(FolderDisk(tmp_path), path.name, Content({"a": np.zeros(1, np.float32)}, {"version": 2}))
        moments = [moment for _, moment in zip(range(crash), steps, strict=False)]  # and then nobody goes on
        renamed = "checkpoint.before_sync_names" in moments
        assert load_either(path)[1] == {"version": 2 if renamed else 1}


@pytest.mark.parametrize("harm", ["truncate", "flip", "remove", "empty", "garbage"])
def test_a_damaged_file_is_refused(tmp_path, harm):
    path = tmp_path / "x"
    save(path, TENSORS, {})
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    {"truncate": lambda: path.write_bytes(path.read_bytes()[:-3]), "flip": lambda: path.write_bytes(bytes(data)),
     "remove": path.unlink, "empty": lambda: path.write_bytes(b""),
     "garbage": lambda: path.write_bytes(b"\xff" * 100)}[harm]()
    with pytest.raises(CheckpointError, match=str(path)):
        load(path)


@given(st.data())
@settings(max_examples=400)
def test_no_turned_byte_goes_unnoticed(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "turned"
    save(path, TENSORS, {"version": 3, "merged": {"learner-1": [0, 7]}})
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        tensors, meta = load(path)
    except CheckpointError:
        return
    assert meta == {"version": 3, "merged": {"learner-1": [0, 7]}}  # it was a byte that says nothing
    assert digest(tensors) == digest(TENSORS)


@pytest.mark.parametrize("which", [0, 1])
def test_a_damaged_copy_is_made_good_from_the_other(tmp_path, which):
    path = tmp_path / "x.safetensors"
    save_both(path, TENSORS, {"version": 3})
    copy = copies(path)[which]
    copy.write_bytes(copy.read_bytes()[:-5])
    tensors, meta, damaged = load_either(path)
    assert meta == {"version": 3}
    assert digest(tensors) == digest(TENSORS)
    assert list(damaged) == [copy.name]


def test_of_two_whole_copies_the_newer_one_counts(tmp_path):
    path = tmp_path / "x.safetensors"
    save_both(path, TENSORS, {"version": 3})
    save(path, TENSORS, {"version": 4})  # a crash came before the mirror was written
    assert load_either(path)[1:] == ({"version": 4}, {"x.mirror.safetensors": "a version behind"})


def test_where_both_copies_are_damaged_there_is_nothing_to_go_on_from(tmp_path):
    path = tmp_path / "x.safetensors"
    save_both(path, TENSORS, {"version": 3})
    for copy in copies(path):
        copy.write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"x.safetensors.*x.mirror.safetensors"):
        load_either(path)


CONFIG = TrainerConfig(model="micro", fragments=4)


@pytest.fixture
def committed(tmp_path):
    """A folder in which every fragment is committed, the second one as version 5."""
    initial = CONFIG.spec.initial(0)
    for fragment in CONFIG.fragment_table():
        values = {name: initial[name] for name in fragment.names}
        state = FragmentState(values, values, 5 if fragment.index == 1 else 0)
        save_both(tmp_path / fragment_file(fragment.index), state.tensors(),
                  state.meta() | {"counters": ProgressCounters(9).meta()})
    return tmp_path


def restored(folder):
    return restore(FolderDisk(folder), CONFIG.fragment_table(), CONFIG.spec.initial(0), 0)


def test_a_new_run_has_every_fragment_to_commit_and_nothing_to_resume(tmp_path):
    found = restored(tmp_path)
    assert (found.resumed, found.to_commit, found.repaired) == (False, [0, 1, 2, 3], {})


def test_a_lost_copy_is_repaired_told_and_written_again(committed):
    (committed / fragment_file(1)).unlink()
    found = restored(committed)
    assert [state.version for state in found.states] == [0, 5, 0, 0]
    assert found.repaired == {fragment_file(1): "missing"}
    assert found.to_commit == [1]
    effects = list(Syncer(CONFIG, found).start(0.0))
    assert [effect.name for effect in effects if isinstance(effect, Commit)] == [fragment_file(1)]
    assert [effect.event for effect in effects if isinstance(effect, Event)] == ["repaired", "resumed"]


def test_a_fragment_that_is_gone_for_good_is_not_begun_anew(committed):
    for copy in copies(committed / fragment_file(2)):
        copy.unlink()
    with pytest.raises(CheckpointError, match=r"both copies of fragment-02\.safetensors are gone"):
        restored(committed)


def test_a_crash_in_the_very_first_commits_is_no_loss(committed):
    for index in (1, 3):
        for copy in copies(committed / fragment_file(index)):
            copy.unlink()
    assert restored(committed).to_commit == [1, 3]


def test_what_a_crash_left_of_a_write_is_removed(committed):
    (committed / (fragment_file(0) + ".partial")).write_bytes(b"half")
    restored(committed)
    assert not list(committed.glob("*.partial"))


def test_the_syncers_state_survives_with_momentum_and_what_was_merged(tmp_path):
    config = TrainerConfig(model="micro", fragments=4)
    initial, table = config.spec.initial(0), config.fragment_table()
    fragment = table[2]
    state = FragmentState({name: initial[name] + 1 for name in fragment.names},
                          {name: initial[name] * 0 + 2 for name in fragment.names}, 7, {"learner-1": (2, 40)}, 640)
    counters = ProgressCounters(44)
    counters.report("learner-1", 2, 640, 51, 3.0)
    save_both(tmp_path / fragment_file(2), state.tensors(), state.meta() | {"counters": counters.meta()})
    for other in (0, 1, 3):
        fresh = FragmentState.initial({name: initial[name] for name in table[other].names})
        save_both(tmp_path / fragment_file(other), fresh.tensors(),
                  fresh.meta() | {"counters": ProgressCounters().meta()})
    found = restore(FolderDisk(tmp_path), table, initial, 0)
    states, restored = found.states, found.counters
    assert found.resumed
    assert [s.version for s in states] == [0, 0, 7, 0]
    assert states[2].merged == {"learner-1": (2, 40)}
    assert all((states[2].momentum[name] == 2).all() for name in fragment.names)
    assert (restored.step, restored.processed, restored.positions) == (44, 640, {"learner-1": 51})
    assert states[2].already_merged("learner-1", 2, 40) == "already merged"
    assert states[2].already_merged("learner-1", 1, 90) == "old incarnation"
    assert states[2].already_merged("learner-1", 2, 41) == ""
    assert states[2].already_merged("learner-1", 3, 1) == ""


STALE_AFTER_4 = TrainerConfig(max_staleness=4, anchor="base")


def answer(**changes):
    steps = {"first_step": 41, "last_step": 48, "steps": 8} | changes
    tokens = steps["steps"] * STALE_AFTER_4.tokens_per_step_of("learner-1")
    return OuterGradient(**{"round": 1, "fragment": 2, "base_version": 5, "tokens": tokens,
                            "digest": digest(TENSORS)} | steps)


@pytest.mark.parametrize(("changes", "tensors", "reason"), [
    ({}, TENSORS, ""),
    ({}, {"a": TENSORS["a"]}, "wrong shapes"),
    ({}, TENSORS | {"b": np.ones(3, np.float32)}, "wrong shapes"),
    ({}, TENSORS | {"b": np.ones(2, np.float64)}, "wrong shapes"),
    ({}, TENSORS | {"b": np.array([1, np.nan], np.float32)}, "not finite"),
    ({}, TENSORS | {"b": np.array([1, np.inf], np.float32)}, "not finite"),
    ({"digest": "0"}, TENSORS, "wrong digest"),
    ({"base_version": 8}, TENSORS, "impossible counters"),
    ({"steps": 9}, TENSORS, "impossible counters"),
    ({"tokens": 10**15}, TENSORS, "impossible counters"),
    ({}, TENSORS | {"b": np.array([1, 1e30], np.float32)}, "too large"),
    ({"first_step": 40, "steps": 9}, TENSORS, "already merged"),
    ({"base_version": 2}, TENSORS, "stale"),
])
def test_a_contribution_is_merged_only_where_nothing_speaks_against_it(changes, tensors, reason):
    state = FragmentState(TENSORS, TENSORS, 7, {"learner-1": (2, 40)}, 0)
    assert state.objection("learner-1", 2, answer(**changes), tensors, STALE_AFTER_4) == reason


def test_a_contribution_of_an_older_process_is_refused_and_of_a_newer_one_taken():
    state = FragmentState(TENSORS, TENSORS, 7, {"learner-1": (2, 40)}, 0)
    assert state.objection("learner-1", 1, answer(), TENSORS, STALE_AFTER_4) == "old incarnation"
    assert state.objection("learner-1", 3, answer(first_step=1, last_step=8), TENSORS, STALE_AFTER_4) == ""


def test_a_copy_that_a_crash_left_a_version_behind_is_made_good_before_anybody_hears_of_the_newer_one(committed):
    newer = FragmentState.initial({name: CONFIG.spec.initial(0)[name] for name in CONFIG.fragment_table()[1].names})
    newer = FragmentState(newer.value, newer.momentum, version=6)
    save(committed / fragment_file(1), newer.tensors(), newer.meta() | {"counters": ProgressCounters(9).meta()})
    effects = list(Syncer(CONFIG, restored(committed), 1).start(0.0))
    commits = [number for number, effect in enumerate(effects) if isinstance(effect, Commit)]
    told = next(number for number, effect in enumerate(effects) if isinstance(effect, Event)
                and effect.event == "resumed")
    assert [effects[number].name for number in commits] == [fragment_file(1)]
    assert max(commits) < told
