"""Failure domains: what fails together has a name, and a plan has its members."""

from __future__ import annotations

import pytest

from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.chaos.scenario.problems import ScenarioError

_RACKS = "domains: {rack-1: [learner-1, learner-2], rack-2: learner-3, feed: [learner-2, learner-3]}\n"
_OWN = """\
trainer:
  kind: commands
  nodes:
    store: {listens: true, run: "{python} train.py store {port}"}
    replica: {count: 2, worker: true, run: "{python} train.py worker {store} {name}"}
  progress: [{node: replica, log: 'round=(?P<round>\\d+)'}]
  rounds: 320
domains: {rack-1: [replica], cable: [replica-1.store]}
"""


def _plan(faults: str, head: str = _RACKS) -> Plan:
    return freeze(parse(f"diloco_chaos: 1\nname: x\n{head}faults:\n{faults}"), 0)


def _problems(faults: str, head: str = _RACKS) -> str:
    with pytest.raises(ScenarioError) as error:
        _plan(faults, head)
    return str(error.value)


def test_a_fault_of_a_domain_is_one_fault_of_all_its_nodes() -> None:
    [planned] = _plan("  - {kill: domain rack-1, at: 3s, restart_after: 1s}\n").faults
    assert planned.fault.targets == ("learner-1", "learner-2")
    assert planned.describe() == "kill learner-1 and learner-2, back after 1.0 s (domain rack-1)"


def test_a_node_in_two_domains_is_hit_once() -> None:
    [planned] = _plan("  - {pause: [domain rack-1, domain feed, syncer], at: 3s, for: 1s}\n").faults
    assert planned.fault.targets == ("learner-1", "learner-2", "learner-3", "syncer")
    assert planned.domains == ("rack-1", "feed")


def test_a_plan_repeats_with_its_domains() -> None:
    plan = _plan("  - {partition: domain rack-1, direction: upstream, at: 3s, for: 1s}\n")
    again = Plan.model_validate(plan.document())
    assert again == plan
    assert again.digest == plan.digest


def test_a_plan_without_domains_is_what_it_was() -> None:
    fault = "  - {kill: [learner-1, learner-2], at: 3s, restart_after: 1s}\n"
    assert "domains" not in str(_plan(fault).document())
    assert _plan(fault).digest == _plan(fault, "").digest


def test_faults_made_of_others_hit_the_domain_each_time() -> None:
    plan = _plan("  - {crash_loop: domain rack-1, times: 2, at: 3s}\n")
    assert [planned.domains for planned in plan.faults] == [("rack-1",), ("rack-1",)]


def test_a_kind_of_nodes_and_a_link_may_be_in_a_domain_of_commands() -> None:
    faults = "  - {kill: domain rack-1, at: 3s}\n  - {partition: domain cable, at: 1s, for: 1s}\n"
    assert [planned.fault.targets for planned in _plan(faults, _OWN).faults] == [
        ("replica-1", "replica-2"), ("replica-1.store",)]


def test_an_unknown_domain_is_told_with_the_nearest() -> None:
    assert "there is no domain 'rack-3' here; did you mean" in _problems("  - {kill: domain rack-3, at: 3s}\n")


def test_a_target_that_is_no_text_beside_a_domain_is_told() -> None:
    assert "targets" in _problems("  - {kill: [domain rack-1, {a: 1}], at: 3s}\n")


def test_a_node_that_is_called_like_a_domain_is_itself() -> None:
    head = _OWN.replace("{rack-1: [replica], cable: [replica-1.store]}", "{store: [replica]}")
    [planned] = _plan("  - {kill: [store, domain store], at: 3s}\n", head).faults
    assert planned.fault.targets == ("store", "replica-1", "replica-2")


def test_without_any_domain_the_way_to_write_one_is_told() -> None:
    assert "domains: {rack-1: [learner-1, learner-2]}" in _problems("  - {kill: domain rack-1, at: 3s}\n", "")


def test_an_empty_domain_and_a_strange_member_are_refused() -> None:
    assert "at least 1" in _problems("  []\n", "domains: {rack-1: []}\n")
    assert "no node or link 'learner-9' here" in _problems("  []\n", "domains: {rack-1: [learner-9]}\n")


def test_no_file_may_write_what_a_plan_keeps() -> None:
    assert "unknown key 'domains'" in _problems("  - {kill: learner-1, at: 3s, domains: {a: [learner-1]}}\n")
