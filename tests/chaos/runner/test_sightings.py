"""What faults wait for and no event tells of: lines of logs, and files."""

from itertools import count, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.chaos.runner.sightings import FileState, Growth, Sightings, nearest_lines
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from recorded_events import an_event

HEAD = """diloco_chaos: 1
name: x
trainer:
  kind: commands
  nodes: {w: {worker: true, run: "true", state: "{run}/state/{name}"}}
  progress: [{node: w, log: 'round (?P<round>[0-9]+)'}]
faults:
"""


class Watched:
    """A run of one node, whose files a test writes."""

    def __init__(self, folder, *whens):
        self.run, self.recorded, self.times = folder, [], repeat(0.0)
        (folder / "logs").mkdir()
        (folder / "state" / "w").mkdir(parents=True)
        plan = freeze(parse(HEAD + "".join(f"  - {{kill: w, when: {when}}}\n" for when in whens)), 0)
        self.sightings = Sightings(folder, plan.trainer.programs(), self.recorded.append, lambda: next(self.times))
        self.sightings.add(plan.faults)
        self.start(0)

    def start(self, number):
        self.sightings.on_event(an_event(0, "harness", 0, "spawn", {"target": "w", "incarnation": number}))

    def steady(self):
        self.sightings.on_event(an_event(1, "rounds", 0, "steady"))

    def says(self, text, number=0):
        with open(self.run / "logs" / f"w.{number}.log", "ab") as log:
            log.write(text.encode())
        self.sightings.look()

    def has(self, name, size=0):
        (self.run / "state" / "w" / name).write_bytes(b"x" * size)
        self.sightings.look()

    @property
    def seen(self):
        return [(event.fault, event.count, event.seen) for event in self.recorded if event.event == "sighted"]


@pytest.fixture
def watched(tmp_path):
    return lambda *whens: Watched(tmp_path, *whens)


def test_the_counted_line_after_the_steady_state_is_seen_and_none_after_it(watched):
    run = watched("{node: w, log: 'saving', count: 2}")
    run.says("saving 1\nround 1\n")
    run.steady()
    run.says("saving 2\n")
    assert run.seen == []
    run.says("saving 3\nsaving 4\nsaving 5\n")
    assert run.seen == [("f1", 2, "saving 3")]
    run.says("saving 6\n")
    assert len(run.seen) == 1


def test_lines_count_over_all_processes_of_the_node(watched):
    run = watched("{node: w, log: 'saving', count: 2}")
    run.steady()
    run.says("saving 1\n")
    run.start(1)
    run.says("saving 2\n", number=1)
    assert run.seen == [("f1", 2, "saving 2")]


def test_a_line_is_read_when_it_is_whole(watched):
    run = watched("{node: w, log: 'step 10$'}")
    run.steady()
    run.says("step 10")
    assert run.seen == []
    run.says("0\nstep 10\n")
    assert run.seen == [("f1", 1, "step 10")]


def test_two_faults_wait_each_for_its_own(watched):
    run = watched("{node: w, log: 'saving'}", "{node: w, log: 'saved'}")
    run.steady()
    run.says("saving\nsaved\n")
    assert [fault for fault, *_ in run.seen] == ["f1", "f2"]


def test_a_file_is_seen_that_was_not_there_in_the_steady_state(watched):
    run = watched("{node: w, file: '*.pt'}")
    run.has("old.pt", 10)
    run.steady()
    run.has("old.pt", 20)
    run.has("new.tmp", 20)
    assert run.seen == []
    run.has("new.pt", 3000)
    assert run.seen == [("f1", 1, "state/w/new.pt, 3.0 kB")]


def test_a_folder_counts_as_it_appears_and_a_pattern_may_begin_at_the_runs_folder(watched):
    run = watched("{node: w, file: '{run}/out/{name}/checkpoint-*'}")
    run.steady()
    (run.run / "out" / "w" / "checkpoint-20").mkdir(parents=True)
    run.sightings.look()
    assert [fault for fault, *_ in run.seen] == ["f1"]


def test_a_file_that_is_replaced_counts_again(watched):
    run = watched("{node: w, file: 'newest.pt', count: 2}")
    run.steady()
    run.has("newest.pt", 5)
    run.has("other", 5)
    (run.run / "state" / "w" / "other").replace(run.run / "state" / "w" / "newest.pt")
    run.sightings.look()
    assert run.seen == [("f1", 2, "state/w/newest.pt, 5 B")]


def test_a_file_counts_when_it_has_grown_by_so_much(watched):
    run = watched("{node: w, file: '*.tmp', grows: 1kB}")
    run.has("old.tmp", 5000)
    run.steady()
    run.has("old.tmp", 5999)
    run.has("new.tmp", 999)
    assert run.seen == []
    run.has("new.tmp", 1000)
    assert run.seen == [("f1", 1, "state/w/new.tmp, 1.0 kB")]


def test_lines_of_files_that_a_launcher_writes_are_seen(watched):
    run = watched("{node: w, file: '{run}/out/*/stdout.log', log: 'saving'}")
    run.steady()
    (run.run / "out" / "attempt_0").mkdir(parents=True)
    (run.run / "out" / "attempt_0" / "stdout.log").write_text("begun\nsaving 7\n")
    run.sightings.look()
    assert run.seen == [("f1", 1, "saving 7")]


def test_a_log_that_is_rotated_is_read_to_its_end_and_then_the_new_one(watched):
    run = watched("{node: w, file: app.log, log: 'saving', count: 3}")
    log = run.run / "state" / "w" / "app.log"
    log.write_text("saving 0\n")
    run.steady()
    with log.open("a") as file:
        file.write("saving 1\n\x1b[1;32msaving\x1b[0m 2\n")
    run.sightings.look()
    log.rename(log.with_suffix(".1"))
    log.write_text("saving 3\n")
    run.sightings.look()
    assert run.seen == [("f1", 3, "saving 3")]


def test_what_did_not_come_is_told_with_what_comes_near_to_it(watched):
    run = watched("{node: w, log: 'Saving the checkpoint', count: 2}", "{node: w, file: 'step-*'}")
    run.steady()
    run.says("round 1\nsaving checkpoint 20\nround 2\nsaving checkpoint 40\n")
    run.has("stp-40")
    run.sightings.close()
    assert [(event.fault, event.count, event.nearest, event.looked_in) for event in run.recorded] == [
        ("f1", 0, ["saving checkpoint 40"], "the log of w"), ("f2", 0, ["state/w/stp-40"], "state/w/step-*")]


def test_a_slow_look_is_followed_by_a_rest_of_nine_times_as_long(watched):
    run = watched("{node: w, log: 'saving', count: 2}")
    run.times = count(0.0, 1.0)  # every look takes a second
    run.steady()
    run.says("saving 1\n")
    for _ in range(8):
        run.says("saving 2\n")
        assert run.seen == []
    run.says("")
    assert run.seen == [("f1", 2, "saving 2")]


def test_before_the_steady_state_nothing_is_said_of_what_did_not_come(watched):
    run = watched("{node: w, log: 'saving'}")
    run.says("saving\n")
    run.sightings.close()
    assert run.recorded == []


def test_a_fault_that_is_added_waits_from_then_on(watched):
    run = watched("{node: w, log: 'other'}")
    run.steady()
    run.says("saving 1\n")
    more = freeze(parse(HEAD + "  - {kill: w, id: more, when: {node: w, log: saving}}\n"), 0)
    run.sightings.add(more.faults)
    run.says("saving 2\n")
    assert run.seen == [("more", 1, "saving 2")]


@pytest.mark.parametrize(("lines", "nearest"), [
    (["epoch 1", "Saving model to /a"], ["Saving model to /a"]), (["epoch 1", "epoch 2"], ["epoch 2"]), ([], [])])
def test_the_nearest_lines_share_words_or_are_the_last(lines, nearest):
    assert nearest_lines(r"saving (?P<what>\w+) now", lines) == nearest


SIZES = st.dictionaries(st.sampled_from("abc"), st.integers(0, 50))


@given(SIZES, st.lists(SIZES))
def test_a_file_counts_once_as_it_appears_and_once_as_it_grows(before, looks):
    """Files here are never replaced, and never become smaller while they are there."""
    def states(sizes):
        return {path: FileState(ord(path), size) for path, size in sizes.items()}
    seen = {path: [] for path in "abc"}
    growth, current, base = Growth(states(before), 20), dict(before), dict(before)
    for look in looks:
        current = {path: max(size, current.get(path, 0)) for path, size in (current | look).items()}
        for path, size in growth.seen(states(current)):
            seen[path].append(size)
    for path in "abc":
        grown = current.get(path, 0) - base.get(path, 0) >= 20
        assert len(seen[path]) == int(grown)
