"""What no single key shows: every kind of objection, each with its place, and what is fine."""

import pytest

from diloco_chaos.chaos.scenario.document import annotated, plain
from diloco_chaos.chaos.scenario.loading import load, parse
from diloco_chaos.chaos.scenario.messages import problems_of
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.chaos.scenario.problems import ScenarioError
from diloco_chaos.faults import FAULTS, OfProcess
from diloco_chaos.harness.trainers.api.settings import Misfit, MisfitError

HEAD = "diloco_chaos: 1\nname: mine\n"
EVERYTHING = ("kill", "terminate", "restart", "pause", "throttle", "links", "state", "limit_writes", "supersede")


def scenario(*faults, more=""):
    """A scenario whose faults stand in lines of their own, the first in line 4."""
    return f"{HEAD}faults:\n" + "".join(f"  - {fault}\n" for fault in faults) + more


def problems(text, abilities=EVERYTHING):
    """Every problem as `line:column: message`."""
    with pytest.raises(ScenarioError) as caught:
        parse(text, "mine.yaml", abilities)
    return [problem.at("mine.yaml").removeprefix("mine.yaml:") for problem in caught.value.problems]


def refused(*faults, more=""):
    """The one problem of these faults."""
    found = problems(scenario(*faults, more=more))
    assert len(found) == 1, found
    return found[0]


# -- names -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("fault", [
    "{kill: lerner-1, at: 1s}", "{pause: [learner-2, learner-5], at: 1s, for: 1s}",
    "{latency: learner_1, at: 1s, for: 1s}", "{storm: [learner-1, learner-7], at: 1s, for: 9s}",
    "{flapping: Learner-1, at: 1s, for: 9s}", "{crash_loop: learner1, at: 1s}",
    "{kill: learner-1, when: {node: learner-6, event: step}}", "{kill: learner-6, when: {loss_below: 3}}"])
def test_a_node_that_this_cluster_does_not_have_is_told_with_the_nearest(fault):
    message = refused(fault)
    assert message.startswith("4:5: ")
    assert "there is no node" in message
    assert "did you mean 'learner-" in message
    assert "this cluster has" in message


def test_every_target_that_does_not_exist_is_told():
    assert len(problems(scenario("{kill: [learner-5, learner-6, learner-1], at: 1s}"))) == 2


def test_a_learner_in_a_check_that_does_not_exist_is_told_at_its_name():
    found = problems(HEAD + "checks:\n  participation:\n    - {learner: learner-1, at_least: 80%}\n"
                            "    - {at_least: 80%, learner: learner-5}\n")
    assert len(found) == 1
    assert found[0].startswith("6:23: there is no learner 'learner-5' here; did you mean 'learner-")


@pytest.mark.parametrize("fault", [
    "{straggler: syncer, at: 1s, for: 1s}", "{zombie: [learner-1, syncer], at: 1s, for: 1s}",
    "{poison: syncer, at: 1s}"])
def test_what_hits_learners_only_is_not_for_the_syncer(fault):
    assert refused(fault).endswith(": only a learner can be hit by it")


@pytest.mark.parametrize("fault", [
    "{corrupt: learner-1, at: 1s}", "{truncate: learner-1, at: 1s}", "{delete: learner-1, at: 1s}",
    "{write_limit: learner-1, at: 1s, for: 1s}"])
def test_what_hits_the_syncer_only_is_not_for_learners(fault):
    assert refused(fault).endswith(": only the syncer can be hit by it")


@pytest.mark.parametrize("fault", ["composite: learner-1", "link_fault: learner-1", "klil: learner-1", "5: learner-1"])
def test_only_kinds_that_can_be_named_are_offered(fault):
    message = refused(f"{{{fault}, at: 1s, for: 1s}}")
    offered = message.partition("kinds are ")[2].split(", ")
    assert {"kill", "storm", "zombie"} <= set(offered)
    assert not {"composite", "link_fault"} & set(offered)
    assert f"did you mean '{fault.partition(':')[0]}'" not in message


def test_a_hint_without_a_nearest_name_is_a_sentence_of_its_own():
    assert "no fault 'xyzzy'. A fault begins with" in refused("{xyzzy: learner-1, at: 1s}")
    assert "'xyzzy' docs" not in refused("{kill: learner-1, when: {node: learner-1, event: xyzzy}}")


def test_a_fault_of_two_kinds_is_told_which_key_is_one_too_many():
    assert refused("{kill: learner-1, at: 1s, pause: learner-2}").startswith("4:31: unknown key 'pause'")


@pytest.mark.parametrize(("text", "place"), [("kill: learner-1\n", "3:1: unknown key 'kill'"),
                                             ("checks:\n  latency: 5s\n", "4:3: unknown key 'latency'"),
                                             ("cluster: {storm: 1}\n", "3:11: unknown key 'storm'"),
                                             ("5: five\n", "3:1: unknown key '5'"),
                                             ("cluster: {5: five}\n", "3:11: unknown key '5'")])
def test_an_unknown_key_is_told_by_its_name_and_place_whatever_it_is_called(text, place):
    assert problems(HEAD + text)[0].startswith(place)


def test_a_fault_names_its_targets_once():
    assert problems(scenario("{kill: learner-1, targets: learner-2, at: 1s}"))


def test_two_faults_with_one_id_are_refused():
    assert "another fault 'a'" in refused("{kill: learner-1, at: 1s, id: a}", "{kill: learner-2, at: 1s, id: a}")
    assert "another fault 'f2'" in refused("{kill: learner-1, at: 1s, id: f2}", "{kill: learner-2, at: 1s}")


@pytest.mark.parametrize("text", ["checks: 5\n", "faults:\n  - {kill: learner-1, after: 5}\n", "faults:\n  - [kill]\n",
                                  "faults:\n  - {kill: 5, at: 1s}\n"])
def test_a_wrong_type_is_told_without_names_from_the_code(text):
    message = problems(HEAD + text)[0]
    assert not any(word in message for word in ("instance", "Bounds", "TrainerConfig", "After", "object", "tuple"))


# -- triggers --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(("node", "event"), [
    ("learner-1", "merge"), ("learner-1", "lost"), ("syncer", "step"), ("syncer", "upload"), ("learner-1", "spawn"),
    ("syncer", "healed"), ("syncer", "begin"), ("learner-1", "checkpoint_begun"), ("learner-1", "checkpoint_complete"),
    ("learner-1", "checkpoint_incomplete"), ("learner-1", "traffic"), ("learner-1", "refused_checkpoint"),
    ("syncer", "checkpoint_part"),
    ("syncer", "continued"), ("learner-1", "continued")])
def test_an_event_that_a_node_never_records_is_told(node, event):
    message = refused(f"{{kill: learner-1, when: {{node: {node}, event: {event}}}}}")
    assert message == f"4:5: {node} never records {event}: this would never come"


@pytest.mark.parametrize(("node", "event"), [("syncer", "finished"), ("syncer", "initial")])
def test_an_event_that_no_run_of_a_scenario_can_wait_for_is_told(node, event):
    assert "would never come" in refused(f"{{kill: learner-1, when: {{node: {node}, event: {event}}}}}")


@pytest.mark.parametrize("event", ["step", "outer_gradient", "upload", "received", "disconnected"])
def test_what_a_learner_does_record_can_be_waited_for(event):
    parse(scenario(f"{{kill: learner-1, when: {{node: learner-1, event: {event}, count: 3}}}}"))


def test_an_event_with_a_typo_is_told_with_the_nearest_that_this_node_records():
    assert "no event 'mrege'; did you mean 'merge'?" in refused("{kill: syncer, when: {node: syncer, event: mrege}}")


@pytest.mark.parametrize("when", [
    "{node: learner-1, event: step, count: 3201}", "{node: learner-1, event: upload, count: 99999}",
    "{node: syncer, event: merge, count: 99999}", "{node: learner-1, failpoint: upload.half, count: 99999}"])
def test_a_count_that_can_never_be_reached_is_told(when):
    assert "would never come" in refused(f"{{kill: {when[7:when.index(',')]}, when: {when}}}")


def test_a_learner_that_is_left_alone_may_take_every_step():
    parse(scenario("{kill: learner-1, when: {node: learner-1, event: step, count: 3200}}"))


@pytest.mark.parametrize("fault", [
    "{straggler: learner-1, when: {node: learner-1, failpoint: upload.half}, for: 1s}",
    "{latency: learner-1, when: {node: learner-1, failpoint: upload.half}, for: 1s}",
    "{kill: learner-2, when: {node: learner-1, failpoint: upload.half}}",
    "{kill: [learner-1, learner-2], when: {node: learner-1, failpoint: upload.half}}",
    "{write_limit: syncer, when: {node: syncer, failpoint: merge.before_commit}, for: 1s}"])
def test_a_node_that_holds_must_be_set_free_by_the_fault(fault):
    assert "stands still until" in refused(fault)


@pytest.mark.parametrize("fault", [
    "{kill: syncer, when: {node: syncer, failpoint: upload.half}}",
    "{kill: learner-1, when: {node: learner-1, failpoint: checkpoint.before_rename}}"])
def test_a_hold_point_belongs_to_one_kind_of_node(fault):
    assert "holds at" in refused(fault)


@pytest.mark.parametrize("other", ["merge.before_commit", "checkpoint.before_rename"])
def test_a_node_holds_in_its_first_life_only(other):
    assert refused("{kill: syncer, when: {node: syncer, failpoint: merge.before_commit}, restart_after: 1s}",
                   f"{{kill: syncer, when: {{node: syncer, failpoint: {other}, count: 9}}, restart_after: 1s}}")


def test_a_node_may_be_paused_where_it_holds():
    parse(scenario("{pause: learner-1, when: {node: learner-1, failpoint: upload.half}, for: 1s}"))



def test_a_fault_after_one_that_does_not_exist_is_told_with_those_that_do():
    message = refused("{kill: learner-1, at: 1s, id: first}", "{kill: learner-2, after: frist}")
    assert message == "5:5: after: there is no fault 'frist'; did you mean 'first'? (faults are first, f2)"


def test_a_fault_with_an_id_is_not_found_by_its_number():
    assert "no fault 'f1'" in refused("{kill: learner-1, at: 1s, id: first}", "{kill: learner-2, after: f1}")


def test_a_fault_after_itself_is_told():
    assert refused("{kill: learner-1, after: f1}") == "4:5: after: this comes after itself, in turn"


def test_faults_that_wait_for_each_other_are_told_and_those_that_wait_for_them_are_not():
    found = problems(scenario("{pause: learner-1, for: 1s, after: f2}", "{pause: learner-2, for: 1s, after: f3}",
                              "{pause: learner-3, for: 1s, after: f1}", "{kill: learner-4, after: f1}"))
    assert [problem.partition(": ")[0] for problem in found] == ["4:5", "5:5", "6:5"]


def test_a_chain_may_be_written_in_any_order_and_be_long():
    links = [f"{{pause: learner-1, for: 1ms, after: f{number}}}" for number in range(2, 150)]
    parse(scenario(*links, "{pause: learner-1, at: 1s, for: 1ms}"))


def test_a_chain_of_any_length_ends_in_a_message_or_is_accepted():
    links = [f"{{pause: learner-1, for: 1ms, after: f{number}}}" for number in range(2, 1200)]
    try:
        parse(scenario(*links, "{pause: learner-1, at: 1s, for: 1ms}"))
    except ScenarioError as error:
        assert str(error)


def test_a_fault_may_come_after_one_that_is_made_of_others():
    parse(scenario("{flapping: learner-1, at: 1s, for: 3s}", "{kill: learner-1, after: f1}"))


@pytest.mark.parametrize(("growth", "comes"), [("", False), (", sync_growth: 90, sync_from: 1", True)])
def test_while_h_grows_a_merge_can_come_more_often(growth, comes):
    cluster = f"cluster: {{budget: 100 steps, sync_every: 50, learners: 2{growth}}}\n"
    text = scenario("{kill: learner-1, when: {node: syncer, event: merge, count: 60}}", more=cluster)
    if comes:
        parse(text)
    else:
        found, = problems(text)
        assert "syncer records merge 48 times at the very most" in found


@pytest.mark.parametrize(("cluster", "words"), [
    ("sync_growth: 100, budget: 100 steps", "sync_growth 100: H never reaches 8"),
    ("sync_growth: 20, sync_from: 9", "sync_from 9 is more than sync_every 8"),
    ("momentum_ramp: 800", "momentum_ramp 800: the outer momentum never reaches 0.8"),
    ("batch: 0", "a batch of 0: a step takes 1 to 4096 sequences"),
    ("batch: [16, 16]", "batch: 2 of them for 4 learners")])
def test_a_schedule_or_a_batch_that_can_not_be_is_told_in_one_sentence(cluster, words):
    found, = problems(f"{HEAD}cluster: {{{cluster}}}\n")
    assert words in found


# -- too late --------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("faults", [
    ["{pause: learner-1, at: 60s, for: 1s}"],
    ["{pause: learner-1, at: 30s, for: 10s}", "{pause: learner-2, after: {fault: f1, wait: 30s}, for: 1s}"]])
def test_a_fault_after_the_end_of_training_is_told_when_that_is(faults):
    message = refused(*faults)
    assert "training is over about" in message
    assert message.endswith("raise the budget")


def test_the_dead_leave_the_rest_more_to_do():
    parse(scenario("{kill: [learner-1, learner-2, learner-3], at: 1s}", "{pause: learner-4, at: 150s, for: 1s}",
                   more="deadline: 400s\n"))


@pytest.mark.parametrize("pace", ["60ms", "0s"])
def test_a_fault_after_the_deadline_is_told(pace):
    message = refused("{kill: learner-1, at: 20s}", more=f"deadline: 20s\ncluster: {{step_time: {pace}}}\n")
    assert message.endswith("the deadline of 20.0 s has passed by then")


# -- in each other's way ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("second", [
    "{pause: learner-1, at: 3s, for: 1s}", "{kill: learner-1, at: 3s}", "{straggler: learner-1, at: 3s, for: 1s}",
    "{zombie: learner-1, at: 3s, for: 1s}", "{poison: learner-1, at: 3s}", "{restart: learner-1, at: 3s}",
    "{crash_loop: [learner-2, learner-1], at: 3s}"])
def test_a_fault_of_a_process_that_is_down_is_told(second):
    message = refused("{kill: learner-1, at: 1s, restart_after: 5s}", second)
    assert message.startswith("5:5: ")
    assert message.endswith("its target is down by then (kill learner-1, back after 5.0 s)")


def test_a_target_that_stays_dead_is_down_for_ever():
    assert "is down by then" in refused("{kill: learner-1, at: 1s}", "{pause: learner-1, at: 40s, for: 1s}")


@pytest.mark.parametrize("when", ["log: saving", "file: '*.pt'"])
def test_only_commands_have_logs_and_files_to_wait_for(when):
    assert "learner-1 records events: write `event:`" in refused(
        f"{{kill: learner-1, when: {{node: learner-1, {when}}}}}")


@pytest.mark.parametrize("trigger", ["at: 1s", "when: {node: learner-1, event: step}"])
def test_a_target_that_was_killed_for_good_is_down_afterwards_whenever_that_was(trigger):
    assert "is down by then" in refused(f"{{kill: learner-1, {trigger}}}", "{pause: learner-1, after: f1, for: 1s}")


def test_of_two_faults_at_once_the_one_that_kills_counts_first():
    kill, pause = "{kill: learner-1, at: 3s, restart_after: 3s}", "{pause: learner-1, at: 3s, for: 1s}"
    assert "is down by then" in refused(kill, pause)


def test_a_crash_loop_is_down_until_its_last_start():
    assert "is down by then" in refused("{crash_loop: learner-1, at: 1s}", "{kill: learner-1, at: 3s}")
    parse(scenario("{crash_loop: learner-1, at: 1s}", "{kill: learner-1, at: 9s}"))


@pytest.mark.parametrize("first", ["{pause: learner-1, at: 1s, for: 5s}", "{straggler: learner-1, at: 1s, for: 5s}",
                                   "{zombie: learner-1, at: 1s, for: 5s}"])
@pytest.mark.parametrize("second", ["{pause: learner-1, at: 3s, for: 5s}", "{straggler: learner-1, at: 3s, for: 1s}",
                                    "{zombie: learners, at: 3s, for: 1s}"])
def test_faults_that_stop_a_process_do_not_overlap(first, second):
    assert "one at a time on a target" in refused(first, second)
    assert refused(second, first).startswith("5:5: ")


@pytest.mark.parametrize("first", ["{partition: syncer, at: 1s, for: 5s}", "{partition: learner-2, at: 1s, for: 5s}",
                                   "{flapping: learners, at: 1s, for: 5s}",
                                   "{partition: learner-2, direction: upstream, at: 1s, for: 5s}"])
@pytest.mark.parametrize("second", ["{partition: learner-2, at: 3s, for: 1s}", "{flapping: learner-2, at: 3s, for: 5s}",
                                    "{flapping: syncer, at: 3s, for: 5s}"])
def test_faults_that_cut_a_link_do_not_overlap_and_the_syncer_means_all_links(first, second):
    assert "one at a time on a target" in refused(first, second)


@pytest.mark.parametrize("kind", ["latency", "bandwidth", "slow_close", "timeout", "reset", "slicer", "limit_data"])
def test_one_toxic_of_a_kind_on_a_link(kind):
    assert "one at a time" in refused(f"{{{kind}: learner-1, at: 1s, for: 5s}}", f"{{{kind}: syncer, at: 3s, for: 5s}}")
    parse(scenario(f"{{{kind}: learner-1, at: 1s, for: 5s}}", f"{{{kind}: learner-2, at: 3s, for: 5s}}"))


def test_faults_that_wait_for_the_same_one_do_not_overlap():
    assert "one at a time" in refused("{pause: learner-1, when: {node: learner-1, event: step}, for: 3s}",
                                      "{pause: learner-2, after: f1, for: 3s}",
                                      "{straggler: learner-2, after: f1, for: 1s}")


@pytest.mark.parametrize("of", ["{pause: {for: 3s}}", "{kill: {restart_after: 3s}}"])
def test_a_storm_does_not_meet_another_fault_of_its_targets(of):
    text = scenario(f"{{storm: learners, at: 1s, for: 20s, mtbf: 2s, of: [{of}]}}",
                    "{pause: learner-1, at: 5s, for: 10s}")
    assert problems(text)


def test_one_fault_may_begin_where_another_of_its_kind_ends():
    parse(scenario("{latency: learner-1, at: 1.1s, for: 2.2s}", "{latency: learner-1, at: 3.3s, for: 1s}"))


def test_a_restart_is_over_at_once():
    parse(scenario("{restart: learner-1, at: 1s}", "{pause: learner-1, at: 4s, for: 1s}"))
    try:
        parse(scenario("{restart: learner-1, at: 1s, restart_after: null}", "{pause: learner-1, at: 4s, for: 1s}"))
    except ScenarioError as error:
        assert "restart_after" in str(error)


# -- what a place can't do -------------------------------------------------------------------------------------------

_SETTINGS = {"storm": ", for: 3s, mtbf: 1s", "crash_loop": "", "lemon": "", "poison": "", "lie": "",
             "corrupt_memory": "", "kill": "", "terminate": "",
             "preempt": "", "restart": "", "corrupt": "", "truncate": "", "delete": "",
             "out_of_memory": "", "restart_links": "", "restart_engine": "", "join": "",
             "power_loss": "", "clock_jump": "", "delete_pod": "", "evict": "", "drain_node": "", "node_power_loss": "",
             "requeue": "", "restart_control_plane": "", "io": ", for: 3s, path: x, error: EIO",
             "memory_pressure": ", for: 3s, size: 1GB", "replace": ", with: learner-4",
             "cuda": ", for: 3s, error: ecc"}


@pytest.mark.parametrize("kind", sorted(kind for kind, fault in FAULTS.items() if not issubclass(fault, OfProcess)))
def test_a_place_that_lacks_an_ability_refuses_whatever_needs_it(kind):
    target = "syncer" if FAULTS[kind].target_role == "syncer" else "learner-4" if kind == "join" else "learner-1"
    fault = f"{{{kind}: {target}, at: 1s{_SETTINGS.get(kind, ', for: 3s')}}}"
    parse(scenario(fault))
    found = problems(scenario(fault), abilities=[])
    assert found[0].startswith(f"4:5: {kind}: this place can't ")


@pytest.mark.parametrize(("kind", "instead"), [
    ("corrupt_memory", "; take `io` with `corrupt: bit`"), ("poison", "")])
def test_what_needs_a_trainers_own_files_names_what_hits_commands_instead(kind, instead):
    fault = f"{{{kind}: w-1, at: 1s{_SETTINGS.get(kind, ', for: 3s')}}}"
    said = f"{kind}: nothing is known of what commands keep, or speak{instead}"
    assert said in [each.split(": ", 1)[1] for each in problems(of_commands(fault))]


@pytest.mark.parametrize(("kind", "becomes"), [
    ("full_disk", {"error": "ENOSPC"}), ("write_limit", {"error": "EFBIG", "after_bytes": 4000})])
def test_of_commands_a_disk_that_fails_is_calls_that_fail_on_their_state(kind, becomes):
    kept = of_commands(f"{{{kind}: w-1, at: 1s, for: 3s}}").replace("w-1: {", 'w-1: {state: "{run}/state/{name}", ')
    planned = freeze(parse(kept), 0).faults[0].fault
    assert planned.model_dump(include={"kind", "path", "calls", *becomes}) == {
        "kind": "io", "path": "{run}/state/{name}/*", "calls": ("write",)} | becomes


@pytest.mark.parametrize(("target", "state", "more"), [
    ("w-1", "", ""), ("[w-1, store]", "{run}/state/{name}", ""), ("w-1", "{run}/state/{name}", ", restart_after: 4s")],
    ids=["whose state nobody knows", "of several kinds", "that come back by their own command"])
def test_of_commands_it_says_how_a_disk_can_fail(target, state, more):
    text = of_commands(f"{{full_disk: {target}, at: 1s, for: 3s{more}}}")
    kept = text.replace("w-1: {", f'w-1: {{state: "{state}", ') if state else text
    assert any("write `state: \"{run}/state/{name}\"` at the node" in each for each in problems(kept))


def test_a_place_that_can_not_tell_processes_apart_refuses_faults_of_one():
    text = of_commands("{kill: w-1/rank-1, at: 1s}").replace("w-1: {", "w-1: {processes: {rank: 'RANK=([0-9])'}, ")
    parse(text)
    with pytest.raises(ScenarioError, match="kill_process: this place can't signal_inner"):
        parse(text, abilities=["kill"])


@pytest.mark.parametrize("of", ["pause: {for: 1s}", "zombie: {for: 1s}", "latency: {for: 1s}", "poison: {}"])
def test_a_storm_needs_what_its_faults_need(of):
    text = scenario(f"{{storm: learners, at: 1s, for: 9s, of: [{{{of}}}]}}")
    assert "this place can't" in problems(text, abilities=["kill", "restart"])[0]
    parse(text, abilities=EVERYTHING)


def test_only_the_missing_ability_is_named():
    assert problems(scenario("{kill: learner-1, at: 1s}"), abilities=["kill"]) == [
        "4:5: kill: this place can't restart"]


# -- the whole -------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("condition", ["alive_below: 5", "alive_below: 99"])
def test_a_condition_that_is_always_met_would_abort_every_run(condition):
    assert "would abort every run" in problems(HEAD + f"abort_when: {{{condition}}}\n")[0]


@pytest.mark.parametrize("condition", ["loss_below: .nan", "loss_above: .nan", "loss_above: .inf", "loss_below: 0",
                                       "loss_below: -1", "loss_below: .inf", "loss_above: -1", "loss_above: 0"])
def test_a_condition_that_is_never_or_always_met_is_refused(condition):
    assert problems(HEAD + f"abort_when: {{{condition}}}\n")
    assert problems(scenario(f"{{kill: learner-1, when: {{{condition}}}}}"))


@pytest.mark.parametrize("condition", ["alive_below: 4", "alive_below: 1", "loss_above: 9", "loss_below: 1.5"])
def test_a_condition_that_may_be_met_is_fine(condition):
    parse(HEAD + f"abort_when: {{{condition}}}\n")


@pytest.mark.parametrize("text", [
    *(f"cluster: {{{key}: .inf}}\n" for key in ("overlap", "outer_lr", "lr", "synchronous_lr", "final_lr")),
    "checks: {no_global_stall: {max_gap_vs_baseline: .inf}}\n", "tape_limit: 1e400MB\n", "deadline: 1e400s\n"])
def test_nothing_is_infinite(text):
    assert problems(HEAD + text)[0].startswith("3:")


@pytest.mark.parametrize("fault", [
    "{reset: learner-1, at: 1s, for: 2s, reset_after: 1100ms}", "{slicer: learner-1, at: 1s, for: 2s, delay: 1100ms}",
    "{slicer: learner-1, at: 1s, for: 2s, delay: 100us}", "{slicer: learner-1, at: 1s, for: 2s, delay: 0.5ms}",
    "{bandwidth: learner-1, at: 1s, for: 2s, rate: 999B/s}", "{latency: learner-1, at: 1s, for: 2s, delay: 0s}"])
def test_a_figure_beyond_what_a_toxic_can_do_is_refused(fault):
    assert refused(fault).startswith("4:")


def test_a_tape_too_small_for_any_run_is_refused():
    assert "tape_limit" in problems(HEAD + "tape_limit: 99kB\n")[0]


def test_a_budget_of_nothing_is_refused():
    assert problems(HEAD + "cluster: {budget: 0}\n")


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_hits_only_whom_and_when_it_says(seed):
    loaded = parse(scenario("{storm: [learner-1, learner-2], at: 2s, for: 20s, mtbf: 1s}"))
    for planned in freeze(loaded, seed).faults:
        assert set(planned.fault.targets) <= {"learner-1", "learner-2"}
        assert 2 <= planned.fault.at <= 22


@pytest.mark.parametrize("of", [
    "[]", "[{}]", "[kill]", "[{kill: {}, pause: {for: 1s}}]", "[{link_fault: {for: 1s}}]", "[{composite: {}}]",
    "[{storm: {for: 1s}}]", "[{kil: {}}]", "[{kill: {restrt: 1s}}]", "[{pause: {}}]", "[{kill: 5}]",
    "[{kill: {targets: ghost}}]", "[{kill: {targets: [syncer]}}]", "[{kill: {at: 700s}}]", "[{kill: {id: other}}]",
    "[{corrupt: {}}]", "[{write_limit: {for: 1s}}]", "[{latency: {for: 1s, profile: [metro]}}]"])
def test_a_storm_of_what_it_can_not_do_to_its_targets_is_refused(of):
    assert problems(scenario(f"{{storm: learners, at: 1s, for: 20s, mtbf: 2s, of: {of}}}"))[0].startswith("4:")


@pytest.mark.parametrize("of", ["straggler: {for: 1s}", "zombie: {for: 1s}", "poison: {}"])
def test_a_storm_over_the_syncer_may_not_hold_what_is_for_learners(of):
    assert "can hit learners only" in refused(f"{{storm: [syncer, learner-1], at: 1s, for: 9s, of: [{{{of}}}]}}")


@pytest.mark.parametrize("mtbf", ["1ms", "50ms"])
def test_a_dense_storm_goes_on_to_its_end_or_is_refused(mtbf):
    storm = f"{{storm: learners, at: 1s, for: 40s, mtbf: {mtbf}, of: [{{pause: {{for: 100ms}}}}]}}"
    try:
        loaded = parse(scenario(storm))
    except ScenarioError as error:
        assert "mtbf" in str(error) or "most" in str(error)
    else:
        assert freeze(loaded, 0).faults[-1].fault.at > 38


# -- what is fine ----------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("faults", [
    ["{kill: syncer, at: 2s, restart_after: 1s}", "{kill: syncer, after: {fault: f1, wait: 3s}, restart_after: 1s}"],
    ["{kill: syncer, at: 2s, restart_after: 1s}", "{corrupt: syncer, at: 6s}",
     "{kill: syncer, at: 12s, restart_after: 1s}"],
    ["{corrupt: syncer, at: 2s}", "{truncate: syncer, after: {fault: f1, wait: 3s}}", "{delete: syncer, at: 20s}"],
    ["{kill: learner-1, at: 2s, restart_after: 3s}", "{latency: learner-1, at: 3s, for: 5s}"],
    ["{kill: learner-1, at: 2s}", "{partition: learner-1, at: 3s, for: 5s}"],
    ["{kill: syncer, at: 2s, restart_after: 3s}", "{partition: syncer, at: 3s, for: 5s}"],
    ["{kill: learner-1, at: 2s, restart_after: 1s}", "{kill: learner-2, at: 2s, restart_after: 1s}"],
    ["{kill: learner-1, at: 2s, restart_after: 1s}", "{pause: learner-1, at: 9s, for: 1s}"],
    ["{pause: learner-1, at: 2s, for: 3s}", "{kill: learner-1, at: 3s, restart_after: 1s}"],
    ["{pause: learner-1, at: 2s, for: 3s}", "{latency: learner-1, at: 3s, for: 1s}"],
    ["{latency: learner-1, at: 2s, for: 9s}", "{bandwidth: learner-1, at: 3s, for: 1s}",
     "{partition: learner-1, at: 5s, for: 1s}"],
    ["{restart: learner-1, at: 2s}", "{restart: learner-2, after: {fault: f1, wait: 3s}}",
     "{restart: learner-3, after: {fault: f2, wait: 3s}}", "{restart: syncer, after: {fault: f3, wait: 3s}}"],
    ["{pause: learner-1, after: late, for: 1s}", "{pause: learner-1, at: 4s, for: 1s, id: late}"],
    ["{storm: learners, at: 2s, for: 20s}", "{latency: syncer, at: 4s, for: 10s}"],
    ["{crash_loop: learner-1, at: 2s}", "{flapping: learner-1, at: 2s, for: 5s}"],
    ["{kill: learner-1, when: {loss_below: 2.5}}", "{kill: learner-2, when: {alive_below: 4}}"],
    ["{kill: learners, at: 2s, restart_after: 1s}"]])
def test_faults_that_leave_each_other_room_are_accepted(faults):
    freeze(parse(scenario(*faults)), 0)


# -- everything at once, each in its place ---------------------------------------------------------------------------

BOTH = """diloco_chaos: 1
name: mine
tierr: ci
cluster: {seed: 3}
faults:
  - {kill: learner-9, at: 1s}
  - straggler: learner-2
    at: 1
    for: 1s
  - {after: fx, kill: learner-2}
checks:
  participation: [{learner: learner-7, at_least: 80%}]
abort_when: {alive_below: 7}
"""


def test_problems_of_the_schema_and_beyond_it_are_told_together_each_in_its_place():
    found = problems(BOTH)
    assert [problem.partition(": ")[0] for problem in found] == ["3:1", "4:11", "6:5", "8:5", "10:5", "12:20", "13:1"]
    assert [word in problem for word, problem in zip(
        ["tierr", "seed", "learner-9", "no unit", "fx", "learner-7", "every run"], found, strict=True)] == [True] * 7


def test_the_same_problems_are_told_in_the_same_places_when_the_file_extends_another():
    found = problems(BOTH.replace("tierr: ci", "extends: no-fault").replace("mine", "other"))
    assert [problem.partition(": ")[0] for problem in found] == ["4:11", "6:5", "8:5", "10:5", "12:20", "13:1"]


@pytest.mark.parametrize(("first", "third"), [("{kil: learner-1, at: 1s}", "{kill: learner-3, after: f2}"),
                                              ("{kill: learner-1, at: 1}", "{kill: learner-3, after: f2}"),
                                              ("{kill: learner-1, at: 1}", "{kill: learner-3, after: f1}")])
def test_a_broken_fault_does_not_change_what_the_others_are_called(first, third):
    found = problems(scenario(first, "{kill: learner-2, at: 2s, restart_after: 1s}", third))
    assert [problem.partition(":")[0] for problem in found] == ["4"]


def test_a_place_after_broken_faults_is_still_the_right_one():
    found = problems(scenario("{kil: learner-1, at: 1s}", "{kill: learner-1, at: 1}", "{kill: learner-9, at: 1s}"))
    assert [problem.partition(": ")[0] for problem in found] == ["4:5", "5:23", "6:5"]


def test_what_is_wrong_only_in_what_was_inherited_is_told_at_extends():
    found = problems(f"{HEAD}extends: far\ncluster: {{learners: 2}}\n")
    assert found
    assert all(problem.startswith(("3:", "4:")) for problem in found)


@pytest.fixture
def extending(tmp_path):
    """extending(trainer) -> a scenario that says this of its trainer, and extends one of a hub and two workers."""
    (tmp_path / "base.yaml").write_text(HEAD + """trainer:
  kind: commands
  nodes:
    hub: {listens: true, run: "python3 hub.py {port}"}
    worker: {worker: true, count: 2, run: "python3 work.py {hub}", env: {A: "1", B: "2"}}
  progress: [{node: worker, log: 'round=(?P<round>[0-9]+)'}]
  rounds: 9
""")
    return lambda trainer: parse(f"{HEAD}extends: base.yaml\ntrainer: {trainer}\n", tmp_path / "mine.yaml")


@pytest.mark.parametrize("kind", ["kind: commands, ", ""])
def test_what_is_said_of_a_trainer_goes_over_what_is_extended_at_all_depths(extending, kind):
    found = extending(f'{{{kind}rounds: 5, nodes: {{worker: {{env: {{B: "3"}}}}}}}}')
    assert found.trainer.name == "commands"
    assert found.cluster.rounds == 5
    assert list(found.cluster.nodes) == ["hub", "worker"]
    worker = found.cluster.nodes["worker"]
    assert (worker.run, worker.count, worker.env) == ("python3 work.py {hub}", 2, {"A": "1", "B": "3"})


def test_another_trainer_takes_no_settings_over(extending):
    found = extending("{kind: decoupled-diloco, quorum: 2}")
    assert (found.trainer.name, found.cluster.quorum, found.cluster.learners) == ("decoupled-diloco", 2, 4)


def test_a_broken_file_that_is_extended_is_named(tmp_path):
    (tmp_path / "base.yaml").write_text(f"{HEAD}\n\nfaults:\n  - {{kil: learner-1, at: 1s}}\n")
    with pytest.raises(ScenarioError, match=r"base\.yaml"):
        parse(f"{HEAD}extends: base.yaml\n", tmp_path / "mine.yaml")


@pytest.mark.parametrize("name", ["nope", "a" * 5000, "no/such/file.yaml", ".", "/dev/null", "'\\0'"])
def test_what_can_not_be_extended_is_told_with_file_and_line(name):
    with pytest.raises(ScenarioError) as caught:
        parse(f"{HEAD}extends: {name}\n", "mine.yaml")
    assert str(caught.value).startswith("mine.yaml:3:") or name in ("/dev/null",)


def test_files_that_extend_each_other_are_told(tmp_path):
    (tmp_path / "a.yaml").write_text(f"{HEAD}extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text(f"{HEAD}extends: a.yaml\n")
    with pytest.raises(ScenarioError, match="in turn"):
        parse((tmp_path / "a.yaml").read_text(), tmp_path / "a.yaml")


# -- learners that join --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("faults", [
    ["{join: learner-1, at: 1s}"], ["{join: [learner-2, learner-4], at: 1s}"],
    ["{join: learner-4, at: 1s}", "{join: learner-4, at: 3s}"], ["{join: learners, at: 1s}"]])
def test_only_the_last_learners_can_join_each_once_and_not_all(faults):
    assert any("join: only the last learners can come later" in words for words in problems(scenario(*faults)))


def test_those_who_are_there_from_the_beginning_must_make_a_quorum():
    text = scenario("{join: [learner-3, learner-4], at: 1s}").replace("name:", "cluster: {quorum: 3}\nname:", 1)
    assert any("the quorum of 3 is never reached" in words for words in problems(text))


@pytest.mark.parametrize("spare", ["learner-2", "learner-9"])
def test_the_last_learner_takes_anothers_place(spare):
    parse(scenario("{lemon: learner-1, at: 1s}", "{replace: learner-1 with learner-4, at: 3s}"))
    found = problems(scenario(f"{{replace: learner-1 with {spare}, at: 3s}}"))
    assert any("replace: only the last learners can come later" in words for words in found)


def test_a_spare_of_commands_is_a_worker_that_says_so():
    spare = "    w-3: {worker: true, run: t.py}\n  progress:\n    - {node: w-3, log: '(?P<round>[0-9]+)'}\n"
    text = of_commands("{replace: w-2 with w-3, at: 1s}").replace("  progress:\n", spare)
    parse(text.replace("w-3: {", "w-3: {spare: true, "))
    with pytest.raises(ScenarioError, match="w-3 is a spare, and no fault starts it"):
        parse(text.replace("w-3: {", "w-3: {spare: true, ").replace("replace: w-2 with w-3", "kill: w-2"))
    with pytest.raises(ScenarioError, match="spare: only a worker can come later"):
        parse(text.replace("w-2: {", "w-2: {spare: true, "))
    with pytest.raises(ScenarioError, match=r"only nodes with `spare: true` \(there is none\) come later"):
        parse(text)


def test_joiners_are_named_by_faults_and_not_counted_by_hand():
    text = scenario("{kill: learner-1, at: 1s}").replace("name:", "cluster: {joining: 1}\nname:", 1)
    assert any("joining: follows from the faults" in words for words in problems(text))


@pytest.mark.parametrize(("mode", "fault", "words"), [
    ("data_parallel", "{poison: learner-1, at: 1s}", "poison: mode data_parallel takes no outer gradients"),
    ("elastic_data_parallel", "{storm: learners, at: 1s, for: 5s, of: [{poison: {}}]}", "takes no outer gradients"),
    ("data_parallel", "{kill: learner-1, when: {node: learner-1, event: received}}",
     "learner-1 never records received in mode data_parallel: this would never come"),
    ("decoupled", "{kill: learner-1, when: {node: syncer, event: rolled_back}}",
     "syncer never records rolled_back in mode decoupled: this would never come"),
    ("data_parallel", "{join: learner-4, at: 1s}", "without learner-4 the quorum of 4 is never reached")])
def test_what_a_mode_does_not_have_is_told(mode, fault, words):
    assert words in problems(scenario(fault, more=f"cluster: {{mode: {mode}}}\n"))[0]


# -- links that have names of their own ----------------------------------------------------------------------------

def of_commands(*faults):
    """A scenario with two workers that name a store and each other."""
    return ("diloco_chaos: 1\nname: mine\ndeadline: 60s\ntrainer:\n  kind: commands\n  nodes:\n"
            "    store: {listens: true, run: s.py}\n"
            "    w-1: {worker: true, listens: true, run: \"t.py {store} {w-2}\"}\n"
            "    w-2: {worker: true, listens: true, run: \"t.py {store}\"}\n"
            "  progress:\n    - {node: w-1, log: '(?P<round>[0-9]+)'}\n    - {node: w-2, log: '(?P<round>[0-9]+)'}\n"
            "faults:\n" + "".join(f"  - {fault}\n" for fault in faults))


@pytest.mark.parametrize(("target", "felt"), [
    ("w-1.store", ["w-1"]), ("w-1.w-2", ["w-1", "w-2"]), ("store", ["w-1", "w-2"]), ("w-2", ["w-2"]),
    ("[w-2.store, w-2]", ["w-2"])])
def test_a_fault_may_name_a_link_and_the_workers_at_its_ends_feel_it(target, felt):
    scenario = parse(of_commands(f"{{latency: {target}, at: 1s, for: 1s}}"))
    assert scenario.faults[0].affected_nodes(scenario.cluster.names) == felt


def test_faults_on_two_links_of_a_node_are_not_in_each_others_way():
    parse(of_commands("{latency: w-1.store, at: 1s, for: 5s}", "{latency: w-1.w-2, at: 2s, for: 5s}"))
    with pytest.raises(ScenarioError) as refused:
        parse(of_commands("{latency: w-1.store, at: 1s, for: 5s}", "{latency: store, at: 2s, for: 5s}"))
    assert "one at a time on a target" in str(refused.value)


@pytest.mark.parametrize(("fault", "said"), [
    ("{kill: w-1.store, at: 1s}", "kill: w-1.store is a link; nodes are store, w-1, w-2"),
    ("{latency: store.w-1, at: 1s, for: 1s}", "(this cluster has store, w-1, w-2, w-1.store, w-1.w-2, w-2.store)"),
    ("{kill: w-3, at: 1s}", "there is no node 'w-3' here; did you mean 'w-")])
def test_what_is_no_link_is_told(fault, said):
    with pytest.raises(ScenarioError) as refused:
        parse(of_commands(fault))
    assert said in str(refused.value)


def test_a_kind_of_which_there_are_several_is_no_target_and_they_are_named():
    text = of_commands("{kill: w, at: 1s}").replace("    w-1: {", "    w: {count: 2, ").replace("{w-2}", "")
    text = "\n".join(line for line in text.split("\n") if not line.startswith("    w-2:")).replace(
        "node: w-1", "node: w")
    with pytest.raises(ScenarioError) as refused:
        parse(text)
    assert "kill: w is several nodes: name them, [w-1, w-2], or one of them" in str(refused.value)


def test_a_check_that_is_out_of_reach_of_the_trainer_can_not_be_asked_for():
    with pytest.raises(ScenarioError) as refused:
        parse("diloco_chaos: 1\nname: x\nchecks: {round_quorum: {at_least: 2}}\n")
    assert ("round_quorum: out of reach of trainer decoupled-diloco, which does not tell of rounds; leave it out"
            in str(refused.value))
    parse(of_commands("{kill: w-1, at: 1s}") + "checks: {round_quorum: {at_least: 2}, goodput: {at_least: 50%}}\n")


def test_a_command_that_begins_with_a_brace_and_has_no_quotes_gets_a_hint():
    with pytest.raises(ScenarioError) as refused:
        parse("diloco_chaos: 1\nname: x\ntrainer:\n  kind: commands\n  nodes:\n    a:\n      run: {python} t.py\n")
    assert "a value that begins with { stands in quotes" in str(refused.value)


def test_two_processes_of_a_node_may_be_hit_at_once_by_a_fault_each():
    def told(*faults):
        return of_commands(*faults).replace("w-1: {", "w-1: {processes: {rank: 'RANK=([0-9])'}, ")
    parse(told("{pause: w-1/rank-0, at: 4s, for: 2s}", "{pause: w-1/rank-1, at: 4s, for: 2s}"))
    with pytest.raises(ScenarioError, match="one at a time on a target"):
        parse(told("{pause: w-1/rank-0, at: 4s, for: 2s}", "{pause: w-1/rank-0, at: 5s, for: 2s}"))
    with pytest.raises(ScenarioError, match="w-1/rank-1 is a process: kill, terminate and pause hit those, one by one"):
        parse(told("{pause: [w-1/rank-0, w-1/rank-1], at: 4s, for: 2s}"))


@pytest.mark.parametrize(("error", "places"), [
    (MisfitError(Misfit("quorum", "too many"), Misfit("learners", "too few")), [(3, 24), (3, 11)]),
    (ValueError("quorum of such a size is none"), [(3, 1)])])
def test_what_is_wrong_with_a_cluster_as_a_whole_is_told_at_the_keys_that_are_named(error, places):
    """A sentence that begins with a key's name says nothing of its place."""
    text = "diloco_chaos: 1\nname: x\ncluster: {learners: 4, quorum: 5}\n"
    raw = annotated(text, "x.yaml")
    detail = {"loc": ("cluster",), "msg": f"Value error, {error}", "type": "value_error", "input": {},
              "ctx": {"error": error}}
    assert [(problem.line, problem.column) for problem in problems_of(raw, plain(raw, "x.yaml"), [detail])] == places


# -- the folder of the file ------------------------------------------------------------------------------------------

COMMANDS = """diloco_chaos: 1
name: mine
trainer:
  kind: commands
  nodes: {w: {worker: true, run: "{python} {here}/t.py"}}
  progress: [{node: w, written: true}]
"""


def test_commands_know_the_folder_of_their_scenario_also_from_one_that_extends_it(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below/mine.yaml").write_text(COMMANDS)
    (tmp_path / "other.yaml").write_text("diloco_chaos: 1\nname: other\nextends: below/mine.yaml\n")
    for file in ("below/mine.yaml", "other.yaml"):
        assert load(str(tmp_path / file))[0].cluster.here == str(tmp_path / "below")


def test_where_it_is_not_used_a_plan_says_nothing_of_it(tmp_path):
    (tmp_path / "mine.yaml").write_text(COMMANDS.replace("{here}/", ""))
    assert '"here"' not in freeze(load(str(tmp_path / "mine.yaml"))[0], seed=1).model_dump_json()


def test_a_worker_with_a_port_can_t_run_twice():
    commands = ("trainer: {kind: commands, rounds: 9, nodes: {w: {run: t, worker: true, listens: true}},\n"
                "          progress: [{node: w, log: '(?P<round>[0-9]+)'}]}\n")
    assert "zombie: w listens on a port, which its old process keeps" in refused("{zombie: w, at: 1s, for: 1s}",
                                                                                 more=commands)
    assert "preempt: w listens on a port" in refused("{preempt: w, at: 1s, beside: 0s}", more=commands)
    parse(scenario("{preempt: w, at: 1s, restart_after: 0s}", more=commands))
    parse(scenario("{zombie: w, at: 1s, for: 1s}", more=commands.replace(", listens: true", "")))


@pytest.mark.parametrize("fault", ["{preempt: syncer, at: 1s, beside: 0s}",
                                   "{storm: syncer, at: 1s, for: 9s, of: [{preempt: {beside: 0s}}]}"])
def test_the_syncer_can_t_run_twice(fault):
    assert "syncer listens on a port, which its old process keeps" in refused(fault)


def test_a_preempted_node_gets_one_successor():
    assert "say how long after" in refused("{preempt: learner-1, at: 1s, beside: true}")
    assert "its successor starts once" in refused("{preempt: learner-1, at: 1s, beside: 0s, restart_after: 1s}")


def test_a_phase_of_a_recovery_that_nobody_tells_of_is_no_moment():
    after = "{kill: w-1, at: 1s, restart_after: 1s}\n  - {pause: w-1, for: 1s, after: {fault: f1, phase: noticed}}"
    assert any(each.endswith("after: nothing tells when a fault is noticed: write `noticed: REGEX` beside `progress`")
               for each in problems(of_commands(after)))
    parse(scenario("{kill: learner-1, at: 5s, restart_after: 1s}",
                   "{kill: learner-2, restart_after: 1s, after: {fault: f1, phase: noticed}}"))


def test_a_fault_may_not_come_on_a_target_during_the_recovery_from_the_same_fault_that_still_lasts():
    assert "pause" in refused("{pause: learner-1, at: 2s, for: 2s}",
                              "{pause: learner-1, for: 1s, after: {fault: f1, phase: begun, wait: 1s}}")
