"""The same plan in several modes: what is compared, and what is said where a run did not get there."""

import json
import os
import signal
import subprocess
import sys

import pytest
from rich.console import Console

from diloco_chaos.chaos.checks.base import Doubt
from diloco_chaos.chaos.checks.outcome import loss_at
from diloco_chaos.chaos.report import compare
from diloco_chaos.chaos.runner import backends
from diloco_chaos.chaos.scenario.loading import load, parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.record.tape.events import Resumed, Step, Traffic
from diloco_chaos.harness.trainer.config.cluster_config import MODES
from typed import typed

SCENARIO = """
diloco_chaos: 1
name: small
cluster: {model: quadratic, learners: 3, budget: 150 steps, step_time: 60ms, quorum: 1}
deadline: 30s
faults:
  - {kill: learner-1, at: 2s, restart_after: 2s}
checks: {loss_parity: {against_baseline: 1%}}
"""


def planned(plan, *modes):
    """The plan in each of these modes."""
    made, senseless = compare.plans(plan, modes)
    assert not senseless
    return made


@pytest.fixture(scope="module")
def plan():
    return freeze(parse(SCENARIO), 3)


@pytest.fixture(scope="module")
def found(plan, tmp_path_factory):
    return compare.compared(planned(plan, *MODES), tmp_path_factory.mktemp("runs"), Console(quiet=True),
                            backends.named("simulated"))


def test_a_plan_in_another_mode_breaks_the_same_at_the_same_times(plan):
    for mode in MODES:
        other = compare.under(plan, mode)
        assert (other.cluster.mode, other.faults, other.seed) == (mode, plan.faults, plan.seed)
        assert other.cluster.quorum == (1 if mode in ("decoupled", "elastic_data_parallel") else 3)
        assert other.cluster.budget == plan.cluster.budget
        assert other.checks.loss_parity is None


@pytest.mark.parametrize("mode", MODES)
def test_what_a_scenarios_own_mode_implies_is_no_burden_to_the_others(plan, mode):
    own = compare.under(plan, mode)
    for other in MODES:
        mine, its = (compare.under(of, other).cluster.model_dump(exclude={"checkpoint_every"}) for of in (own, plan))
        assert mine == its


def test_how_outer_gradients_travel_says_nothing_of_gradients_of_single_steps_nor_the_other_way_round():
    ways = "gradients: bfloat16, broadcasts: bfloat16"
    for mode, others in (("decoupled", ("data_parallel", "elastic_data_parallel")), ("data_parallel", ("decoupled",))):
        plan = freeze(parse(SCENARIO.replace("quorum: 1", f"mode: {mode}, {ways}")), 3)
        assert {compare.under(plan, other).cluster.gradients for other in others} == {"float32"}
    assert compare.under(plan, "elastic_data_parallel").cluster.broadcasts == "bfloat16"


@pytest.mark.parametrize("settings", ["mode: streaming, overlap: 0", "mode: diloco", "quorum: 3, overlap: 0"])
def test_without_overlap_who_exchanges_fragments_waits_for_all_and_who_averages_gradients_does_not_care(settings):
    plan = freeze(parse(SCENARIO.replace("quorum: 1", settings)), 3)
    for mode, other in planned(plan, *MODES).items():
        cluster = other.cluster
        waits = mode != "elastic_data_parallel" and not (mode == "decoupled" and cluster.overlap)
        assert cluster.quorum == (3 if waits else 1)


def test_modes_in_which_a_plan_makes_no_sense_are_told_apart_with_the_reason():
    made, senseless = compare.plans(freeze(load("scavenging")[0], 0), MODES)
    assert list(made) == ["elastic_data_parallel", "decoupled"]
    assert senseless["diloco"] == "mode diloco waits for all learners from the beginning, and learner-5, learner-6, " \
                                  "learner-7 and learner-8 join later"
    assert list(senseless) == ["data_parallel", "diloco", "streaming"]


def test_a_fault_that_a_mode_has_no_place_for_is_told(tmp_path):
    plan = freeze(parse(SCENARIO.replace("quorum: 1", "recovery: peer").replace(
        "  - {kill: learner-1, at: 2s, restart_after: 2s}", "  - {kill: learner-3, at: 2s, restart_after: 2s}\n"
        "  - {kill: learner-1, when: {node: learner-1, failpoint: donate.half, count: 1}, restart_after: 1s}")), 3)
    found, _ = compare.compared(planned(plan, "data_parallel", "decoupled"), tmp_path, Console(quiet=True),
                                backends.named("simulated"))
    why = {one.mode: one.why for one in found}
    assert why["decoupled"] == ""
    assert "not every fault was observed: " in why["data_parallel"]


def test_every_mode_has_its_figures_and_only_who_waits_for_nobody_keeps_its_goodput(found):
    by_mode = {one.mode: one for one in found[0]}
    assert list(by_mode) == ["data_parallel", "elastic_data_parallel", "diloco", "streaming", "decoupled"]
    decoupled = by_mode.pop("decoupled")
    assert decoupled.longest_stall_s < 0.5
    elastic = by_mode.pop("elastic_data_parallel")
    assert decoupled.goodput > elastic.goodput
    assert decoupled.wall_s < elastic.wall_s - 1
    assert 1 < elastic.longest_stall_s < 1.5  # its reconfiguration
    for one in by_mode.values():
        assert decoupled.goodput > one.goodput + 0.1
        assert decoupled.wall_s < one.wall_s - 1
        assert one.longest_stall_s > 2  # as long as it is dead


def test_modes_that_average_gradients_say_how_often_they_save_and_send_more(found):
    by_mode = {one.mode: one for one in found[0]}
    for mode in ("data_parallel", "elastic_data_parallel"):
        assert by_mode[mode].checkpoint_every == 5  # sqrt(2 * 0.005 s * 9 s for one loss) in steps of 60 ms
        assert by_mode[mode].bytes_per_token > 1.5 * by_mode["decoupled"].bytes_per_token  # heads of frames, mostly
        assert by_mode[mode].goodput == pytest.approx(by_mode[mode].predicted, abs=0.1)
    assert by_mode["decoupled"].checkpoint_every is None


def test_figures_are_those_of_the_tape(found):
    figures, histories = found
    end = min(one.wall_s for one in figures)
    for one in figures:
        history = histories[one.mode]
        traffic = history.tape.of(Traffic)[-1]
        total = sum(traffic.sent.values()) + sum(traffic.received.values())
        assert one.bytes_per_token == pytest.approx(total / history.accounting.processed, abs=1e-4)
        assert one.loss == history.curve[-1].loss
        assert one.loss_at_equal_time == pytest.approx(loss_at(history.curve, "t", history.zero + end), abs=1e-3)


def test_bytes_of_a_syncer_that_was_killed_count_too(tmp_path):
    killed = freeze(parse(SCENARIO.replace("learner-1", "syncer")), 0)
    (one,), histories = compare.compared(planned(killed, "decoupled"), tmp_path, Console(quiet=True),
                                         backends.named("simulated"))
    history = histories["decoupled"]
    told = {event.inc: sum(event.sent.values()) + sum(event.received.values())
            for event in history.tape.of(Traffic)}
    assert set(told) == {0, 1}
    last = {event.inc: event.t for event in history.tape.of(Traffic)}
    back = next(event.t for event in history.tape.of(Resumed))
    tokens = sum(step.tokens for step in history.tape.of(Step) if step.t <= last[0] or back <= step.t <= last[1])
    assert one.bytes_per_token == pytest.approx((told[0] + told[1]) / tokens, abs=1e-4)


def test_a_mode_that_does_not_end_has_no_figures_and_says_why(tmp_path):
    dead = freeze(parse(SCENARIO.replace(", restart_after: 2s", "")), 0)
    figures, histories = compare.compared(planned(dead, "decoupled", "diloco"), tmp_path,
                                          Console(quiet=True), backends.named("simulated"))
    assert [one.mode for one in figures if one.goodput is None] == ["diloco"]
    assert "deadline of 90 s passed" in figures[1].why
    assert list(histories) == ["decoupled"]
    assert figures[0].loss_at_equal_time == figures[0].loss


def test_figures_that_prove_nothing_are_shown_with_the_reason(plan, tmp_path, monkeypatch):
    monkeypatch.setattr("diloco_chaos.chaos.checks.doubt", lambda *_, **__: Doubt("this machine is too busy"))
    (one,), _ = compare.compared(planned(plan, "decoupled"), tmp_path, Console(quiet=True), backends.named("simulated"))
    assert (one.why, one.goodput is None) == ("this machine is too busy", False)


def test_the_table_and_the_plot_fit_eighty_columns(plan, found):
    with open(os.devnull, "w") as nowhere:
        console = Console(file=nowhere, width=80, record=True)
        compare.show(plan, *found, console)
    text = console.export_text()
    assert max(len(line) for line in text.splitlines() if not line.startswith("saved ")) <= 80
    assert all(f"saved   {one.run}\n" in text for one in found[0])
    for words in ("goodput", "bytes/token", "stall", "decoupled", "elastic_data_parallel", "over time since the steady",
                  "data_parallel: a checkpoint every 5 steps"):
        assert words in text


def command(*arguments):
    return typed("compare", *arguments)


def test_json_is_one_object_with_a_list_of_modes(tmp_path):
    file = tmp_path / "small.yaml"
    file.write_text(SCENARIO.lstrip())
    done = command(str(file), "--modes", "diloco,decoupled", "--seed", "3", "--runs-dir", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [one["mode"] for one in answer["modes"]] == ["diloco", "decoupled"]
    for one in answer["modes"]:
        assert {"goodput", "loss", "bytes_per_token", "longest_stall_s"} <= set(one)
    assert answer["plan"] == freeze(load(str(file))[0], 3).digest


def test_ctrl_c_says_so_and_where_its_runs_are(tmp_path):
    file = tmp_path / "small.yaml"
    long = SCENARIO.lstrip().replace("quadratic", "micro, corpus: markov, fragments: 4").replace("150", "1000")
    file.write_text(long)
    process = subprocess.Popen(
        [sys.executable, "-m", "diloco_chaos", "compare", str(file), "--json", "--modes", " decoupled, diloco ",
         "--runs-dir", str(tmp_path / "runs")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))  # else it may be ignored
    said = []
    for line in process.stderr:
        said.append(line)
        if "steady state" in line:
            process.send_signal(signal.SIGINT)
            break
    out, rest = process.communicate(timeout=60)
    (run,) = (tmp_path / "runs").glob("2*")
    assert (process.returncode, out) == (130, "")
    assert rest.endswith(f"saved   {run}\ninterrupted; no process of ours is left\n"), "".join(said) + rest


@pytest.mark.parametrize(("arguments", "message"), [
    (["flagship", "--modes", " , "], "--modes ' , ' names none; there are data_parallel, elastic_data_parallel, "),
    (["flagship", "--modes", "decopled"], "no mode 'decopled'; did you mean 'decoupled'?"),
    (["flagship", "--modes", "synchronous"], "there are data_parallel, elastic_data_parallel, diloco, streaming, "),
    (["flagship", "--modes", ""], "there are data_parallel, elastic_data_parallel, diloco, streaming, decoupled"),
    (["flagshp"], "did you mean 'flagship'"),
    (["flagship", "--on", "nowhere"], "unknown backend"),
    (["scale-out", "--modes", "diloco"], "mode diloco waits for all learners from the beginning, and learner-"),
    (["scale-out", "--modes", "data_parallel"], "mode data_parallel waits for all learners from the beginning, and "),
])
def test_a_mistake_gets_a_message_and_exit_code_2(arguments, message):
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr
