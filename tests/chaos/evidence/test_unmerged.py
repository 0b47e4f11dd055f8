"""What was trained on and never merged, and why: by fragment, learner and batch."""

import json

import pytest
from typer.testing import CliRunner

from diloco_chaos.chaos.cli import application
from diloco_chaos.chaos.evidence.accounting.token_accounting import MERGED
from diloco_chaos.chaos.evidence.unmerged import SKIPPED, unmerged
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner.simulate import simulate


def run(*faults, **cluster):
    result = simulate(plan_of(scenario(**{"learners": 4, "budget": "120 steps", "step_time": "60ms"} | cluster),
                              list(faults), 0))
    assert result.outcome.kind == "finished", result.outcome.message
    return result


@pytest.fixture(scope="module")
def broken():
    return run({"kill": "learner-1", "at": "2s", "restart_after": "1s"}, {"terminate": "learner-2", "at": "3s"},
               {"partition": "learner-3", "at": "2s", "for": "2s"},
               {"latency": "learner-4", "at": "1s", "for": "4s", "delay": "40ms"}, on_receipt="overwrite")


def test_nothing_is_missing_and_nothing_is_listed_that_was_merged(broken):
    history = broken.history
    table = history.plan.cluster.fragment_table()
    listed = unmerged(history)
    for fragment in table:
        lost = sum(one.tokens for one in listed if one.fragment == fragment.index and one.why != SKIPPED)
        merged = sum(step.tokens for (index, node), fates in history.accounting.fates.items()
                     if index == fragment.index
                     for step in history.steps[node] if fates[step.step] == MERGED)
        assert lost + merged == history.accounting.processed
    assert all(one.tokens == one.batches * history.plan.cluster.tokens_per_step_of(one.learner) for one in listed)


def test_every_reason_is_given_to_whom_it_belongs(broken):
    why = {}
    for one in unmerged(broken.history):
        why.setdefault((one.learner, one.incarnation), set()).add(one.why)
    assert "crash" in why["learner-1", 0]
    assert "left" in why["learner-2", 0]
    assert "crash" not in why["learner-2", 0]
    assert "overlap" in why["learner-4", 0]
    assert not {"crash", "left"} & (why["learner-1", 1] | why["learner-3", 0] | why["learner-4", 0])


def test_batches_are_told_as_they_lie_in_the_shard(broken):
    history = broken.history
    taken = {node: {event.step: event.position for event in events} for node, events in history.steps.items()}
    for one in unmerged(history):
        if one.why == SKIPPED:
            continue
        fates = history.accounting.fates[one.fragment, (one.learner, one.incarnation)]
        mine = taken[one.learner, one.incarnation]
        told = {batch for first, last in one.ranges for batch in range(first, last + 1)}
        assert told == {mine[step] for step, fate in fates.items() if fate == one.why}
        assert all(left[1] + 1 < right[0] for left, right in zip(one.ranges, one.ranges[1:], strict=False))


def test_every_batch_that_was_leased_was_merged_or_is_listed(broken):
    history = broken.history
    for fragment in range(len(history.plan.cluster.fragment_table())):
        for name in history.plan.cluster.names:
            merged = {step.position for (index, node), fates in history.accounting.fates.items()
                      if (index, node[0]) == (fragment, name)
                      for step in history.steps[node] if fates[step.step] == MERGED}
            listed = [batch for one in unmerged(history) if (one.fragment, one.learner) == (fragment, name)
                      for first, last in one.ranges for batch in range(first, last + 1)]
            assert sorted([*merged, *listed]) == list(range(max([*merged, *listed]) + 1))
    skipped = {(one.learner, one.incarnation) for one in unmerged(history) if one.why == SKIPPED}
    assert skipped == {("learner-1", 0)}


@pytest.mark.parametrize("mode", ["data_parallel", "elastic_data_parallel"])
def test_what_data_parallelism_took_back_and_did_again_is_not_listed(mode):
    history = run({"kill": "learner-1", "at": "2s", "restart_after": "1s"}, mode=mode).history
    assert {"rolled back", "interrupted"} & set(history.accounting.by_fate)
    merged = {(node[0], step.position) for (_, node), fates in history.accounting.fates.items()
              for step in history.steps[node] if fates[step.step] == MERGED}
    listed = {(one.learner, batch) for one in unmerged(history) for first, last in one.ranges
              for batch in range(first, last + 1)}
    assert not listed & merged


@pytest.mark.parametrize("silence", ["1s", "3s"])
def test_nothing_is_trained_on_twice_where_what_a_learner_did_before_it_died_was_not_heard(silence):
    history = run({"partition": "learner-1", "at": "1s", "for": "2s"},
                  {"kill": "learner-1", "at": "2s", "restart_after": "1s"},
                  {"kill": "syncer", "at": "1500ms", "restart_after": "500ms"},
                  budget="200 steps", heartbeat_timeout=silence).history
    unheard, again = ([step.position for step in history.steps["learner-1", number]] for number in (0, 1))
    assert len(unheard) > 25
    assert max(unheard) < min(again) < max(unheard) + 200
    assert history.accounting.violations == []


def test_a_process_begins_behind_what_is_leased_also_where_somebody_has_used_its_number():
    history = run({"power_loss": "learner-1", "at": "2s", "restart_after": "1s"},
                  {"poison": "learner-1", "after": {"fault": "f1", "wait": "700ms"}, "content": "nan", "count": 1},
                  budget="200 steps").history
    taken = [{step.position for step in history.steps["learner-1", number]} for number in (0, 1)]
    assert len(taken[1]) > 50
    assert not taken[0] & taken[1]
    assert history.accounting.violations == []


def test_learners_that_come_and_go_cost_only_what_they_had_not_handed_in():
    guests = ["learner-3", "learner-4"]
    history = run({"join": guests, "at": "1s"}, {"terminate": guests, "at": "9s"},
                  on_receipt="carry", budget="200 steps").history
    left = [one for one in unmerged(history) if one.why == "left"]
    assert {one.learner for one in left} == {"learner-3", "learner-4"}
    assert all(one.batches <= 2 * history.plan.cluster.sync_every for one in left)
    assert len(history.steps["learner-3", 0]) > 50


def test_the_command_lists_them_and_refuses_a_fragment_that_is_not_there(broken, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(
        "diloco_chaos: 1\nname: s\ncluster: {model: quadratic, learners: 2, budget: 60, step_time: 60ms}\n"
        "faults: [{kill: learner-1, at: 1s, restart_after: 500ms}]\n")
    runner = CliRunner()
    runner.invoke(application(), ["run", "s.yaml", "--on", "simulated"])
    [folder] = (tmp_path / "runs").glob("2*")
    document = json.loads(runner.invoke(application(), ["tokens", str(folder), "--json"]).stdout)
    assert {one["why"] for one in document["unmerged"]} >= {"crash"}
    assert document["processed"] > 0
    shown = runner.invoke(application(), ["tokens", str(folder), "--fragment", "1"])
    assert shown.exit_code == 0
    assert "crash" in shown.stdout
    refused = runner.invoke(application(), ["tokens", str(folder), "--fragment", "9"])
    assert refused.exit_code != 0
