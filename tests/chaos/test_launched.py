"""Experiments from Python: a test's lines decide what happens, and what they did is a plan."""

import threading

import pytest

import diloco_chaos
from diloco_chaos.chaos.launched import DidNotPassError, launch
from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner import backends
from diloco_chaos.chaos.runner.director import NotInTimeError, RunOverError
from diloco_chaos.chaos.runner.run import run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.harness.record.tape.events import Injected, Observed


@pytest.fixture
def launched(tmp_path, scenario_text):
    """launched(*faults, **settings) -> a run under virtual time."""
    def start(*faults, must_pass=False, on="simulated", more="", budget=150):
        return launch(parse(scenario_text(*faults, budget=budget, more=more)), on=on, runs=tmp_path,
                      must_pass=must_pass)
    return start


def happened(result):
    """What nodes and syncer did, without the words of the harness."""
    return [event for event in result.history.tape.events if event.node != "harness"]


def test_what_a_test_did_is_the_plan_of_the_run_and_repeats_it_bit_for_bit(launched, tmp_path):
    with launched() as run:
        run.wait_rounds(8)
        assert run.kill("learner-1", restart_after="500ms") == "f1"
        with run.during("latency", "learner-2", delay="50ms") as name:
            run.sleep("1500ms")
        assert run.verdict("reintegration")
    result = run.finish()
    plan = result.folder.plan()
    assert [(planned.id, planned.fault.kind) for planned in plan.faults] == [("f1", "kill"), (name, "latency")]
    assert plan.faults[1].fault.duration == pytest.approx(1.5, abs=0.05)
    assert result.folder.manifest()["plan"] == plan.digest
    again = run_plan(plan, tmp_path / "again", NullAudience(), backends.named("simulated"))
    assert happened(again) == happened(result)
    assert [verdict.verdict for verdict in again.judgement.checks] == [
        verdict.verdict for verdict in result.judgement.checks]


def test_virtual_time_stands_still_between_two_lines(launched):
    with launched() as run:
        run.wait_steady()
        at = run.now
        threading.Event().wait(0.05)
        assert run.now == at
        run.sleep(1.0)
        assert run.now == pytest.approx(at + 1.0, abs=0.02)


def test_faults_of_the_scenario_come_too_and_names_are_never_given_twice(launched):
    with launched("{pause: learner-1, at: 1s, for: 500ms}") as run:
        assert run.pause("learner-2", for_="500ms") == "f2"
        assert run.crash_loop("learner-3", times=2) == "f3.1"
        assert run.terminate("learner-2", restart_after="300ms", after="f2", id="last") == "last"
    came = {event.fault for event in run.finish().history.tape.of(Injected)}
    assert came == {planned.id for planned in run.finish().folder.plan().faults} >= {"f1", "f2", "f3.1", "last"}


@pytest.mark.parametrize(("fault", "why"), [
    (("kill", "learner-9"), "there is no node 'learner-9' here; did you mean 'learner-"),
    (("kil", "learner-1"), "no fault of this name; did you mean 'kill'?"),
    (("pause", "learner-1"), "say for how long"),
    (("corrupt_memory", "learner-1", {"values": "many"}), "values"),
    (("join", "learner-3"), "the cluster must be prepared for it"),
    (("kill", "learner-1", {"when": {"node": "learner-1", "failpoint": "upload.half"}}), "stands in the scenario"),
    (("kill", "learner-1", {"after": "f7"}), "there is no fault 'f7'")])
def test_a_fault_that_can_not_be_is_refused_in_a_sentence_and_the_run_goes_on(launched, fault, why):
    kind, target, *settings = fault
    with launched() as run:
        with pytest.raises(ScenarioError, match=why):
            run.inject(kind, target, **(settings[0] if settings else {}))
        run.wait_rounds(2)
    assert run.finish().outcome.kind == "finished"
    assert not run.finish().folder.plan().faults


def test_two_that_would_undo_each_other_do_not_meet(launched):
    with launched() as run, run.during("pause", "learner-1"), pytest.raises(ScenarioError, match="overlaps with pause"):
        run.pause("learner-1", for_="1s")


def test_what_does_not_come_in_time_is_told_and_so_is_the_end(launched):
    with launched() as run:
        with pytest.raises(NotInTimeError, match=r"round \d+ did not come within 500 ms; \d+ rounds"):
            run.wait_rounds(9999, within="500ms")
        with pytest.raises(RunOverError, match=r"training is over, and round .* was waited for"):
            run.wait_rounds(9999)
        with pytest.raises(RunOverError, match="training is over"):
            run.kill("learner-1")


def test_a_run_that_did_not_pass_fails_the_block_with_its_report(launched):
    strict = "checks: {reintegration: {within: 1ms}}"
    with pytest.raises(DidNotPassError, match="✗ reintegration "), launched(must_pass=True, more=strict) as run:
        run.kill("learner-1", restart_after="500ms")
    assert not run.verdict("reintegration")
    with pytest.raises(LookupError, match="did you mean 'reintegration'"):
        run.verdict("reintegratoin")


def test_a_test_that_fails_ends_its_run(launched):
    def fails():
        with launched(must_pass=True) as run:
            runs.append(run)
            run.wait_steady()
            raise ZeroDivisionError

    runs = []
    with pytest.raises(ZeroDivisionError):
        fails()
    run, = runs
    result = run.finish()
    assert (result.outcome.kind, result.outcome.message) == (
        "interrupted", "stopped, because the test raised ZeroDivisionError")


def test_processes_are_started_hit_and_ended_beside_the_test(launched):
    with launched(on="local", budget=200) as run:
        run.kill("learner-1", restart_after="500ms")
        with run.during("latency", "learner-2", delay="30ms"):
            run.wait_rounds(10)
    result = run.finish()
    verdicts = {verdict.name: verdict for verdict in result.judgement.checks}
    assert "f2" in {event.fault for event in result.history.tape.of(Observed, node="harness")}, "it was measured"
    assert verdicts["all_undone"], verdicts["all_undone"]
    assert verdicts["exactly_once"], verdicts["exactly_once"]


def test_it_is_part_of_the_public_interface():
    assert diloco_chaos.launch is launch


@pytest.mark.parametrize("kind", ["io", "hang"])
def test_what_must_be_preloaded_is_refused_where_the_scenario_has_no_such_fault(kind, tmp_path, scenario_text):
    settings = {"path": "*", "error": "EIO"} if kind == "io" else {}
    with (launch(parse(scenario_text(budget=40)), on="local", runs=tmp_path, must_pass=False) as run,
          pytest.raises(ScenarioError, match="nothing is preloaded into learner-1 for it")):
        run.inject(kind, "learner-1", for_="1s", **settings)


def test_under_virtual_time_nothing_must_be_preloaded(launched):
    with launched() as run:
        run.hang("learner-1", for_="500ms")
        run.sleep("1s")
    assert run.finish().history.tape.of(Observed)[0].observed["ok"]
