"""What every kind of fault is observed by, on tapes of a few lines: what proves it, and what does not."""

import pytest
from pydantic import TypeAdapter

from diloco_chaos.chaos.checks.injection import measure
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.faults import AnyEntry
from diloco_chaos.harness.record.tape.reading import Tape
from recorded_events import an_event

HEAD = "diloco_chaos: 1\nname: x\ncluster: {budget: 500}\nfaults:\n  - "
ZERO, AT, END = 1.0, 5.0, 30.0


def harness(t, event, **fields):
    return an_event(t, "harness", 0, event, fields)


def syncer(t, event, incarnation=0, **fields):
    return an_event(t, "syncer", incarnation, event, fields)


def learner(t, event="step", name="learner-1", incarnation=0, **fields):
    return an_event(t, name, incarnation, event, fields)


def observed(fault, *events, at_once=None, healed=None, later=None):
    """(ok, words) of a fault that came at 5 s, and was healed then, or never."""
    plan = freeze(parse(HEAD + fault), 0)
    story = [syncer(ZERO, "steady", step=0), harness(AT, "injecting", fault="f1", kind="", targets=[], description=""),
             harness(AT, "injected", fault="f1", observed=at_once or {}), syncer(END, "finished", step=1)]
    if healed is not None:
        story.append(harness(healed, "healed", fault="f1", observed={}))
    if later is not None:
        story.append(harness(AT + 0.3, "observed", fault="f1", observed=later))
    tape = Tape(sorted([*story, *events], key=lambda event: event.t))
    history = History(plan, tape)
    result = measure(history, history.spans[0])
    return (result.ok, result.observed) if result.reacted else (result.ok, result.observed, "no reaction")


def gone(status, t=AT + 0.05, target="learner-1", incarnation=0, killed=True, **more):
    return harness(t, "exit", target=target, incarnation=incarnation, status=status, killed=killed, **more)


@pytest.mark.parametrize(("kind", "status", "ok"), [
    ("kill", -9, True), ("kill", 0, False), ("terminate", 0, True), ("terminate", -15, True), ("terminate", -9, True),
    ("terminate", 1, True), ("terminate", 143, True), ("terminate", 85, True), ("restart", 0, True)])
def test_what_ends_a_process_is_felt_by_its_exit_status(kind, status, ok):
    assert observed(f"{{{kind}: learner-1, at: 4s, restart_after: 1s}}", gone(status))[0] is ok


def spawn(t, incarnation):
    return harness(t, "spawn", target="learner-1", incarnation=incarnation)


@pytest.mark.parametrize(("settings", "events", "result"), [
    ("", [gone(-9), spawn(6.0, 1), gone(-9, 6.8, incarnation=1)], (True, "learner-1 failed 2 times (SIGKILL)")),
    ("", [gone(-9, trusted=True), spawn(6.0, 1), gone(0, 6.8, incarnation=1, killed=False)],
     (True, "learner-1 failed once (SIGKILL), and its scheduler started it again once")),
    ("", [gone(-9), spawn(END - 1.0, 1)], (True, "learner-1 failed once (SIGKILL)")),
    ("", [gone(-9), spawn(6.0, 1)], (False, "learner-1.1 was started, and lived on")),
    (", times: 1", [gone(-9), spawn(6.0, 1)], (True, "learner-1 failed once (SIGKILL)")),
    (", for: 2s", [gone(-9), spawn(6.0, 1)], (True, "learner-1 failed once (SIGKILL)")),
    (", for: 9s", [gone(-9), spawn(6.0, 1)], (False, "learner-1.1 was started, and lived on")),
    ("", [gone(0)], (False, "learner-1 was not there to be killed"))],
    ids=["again", "left alone", "at the end", "spared", "often enough", "long enough", "spared in its time",
         "by itself"])
def test_a_lemon_fails_with_each_process_that_it_gets(settings, events, result):
    assert observed(f"{{lemon: learner-1, at: 4s{settings}}}", *events) == result


def started(name, t, incarnation=0):
    return harness(t, "spawn", target=name, incarnation=incarnation)


@pytest.mark.parametrize(("events", "result"), [
    ([started("learner-4", 5.1)],
     (True, "learner-1 stayed away; learner-4 was started, and had no part in a round")),
    ([started("learner-4", 5.1), started("learner-1", 6.0, 1)], (False, "learner-1.1 was started all the same")),
    ([], (False, "learner-4 was not started"))], ids=["well", "again", "nobody"])
def test_a_replaced_node_stays_away_and_its_spare_is_started(events, result):
    assert observed("{replace: learner-1 with learner-4, at: 4s}", *events) == result


@pytest.mark.parametrize(("told", "words"), [
    (gone(85, t=AT + 4.2), "exit status 85 after 4.2 s"), (gone(0, t=AT + 0.4), "exit status 0"),
    (gone(-9, t=AT + 5.1, forced_after=5.0), "exit status SIGKILL, which had to follow after 5.0 s"),
    (gone(1, t=AT + 5.1, forced_after=5.0), "exit status 1 after 5.1 s")])
def test_who_was_asked_to_end_did_so_by_itself_within_its_grace_period_or_was_ended(told, words):
    assert observed("{terminate: learner-1, at: 4s, grace: 5s}", told) == (True, words)
    assert observed("{terminate: learner-1, at: 4s, grace: 1s}", told)[0] is (told.t < AT + 3.5)


@pytest.mark.parametrize("others", [
    [], [gone(-9, target="learner-2")], [gone(-9, t=AT + 4)], [gone(-9, t=AT - 1)], [gone(-9, killed=False)]])
def test_an_exit_of_another_process_or_time_proves_nothing(others):
    ok, words = observed("{kill: learner-1, at: 4s, restart_after: 1s}", *others)
    assert not ok
    assert words == "learner-1 did not end"


def test_a_pause_is_felt_by_silence():
    fault = "{pause: learner-1, at: 4s, for: 2s}"
    steps = [learner(t / 10) for t in range(10, 300) if not 50 <= t <= 70]
    assert observed(fault, *steps, healed=7.0) == (True, "silent for 2.0 s")
    assert not observed(fault, *steps, learner(6.0), healed=7.0)[0]


def test_a_pause_that_took_its_time_to_begin_is_felt_all_the_same():
    fault = "{pause: learner-1, at: 4s, for: 2s}"
    steps = [learner(t / 10) for t in range(10, 300) if not 54 <= t <= 74]
    assert observed(fault, *steps, healed=7.4) == (True, "silent for 2.1 s")


def test_a_pause_of_one_whose_predecessor_is_still_there_is_felt_by_its_own_silence():
    fault = "{pause: learner-1, at: 4s, for: 2s}"
    spawn = harness(AT - 1, "spawn", target="learner-1", incarnation=1)
    before = [learner(t / 10) for t in range(10, 300)]
    after = [learner(t / 10, incarnation=1) for t in range(42, 300) if not 50 <= t <= 70]
    assert observed(fault, spawn, *before, *after, healed=7.0) == (True, "silent for 2.0 s")
    assert not observed(fault, spawn, *before, *after, learner(6.0, incarnation=1), healed=7.0)[0]


@pytest.mark.parametrize(("steps_until", "ok"), [(5.0, True), (5.4, False)])
def test_a_pause_whose_target_was_ended_and_replaced_meanwhile_is_told_as_that(steps_until, ok):
    steps = [learner(t / 10) for t in range(10, int(steps_until * 10) + 1)]
    spawn = harness(6.0, "spawn", target="learner-1", incarnation=1)
    told = observed("{pause: learner-1, at: 4s, for: 2s}", *steps, gone(-9, t=5.5), spawn, healed=7.0)
    length = "500 ms" if ok else "100 ms"
    assert told == (ok, f"silent for {length}; then learner-1.0 was ended (SIGKILL), and learner-1.1 took its place")


def test_a_zombie_is_felt_when_it_saw_that_it_is_not_wanted_and_ended():
    fault = "{zombie: learner-1, at: 4s, for: 3s}"
    spawn = harness(AT, "spawn", target="learner-1", incarnation=1)
    seen = learner(8.1, "superseded", reason="")
    ok, words = observed(fault, spawn, seen, gone(0, t=8.2), healed=8.0)
    assert ok
    assert "came back, saw learner-1.1, and ended (0)" in words
    assert not observed(fault, seen, gone(0, t=8.2), healed=8.0)[0]
    assert observed(fault, spawn, seen, healed=8.0) == (False, "learner-1.0 did not end", "no reaction")
    assert observed(fault, spawn, gone(1, t=10), healed=8.0) == (
        False, "learner-1.0 never saw that it was superseded", "no reaction")


@pytest.mark.parametrize("gone_by", ["a kill", "a SIGTERM"])
def test_an_old_process_that_another_fault_ended_proves_nothing(gone_by):
    fault = "{zombie: learner-1, at: 4s, for: 3s}"
    spawn = harness(AT, "spawn", target="learner-1", incarnation=1)
    told = learner(8.1, "exit", told=True)
    after = (gone(-9, t=8.2),) if gone_by == "a kill" else (told, gone(0, t=8.2))
    assert observed(fault, spawn, *after, healed=8.0) == (
        False, "learner-1.0 was ended by another fault before it could see its successor")


def test_one_that_was_not_there_when_it_was_to_be_superseded_has_no_successor():
    fault = "{zombie: learner-1, at: 4s, for: 3s}"
    spawn = harness(AT + 1, "spawn", target="learner-1", incarnation=1)
    assert observed(fault, gone(-9, t=AT - 1), spawn, healed=8.0) == (False, "learner-1 got no successor")


def test_a_zombie_that_stays_although_its_successor_is_known_is_a_failure_of_the_trainer():
    fault = "{zombie: learner-1, at: 4s, for: 3s}"
    spawn = harness(AT, "spawn", target="learner-1", incarnation=1)
    hello = an_event(6.0, "syncer", 0, "hello", {"learner": "learner-1", "incarnation": 1})
    assert observed(fault, spawn, hello, healed=8.0) == (True, "learner-1.0 did not end", "no reaction")
    soon = END - 2  # there was no time for it
    assert observed(fault, spawn, hello, healed=soon)[0] is False


def test_a_damaged_checkpoint_is_felt_by_who_found_it():
    fault = "{corrupt: syncer, at: 4s}"
    damaged = {"damaged": "fragment-03.safetensors"}
    killed = gone(-9, target="syncer")
    found = syncer(7, "repaired", incarnation=1, file="fragment-03.safetensors", reason="altered")
    assert observed(fault, killed, found, at_once=damaged)[0]
    ignored = "the syncer did not notice fragment-03.safetensors"
    assert observed(fault, killed, at_once=damaged) == (False, ignored, "no reaction")
    went_on = syncer(7, "resumed", incarnation=1, versions=[], digests=[], step=0, processed=0)
    unfinished = {"damaged": "fragment-03.safetensors.partial"}
    assert observed(fault, killed, went_on, at_once=unfinished) == (
        False, "fragment-03.safetensors.partial was not finished, and nothing goes on from it")
    assert observed(fault, killed, went_on, at_once=damaged) == (True, ignored, "no reaction")
    other = syncer(7, "repaired", incarnation=1, file="fragment-04.safetensors", reason="altered")
    assert not observed(fault, killed, other, at_once=damaged)[0]
    assert observed(fault, found, at_once=damaged) == (False, "syncer was not killed")
    assert observed(fault, killed, found, at_once={"damaged": ""}) == (False, "no file was damaged")
    refused = syncer(7, "refused_checkpoint", incarnation=1, reason="")
    assert observed("{delete: syncer, mirrors: true, at: 4s}", killed, refused, at_once=damaged)[0]


def a_step(t, step, incarnation=0):
    return learner(t, incarnation=incarnation, step=step, tokens=1, began=t)


def test_a_checkpoint_that_no_event_tells_of_is_met_by_who_reads_it_after_the_damage():
    damaged = {"damaged": "step-20, step-10", "watched": True}
    killed, back = gone(-9, target="learner-1"), harness(6.0, "spawn", target="learner-1", incarnation=1)
    read = [harness(t, "file_read", target="learner-1", incarnation=number, file=file) for t, number, file in
            ((5.5, 0, "step-20"), (6.5, 1, "step-20"), (6.5, 1, "step-9"))]

    def met(*events, at_once=damaged, kind="truncate"):
        fault = TypeAdapter(AnyEntry).validate_python({"kind": kind, "targets": "learner-1", "at": "4s"})
        story = [harness(AT, "injecting", fault="f1", kind="", targets=[], description=""),
                 harness(AT, "injected", fault="f1", observed=at_once), *events]
        history = History(freeze(parse(HEAD + "{truncate: syncer, at: 4s}"), 0), Tape(sorted(story, key=lambda e: e.t)))
        return fault.verify(history, history.spans[0])

    assert met(killed, back, read[1])[:2] == (True, "step-20, step-10 damaged, and step-20 was read afterwards")
    assert met(killed, back, read[1], kind="delete").observed.endswith("and another file beside it was read afterwards")
    ok, words, _ = met(killed, back)
    assert not ok
    assert words.startswith("step-20, step-10 damaged, but no process read that afterwards: learner-1 does not go on")
    assert not met(killed, back, read[0]).ok, "it was read before there was a successor"
    assert not met(killed, back, read[2]).ok, "that is another file"
    assert met(killed, read[0]).ok, "another node may read it where there is no successor"
    assert met(killed).observed.endswith("but no process read that: learner-1 was not started again")
    assert met(killed, back, at_once={"damaged": "step-20"}).ok, "nothing was watched there"
    anew = [a_step(4.0, 1), a_step(4.5, 2), a_step(7.0, 1, incarnation=1)]
    assert met(killed, back, *anew, kind="delete").observed == "step-20, step-10 damaged, and learner-1 began anew"
    assert not met(killed, back, *anew, kind="truncate").ok
    assert not met(killed, back, *anew[:2], a_step(7.0, 2, incarnation=1), kind="delete").ok


def test_a_write_limit_is_felt_by_the_write_that_failed():
    fault = "{write_limit: syncer, at: 4s, for: 3s}"
    failed = syncer(5.5, "failed", reason="[Errno 27] File too large")
    ok, words = observed(fault, failed, gone(1, t=5.6, target="syncer"), at_once={"limit_bytes": 900})
    assert ok
    assert words == "a write beyond 900 bytes failed ([Errno 27] File too large), exit status 1"
    assert observed(fault, gone(1, t=5.6, target="syncer")) == (False, "no write failed")
    assert observed(fault, failed) == (False, "the syncer did not end")
    assert observed(fault, at_once={"ok": False, "why": "its tape is too large"}) == (
        False, "no write failed; its tape is too large")


def test_full_disks_are_felt_by_a_write_of_each_target():
    story = [harness(AT, "injecting", fault="f1", kind="", targets=[], description=""),
             harness(AT, "injected", fault="f1", observed={"filled_bytes": 9}),
             syncer(5.5, "failed", reason="[Errno 28] No space left on device"),
             gone(1, t=5.6, target="syncer"), gone(1, t=5.6, target="learner-1")]
    plan = freeze(parse(HEAD + "{full_disk: syncer, at: 4s, for: 2s}"), 0)
    both = plan.faults[0].fault.model_copy(update={"targets": ("syncer", "learner-1")})

    def met(*events):
        history = History(plan, Tape(sorted([*story, *events], key=lambda event: event.t)))
        return both.verify(history, history.spans[0])

    assert met(learner(5.5, "failed", reason="[Errno 28] No space left on device")).ok
    assert met()[:2] == (False, "no write of learner-1 failed")


def test_poison_is_felt_by_what_was_refused():
    fault = "{poison: learner-1, at: 4s, count: 2}"
    refused = [syncer(5.2 + number, "refused", learner="learner-1", reason="not finite", first=7, last=7)
               for number in range(2)]
    assert observed(fault, *refused, later={"sent": 2}) == (True, "2 of 2 sent, 2 refused")
    assert not observed(fault, *refused, later={"sent": 1})[0]
    assert observed(fault, later={"sent": 2}) == (True, "2 of 2 sent, and none refused", "no reaction")
    honest = syncer(5.2, "refused", learner="learner-1", reason="late", last=40)
    assert not observed(fault, honest, later={"sent": 2})[0]
    donated = syncer(5.2, "refused", learner="learner-1", reason="not finite")  # it stands for no steps
    assert not observed(fault, donated, later={"sent": 2})[0]


def test_a_lie_is_felt_by_what_was_refused_as_impossible():
    fault = "{lie: learner-1, at: 4s, about: tokens, count: 2}"
    refused = [syncer(5.2, "refused", learner="learner-1", reason="impossible report: 1 tokens by step 0")]
    assert observed(fault, *refused, later={"sent": 2}) == (True, "2 of 2 sent, 1 refused")
    assert not observed(fault, *refused, later={"sent": 1})[0]
    assert not observed(fault, syncer(5.2, "refused", learner="learner-1", reason="late"), later={"sent": 2})[0]
    assert not observed(fault, syncer(5.2, "refused", learner="learner-2", reason="impossible report: x"),
                        later={"sent": 2})[0]


def test_failing_memory_is_felt_by_what_the_learner_says_of_it():
    fault = "{corrupt_memory: learner-1, at: 4s, values: 3}"
    hit = learner(5.1, "corrupted", fault="f1", step=9, part="weights", content="nan", values=3, seed=1)
    reset = learner(5.2, "reset", step=9, reason="weights not finite")
    assert observed(fault, hit) == (True, "3 weights hit; learner-1 went on with it")
    assert observed(fault, hit, reset) == (
        True, "3 weights hit; learner-1 dropped all that it had after 100 ms (weights not finite)")
    assert not observed(fault, reset)[0]
    assert not observed(fault, learner(5.1, "corrupted", fault="f2", step=9))[0]


@pytest.mark.parametrize(("fault", "measured", "words"), [
    ("latency: learner-1, delay: 20ms", {"delay_s": 0.021}, "21.0 ms each way"),
    ("latency: learner-1, delay: 20ms, direction: upstream", {"delay_s": 0.021}, "21.0 ms one way"),
    ("latency: learner-1, rate: 1MB/s", {"delay_s": 0.021, "rate_bytes_per_s": 0.9e6}, "21.0 ms each way, 0.9 MB/s"),
    ("bandwidth: learner-1, rate: 1MB/s", {"rate_bytes_per_s": 0.9e6}, "0.90 MB/s"),
    ("slow_close: learner-1", {"close_s": 0.52}, "closed after 520 ms"),
    ("timeout: learner-1", {"silent_s": 1.0}, "no answer in 1.0 s"),
    ("reset: learner-1", {"reset_s": 0.0004}, "broken after 0.4 ms"),
    ("slicer: learner-1", {"pause_s": 0.002}, "a piece every 2.0 ms"),
    ("limit_data: learner-1", {"bytes": 100000}, "100000 bytes came back"),
    ("latency: learner-1, toxicity: 0.5", {"delay_s": 0.02, "hit": "8 of 16"},
     "20.0 ms each way on 8 of 16 connections"),
])
def test_a_toxic_is_felt_by_its_probes(fault, measured, words):
    line = f"{{{fault}, at: 4s, for: 5s}}"
    assert observed(line, later=measured | {"ok": True}, healed=10.0) == (True, words)
    assert observed(line, later=measured | {"ok": False}, healed=10.0) == (False, words)
    assert observed(line, healed=10.0) == (False, "no probe noticed it")


@pytest.mark.parametrize(("fault", "words"), [
    ("latency: learner-1, delay: 20ms", "21.0 ms each way"),
    ("partition: learner-1", "no probe got through; connections there before: 1")])
def test_where_connections_are_counted_a_link_on_which_there_is_none_proves_nothing(fault, words):
    line = f"{{{fault}, at: 4s, for: 5s}}"

    def judged(before, after):
        later = {"ok": True, "delay_s": 0.021, "connections_after": after}
        return observed(line, at_once={"connections_before": before}, later=later, healed=10.0)
    assert judged(1.0, 0.0) == (True, words)
    assert judged(0.0, 0.0) == (False, "there was no connection: nobody uses that link")


def test_what_was_over_before_it_could_be_measured_was_not_felt():
    ok, words = observed("{latency: learner-1, at: 4s, for: 1ms}", healed=5.1,
                         later={"ok": False, "error": "it was over before it could be measured"})
    assert not ok
    assert "over before it could be measured" in words


def test_a_partition_one_way_is_felt_by_the_time_without_a_contribution():
    fault = "{partition: learner-1, direction: upstream, at: 4s, for: 3s}"

    def merges(*times):
        return [syncer(t, "merge", contributions=[{"learner": "learner-1"}]) for t in times]
    assert observed(fault, *merges(4.9, 8.2), later={"ok": True}, healed=8.0) == (True,
                                                                                  "nothing came through for 3.3 s")
    assert not observed(fault, *merges(4.9, 6.5, 8.2), later={"ok": True}, healed=8.0)[0]
    assert observed(fault, *merges(4.9, 8.2), later={"ok": False}, healed=8.0) == (False, "a probe got through")
    assert observed(fault, *merges(4.9, 8.2), healed=8.0) == (False, "no probe was made")


def test_a_partition_of_the_syncer_must_be_felt_by_every_learner():
    fault = "{partition: syncer, at: 4s, for: 3s}"
    names = [f"learner-{number}" for number in range(1, 5)]
    lost = [syncer(5.1, "lost", learner=name) for name in names]
    back = [syncer(8.1, "hello", learner=name) for name in names]
    assert observed(fault, *lost, *back, later={"ok": True}, healed=8.0)[0]
    assert observed(fault, *lost[1:], *back, later={"ok": True}, healed=8.0) == (False,
                                                                                 "the syncer never lost learner-1")


def test_a_point_that_a_user_called_as_ours_is_none_of_the_protocol():
    trainer = ("{kind: commands, nodes: {w: {worker: true, run: t.py}}, "
               "progress: [{node: w, log: '(?P<round>[0-9]+)'}]}")
    plan = freeze(parse(f"diloco_chaos: 1\nname: x\ntrainer: {trainer}\nfaults: [{{kill: w, "
                        f"when: {{node: w, failpoint: checkpoint.half, count: 1}}}}]"), 0)
    story = History(plan, Tape([harness(AT, "injecting", fault="f1", kind="kill", targets=["w"], description=""),
                                harness(AT, "injected", fault="f1", observed={}), gone(-9, target="w")]))
    result = measure(story, story.spans[0])
    assert (result.ok, result.observed) == (True, "exit status SIGKILL")
