"""The syncer: pulls fragments, merges them when K learners have answered and a grace window is over, sends them back.

A state machine without I/O (arXiv 2604.21428, the decoupled syncer): it takes messages, timers and lost connections,
each with the time, and returns effects. The same code runs on sockets and under virtual time.

Theory of operation
-------------------
A fragment is in one of three states: idle, *due* (in `_waiting`) or *open* (in `_rounds`). One path leads through them:

1. `_report`: a learner says how many steps it has made. That moves its place on the global clock, and may move the
   clock itself (`_advance`). What the clock passes becomes due.
2. `_advance` opens a round for a due fragment while fewer than ceil(tau) rounds are open, and asks every live learner
   that has made a step of it since it last received it (`_ask`).
3. `_answer` takes an outer gradient into the round. With the K-th answer the grace window begins: a timer is set, and
   whoever answers within it still counts.
4. `_consider` asks the round whether it may merge: all that were asked have answered, or the window is over. A learner
   that is lost, or declines, is taken out of the round and everything is considered again; so a dead learner delays a
   merge by no more than the window.
5. `_merge` computes the new version, commits it, records it, and only then tells anybody. What has not been committed
   never happened: a syncer that dies between commit and broadcast finds the version in its files, and tells it then.

Three invariants hold at every return. A version of a fragment has one content, for ever. A step of a learner is in one
merge of a fragment at most: the newest incarnation and the last merged step of each learner are part of the commit, and
an answer that begins at or before that step is refused. No learner is waited for without a bound: an open round ends by
the answers of those who are connected, by the window, or by the loss of a connection, which a heartbeat makes certain.

Each of these functions is a generator of effects, carried out in order. A caller that stops in the middle (the process
is killed) leaves what a crash leaves.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from diloco_chaos.harness.base import tensors as arrays
from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.trainer.algorithm.codec import CompressError
from diloco_chaos.harness.trainer.algorithm.merge import token_weight
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.config.schedule import outer_step
from diloco_chaos.harness.trainer.coordinator import peer_recovery
from diloco_chaos.harness.trainer.coordinator.fragment_state import BROKEN, IMPOSSIBLE, Restored
from diloco_chaos.harness.trainer.coordinator.fragment_store import FragmentStore
from diloco_chaos.harness.trainer.coordinator.global_clock import progressed, slack_of, ticked
from diloco_chaos.harness.trainer.coordinator.peer_recovery import Recoveries, objection
from diloco_chaos.harness.trainer.coordinator.phase import advanced, due
from diloco_chaos.harness.trainer.coordinator.plausible import LearnerOrigin, known_took, of_answer, of_hello, of_report
from diloco_chaos.harness.trainer.coordinator.rounds import (
    FragmentContribution,
    LearnerSession,
    Round,
    typical_step_time,
    typical_sync_time,
)
from diloco_chaos.harness.trainer.coordinator.sessions import LearnerSessions
from diloco_chaos.harness.trainer.protocol.messages import (
    CheckpointAck,
    CheckpointRequest,
    Clock,
    Donation,
    Hello,
    OuterGradient,
    Report,
    Request,
    Reset,
    Welcome,
)
from diloco_chaos.harness.trainers.core.effects import AtFailpoint, Close, Effect, Send, Timer
from diloco_chaos.harness.trainers.core.roles import COORDINATOR
from diloco_chaos.harness.trainers.wire.messages import Message

_ROUNDS_PER_INCARNATION = 1_000_000  # so that no two rounds of a run have the same number


class Syncer(LearnerSessions[LearnerSession]):
    """See the module. Failure semantics: a learner that is gone is simply not asked; an answer counts when it is
    complete; a merge exists once it is committed, and is broadcast only then."""

    def __init__(self, config: TrainerConfig, restored: Restored, incarnation: int = 0) -> None:
        super().__init__(config, incarnation)
        self.fragments, self.counters = FragmentStore(config, restored), restored.counters
        self._recoveries = Recoveries(config, self.peers)
        self._budget, self._blocking = config.budget_tokens, config.blocking
        self._gradients = config.gradient_codec
        exchange = config.exchange
        self._offsets, self._most_rounds, self._patience = exchange.offsets, exchange.most_rounds, exchange.patience
        self._slack = slack_of(config.variance)
        # A learner that waits for its merge keeps its lead: else nothing is due before the others stand, too.
        self._lead = max(self._slack, int(self._patience)) if self._blocking else self._slack
        self._rounds: dict[int, Round] = {}  # fragment -> its open round
        self._waiting: list[int] = []  # fragments that are due and not open yet
        self._numbers = count(incarnation * _ROUNDS_PER_INCARNATION + 1)
        self._merged_from: set[str] = set()

    def status(self) -> dict[str, object]:
        """Return what the syncer knows of the training, for people who ask."""
        return {"steady": self.steady, "finished": self.finished, "step": self.counters.step,
                "processed": self.fragments.processed, "merged": round(self.fragments.merged), "budget": self._budget,
                "versions": self.fragments.versions,
                "learners": {name: {"connected": peer.connection is not None, "incarnation": peer.incarnation,
                                    "step": peer.step} for name, peer in sorted(self.peers.items())}}

    def start(self, now: float) -> Iterable[Effect]:
        """The first effects of a new process."""
        self.counters.resume(now)
        yield from self.fragments.start()
        yield self._next_heartbeat(now)
        yield from self.fragments.snapshots()

    def _lost(self, connection: int, reason: str, now: float) -> Iterable[Effect]:
        """A connection ended. What it had answered stays; what it was asked for is not waited for."""
        peer = self._by_connection.pop(connection, None)
        if peer is None or peer.connection != connection:
            return
        peer.connection = None
        yield events.Lost(learner=peer.name, incarnation=peer.incarnation, reason=reason)
        yield from self._checkpoints.broken(peer.name)
        self._recoveries.forget(peer.name)
        yield from self._without_donor(peer.name, now)
        for round_ in list(self._rounds.values()):
            if peer.name not in round_.answers:
                round_.asked.pop(peer.name, None)
            yield from self._consider(round_, now)
        yield from self._advance(now)

    def _timer(self, key: str, now: float) -> Iterable[Effect]:
        """A timer fired: a heartbeat, or the end of a grace window."""
        if key == "heartbeat":
            yield from self._heartbeat(now)
        elif key.startswith(peer_recovery.TIMER):
            yield from self._without_donor(key.removeprefix(peer_recovery.TIMER), now)
        else:
            for round_ in list(self._rounds.values()):
                if key == f"grace {round_.number}":
                    yield from self._consider(round_, now)

    # -- learners come -------------------------------------------------------------------------------------------

    def _hello(self, connection: int, hello: Hello, now: float) -> Iterable[Effect]:
        newest = self.counters.newest(hello.node)
        ours = len(hello.versions) == len(hello.steps) == len(self.fragments.table)
        position = self.counters.positions.get(hello.node, self.config.warm_start)
        refusal = self._turn_away(connection, hello, newest, ours)
        if not refusal and (why := of_hello(hello, self.config, now, self.counters.step, position)):
            refusal = [events.Refused(learner=hello.node, incarnation=hello.incarnation,
                                      reason=f"impossible hello: {why}"), Close(connection, "impossible hello")]
        if refusal:
            yield from refusal
            return
        yield from self._replace(hello, now)
        fresh = all(version < 0 for version in hello.versions)
        step = hello.step if hello.tokens else self.counters.step  # one that has made no step begins where training is
        steps = [0] * len(self.fragments.table) if fresh else list(hello.steps)
        newcomer = hello.incarnation > newest
        if newcomer:
            self.counters.lease(hello.node, now, self.config)
        # A newcomer has trained on nothing until now. When one that comes back said this nobody knows.
        self.counters.report(hello.node, hello.incarnation, hello.tokens, hello.position, said=now if newcomer else 0.0)
        origin = LearnerOrigin(now, step, hello.tokens, self.counters.positions[hello.node])
        peer = LearnerSession(hello.node, hello.incarnation, connection, step, self.counters.step, steps, now,
                              list(hello.versions),
                              origin)
        self.peers[hello.node] = self._by_connection[connection] = peer
        if newcomer:  # a stale one must be refused by the syncer's own successor, too
            yield self.fragments.commit(0)
        yield events.Hello(learner=peer.name, incarnation=peer.incarnation, fresh=fresh, step=step,
                           versions=self.fragments.versions, versions_held=hello.versions)
        yield Send(Welcome(step=self.counters.step, tokens=self.fragments.processed, steady=self.steady,
                           position=self.counters.positions[hello.node]), to=connection)
        yield from self._recover(peer, now) if fresh else self._refresh(peer)
        yield from self._advance(now)
        yield from self.fragments.snapshots()

    def _refresh(self, peer: LearnerSession) -> Iterable[Effect]:
        """Tell one that comes back what it can't go on from any more."""
        for index, state in enumerate(self.fragments.states):
            held = peer.holds[index]
            behind = state.version - held
            if held < 0 or behind < 0 or state.out_of_reach(held, self.config) or (behind and self._blocking):
                yield from self.fragments.tell(peer, index)
                peer.c_steps[index] = 0

    def _recover(self, peer: LearnerSession, now: float) -> Iterable[Effect]:
        """Have a healthy peer bring a new process up to date, or do it."""
        versions = self.fragments.versions
        yield from self._recoveries.begin(peer, versions, now)
        if peer.name not in self._recoveries:
            for index in [index for index, version in enumerate(versions) if peer.holds[index] < version]:
                yield from self.fragments.tell(peer, index)

    def _renew(self, peer: LearnerSession, reason: str, now: float) -> Iterable[Effect]:
        """Send everything to a learner that has nothing any more that it could go on from."""
        yield events.Renewed(learner=peer.name, incarnation=peer.incarnation, reason=reason)
        count = len(self.fragments.table)
        peer.holds, peer.c_steps, peer.renewing = [-1] * count, [0] * count, True
        yield from self._recover(peer, now)

    def _without_donor(self, name: str, now: float) -> Iterable[Effect]:
        """Nothing will come from this one."""
        for peer in self._recoveries.waiting_for(name):
            yield from self._recover(peer, now)

    def _pass_on(self, donor: LearnerSession, donation: Donation, tensors: Tensors, now: float) -> Iterable[Effect]:
        """Hand on what a donor holds; of a merge that was made meanwhile the receiver was told like everybody."""
        peer = self._recoveries.receiver(donor, donation)
        if peer is None or peer.connection is None:
            return
        if why := objection(donation, tensors, self.fragments.states):
            yield events.Refused(learner=donor.name, incarnation=donor.incarnation, reason=why)
            yield from self._recover(peer, now)
            return
        self._recoveries.forget(peer.name)
        peer.holds = list(map(max, peer.holds, donation.versions))
        yield Send(donation, tensors, to=peer.connection)

    # -- learners tell ----------------------------------------------------------------------------------

    def _take(self, peer: LearnerSession, message: Message, tensors: Tensors, now: float) -> Iterable[Effect]:
        if isinstance(message, Report):
            return self._report(peer, message, now)
        if isinstance(message, OuterGradient):
            return self._answer(peer, message, tensors, now)
        if isinstance(message, Donation):
            return self._pass_on(peer, message, tensors, now)
        if isinstance(message, CheckpointAck):
            return self._checkpoints.saved(peer.name, message.number)
        return (events.Refused(learner=peer.name, reason=f"unexpected {message.type}"),)

    def _report(self, peer: LearnerSession, report: Report, now: float) -> Iterable[Effect]:
        why = of_report(report, peer.name, peer.origin, self.fragments.versions, self.config, now)
        if why:
            yield events.Refused(learner=peer.name, incarnation=peer.incarnation, reason=f"impossible report: {why}")
            return
        more = peer.report(report.step, report.fragments, known_took(report, peer.origin, self.config, now))
        progressed(peer, more, self.counters.step, self._lead)
        peer.transit.echoed(now, report.clock, report.received)
        lacking = any(version < 0 for version, _, _ in report.fragments)
        if lacking and not peer.renewing and peer.name not in self._recoveries:
            yield from self._renew(peer, "it has nothing to go on from", now)
        peer.renewing = peer.renewing and lacking
        said = min(now, sum(report.clock)) if report.clock else 0.0  # by the clock here, which it was told and echoes
        self.counters.report(peer.name, peer.incarnation, report.tokens, report.position, said)
        if peer.place > self.counters.step or self._waiting or self._rounds or self._blocking:
            yield from self._advance(now)  # else the clock stands, and nobody is to be asked
        yield from self.fragments.snapshots()
        processed = self.fragments.processed
        if processed >= self._budget and not self.finished:
            yield from self._finish(now, step=self.counters.step, processed=processed,
                                    merged=round(self.fragments.merged))

    def _answer(self, peer: LearnerSession, answer: OuterGradient, tensors: Tensors, now: float) -> Iterable[Effect]:
        if answer.fragment >= len(self.fragments.table):
            yield events.Refused(learner=peer.name, reason="no such fragment")
            return
        round_ = self._rounds.get(answer.fragment)
        if round_ is not None and round_.may_merge(now)[0]:  # the window is over, only its timer is late
            yield from self._consider(round_, now)
            round_ = self._rounds.get(answer.fragment)
        current = round_ is not None and round_.number == answer.round and peer.name in round_.outstanding
        if answer.steps == 0:
            if current and round_ is not None:
                yield from self._without(round_, peer, now)
            return
        state = self.fragments.states[answer.fragment]
        try:
            gradient = self._gradients.unpack(tensors, arrays.shapes(state.value))
        except CompressError:
            gradient = {}
        reason = state.objection(peer.name, peer.incarnation, answer, gradient, self.config)
        if not reason and of_answer(answer, peer.name, peer.origin, self.config, now):
            reason = IMPOSSIBLE
        if reason or not current or round_ is None:
            yield from self._refuse(peer, answer, reason or "late", now)
            if current and round_ is not None:
                yield from self._without(round_, peer, now)
            return
        round_.take(FragmentContribution(
            peer.name, peer.incarnation, answer.base_version, answer.first_step, answer.last_step, answer.steps,
            answer.tokens, answer.digest, now, gradient))
        if round_.quorum_at is None and len(round_.answers) >= self.config.quorum:
            round_.reached(now, self.config.grace, self.config.overlap,
                           typical_step_time(list(self.peers.values()), self.config.step_time),
                           typical_sync_time(self.peers.values()))
            yield Timer(f"grace {round_.number}", now + round_.grace)
        yield from self._consider(round_, now)

    def _without(self, round_: Round, peer: LearnerSession, now: float) -> Iterable[Effect]:
        """Go on without this learner; while there is no quorum it is asked again once it has something new to give."""
        round_.asked.pop(peer.name, None)
        round_.declined.add(peer.name)
        peer.c_steps[round_.fragment] = 0
        yield from self._consider(round_, now)

    def _refuse(self, peer: LearnerSession, answer: OuterGradient, reason: str, now: float) -> Iterable[Effect]:
        """Record why an answer is not merged; whoever sent it needs the current value to go on from, unless it was
        merely late, and all of it anew where its numbers can't be right."""
        yield events.Refused(learner=peer.name, incarnation=peer.incarnation, fragment=answer.fragment,
                             reason=reason, round=answer.round, first=answer.first_step, last=answer.last_step,
                             base=answer.base_version, version=self.fragments.states[answer.fragment].version)
        if reason in BROKEN and peer.connection is not None:
            yield Send(Reset(reason=reason), to=peer.connection)
            yield from self._renew(peer, reason, now)
        elif reason != "late":
            yield from self.fragments.tell(peer, answer.fragment)

    # -- rounds --------------------------------------------------------------------------------------------------

    def _advance(self, now: float) -> Iterable[Effect]:
        """Move the global clock, queue what came due, open rounds while the overlap has room for them."""
        step = ticked(self.peers.values(), self.config.quorum, self.counters.step, self._slack)
        if step > self.counters.step:
            phase = advanced(self.counters.phase, step - self.counters.step, self.config, self.fragments.processed)
            self._want(due(self.counters.phase, phase, self._offsets, self.config.sync_every))
            self.counters.phase = phase
            before, self.counters.step = self.counters.step, step
            yield from self._send_clock(now)
            if self._checkpoints.due(before, step):
                yield from self._checkpoint()
        if self.finished:
            return
        if self._blocking:
            self._want(self._waited_for())
        for fragment in list(self._waiting):
            if sum(not self._starved(round_) for round_ in self._rounds.values()) >= self._most_rounds:
                break
            if any(peer.live and peer.c_steps[fragment] >= 1 for peer in self.peers.values()):
                self._waiting.remove(fragment)
                self._rounds[fragment] = Round(next(self._numbers), fragment, now)
        for round_ in self._rounds.values():
            yield from self._ask(round_)

    def _starved(self, round_: Round) -> bool:
        """Return whether a round waits for learners that stand still for another fragment, and have nothing to give of
        this one: then the other must be merged first, or no learner ever goes on."""
        if not self._blocking or round_.quorum_at is not None:
            return False
        giving = {peer.name for peer in self.peers.values() if peer.live and peer.c_steps[round_.fragment] >= 1}
        return len(giving.union(round_.answers)) < self.config.quorum

    def _want(self, fragments: Iterable[int]) -> None:
        self._waiting += [index for index in fragments if index not in self._waiting and index not in self._rounds]

    def _waited_for(self) -> list[int]:
        """Return the fragments that learners wait for, if every live one waits for a merge; else none: a dead syncer
        forgot what was due."""
        waiting = [[index for index, steps in enumerate(peer.c_steps) if steps >= self._patience]
                   for peer in self.peers.values() if peer.live]
        return sorted({index for indices in waiting for index in indices}) if all(waiting) else []

    def _ask(self, round_: Round) -> Iterable[Effect]:
        """Ask every live learner that has something to give; latecomers only while there is no quorum."""
        if round_.quorum_at is not None:
            return
        for peer in self.peers.values():
            if peer.connection is not None and peer.c_steps[round_.fragment] >= 1 and peer.name not in round_.asked:
                round_.asked[peer.name] = peer.incarnation
                yield Send(Request(round=round_.number, fragment=round_.fragment), to=peer.connection)

    def _consider(self, round_: Round, now: float) -> Iterable[Effect]:
        ready, why = round_.may_merge(now)
        if not ready or self.finished:
            return
        del self._rounds[round_.fragment]
        yield from self._merge(round_, why, now)
        yield from self._advance(now)

    def _merge(self, round_: Round, why: str, now: float) -> Iterable[Effect]:
        answers = [round_.answers[name] for name in sorted(round_.answers)]
        outer = outer_step(self.config, self.fragments.processed)
        before = self.fragments.states[round_.fragment]
        state = self.fragments.merge(round_.fragment, answers, outer)
        yield before.working(round_.fragment, answers, state)
        yield AtFailpoint("merge.before_commit")
        yield self.fragments.commit(round_.fragment)
        yield events.Merge(round=round_.number, fragment=round_.fragment, version=state.version, digest=state.digest,
                           state=state.kept, step=self.counters.step, processed=self.fragments.processed,
                           merged=round(self.fragments.merged), outer=outer, opened=round_.opened,
                           quorum_at=now if round_.quorum_at is None else round_.quorum_at, closed=now,
                           grace=round_.grace, step_time=round_.step_time,
                           sync_time=round_.sync_time, why=why, asked=sorted(round_.asked),
                           declined=sorted(round_.declined),
                           contributions=[
                               events.MergedPart(learner=answer.learner, incarnation=answer.incarnation,
                                                 base=answer.base_version, first=answer.first_step,
                                                 last=answer.last_step, steps=answer.steps, tokens=answer.tokens,
                                                 weight=token_weight(answer.tokens, answer.steps),
                                                 arrived=answer.arrived, digest=answer.digest)
                               for answer in answers])
        yield AtFailpoint("commit.before_broadcast")
        for peer in self.peers.values():
            if peer.connection is not None:
                peer.c_steps[round_.fragment] = 0
                yield from self.fragments.tell(peer, round_.fragment, now)
        self._merged_from.update(round_.answers)
        if not self.steady and self._merged_from.issuperset(self.config.starters):
            self.steady = True
            yield events.Steady(step=self.counters.step, processed=self.fragments.processed)
            yield from self._send_clock(now)

    def _checkpoint(self) -> Iterable[Effect]:
        """Start a checkpoint of the run: the syncer and every connected learner save their state."""
        connections = {peer.name: peer.connection for peer in self.peers.values() if peer.connection is not None}
        number, effects = self._checkpoints.begin(self.counters.step, [COORDINATOR, *connections])
        yield from effects
        yield self.fragments.part(number, self._checkpoints.whole)
        for connection in connections.values():
            yield Send(CheckpointRequest(number=number), to=connection)

    def _clock(self, now: float) -> Clock:
        return Clock(step=self.counters.step, tokens=self.fragments.processed, steady=self.steady, sent=now)
