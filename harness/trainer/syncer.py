"""The syncer: pulls fragments, merges them as soon as K learners have answered, sends the result to everyone.

A state machine without I/O (arXiv 2604.21428, the decoupled syncer): it takes messages, timers and lost connections,
each with the time, and returns effects. The same code runs on sockets and under virtual time.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from harness.trainer import tensors as arrays
from harness.trainer.config import TrainerConfig
from harness.trainer.effects import Commit, Effect, Hold, Mark, Record, Send, Snapshot, Timer
from harness.trainer.fragments import due
from harness.trainer.merge import token_weight
from harness.trainer.messages import Answer, AnyMessage, Broadcast, Clock, Hello, Report, Request, Welcome
from harness.trainer.reception import HEARTBEAT, Reception
from harness.trainer.rounds import Contribution, MovingAverage, Peer, Round, global_step, typical_step_time
from harness.trainer.schedule import snapshot_marks
from harness.trainer.state import Restored, digests, fragment_file
from harness.trainer.tensors import Tensors

_ROUNDS_PER_INCARNATION = 1_000_000  # so that no two rounds of a run have the same number


class Syncer(Reception[Peer]):
    """See the module. Failure semantics: a learner that is gone is simply not asked; an answer counts when it is
    complete; a merge exists once it is committed, and is broadcast only then."""

    def __init__(self, config: TrainerConfig, found: Restored, incarnation: int = 0) -> None:
        super().__init__(config)
        self.table = config.fragment_table()
        self.states = found.states
        self.ledger = found.ledger
        self._found = found
        self._warm, self._budget = config.warm_tokens, config.budget_tokens
        self._offsets, self._most_rounds = config.offsets, config.most_rounds
        self._blocking, self._patience = config.blocking, config.patience
        self._rounds: dict[int, Round] = {}  # fragment -> its open round
        self._waiting: list[int] = []  # fragments that are due and not open yet
        self._numbers = count(incarnation * _ROUNDS_PER_INCARNATION + 1)
        self._merged_from: set[str] = set()
        self._sync_time = MovingAverage()
        self._closed_at: dict[str, float] = {}
        self._marks = snapshot_marks(config)
        if found.resumed:
            self._marks = [mark for mark in self._marks if mark[1] > self.processed]

    @property
    def processed(self) -> int:
        """Tokens processed so far by all learners, warm start included."""
        return self._warm + self.ledger.processed

    @property
    def merged(self) -> float:
        """Tokens merged so far: mean over fragments weighted by size, warm start included."""
        total = sum(fragment.size for fragment in self.table)
        weighted = sum(state.merged_tokens * fragment.size
                       for state, fragment in zip(self.states, self.table, strict=True))
        return self._warm + weighted / total

    def status(self) -> dict[str, object]:
        """For people who ask."""
        return {"steady": self.steady, "finished": self.finished, "step": self.ledger.step,
                "processed": self.processed, "merged": round(self.merged), "budget": self._budget,
                "versions": [state.version for state in self.states],
                "learners": {name: {"connected": peer.connection is not None, "incarnation": peer.incarnation,
                                    "step": peer.step} for name, peer in sorted(self.peers.items())}}

    def start(self, now: float) -> Iterable[Effect]:
        """The first effects of a new process."""
        for name, why in self._found.repaired.items():
            yield Record("repaired", {"file": name, "reason": why})
        for fragment in self._found.to_commit:  # from here on a file that is missing was lost
            yield self._commit(fragment)
        yield Record("resumed" if self._found.resumed else "initial", {
            "versions": [state.version for state in self.states], "digests": digests(self.states),
            "contributions": [state.contributions for state in self.states],
            "step": self.ledger.step, "processed": self.processed})
        yield Timer("heartbeat", now + HEARTBEAT)
        yield from self._snapshots()

    def on_lost(self, connection: int, reason: str, now: float) -> Iterable[Effect]:
        """A connection ended. What it had answered stays; what it was asked for is not waited for."""
        peer = self._by_connection.pop(connection, None)
        if peer is None or peer.connection != connection:
            return
        peer.connection = None
        yield Record("lost", {"learner": peer.name, "incarnation": peer.incarnation, "reason": reason})
        for round_ in list(self._rounds.values()):
            if peer.name not in round_.answers:
                round_.asked.pop(peer.name, None)
            yield from self._consider(round_, now)
        yield from self._advance(now)

    def on_timer(self, key: str, now: float) -> Iterable[Effect]:
        """A timer fired: a heartbeat, or the end of a grace window."""
        if key == "heartbeat":
            yield from self._heartbeat(now)
        else:
            for round_ in list(self._rounds.values()):
                if key == f"grace {round_.number}":
                    yield from self._consider(round_, now)

    def on_mark(self, key: str, now: float) -> Iterable[Effect]:
        """A merge's effects are done: commit and broadcast took this long."""
        self._sync_time.add(now - self._closed_at.pop(key))
        return ()

    # -- learners come and tell ----------------------------------------------------------------------------------

    def _take(self, peer: Peer, message: AnyMessage, tensors: Tensors, now: float) -> Iterable[Effect]:
        if isinstance(message, Report):
            return self._report(peer, message, now)
        if isinstance(message, Answer):
            return self._answer(peer, message, tensors, now)
        return (Record("refused", {"learner": peer.name, "reason": f"unexpected {message.type}"}),)

    def _hello(self, connection: int, hello: Hello, now: float) -> Iterable[Effect]:
        newest = self.ledger.newest(hello.node)
        ours = len(hello.versions) == len(hello.steps) == len(self.table)
        if refusal := self._turn_away(connection, hello, newest, ours):
            yield from refusal
            return
        yield from self._replace(hello, now)
        fresh = all(version < 0 for version in hello.versions)
        step = self.ledger.step if fresh else hello.step
        peer = Peer(hello.node, hello.incarnation, connection, step, list(hello.steps), now)
        self.peers[hello.node] = self._by_connection[connection] = peer
        self.ledger.report(hello.node, hello.incarnation, hello.tokens, hello.position)
        if hello.incarnation > newest:  # a stale one must be refused by the syncer's own successor, too
            yield self._commit(0)
        yield Record("hello", {"learner": peer.name, "incarnation": peer.incarnation, "fresh": fresh, "step": step,
                               "versions": [state.version for state in self.states], "held": hello.versions})
        yield Send(Welcome(step=self.ledger.step, tokens=self.processed, steady=self.steady,
                           position=max(self.config.warm_start, self.ledger.positions[hello.node])),
                   to=connection)
        for index, state in enumerate(self.states):
            held = hello.versions[index]
            behind = state.version - held
            if held < 0 or behind < 0 or behind > self.config.max_staleness or (behind and self._blocking):
                yield self._fragment(index, connection)
                peer.c_steps[index] = 0
        yield from self._advance(now)
        yield from self._snapshots()

    def _report(self, peer: Peer, report: Report, now: float) -> Iterable[Effect]:
        if len(report.fragments) != len(self.table):
            yield Record("refused", {"learner": peer.name, "reason": "report of another model"})
            return
        peer.report(report.step, report.fragments, report.took)
        self.ledger.report(peer.name, peer.incarnation, report.tokens, report.position)
        if peer.step > self.ledger.step or self._waiting or self._rounds or self._blocking:
            yield from self._advance(now)  # else the clock stands, and nobody is to be asked
        processed = self.processed
        if self._marks and processed >= self._marks[0][1]:
            yield from self._snapshots()
        if processed >= self._budget and not self.finished:
            yield from self._finish(step=self.ledger.step, processed=self.processed, merged=round(self.merged))

    def _answer(self, peer: Peer, answer: Answer, tensors: Tensors, now: float) -> Iterable[Effect]:
        if answer.fragment >= len(self.table):
            yield Record("refused", {"learner": peer.name, "reason": "no such fragment"})
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
        state = self.states[answer.fragment]
        reason = state.objection(peer.name, peer.incarnation, answer, tensors, self.config.max_staleness)
        if reason or not current or round_ is None:
            yield from self._refuse(peer, answer, reason or "late", refresh=bool(reason))
            if current and round_ is not None:
                yield from self._without(round_, peer, now)
            return
        round_.take(Contribution(peer.name, peer.incarnation, answer.base_version, answer.first_step, answer.last_step,
                                 answer.steps, answer.tokens, answer.digest, now, tensors))
        if round_.quorum_at is None and len(round_.answers) >= self.config.quorum:
            round_.reached(now, self.config.grace, self.config.overlap,
                           typical_step_time(list(self.peers.values()), self.config.step_time),
                           self._sync_time.value or 0.0)
            yield Timer(f"grace {round_.number}", now + round_.grace)
        yield from self._consider(round_, now)

    def _without(self, round_: Round, peer: Peer, now: float) -> Iterable[Effect]:
        """Go on without this learner; while there is no quorum it is asked again once it has something new to give."""
        round_.asked.pop(peer.name, None)
        round_.declined.add(peer.name)
        peer.c_steps[round_.fragment] = 0
        yield from self._consider(round_, now)

    def _refuse(self, peer: Peer, answer: Answer, reason: str, refresh: bool) -> Iterable[Effect]:
        """Record why an answer is not merged; whoever sent it may need the current value to go on from."""
        yield Record("refused", {
            "learner": peer.name, "incarnation": peer.incarnation, "fragment": answer.fragment, "reason": reason,
            "round": answer.round, "first": answer.first_step, "last": answer.last_step,
            "base": answer.base_version, "version": self.states[answer.fragment].version})
        if refresh and peer.connection is not None:
            yield self._fragment(answer.fragment, peer.connection)

    # -- rounds --------------------------------------------------------------------------------------------------

    def _advance(self, now: float) -> Iterable[Effect]:
        """Move the global clock, queue what came due, open rounds while the overlap has room for them."""
        step = global_step(list(self.peers.values()), self.config.quorum, self.ledger.step)
        if step > self.ledger.step:
            self._want(due(self.ledger.step, step, self._offsets, self.config.sync_every))
            self.ledger.step = step
            yield from self._send_clock()
        if self.finished:
            return
        if self._blocking:
            self._want(self._waited_for())
        for fragment in list(self._waiting):
            if len(self._rounds) >= self._most_rounds:
                break
            if any(peer.live and peer.c_steps[fragment] >= 1 for peer in self.peers.values()):
                self._waiting.remove(fragment)
                self._rounds[fragment] = Round(next(self._numbers), fragment, now)
        for round_ in self._rounds.values():
            yield from self._ask(round_)

    def _want(self, fragments: Iterable[int]) -> None:
        self._waiting += [index for index in fragments if index not in self._waiting and index not in self._rounds]

    def _waited_for(self) -> list[int]:
        """Where every live learner waits for a merge, what they wait for: a dead syncer forgot what was due."""
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
        state = self.states[round_.fragment] = self.states[round_.fragment].after(answers, self.config)
        yield Hold("merge.before_commit")
        yield self._commit(round_.fragment)
        yield Record("merge", {
            "round": round_.number, "fragment": round_.fragment, "version": state.version,
            "digest": arrays.digest(state.value), "step": self.ledger.step, "processed": self.processed,
            "merged": round(self.merged), "opened": round_.opened, "quorum_at": round_.quorum_at,
            "closed": now, "grace": round_.grace, "step_time": round_.step_time, "sync_time": round_.sync_time,
            "why": why, "asked": sorted(round_.asked), "declined": sorted(round_.declined),
            "contributions": [{
                "learner": answer.learner, "incarnation": answer.incarnation, "base": answer.base_version,
                "first": answer.first_step, "last": answer.last_step, "steps": answer.steps, "tokens": answer.tokens,
                "weight": token_weight(answer.tokens, answer.steps), "arrived": answer.arrived,
                "digest": answer.digest} for answer in answers]})
        yield Hold("commit.before_broadcast")
        for peer in self.peers.values():
            if peer.connection is not None:
                peer.c_steps[round_.fragment] = 0
                yield self._fragment(round_.fragment, peer.connection)
        self._closed_at[f"round {round_.number}"] = now
        yield Mark(f"round {round_.number}")
        self._merged_from.update(round_.answers)
        if not self.steady and self._merged_from.issuperset(self.config.starters):
            self.steady = True
            yield Record("steady", {"step": self.ledger.step, "processed": self.processed})
            yield from self._send_clock()

    def _commit(self, fragment: int) -> Commit:
        state = self.states[fragment]
        return Commit(fragment_file(fragment), state.tensors(), state.meta() | {"ledger": self.ledger.meta()})

    # -- what everyone is told -----------------------------------------------------------------------------------

    def _fragment(self, index: int, connection: int) -> Send:
        state = self.states[index]
        return Send(Broadcast(fragment=index, version=state.version, digest=arrays.digest(state.value)),
                    state.value, to=connection)

    def _clock(self) -> Clock:
        return Clock(step=self.ledger.step, tokens=self.processed, steady=self.steady)

    def _snapshots(self) -> Iterable[Effect]:
        while self._marks and self.processed >= self._marks[0][1]:
            yield self._snapshot(self._marks.pop(0)[0])

    def _snapshot(self, number: int) -> Snapshot:
        value = {name: array for state in self.states for name, array in state.value.items()}
        return Snapshot(value, {"number": number, "processed": self.processed, "merged": round(self.merged),
                                "step": self.ledger.step})
