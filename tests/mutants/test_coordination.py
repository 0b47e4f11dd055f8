"""Bugs that are planted into how learners and the syncer work together: quorums, rounds, recovery, checkpoints."""

from dataclasses import replace

import numpy as np
from msgspec import structs

from benchmarks.measure.planted import counters_kept, double_merge, stale_copy
from diloco_chaos.harness.base.tensors import digest
from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.trainer.coordinator import rounds, syncer
from diloco_chaos.harness.trainer.coordinator.fragment_state import FragmentState, ProgressCounters
from diloco_chaos.harness.trainer.coordinator.fragment_store import FragmentStore
from diloco_chaos.harness.trainer.coordinator.peer_recovery import Recoveries
from diloco_chaos.harness.trainer.coordinator.rounds import Round
from diloco_chaos.harness.trainer.coordinator.syncer import Syncer
from diloco_chaos.harness.trainer.learner.learner import Learner
from diloco_chaos.harness.trainer.protocol.messages import OuterGradient, Welcome
from diloco_chaos.harness.trainers.core.effects import Close, Commit, Send, Stop
from planting import Mutant, finds, says

KILL = {"kill": "learner-2", "at": "4s", "restart_after": "2s"}
CUT_OFF = {"partition": "learner-2", "at": "4s", "for": "3s"}
ONE_WAY = {"partition": "learner-2", "at": "4s", "for": "4s", "direction": "upstream"}
COORDINATOR = {"kill": "syncer", "at": "4s", "restart_after": "1s"}
POWER = {"power_loss": "syncer", "when": {"node": "syncer", "failpoint": "commit.before_broadcast", "count": 40},
         "restart_after": "1s"}
UNTOLD = {"kill": "syncer", "when": {"node": "syncer", "failpoint": "commit.before_broadcast", "count": 40},
          "restart_after": "1s"}
BETWEEN = {"restart": "syncer", "when": {"node": "syncer", "failpoint": "checkpoint.between", "count": 60},
           "restart_after": "1s"}
DAMAGED = {"corrupt": "syncer", "when": {"node": "syncer", "event": "hello", "count": 2}, "restart_after": "1s",
           "files": 64}
ZOMBIE = {"zombie": "learner-2", "at": "4s", "for": "3s"}
PAUSE = {"pause": "learner-2", "at": "4s", "for": "2s"}
SLOW = {"straggler": "learner-2", "at": "4s", "for": "4s", "factor": 0.25}
LONG = {"budget": "250 steps"}
PEER = {"recovery": "peer"}
FAR = {"latency": "learner-3", "at": "3s", "for": "5s", "delay": "480ms"}
ALL = {"quorum": 3}
LATE_S = 0.4


# -- who counts ----------------------------------------------------------------------------------------------------

def votes_without_steps_count(patch):
    """Who has nothing to give counts for the quorum."""
    usual = Round.may_merge

    def any_word(self, now):
        if self.quorum_at is None and self.answers and len(self.answers) + len(self.declined) >= 2:
            self.reached(now, 0.0, 0.0, 0.0, 0.0)
        return usual(self, now)
    patch.setattr(Round, "may_merge", any_word)
    usual_give = Learner._give
    patch.setattr(Learner, "_give", lambda self, request: usual_give(self, request) if self.name == "learner-1" else [
        Send(OuterGradient(round=request.round, fragment=request.fragment, base_version=0, first_step=0, last_step=0,
                           steps=0, tokens=0, digest=""))])


def quorum_of_one_less(patch):
    usual = Syncer.__init__

    def fewer(self, config, found, incarnation=0):
        usual(self, config, found, incarnation)
        self.config = config.model_copy(update={"quorum": config.quorum - 1})
    patch.setattr(Syncer, "__init__", fewer)


def the_dead_count(patch):
    """What a learner that is gone had answered before stays in the next round, too."""
    usual = Syncer._consider
    kept = {}

    def with_the_dead(self, round_, now):
        mine = kept.setdefault(round_.fragment, {})
        mine.update(round_.answers)
        for name, answer in mine.items():
            if name not in round_.answers and self.peers[name].connection is None:
                round_.answers[name] = replace(answer, arrived=now)
        return usual(self, round_, now)
    patch.setattr(Syncer, "_consider", with_the_dead)


def takes_back_an_old_incarnation(patch):
    usual = Syncer._turn_away
    patch.setattr(Syncer, "_turn_away", lambda self, connection, hello, newest, ours=True: usual(
        self, connection, hello, hello.incarnation, ours))
    replaced = Syncer._replace
    patch.setattr(Syncer, "_replace", lambda self, hello, now: (
        effect._replace(final=False) if isinstance(effect, Close) else effect for effect in replaced(self, hello, now)))


def drops_what_one_answers(patch):
    usual = Syncer._answer
    patch.setattr(Syncer, "_answer", lambda self, peer, answer, tensors, now: self._without(
        self._rounds[answer.fragment], peer, now) if peer.name == "learner-3" and answer.fragment in self._rounds else (
            usual(self, peer, answer, tensors, now)))


def never_asks_one(patch):
    usual = Syncer._ask

    def some(self, round_):
        for effect in usual(self, round_):
            if (third := self.peers.get("learner-3")) and third.connection == effect.to:
                round_.asked.pop("learner-3", None)
            else:
                yield effect
    patch.setattr(Syncer, "_ask", some)


# -- rounds --------------------------------------------------------------------------------------------------------

def grace_of_a_second(patch):
    patch.setattr(rounds, "grace_window", lambda *_: 1.0)


def waits_for_all_who_were_asked(patch):
    patch.setattr(Round, "may_merge", lambda self, now: (not self.outstanding and bool(self.answers), "all answered"))


def waits_for_stragglers(patch):
    patch.setattr(Round, "may_merge", lambda self, now: (not self.outstanding and bool(self.answers), "all answered"))


def old_rounds_are_answered(patch):
    """An answer to a round that is over is merged into the next one."""
    usual = Syncer._answer

    def stale(self, peer, answer, tensors, now):
        open_ = self._rounds.get(answer.fragment)
        return usual(self, peer, structs.replace(answer, round=open_.number) if open_ else answer, tensors, now)
    patch.setattr(Syncer, "_answer", stale)


def stale_bases_are_merged(patch):
    patch.setattr(FragmentState, "out_of_reach", lambda *_: "")


def forgets_to_broadcast_to_one(patch):
    usual = FragmentStore.tell
    patch.setattr(FragmentStore, "tell", lambda self, peer, index, closed=0.0: () if closed and peer.name == "learner-2"
                  and self.states[index].version > 5 else usual(self, peer, index, closed))


# -- learners ------------------------------------------------------------------------------------------------------

def goes_back_to_older_versions(patch):
    usual = Learner._receive

    def any_version(self, message, tensors):
        self.held[message.fragment].version = min(self.held[message.fragment].version, message.version)
        return usual(self, message, tensors)
    patch.setattr(Learner, "_receive", any_version)
    told = FragmentStore.tell

    def old(self, peer, index, closed=0.0):
        for effect in told(self, peer, index, closed):
            yield effect
            if self.states[index].before and self.states[index].version % 5 == 0:
                value = self.states[index].before[0]
                yield changed(effect, value, version=self.states[index].version - 1, base=-1, digest=digest(value))
    patch.setattr(FragmentStore, "tell", old)


def changed(send, tensors, **fields):
    return send._replace(message=structs.replace(send.message, **fields), tensors=tensors)


def trains_the_same_batches_again(patch):
    """A new process begins with its shard's first batch."""
    usual = Learner.on_message

    def first(self, message, tensors, now):
        if isinstance(message, Welcome):
            message = structs.replace(message, position=0)
        return usual(self, message, tensors, now)
    patch.setattr(Learner, "on_message", first)


def never_begins_after_a_restart(patch):
    usual = Learner._begin
    patch.setattr(Learner, "_begin", lambda self, now, resume=True: () if self.incarnation else usual(
        self, now, resume))


def gives_up_after_one_error(patch):
    usual = Learner.on_lost

    def for_good(self, reason, now):
        yield from usual(self, reason, now)
        self._done = True
        yield Stop("gave up")
    patch.setattr(Learner, "on_lost", for_good)


def stands_while_it_is_cut_off(patch):
    """Without a connection nothing is trained."""
    lost, came = Learner.on_lost, Learner.on_connected

    def stops(self, reason, now):
        self._started = False
        return lost(self, reason, now)

    def goes_on(self, now):
        yield from came(self, now)
        if self._has_all:
            yield from self._begin(now)
    patch.setattr(Learner, "on_lost", stops)
    patch.setattr(Learner, "on_connected", goes_on)


def the_new_are_given_what_was_before(patch):
    """A new process is told of the version before the newest."""
    usual = FragmentStore.tell

    def older(self, peer, index, closed=0.0):
        state = self.states[index]
        for effect in usual(self, peer, index, closed):
            if not closed and state.before:
                value = state.before[0]
                yield changed(effect, value, version=state.version - 1, base=-1, digest=digest(value))
            else:
                yield effect
    patch.setattr(FragmentStore, "tell", older)


def what_it_gives_is_the_newest(event):
    if isinstance(event, events.Hello) and event.incarnation:
        return structs.replace(event, versions=[max(0, version - 1) for version in event.versions])
    return event


def the_new_are_given_what_was_before_and_hello_says_so(patch):
    the_new_are_given_what_was_before(patch)
    says(what_it_gives_is_the_newest)(patch)


def a_donor_gives_what_it_trains(patch):
    """Its own weights, with the digests that it received."""
    usual = Learner._donate

    def own(self, asked):
        for effect in usual(self, asked):
            if isinstance(effect, Send):
                value = {name: array for fragment in self.table for name, array in self.replica.read(
                    fragment.names).items()}
                effect = changed(effect, value, versions=[version - 1 for version in effect.message.versions],
                                 digests=[digest(self.replica.read(fragment.names)) for fragment in self.table])
            yield effect
    patch.setattr(Learner, "_donate", own)


def never_donates(patch):
    """The silence of who waits for it ends that, and then the syncer gives."""
    patch.setattr(Learner, "_donate", lambda self, asked: iter(()))


def brings_everybody_up_to_date_itself(patch):
    patch.setattr(Recoveries, "begin", lambda self, peer, versions, now: iter(()))


# -- the syncer ----------------------------------------------------------------------------------------------------

def one_death_ends_the_syncers_rounds(patch):
    """Deaths spread: whoever is lost takes all connections with it."""
    usual = Syncer.on_lost

    def all_of_them(self, connection, reason, now):
        yield from usual(self, connection, reason, now)
        for peer in list(self.peers.values()):
            if peer.connection is not None:
                yield Close(peer.connection, "one is gone")
    patch.setattr(Syncer, "on_lost", all_of_them)


def silence_is_not_noticed(patch):
    def deaf(self, now):
        yield self._next_heartbeat(now)
        yield from self._tell_all(*self._standing(now))
    patch.setattr(Syncer, "_heartbeat", deaf)


def nothing_is_committed(patch):
    usual = FragmentStore.commit

    def first_only(self, fragment):
        commit = usual(self, fragment)
        if self.states[fragment].version < 3:
            self.__dict__.setdefault("kept", {})[fragment] = commit
        return self.__dict__.get("kept", {}).get(fragment, commit)
    patch.setattr(FragmentStore, "commit", first_only)


def tells_before_it_commits(patch):
    usual = Syncer._merge

    def later(self, round_, why, now):
        effects = list(usual(self, round_, why, now))
        commits = [effect for effect in effects if isinstance(effect, Commit)]
        yield from (effect for effect in effects if effect not in commits)
        self.__dict__.setdefault("owed", []).extend(commits)
        if len(self.__dict__["owed"]) > 6:
            yield self.__dict__["owed"].pop(0)
    patch.setattr(Syncer, "_merge", later)


def names_are_not_synced(patch):
    def saving(disk, name, content):
        disk.write(name, content)
        yield "checkpoint.before_sync"
    patch.setattr(checkpoint, "saving", saving)


def two_contents_of_one_version(patch):
    usual = FragmentState.restored
    patch.setattr(FragmentState, "restored", staticmethod(lambda tensors, meta: replace(
        found := usual(tensors, meta), value={name: array * np.float32(1.001) for name, array in
                                              found.value.items()})))


def who_was_merged_is_forgotten(patch):
    usual = FragmentState.restored
    patch.setattr(FragmentState, "restored", staticmethod(lambda tensors, meta: replace(
        usual(tensors, meta), merged={})))


def leases_nothing(patch):
    """A new process may train what the one before it has trained."""
    patch.setattr(ProgressCounters, "lease", lambda self, learner, now, config: self.positions.setdefault(
        learner, config.warm_start))
    usual = ProgressCounters.report

    def without_positions(self, learner, incarnation, tokens, position, said):
        before = self.positions.get(learner)
        usual(self, learner, incarnation, tokens, position, said)
        if before is not None:
            self.positions[learner] = before
    patch.setattr(ProgressCounters, "report", without_positions)


def the_clock_stands_with_its_leader(patch):
    """The most advanced learner that there ever was drives the clock."""
    from diloco_chaos.harness.trainer.coordinator import syncer
    furthest = {}

    def led(peers, quorum, t, slack):
        for peer in peers:
            furthest[peer.name] = max(furthest.get(peer.name, 0), peer.step)
        leader = max(furthest, key=lambda name: (name == "learner-2", furthest[name]))
        return max(t, furthest[leader])
    patch.setattr(syncer, "ticked", led)


def changes_are_sent_to_who_lacks_their_base(patch):
    usual = FragmentStore.tell

    def tell(self, peer, index, closed=0.0):
        state = self.states[index]
        if state.update and state.version > 20:
            peer.holds[index] = state.version - 1
        yield from usual(self, peer, index, closed)
    patch.setattr(FragmentStore, "tell", tell)


def contents_are_not_synced(patch):
    def saving(disk, name, content):
        disk.write(name + checkpoint.PARTIAL, content)
        yield "checkpoint.before_sync"
        yield checkpoint.BEFORE_RENAME
        disk.rename(name + checkpoint.PARTIAL, name)
        yield "checkpoint.before_sync_names"
        disk.sync_names()
    patch.setattr(checkpoint, "saving", saving)


# -- who must stand -------------------------------------------------------------------------------------------------

def learners_never_stand(patch):
    usual = Learner.__init__

    def born(self, *args):
        usual(self, *args)
        self._patience = np.inf
    patch.setattr(Learner, "__init__", born)


def one_learner_stands_two_steps_late(patch):
    usual = Learner.__init__

    def born(self, config, name, *args):
        usual(self, config, name, *args)
        self._patience += 2 * (name == "learner-1")
    patch.setattr(Learner, "__init__", born)


# -- times that the syncer tells of itself -----------------------------------------------------------------------------

def closes_late_and_dates_it_back(patch):
    """A round is closed .4 s after its grace window, and is said to have been closed when it was over."""
    may_merge, merge = Round.may_merge, Syncer._merge
    patch.setattr(Round, "may_merge", lambda self, now: may_merge(self, now - LATE_S))
    patch.setattr(Syncer, "_merge", lambda self, round_, why, now: merge(
        self, round_, why, now - LATE_S if why == "grace window over" else now))
    timer = syncer.Timer
    patch.setattr(syncer, "Timer", lambda key, at: timer(key, at + LATE_S if key.startswith("grace") else at))


def dates_latecomers_back(patch):
    """Whoever comes after the quorum is said to have come with it, and every round stays open for it."""
    usual = Round.take

    def take(self, contribution):
        first = min((answer.arrived for answer in self.answers.values()), default=contribution.arrived)
        usual(self, replace(contribution, arrived=first))
    patch.setattr(Round, "take", take)
    closes_late_and_dates_it_back(patch)


def a_grace_window_of_half_the_steps(patch):
    usual = syncer.typical_step_time
    patch.setattr(syncer, "typical_step_time", lambda peers, nominal: usual(peers, nominal) / 2)


def a_grace_window_of_the_nominal_step(patch):
    patch.setattr(syncer, "typical_step_time", lambda peers, nominal: nominal)


MUTANTS = [
    Mutant(double_merge, "exactly_once", [UNTOLD], {**LONG, "anchor": "base"},
           name="merges_twice_what_was_not_acknowledged"),
    Mutant(votes_without_steps_count, "quorum_respected", [], {**LONG, "quorum": 2}),
    Mutant(quorum_of_one_less, "quorum_respected", [CUT_OFF], {**LONG, **ALL}),
    Mutant(the_dead_count, "exactly_once", [KILL], LONG),
    Mutant(takes_back_an_old_incarnation, "exactly_once", [ZOMBIE], LONG),
    Mutant(drops_what_one_answers, "nobody_starves", [], LONG),
    Mutant(never_asks_one, "nobody_starves", [], LONG),
    Mutant(grace_of_a_second, "quorum_respected", [PAUSE], LONG),
    Mutant(waits_for_all_who_were_asked, "quorum_respected", [PAUSE], LONG),
    Mutant(waits_for_stragglers, "quorum_respected", [SLOW], {**LONG, "grace": 0.0}),
    Mutant(old_rounds_are_answered, "weights_correct", [FAR], {**LONG, "overlap": 1.0}),
    Mutant(stale_bases_are_merged, "staleness_bounded", [CUT_OFF], {**LONG, "max_staleness": 2, "anchor": "base"}),
    Mutant(forgets_to_broadcast_to_one, "goodput", [], {**LONG, "max_staleness": 4}),
    Mutant(counters_kept, "exactly_once", [], LONG, name="counters_are_not_reset"),
    Mutant(goes_back_to_older_versions, "replica_consistency", [], LONG),
    Mutant(trains_the_same_batches_again, "exactly_once", [KILL], LONG),
    Mutant(never_begins_after_a_restart, "reintegration", [KILL], LONG),
    Mutant(gives_up_after_one_error, "no_unplanned_exit", [CUT_OFF], LONG),
    Mutant(stands_while_it_is_cut_off, "blast_radius", [COORDINATOR], LONG),
    Mutant(the_new_are_given_what_was_before, "replica_consistency", [KILL], LONG),
    Mutant(the_new_are_given_what_was_before_and_hello_says_so, "replica_consistency", [KILL], LONG),
    Mutant(a_donor_gives_what_it_trains, "replica_consistency", [KILL], {**LONG, **PEER}),
    Mutant(never_donates, "recovered_from_peers", [KILL], {**LONG, **PEER}),
    Mutant(brings_everybody_up_to_date_itself, "recovered_from_peers", [KILL], {**LONG, **PEER}),
    Mutant(one_death_ends_the_syncers_rounds, "goodput", [KILL], LONG),
    Mutant(silence_is_not_noticed, "silence_noticed", [ONE_WAY], {**LONG, "heartbeat_timeout": "1s"}),
    Mutant(nothing_is_committed, "replica_consistency", [COORDINATOR], LONG),
    Mutant(tells_before_it_commits, "replica_consistency", [COORDINATOR], LONG),
    Mutant(names_are_not_synced, "replica_consistency", [POWER], LONG),
    Mutant(two_contents_of_one_version, "replica_consistency", [COORDINATOR], LONG),
    Mutant(who_was_merged_is_forgotten, "exactly_once", [UNTOLD], {**LONG, "anchor": "base"}),
    Mutant(leases_nothing, "exactly_once", [KILL], LONG),
    Mutant(the_clock_stands_with_its_leader, "no_global_stall", [KILL], LONG),
    Mutant(stale_copy, "replica_consistency", [BETWEEN, DAMAGED], LONG,
           name="leaves_the_older_copy_of_a_checkpoint_as_it_is"),
    Mutant(changes_are_sent_to_who_lacks_their_base, "replica_consistency", [{**CUT_OFF, "at": "6s"}],
           {**LONG, "broadcasts": "int8"}),
    Mutant(contents_are_not_synced, "no_unplanned_exit", [{"power_loss": "syncer", "at": "4s", "restart_after": "1s"}],
           LONG),
    Mutant(closes_late_and_dates_it_back, "quorum_respected", [SLOW], LONG),
    Mutant(dates_latecomers_back, "quorum_respected", [SLOW], LONG),
    Mutant(learners_never_stand, "weights_correct", [], {**LONG, "mode": "diloco", "speeds": [1.0, 1.0, 0.5]}),
    Mutant(one_learner_stands_two_steps_late, "weights_correct", [],
           {**LONG, "mode": "diloco", "speeds": [1.0, 1.0, 0.5]}),
    Mutant(a_grace_window_of_half_the_steps, "quorum_respected", [], LONG),
    Mutant(a_grace_window_of_the_nominal_step, "quorum_respected", [], {**LONG, "speeds": [0.5] * 3}),
]

test_a_bug_of_coordination_is_found = finds(MUTANTS)
