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
_ALONE = _OWN.replace("  nodes:\n", "  nodes:\n    alone: {run: \"{python} alone.py\"}\n").replace(
    "cable: [replica-1.store]", "shelf: [alone], hall: [alone, store]")


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


_STORM = "  - {{storm: {}, at: 1s, for: 9s, mtbf: 9s, whole_domains: {}}}\n"


def test_a_storm_takes_whole_domains_and_the_plan_says_which() -> None:
    head = "domains: {rack-1: [learner-1, learner-2], rack-2: [learner-3, learner-4]}\n"
    plan = _plan(_STORM.format("learners", "100%"), head)
    assert {(planned.fault.targets, planned.domains) for planned in plan.faults} <= {
        (("learner-1", "learner-2"), ("rack-1",)), (("learner-3", "learner-4"), ("rack-2",))}
    assert plan.faults
    assert Plan.model_validate(plan.document()).digest == plan.digest


def test_a_storm_without_that_setting_is_what_it_was_beside_domains() -> None:
    storm = "  - {storm: learners, at: 1s, for: 9s, mtbf: 9s}\n"
    assert _plan(storm).digest == _plan(storm, "").digest


@pytest.mark.parametrize(("target", "head", "what"), [
    ("learners", "", "there are no domains here; say what fails together, at the top: "
                     "`domains: {rack-1: [learner-1, learner-2]}`"),
    ("[learner-1, learner-4]", "domains: {rack-1: [learner-1, learner-2]}\n",
     "every domain has nodes beside its targets, or links only; aim it at all nodes of one (rack-1 has learner-1, "
     "learner-2), or leave whole_domains out")])
def test_a_storm_of_domains_that_it_can_not_take_is_refused(target: str, head: str, what: str) -> None:
    [problem] = _problems(_STORM.format(target, "20%"), head).splitlines()
    assert problem.endswith(f"storm: whole_domains: {what}")


def test_a_share_of_more_than_all_is_refused() -> None:
    assert "whole_domains: " in _problems(_STORM.format("learners", "120%"))


_KILL = "  - {kill: domain rack-1, at: 3s}\n"


@pytest.mark.parametrize("members", ["[]", "", "1", "[1]", "{a: learner-1}", "[[learner-1]]"])
def test_a_domain_that_is_no_list_of_names_is_told_once_and_how_to_write_it(members: str) -> None:
    assert _problems(_KILL, f"domains: {{rack-1: {members}}}\n").splitlines() == [
        "scenario:3:11: domains.rack-1: a domain is a list of nodes and links that fail together: write "
        "`[learner-1, learner-2]`"]


def test_of_a_wrong_domain_nothing_else_is_said() -> None:
    assert len(_problems(_KILL, "domains: [rack-1]\n").splitlines()) == 1
    [name] = _problems("  - {kill: domain Rack 1, at: 3s}\n", "domains: {Rack 1: [learner-1]}\n").splitlines()
    assert name.startswith("scenario:3:11: domains.Rack 1: 'Rack 1' is not a name")


def test_a_wrong_domain_hides_no_mistake_in_a_fault_of_another() -> None:
    faults = f"{_KILL}  - {{kill: domain rack-2, at: 3s}}\n  - {{pause: domain rack-3, at: 4s, for: 1s}}\n"
    problems = _problems(faults, "domains: {rack-1: [], rack-2: [syncer]}\n").splitlines()
    assert [problem.partition(": ")[0] for problem in problems] == ["scenario:3:11", "scenario:7:5"]
    assert "there is no domain 'rack-3' here" in problems[1]


def test_a_strange_member_is_told_at_its_domain_only() -> None:
    [problem] = _problems(_KILL, "domains: {rack-1: [learner-9]}\n").splitlines()
    assert problem.startswith("scenario:3:11: domain rack-1: there is no node or link 'learner-9' here; did you mean")
    [problem] = _problems(_KILL, _OWN.replace("{rack-1: [replica], cable: [replica-1.store]}",
                                              "{rack-1: [replica-1.sore]}")).splitlines()
    assert "there is no node or link 'replica-1.sore' here; did you mean 'replica-1.store'?" in problem


@pytest.mark.parametrize("member", ["rack-2", "domain rack-2"])
def test_a_domain_in_a_domain_is_refused_with_the_names_to_write(member: str) -> None:
    [problem] = _problems(_KILL, f"domains: {{rack-1: [{member}], rack-2: [learner-3, learner-4]}}\n").splitlines()
    assert (f"domain rack-1: {member!r} is a domain itself, and a domain holds nodes and links: write these, "
            "[learner-3, learner-4]") in problem


def test_a_member_that_is_written_twice_is_hit_once() -> None:
    [planned] = _plan(_KILL, "domains: {rack-1: [learner-1, learner-1]}\n").faults
    assert planned.fault.targets == ("learner-1",)


def test_a_domain_without_the_word_is_told() -> None:
    assert "there is no node 'rack-1' here, but a domain: write `domain rack-1`" in _problems(
        "  - {kill: rack-1, at: 3s}\n")


@pytest.mark.parametrize("fault", ["kill: {}", "pause: {}, for: 1s", "hang: {}, for: 1s", "crash_loop: {}",
                                   "io: {}, path: '*', error: EIO, for: 1s", "storm: {}, for: 5s"])
@pytest.mark.parametrize("target", ["domain cable", "[domain cable, store]"])
def test_a_domain_of_links_alone_is_hit_by_no_fault_of_nodes(fault: str, target: str) -> None:
    [problem] = _problems(f"  - {{{fault.format(target)}, at: 3s}}\n", _OWN).splitlines()
    kind = fault.partition(":")[0]
    assert problem == (
        f"scenario:12:5: {kind}: domain cable has links only (replica-1.store), and {kind} hits nodes: add the nodes "
        "that fail with it, as in `domains: {cable: [replica-1, replica-1.store]}`, or hit its links, as in "
        "`partition: domain cable`")


def test_another_mistake_in_a_fault_of_such_a_domain_is_told_beside_it() -> None:
    links, key = _problems("  - {kill: domain cable, at: 3s, fro: 1s}\n", _OWN).splitlines()
    assert "domain cable has links only" in links
    assert "unknown key 'fro'" in key


@pytest.mark.parametrize("fault", ["partition: {}, for: 1s", "flapping: {}, for: 2s",
                                   "storm: {}, for: 9s, of: [{{partition: {{for: 1s}}}}]"])
@pytest.mark.parametrize(("target", "of"), [("alone", ""), ("domain shelf", " (alone is in domain shelf)")])
def test_a_node_without_links_is_hit_by_no_fault_of_links(fault: str, target: str, of: str) -> None:
    [problem] = _problems(f"  - {{{fault.format(target)}, at: 3s}}\n", _ALONE).splitlines()
    assert (f"alone has no link{of}: its command names no other node, and no other command names it; hit one that "
            "has: replica-1, store, replica-2") in problem


def test_in_a_domain_one_node_with_links_is_enough_for_a_fault_of_links() -> None:
    [planned] = _plan("  - {partition: domain hall, at: 3s, for: 1s}\n", _ALONE).faults
    assert planned.domains == ("hall",)


def test_where_there_is_no_link_at_all_the_way_to_have_one_is_told() -> None:
    head = _OWN.partition("domains:")[0].replace(" {store} {name}", "")
    assert "write `listens: true` at a node, and its name in another's command" in _problems(
        "  - {partition: store, at: 3s, for: 1s}\n", head)


@pytest.mark.parametrize("fault", ["kill: domain rack-1", "partition: replica-1.store, for: 1s",
                                   "partition: domain cable, for: 1s", "terminate: replica-1, signal: USR1",
                                   "kill: replica-1"])
def test_where_a_command_is_wrong_nothing_is_said_of_links_that_it_may_have(fault: str) -> None:
    [problem] = _problems(f"  - {{{fault}, at: 3s}}\n", _OWN.replace("{store} {name}", "{sore} {name}")).splitlines()
    assert "{sore} stands for nothing" in problem


def test_a_file_to_wait_for_of_a_wrong_command_ends_in_no_traceback() -> None:
    fault = "  - {kill: replica-1, when: {node: replica-1, file: done}}\n"
    assert "{sore} stands for nothing" in _problems(fault, _OWN.replace("{store} {name}", "{sore} {name}"))


def test_the_member_that_a_fault_can_not_hit_is_named() -> None:
    assert "only a learner can be hit by it (syncer is in domain rack-1)" in _problems(
        "  - {straggler: domain rack-1, at: 3s, for: 1s}\n", "domains: {rack-1: [learner-1, syncer]}\n")


@pytest.mark.parametrize("fault", ["io: domain rack-1, path: '*', error: EIO, for: 1s", "hang: domain rack-1, for: 1s"])
def test_failing_calls_and_hangs_hit_all_nodes_of_a_domain(fault: str) -> None:
    [planned] = _plan(f"  - {{{fault}, at: 3s}}\n").faults
    assert planned.fault.targets == ("learner-1", "learner-2")
    assert planned.describe().endswith("(domain rack-1)")


def test_no_file_may_write_what_a_plan_keeps() -> None:
    assert "unknown key 'domains'" in _problems("  - {kill: learner-1, at: 3s, domains: {a: [learner-1]}}\n")
