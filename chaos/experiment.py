"""Performs a plan on a cluster: starts it, follows the tape, injects and undoes, ends it whatever happens."""

from __future__ import annotations

import secrets
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from chaos.folder import RunFolder
from chaos.nodes import node_specs
from chaos.orchestrator import Action, End, Heal, Inject, Orchestrator
from chaos.plan import Plan
from chaos.scenario import Problem, ScenarioError
from faults import Hit
from harness.cluster.base import Ability, Cluster, ClusterError, Recorder
from harness.links.client import LinkError
from harness.tape import Event, Tail, TapeWriter
from harness.trainer.node import SETTINGS, NodeSettings
from harness.trainer.probe import probe

TICK_S = 0.01
MakeCluster = Callable[[Path, Recorder], Cluster]


class Observer(Protocol):
    """Somebody who watches a run: the live view, or plain lines."""

    def on_event(self, event: Event) -> None:
        """An event came up on the tape."""
        ...

    def on_tick(self, now: float) -> None:
        """Time went on, in seconds since the run began."""
        ...


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    kind: Literal["finished", "deadline", "interrupted", "broken"]
    message: str = ""


class Experiment:
    """One performance of a plan."""

    def __init__(self, plan: Plan, folder: RunFolder, settings: NodeSettings, make_cluster: MakeCluster,
                 observer: Observer) -> None:
        self.plan, self.folder, self.observer = plan, folder, observer
        (folder.path / SETTINGS).write_text(settings.model_dump_json(indent=2))
        self._epoch = time.monotonic()
        self._tape = TapeWriter(folder.path / "tape", "harness", 0, self._epoch)
        self._tail = Tail(folder.path / "tape")
        self._orchestrator = Orchestrator(plan)
        self._cluster = make_cluster(folder.path, self._tape.record)
        self._token = secrets.token_hex(16)
        _refuse_beyond(plan, self._cluster.abilities())
        self._hit = Hit(self._cluster, self._probe)

    def perform(self) -> Outcome:
        """Run to the end. Always undoes every fault and ends every process before it returns."""
        outcome = Outcome("broken", "the run was not started")
        try:
            self._tape.record("begin", plan=self.plan.digest, scenario=self.plan.scenario, seed=self.plan.seed)
            self._cluster.start(node_specs(self.plan, self.folder.path, self._epoch, self._token))
            outcome = self._follow()
        except KeyboardInterrupt:
            outcome = Outcome("interrupted", "stopped by Ctrl-C")
        except (ClusterError, LinkError, OSError) as error:
            outcome = Outcome("broken", str(error))
        finally:
            self._end(outcome)
        return outcome

    def _follow(self) -> Outcome:
        while True:
            self._cluster.poll()
            now = time.monotonic() - self._epoch
            actions: list[Action] = []
            for event in self._tail.poll():
                self.observer.on_event(event)
                actions += self._orchestrator.on_event(event)
            actions += self._orchestrator.on_time(now)
            for action in actions:
                if isinstance(action, End):
                    return self._over(action)
                self._act(action)
            self.observer.on_tick(now)
            time.sleep(TICK_S)

    def _over(self, end: End) -> Outcome:
        if end.outcome == "deadline":
            self._cluster.dump_stacks()
            time.sleep(0.2)  # for the stacks to reach the logs
            where = "before the cluster was steady" if self._orchestrator.zero is None else "before training was over"
            return Outcome("deadline", f"the deadline of {self.plan.deadline:g} s passed {where}; every node's stacks "
                                       f"are in {self.folder.path / 'logs'}")
        return Outcome("finished")

    def _act(self, action: Inject | Heal) -> None:
        """Record, do, record what was felt: a fault that nobody finished recording is seen as half done."""
        planned = action.planned
        if isinstance(action, Inject):
            self._tape.record("injecting", fault=planned.id, kind=planned.fault.kind, targets=planned.fault.targets,
                              words=planned.fault.words())
            try:
                felt = planned.fault.inject(self._hit)
            except OSError as error:  # no probe got through: nobody knows how strong it is
                felt = {"ok": False, "error": str(error)}
            self._tape.record("injected", fault=planned.id, felt=felt)
        else:
            felt = planned.fault.undo(self._hit)
            if self._orchestrator.ended:
                felt = {}  # the nodes are gone: nothing could be felt any more
            self._tape.record("healed", fault=planned.id, felt=felt)

    def _end(self, outcome: Outcome) -> None:
        """Undo what is active, look for what is left, end the processes. A second Ctrl-C does not hinder it."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._undo()
            self._cluster.stop()
            for event in self._tail.poll():
                self.observer.on_event(event)
            self._tail.close()
            self._tape.record("end", outcome=outcome.kind, message=outcome.message)
            self._tape.close()
        finally:
            signal.signal(signal.SIGINT, before)

    def _undo(self) -> None:
        """Undo every active fault, whatever becomes of the others, and record what is left."""
        for planned in self._orchestrator.active():
            try:
                self._act(Heal(planned))
            except (ClusterError, LinkError, OSError) as error:
                self._tape.record("not_healed", fault=planned.id, reason=str(error))
        try:
            self._tape.record("residue", left=self._cluster.residue())
        except (ClusterError, LinkError, OSError) as error:
            self._tape.record("residue", left=[f"not known: {error}"])

    def _probe(self, link: str, reply_bytes: int) -> float:
        return probe(self._cluster.address(link), self._token, reply_bytes)


def _refuse_beyond(plan: Plan, abilities: set[Ability]) -> None:
    """Raise ScenarioError where a plan needs what this place can't do."""
    problems = [Problem(f"{planned.fault.kind}: this place can't {', '.join(sorted(planned.fault.needs - abilities))}")
                for planned in plan.faults if planned.fault.needs - abilities]
    if problems:
        raise ScenarioError(plan.scenario, problems)
