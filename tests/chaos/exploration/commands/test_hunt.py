"""The search: what counts as found, how small it gets, and that nothing is lost. Runs are told by a function."""

import json

import pytest

from diloco_chaos.chaos.exploration.commands.hunt import Hunt, HuntError
from diloco_chaos.chaos.exploration.corpus import TriedSchedule
from diloco_chaos.chaos.exploration.coverage import family
from diloco_chaos.chaos.exploration.explore import HEALTHY, Search
from diloco_chaos.chaos.scenario.loading import load, parse
from diloco_chaos.faults import FAULTS

SCENARIO = parse("""
diloco_chaos: 1
name: told
trainer:
  kind: commands
  nodes:
    hub: {listens: true, run: ls}
    w: {worker: true, count: 2, run: 'ls {hub}'}
  progress: [{node: w, written: true}]
""")
HEALTHY_RUN = {"outcome": "finished", "traces": ("w says round #",), "lines": (("w-1", "round #"),),
               "measured": {"seconds": 4.0, "rounds": 100.0, "bytes": 0}}


class Told:
    """Implements `Workers`: `acts` says what becomes of a job's faults, by the number of the run."""

    def __init__(self, acts):
        self.acts, self.runs = acts, 0

    def run(self, jobs):
        for job in jobs:
            self.runs += 1
            yield TriedSchedule(number=job.number, faults=job.faults, aim=job.aim,
                                **{**HEALTHY_RUN, **self.acts(job, self.runs)})

    def close(self):
        pass


@pytest.fixture
def hunt(tmp_path):
    def build(acts, seed=0, **options):
        return Hunt(Search(SCENARIO, seed, 3, on="local", runs=str(tmp_path / "runs")), tmp_path / "explored",
                    Told(acts), **options)
    return build


def has(job, name, target):
    return any(family(kind) == name and fault[kind] == target for fault in job.faults for kind in fault
               if kind in FAULTS)


def two_faults(job, _):
    """The end of a worker makes the hub say so; that and a hub that stands fail."""
    killed = has(job, "ends", "w-1")
    lines = HEALTHY_RUN["lines"] + ((("hub", "lost w-#"),) if killed else ())
    return {"lines": lines, "traces": ("w says round #", *["hub says lost w-#"] * killed),
            "failed": ("no_global_stall",) if killed and has(job, "slow", "hub") else ()}


def test_what_fails_again_is_found_shrunk_to_what_it_takes_and_written_as_a_scenario(hunt, tmp_path):
    search = hunt(two_faults)
    search.run(3000, lambda state: bool(state.found))
    [found] = search.state.found
    assert (found.checks, found.failed, found.of) == (["no_global_stall"], 2, 2)
    assert len(found.faults) == 2
    written, _ = load(str(tmp_path / "explored" / "found.yaml"))
    assert {family(fault.kind) for fault in written.faults} == {"ends", "slow"}
    assert search.state.exit_code == 1


def test_the_log_guides_it_to_a_second_fault_in_fewer_runs_than_chance_needs(hunt, tmp_path):
    def until_found(guided, seed):
        def at_the_line(job, run):
            told = two_faults(job, run)
            aimed = any((fault.get("when") or {}).get("log") == r"lost w-\S*" for fault in job.faults)
            late = any((fault.get("after") or {}).get("wait") == "100ms" for fault in job.faults)
            return {**told, "failed": told["failed"] if aimed or late else ()}
        search = Hunt(Search(SCENARIO, seed, 3, guided=guided, on="local"), tmp_path / f"{guided}{seed}",
                      Told(at_the_line))
        search.run(300, lambda state: bool(state.found))
        return len(search.state.tried)
    guided, chance = (sorted(until_found(way, seed) for seed in range(3))[1] for way in (True, False))
    assert 2 * guided <= chance


def test_what_fails_once_is_told_as_such_and_is_no_find(hunt):
    search = hunt(lambda job, run: {"failed": ("digests_agree",) if run == 4 else ()})
    search.run(10)
    assert (search.state.found, search.state.exit_code) == ([], 0)
    assert [tried.failed for tried in search.state.flakes] == [("digests_agree",)]


def test_only_the_checks_that_fail_both_times_count(hunt):
    search = hunt(lambda job, run: {"failed": ("digests_agree", "none_left_out" if run % 2 else "resumed")}
                  if job.faults else {})
    search.run(1)
    assert search.state.found[0].checks == ["digests_agree"]


def test_an_inconclusive_run_is_no_find(hunt):
    search = hunt(lambda job, _: {"undecided": (("no_global_stall", "the machine was busy"),)} if job.faults else {})
    search.run(5)
    assert (search.state.found, search.state.decided, search.state.exit_code) == ([], 0, 3)


def test_the_next_search_goes_on_with_what_was_tried_and_found(hunt):
    first = hunt(two_faults)
    first.run(3000, lambda state: bool(state.found))
    again = hunt(two_faults)
    assert again.state.taken_over == len(first.state.tried)
    assert [found.checks for found in again.state.found] == [["no_global_stall"]]
    assert again.state.lessons.seen == first.state.lessons.seen
    again.run(60)
    assert len(again.state.found) == 1, "what is known is counted, and not found anew"
    assert again.state.found[0].times > 1


def test_where_the_time_is_over_it_stops_and_what_was_found_stays_as_large_as_it_was(hunt, tmp_path):
    over = []

    def acts(job, run):
        told = two_faults(job, run)
        over.extend([True] if told["failed"] else [])
        return told
    search = hunt(acts, over=lambda: len(over) >= 2)
    search.run(3000)
    assert len(search.state.found) == 1
    assert (tmp_path / "explored" / "found.yaml").exists()


def test_ctrl_c_keeps_what_was_tried(hunt, tmp_path):
    def acts(job, run):
        if run == 5:
            raise KeyboardInterrupt
        return {}
    search = hunt(acts)
    with pytest.raises(KeyboardInterrupt):
        search.run(10)
    assert len(search.state.tried) == 3
    numbers = [json.loads(line)["number"] for line in
               (tmp_path / "explored" / "results.jsonl").read_text().splitlines()]
    assert numbers == [HEALTHY, 0, 1, 2]


def test_a_trainer_that_fails_without_faults_is_not_searched(hunt):
    search = hunt(lambda job, _: {"failed": ("no_global_stall",), "evidence": ("no_global_stall: longest gap 2 s",)})
    with pytest.raises(HuntError, match="without any fault no_global_stall: longest gap 2 s: no schedule can show"):
        search.run(1)


def test_one_that_makes_no_rounds_is_not_searched(hunt):
    with pytest.raises(HuntError, match=r"without any fault no round was made from the steady state on .it ended: "):
        hunt(lambda job, _: {"outcome": "deadline", "measured": {"seconds": 0.0, "rounds": 0.0}}).run(1)


def test_kinds_that_find_no_target_are_told(tmp_path):
    with pytest.raises(HuntError, match="no fault can be drawn: io finds no target among these nodes on local: "):
        Hunt(Search(SCENARIO, kinds=["io"], on="local"), tmp_path, Told(two_faults))
