"""A cut is whole once everybody who was asked has saved its part; a part tells of nothing that came after it."""

import asyncio
import errno
import threading

import numpy as np
import pytest

from diloco_chaos.harness.base.tensors import digest
from diloco_chaos.harness.record.storage.disk import CheckpointError, FolderDisk
from diloco_chaos.harness.record.tape.events import Event, Exit, NotSaved
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.record.tape.writing import TapeWriter
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.coordinator import syncer_part
from diloco_chaos.harness.trainer.coordinator.fragment_state import FragmentState, ProgressCounters, restore
from diloco_chaos.harness.trainer.learner.learner import Learner
from diloco_chaos.harness.trainer.protocol.messages import (
    Broadcast,
    CheckpointAck,
    CheckpointRequest,
    OuterGradient,
    Report,
    Request,
    Welcome,
)
from diloco_chaos.harness.trainers.core.effects import Save, Send
from diloco_chaos.harness.trainers.node.driver import Driver
from diloco_chaos.harness.trainers.node.failpoints import Failpoints
from diloco_chaos.harness.trainers.storage import global_checkpoint
from diloco_chaos.harness.trainers.storage.global_checkpoint import GlobalCheckpoints

CONFIG = TrainerConfig(model="micro", fragments=4, learners=2, budget=50, step_time="60ms")


def told(effects):
    """Events by name, with their fields."""
    return [(effect.event, dict(effect.payload())) for effect in effects if isinstance(effect, Event)]


def test_it_is_due_where_the_global_step_passes_a_multiple():
    cut = GlobalCheckpoints(100, 0)
    assert [step for step in range(1, 400) if cut.due(step - 1, step)] == [100, 200, 300]
    assert cut.due(95, 301)
    assert not GlobalCheckpoints(0, 0).due(0, 10**6)


def test_it_is_whole_when_the_last_has_saved_its_part_and_not_before():
    cut = GlobalCheckpoints(100, 0)
    number, effects = cut.begin(100, ["syncer", "learner-1", "learner-2"])
    assert told(effects) == [("checkpoint_begun", {"checkpoint": 1, "step": 100,
                                                   "nodes": ["learner-1", "learner-2", "syncer"]})]
    assert told(cut.saved("learner-1", number)) == told(cut.saved("syncer", number)) == []
    assert told(cut.saved("learner-1", number)) == []
    assert cut.whole == 0
    assert told(cut.saved("learner-2", number)) == [("checkpoint_complete", {"checkpoint": 1})]
    assert cut.whole == 1


def test_it_is_lost_with_anybody_who_was_to_save_a_part():
    cut = GlobalCheckpoints(100, 0)
    number, _ = cut.begin(100, ["syncer", "learner-1", "learner-2"])
    list(cut.saved("learner-1", number))
    assert told(cut.broken("learner-1")) == []  # its part is there
    assert told(cut.broken("learner-2")) == [("checkpoint_incomplete", {"checkpoint": 1, "without": "learner-2"})]
    assert told(cut.saved("syncer", number)) == told(cut.saved("learner-2", number)) == []
    assert cut.whole == 0


def test_the_next_one_overtakes_one_that_is_not_whole():
    cut = GlobalCheckpoints(100, 0)
    first, _ = cut.begin(100, ["syncer", "learner-1"])
    list(cut.saved("syncer", first))
    second, effects = cut.begin(200, ["syncer", "learner-1"])
    assert [name for name, _ in told(effects)] == ["checkpoint_incomplete", "checkpoint_begun"]
    assert told(cut.saved("learner-1", first)) == []
    assert [name for node in ("learner-1", "syncer") for name,
            _ in told(cut.saved(node, second))] == ["checkpoint_complete"]


def test_no_two_checkpoints_of_a_run_have_the_same_number_whichever_syncer_made_them():
    numbers = [GlobalCheckpoints(100, incarnation).begin(100, ["syncer"])[0] for incarnation in range(3)]
    assert len(set(numbers)) == 3
    assert numbers == sorted(numbers)


# -- a learner's part ------------------------------------------------------------------------------------------------


@pytest.fixture
def initial():
    return CONFIG.spec.initial(0)


@pytest.fixture
def learner(make_cluster, initial):
    """One that trains, and is in the middle of a step."""
    cluster = make_cluster()
    core = Learner(CONFIG, "learner-1", 0, "token", cluster._make_replica(0))
    list(core.on_connected(0.0))
    list(core.on_message(Welcome(step=0, tokens=0, position=0, steady=False), {}, 0.0))
    for fragment in CONFIG.fragment_table():
        list(core.on_message(*of(core, fragment.index, 0, initial), 0.0))
    return core


def of(core, fragment, version, values):
    tensors = {name: values[name] for name in core.table[fragment].names}
    return Broadcast(fragment=fragment, version=version, digest=digest(tensors)), tensors


def stepped(core, now):
    """The step that is under way is done."""
    return list(core.on_computed(1.0, now - 0.01, now))


def saves(effects):
    return [effect for effect in effects if isinstance(effect, Save)]


def test_what_came_after_a_cut_is_no_part_of_it_and_what_came_before_is(learner, initial):
    later = {name: array + 1 for name, array in initial.items()}
    list(learner.on_message(*of(learner, 0, 1, later), 0.01))
    list(learner.on_message(CheckpointRequest(number=7), {}, 0.01))
    list(learner.on_message(*of(learner, 1, 1, later), 0.02))
    (part,) = saves(stepped(learner, 0.05))
    assert part.checkpoint == 7
    assert [version for version, _ in part.meta["fragments"]] == [1, 0, 0, 0]
    assert [held.version for held in learner.held] == [1, 1, 0, 0]
    name = learner.table[1].names[0]
    assert not np.array_equal(part.tensors[f"replica/value/{name}"], learner.replica.read((name,))[name])


def test_what_it_was_asked_for_before_a_cut_is_answered_before_it_saves_and_the_rest_after(learner):
    list(learner.on_message(Request(round=1, fragment=0), {}, 0.01))
    list(learner.on_message(CheckpointRequest(number=7), {}, 0.01))
    list(learner.on_message(Request(round=2, fragment=1), {}, 0.01))
    effects = [type(effect.message if isinstance(effect, Send) else effect) for effect in stepped(learner, 0.05)
               if isinstance(effect, (Send, Save))]
    assert effects == [Report, OuterGradient, Save, OuterGradient]


def test_it_says_so_once_its_part_is_safe(learner):
    assert [effect.message for effect in learner.on_saved(7, 1.0)] == [CheckpointAck(number=7)]


def test_a_new_process_with_its_part_is_what_it_was_and_says_so(learner, initial, make_cluster, tmp_path):
    later = {name: array + 1 for name, array in initial.items()}
    for now in (0.05, 0.15):
        stepped(learner, now)
        list(learner.on_timer("pace", now + 0.05))
    list(learner.on_message(*of(learner, 2, 1, later), 0.16))
    list(learner.on_message(CheckpointRequest(number=7), {}, 0.17))
    (save,) = saves(stepped(learner, 0.2))
    global_checkpoint.keep(tmp_path, "learner-1", save)
    again = Learner(CONFIG, "learner-1", 0, "token", make_cluster()._make_replica(0))
    again.restore(global_checkpoint.part_of(tmp_path, 7, "learner-1"))
    assert (again.step, again.position, again.tokens) == (learner.step, learner.position, learner.tokens)
    assert [(held.version, held.steps) for held in again.held] == [(held.version, held.steps) for held in learner.held]
    assert digest(again.replica.state()) == digest(learner.replica.state())
    record, hello = again.on_connected(5.0)
    assert record.event == "disconnected"
    assert (hello.message.step, hello.message.versions) == (3, [0, 0, 1, 0])
    ready, *_ = told(again.on_message(Welcome(step=9, tokens=10**6, position=0, steady=True), {}, 5.1))
    assert ready == ("ready", {"step": 3, "position": 3})


def test_what_a_broken_connection_left_behind_asks_for_no_cut(learner):
    list(learner.on_message(CheckpointRequest(number=7), {}, 0.01))
    list(learner.on_lost("broken", 0.02))
    list(learner.on_connected(0.03))
    assert saves(stepped(learner, 0.05)) == []


# -- the syncer's part, and files -----------------------------------------------------------------------------------


def states(initial):
    table = CONFIG.fragment_table()
    made = [FragmentState.initial({name: initial[name] for name in fragment.names}) for fragment in table]
    made[1] = FragmentState(made[1].value, made[1].momentum, 5, {"learner-1": (0, 17)}, 4096,
                            (("learner-1", 0, 9, 17),))
    return made


def files(states, counters):
    return [global_checkpoint.Content(state.tensors(), state.meta() | {"counters": counters.meta()})
            for state in states]


def test_the_syncers_folder_is_put_back_as_it_was_once(initial, tmp_path):
    before, counters = states(initial), ProgressCounters(step=23)
    counters.report("learner-1", 0, 2048, 17, 3.0)
    global_checkpoint.keep(tmp_path, "syncer", Save(3, *syncer_part.syncers(files(before, counters))))
    part, disk = global_checkpoint.part_of(tmp_path, 3, "syncer"), FolderDisk(tmp_path / "state")
    global_checkpoint.put_back_once(tmp_path, 3, "syncer", lambda: syncer_part.put_back(part, disk))
    found = restore(disk, CONFIG.fragment_table(), initial, 0)
    assert [(state.digest, state.meta()) for state in found.states] == [
        (state.digest, state.meta()) for state in before]
    assert (found.counters, found.resumed, found.repaired, found.to_commit) == (counters, True, {}, [])
    for file in (tmp_path / "state").iterdir():
        file.unlink()
    global_checkpoint.put_back_once(tmp_path, 3, "syncer", lambda: syncer_part.put_back(part, disk))
    assert list(disk.names()) == []


def test_it_is_put_back_again_where_that_was_broken_off(initial, tmp_path):
    parts = syncer_part.syncers(files(states(initial), ProgressCounters(step=23)))
    global_checkpoint.keep(tmp_path, "syncer", Save(3, *parts))
    part = global_checkpoint.part_of(tmp_path, 3, "syncer")

    class Full(FolderDisk):
        def write(self, name, content):
            if name.startswith("fragment-02"):
                raise OSError(errno.ENOSPC, "no space")
            super().write(name, content)
    full, empty = Full(tmp_path / "state"), FolderDisk(tmp_path / "state")
    with pytest.raises(OSError, match="no space"):
        global_checkpoint.put_back_once(tmp_path, 3, "syncer", lambda: syncer_part.put_back(part, full))
    global_checkpoint.put_back_once(tmp_path, 3, "syncer", lambda: syncer_part.put_back(part, empty))
    assert restore(FolderDisk(tmp_path / "state"), CONFIG.fragment_table(), initial, 0).states[1].version == 5


def test_older_cuts_go_once_a_newer_one_is_whole(tmp_path):
    for number in (1, 2, 3):
        global_checkpoint.keep(tmp_path, "learner-1", Save(number, {"x": np.zeros(2, np.float32)}, {}))
    assert global_checkpoint.numbers(tmp_path) == [3, 2, 1]
    global_checkpoint.keep(tmp_path, "syncer", Save(4, {}, {}, keep=3))
    assert global_checkpoint.numbers(tmp_path) == [4, 3]


def test_a_part_that_goes_while_it_is_read_is_none(tmp_path, monkeypatch):
    global_checkpoint.keep(tmp_path, "learner-1", Save(1, {"x": np.zeros(2, np.float32)}, {}))
    read = FolderDisk.read

    def late(disk, name):
        (disk.folder / name).unlink()
        return read(disk, name)
    monkeypatch.setattr(FolderDisk, "read", late)
    assert global_checkpoint.part_of(tmp_path, 1, "learner-1") is None


def test_a_part_that_is_not_there_is_none_and_a_torn_one_is_an_error(tmp_path):
    global_checkpoint.keep(tmp_path, "syncer", Save(1, {"x": np.zeros(2, np.float32)}, {}))
    assert global_checkpoint.part_of(tmp_path, 1, "learner-1") is None
    file = global_checkpoint.part_file(tmp_path, 1, "syncer")
    file.write_bytes(file.read_bytes()[:-3])
    with pytest.raises(CheckpointError):
        global_checkpoint.part_of(tmp_path, 1, "syncer")


class Core:
    """Asks for nothing; remembers what it is told."""

    def __init__(self):
        self.safe = []

    def on_saved(self, cut, now):
        self.safe.append(cut)
        return ()

    def status(self):
        return {}


@pytest.mark.parametrize("writable", [True, False])
def test_the_driver_saves_beside_everything_else_and_a_full_disk_costs_the_cut_alone(tmp_path, monkeypatch, writable):
    goes_on, threads = threading.Event(), []

    def keep(run, node, save):
        threads.append(threading.current_thread())
        assert goes_on.wait(10)
        if not writable:
            raise OSError(errno.ENOSPC, "no space")
    monkeypatch.setattr("diloco_chaos.harness.trainers.node.driver.keep", keep)
    core, tape = Core(), TapeWriter(tmp_path / "tape", "learner-1", 0, 0.0)
    driver = Driver(core, tape, 0.0, tmp_path, Failpoints({}))

    def proceed(now):
        goes_on.set()  # the driver came here although nothing is saved yet
        return (Exit(),)

    async def serve():
        driver.feed(lambda now: (Save(4, {}, {}),))
        driver.feed(proceed)
        serving = asyncio.ensure_future(driver.serve())
        while not (serving.done() or core.safe or Tape.read(tmp_path / "tape").of(NotSaved)):
            await asyncio.sleep(0)
        driver.feed(None)
        await serving
    asyncio.run(serve())
    assert threads != [threading.main_thread()]
    assert core.safe == ([4] if writable else [])
    assert [event.checkpoint for event in Tape.read(tmp_path / "tape").of(NotSaved)] == ([] if writable else [4])
