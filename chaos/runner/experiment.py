"""Performs a plan on a cluster: starts it, follows the tape, injects and undoes, ends it whatever happens."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.chaos.runner.director import Director
from diloco_chaos.chaos.runner.node_specs import node_specs
from diloco_chaos.chaos.runner.orchestrator import Abort, Action, EndRun, Heal, Inject, Orchestrator
from diloco_chaos.chaos.runner.probing import Sensing
from diloco_chaos.chaos.runner.resume_point import ResumePoint
from diloco_chaos.chaos.runner.runtime import Stage
from diloco_chaos.chaos.runner.sightings import Sightings
from diloco_chaos.chaos.scenario import plan as plans
from diloco_chaos.chaos.scenario.plan import Plan, PlannedFault
from diloco_chaos.faults import FAULTS
from diloco_chaos.harness.links.client import LinkError
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.record.tape.events import Event, Failpoint, Steady, Step

_STANDS_S = 5.0


class Observer(Protocol):
    """Somebody who watches a run: the live view, or plain lines."""

    def on_event(self, event: Event) -> None:
        """An event came up on the tape."""
        ...

    def on_tick(self, now: float) -> None:
        """Time went on, in seconds since the run began."""
        ...


@dataclass(frozen=True)
class RunOutcome:
    """The way in which a run ended."""

    kind: Literal["finished", "deadline", "aborted", "interrupted", "broken"]
    message: str = ""


class Standing:
    """Knows which workers tell no steps any more, though they told some."""

    def __init__(self, asked: int) -> None:
        """`asked`: the step that is the last of all; 0: nothing says which."""
        self._asked = asked
        self._last: dict[str, float] = {}
        self._longest: dict[str, float] = {}

    def on_event(self, event: Event) -> None:
        """Take in an event, in the order of a node's own."""
        if isinstance(event, Step):
            pause = event.t - self._last.get(event.node, event.t)
            self._longest[event.node] = max(self._longest.get(event.node, 0.0), pause)
            self._last[event.node] = event.t
            if 0 < self._asked <= event.step:
                del self._last[event.node]  # it has nothing left to do

    def at(self, now: float) -> list[str]:
        """Return the workers whose last step is five seconds ago, and twice as long as any pause before."""
        return [node for node, t in self._last.items() if now - t > max(_STANDS_S, 2 * self._longest[node])]


class FaultError(Exception):
    """A fault raised what its place does not: the run ends, and the message says which fault and whose it is."""


class Experiment:
    """One performance of a plan."""

    def __init__(self, plan: Plan, stage: Stage, observer: Observer, origin: ResumePoint | None = None,
                 director: Director | None = None) -> None:
        """`origin`: what it goes on from; the stage has its tape already. `director`: who adds faults on the way."""
        self.plan, self.observer, self._origin, self._director = plan, observer, origin, director
        self._stage, self._cluster, self._record = stage, stage.cluster, stage.record
        self._orchestrator = Orchestrator(plan)
        self._specs = {spec.name: spec for spec in node_specs(
            plan, stage.run, stage.epoch, stage.reads, origin.incarnations if origin else {},
            origin.over if origin else ())}
        self._sightings = Sightings(stage.run, plan.trainer.programs(), self._record)
        self._sightings.add(plan.faults)
        self._standing = Standing(plan.cluster.budget_tokens)
        self._sensing = Sensing(plan, self._cluster, stage.prober, self._specs, stage.undo_log.token)

    def perform(self) -> RunOutcome:
        """Run to the end. Always undoes every fault and ends every process before it returns."""
        outcome = RunOutcome("broken", "the run was not started")
        try:
            names = self._begin() if self._origin is None else self._catch_up(self._origin)
            self._cluster.start([self._specs[name] for name in names])
            outcome = self._follow()
        except KeyboardInterrupt:
            outcome = RunOutcome("interrupted", "stopped by Ctrl-C")
        except (ClusterError, LinkError, OSError, FaultError) as error:
            outcome = RunOutcome("broken", str(error))
        except Exception as error:  # a bug, of ours or of a trainer's: what was recorded so far is judged all the same
            self._raised(error)
            outcome = RunOutcome("broken", f"unexpected {type(error).__name__}: {error}; its traceback is on the "
                                           f"harness' tape (`raised`): please report it with this run's folder")
        finally:
            with self._stage.undisturbed():
                self._end(outcome)
        return outcome

    def add(self, faults: Sequence[PlannedFault]) -> None:
        """More faults, from now on. The plan that holds them is in the run's folder before any of them comes."""
        self._replan(self._orchestrator.add(faults))
        self._sightings.add(faults)

    def cut_short(self, name: str) -> None:
        """Undo a fault now that would last longer; nothing where it is over."""
        active = next((planned for planned in self._orchestrator.active() if planned.id == name), None)
        if active is not None:
            self._replan(self._orchestrator.cut_short(active, self._stage.now()))
            self._heal(active)

    def active(self) -> list[PlannedFault]:
        """Faults that are on."""
        return self._orchestrator.active()

    def since_zero(self) -> float:
        """Seconds since the steady state."""
        return self._stage.now() - (self._orchestrator.zero or 0.0)

    def _replan(self, plan: Plan) -> None:
        self.plan = plan
        RunFolder(self._stage.run).write("plan.json", plans.document(plan))
        self._record(events.Planned(plan=plan.digest))

    def _begin(self) -> Iterable[str]:
        """Say so; who is to be started."""
        self._record(events.Begin(plan=self.plan.digest, scenario=self.plan.scenario, seed=self.plan.seed))
        cluster = self.plan.cluster
        later = set(cluster.names) - set(cluster.starters)
        return [name for name in cluster.all_nodes if name not in later]

    def _catch_up(self, origin: ResumePoint) -> Iterable[str]:
        """Be where the run was at the checkpoint; who is to be started."""
        past = sorted(self._stage.events(), key=lambda event: event.t)
        for event in past:
            self.observer.on_event(event)
        self._orchestrator.catch_up(past, origin.over)
        return origin.incarnations

    def _follow(self) -> RunOutcome:
        while True:
            self._cluster.poll()
            now = self._stage.now()
            actions: list[Action] = []
            stale: list[str] = []
            self._sightings.look()
            for event in self._stage.events():
                self.observer.on_event(event)
                self._sightings.on_event(event)
                self._standing.on_event(event)
                if self._director is not None:
                    self._director.on_event(event)
                if isinstance(event, Steady):
                    self._sensing.calibrate(all_links=self._director is not None)
                follows = self._orchestrator.on_event(event)
                if isinstance(event, Failpoint) and not follows:
                    self._let_go(event.node)
                elif isinstance(event, Failpoint) and event.inc < self._cluster.states()[event.node].incarnation:
                    stale.append(event.node)  # what follows hits its successor, which nothing would let go on
                actions += follows
            if self._director is not None and (stopped := self._director.look(self, now)):
                return RunOutcome("interrupted", stopped)
            actions += self._orchestrator.on_time(now)
            for action in actions:
                if isinstance(action, EndRun):
                    return self._over(action)
                self._act(action)
            for node in stale:
                self._cluster.revive(node)
            for kind, planned, observed in self._sensing.collect():
                self._record(kind(fault=planned.id, observed=observed))
            if self._stage.size > self.plan.tape_limit:
                return RunOutcome("broken", f"the tape has grown over {self.plan.tape_limit / 1e6:g} MB, which is the "
                                         f"scenario's tape_limit: raise it, or shorten the run")
            self._look_at_the_machine()
            self.observer.on_tick(now)
            self._sleep()

    def _sleep(self) -> None:
        """Sleep until there may be something to do."""
        until, wake_on = min(self._orchestrator.next_at, self._sensing.next_at), self._orchestrator.wake_on
        if self._director is not None:  # what it waits for may come with any event
            until, wake_on = min(until, self._director.next_at), None
        self._stage.sleep_until(until, wake_on)

    def _over(self, end: EndRun) -> RunOutcome:
        if self._orchestrator.aborted:
            self._stage.dump_stacks(self._cluster.states())
            return RunOutcome("aborted", f"aborted, because {self._orchestrator.aborted}; no more faults were "
                                         f"injected, and those that were on were undone")
        if end.outcome == "deadline":
            self._stage.dump_stacks(self._cluster.states())
            where = "before the cluster was steady" if self._orchestrator.zero is None else "before training was over"
            what = "what nodes said is" if self.plan.trainer.programs() else (
                "every node's stacks are")
            return RunOutcome("deadline", f"the deadline of {self.plan.deadline:g} s passed {where}; {what} in "
                                       f"{self._stage.run / 'logs'}")
        self._see_them_end()
        return RunOutcome("finished")

    def _see_them_end(self) -> None:
        """Leave those who must end by themselves the time for it."""
        left, within = self._orchestrator.awaited(), self.plan.cluster.ends_within_s
        standing = self._standing.at(self._stage.now())
        self._record(events.Ending(awaited=left, within=within))
        until = self._stage.now() + within
        while left and self._stage.now() < until:
            self._stage.sleep_until(until, {("harness", "exit"), *((node, "failpoint") for node in left)})
            self._cluster.poll()
            for event in self._stage.events():
                self.observer.on_event(event)
                if isinstance(event, Failpoint):
                    self._let_go(event.node)
            self._look_at_the_machine()  # who is late may be so because others have it
            states = self._cluster.states()
            left = [node for node in left if states[node].state in ("running", "paused")]
        hit = {node for planned in self._orchestrator.active()
               for node in planned.fault.affected_nodes(self.plan.cluster.names)}
        if hanging := {*left, *standing} - hit:
            self._stage.dump_stacks(hanging)

    def _look_at_the_machine(self) -> None:
        for sample in self._stage.machines():
            self._record(sample)

    def _act(self, action: Inject | Heal | Abort) -> None:
        """Record, do, record what was observed: a fault whose record is not finished is seen as half done."""
        if isinstance(action, Abort):
            self._record(events.Aborted(why=action.why))
        elif isinstance(action, Inject):
            self._inject(action.planned, action.due)
        else:
            self._heal(action.planned)

    def _inject(self, planned: PlannedFault, due: float) -> None:
        fault = planned.fault
        self._record(events.Injecting(fault=planned.id, kind=fault.kind, targets=list(fault.targets),
                                      description=planned.describe(), due=round(due, 6)))
        self._stage.undo_log.cause = planned.id
        with self._blaming(planned, "inject"):
            observed = fault.inject(self._sensing.hit(planned))
            self._record(events.Injected(fault=planned.id, observed=observed))
        self._sensing.observe(planned)

    def _heal(self, planned: PlannedFault) -> None:
        self._sensing.over(planned)
        with self._blaming(planned, "undo"):
            planned.fault.undo(self._sensing.hit(planned))
        self._record(events.Healed(fault=planned.id, observed={}))
        if not self._orchestrator.ended:  # else the nodes are gone: nothing could be observed any more
            self._sensing.verify(planned)

    @contextmanager
    def _blaming(self, planned: PlannedFault, method: str) -> Iterator[None]:
        """Turn what a fault's method must not raise into a sentence with its name.

        Raises:
            FaultError: it raised something else than the place's own errors.
        """
        try:
            yield
        except (ClusterError, LinkError, OSError):
            raise
        except Exception as error:
            self._raised(error, planned)
            kind = planned.fault.kind
            raise FaultError(f"{planned.id}: `{method}` of the fault {kind} ({FAULTS.provider(kind)}) raised "
                             f"{type(error).__name__}: {error}; its traceback is on the harness' tape (`raised`)"
                             ) from error

    def _raised(self, error: Exception, planned: PlannedFault | None = None) -> None:
        self._record(events.Raised(fault=planned.id if planned else None, error=f"{type(error).__name__}: {error}",
                                   traceback=traceback.format_exception(error)))

    def _end(self, outcome: RunOutcome) -> None:
        """Undo what is active, look for what is left, end the processes."""
        self._undo()
        self._look_back()
        self._cluster.stop()
        self._sensing.close()
        self._sightings.close()
        for event in self._stage.events():
            self.observer.on_event(event)
        self._record(events.End(outcome=outcome.kind, message=outcome.message))
        self._stage.close()

    def _look_back(self) -> None:
        """Record what faults that came have to say at the end; one that can't says nothing."""
        for planned in self.plan.faults:
            with suppress(ClusterError, LinkError, OSError):
                if self._sensing.has_come(planned) and (observed := planned.fault.observe_end(
                        self._sensing.hit(planned))):
                    self._record(events.Verified(fault=planned.id, observed=observed))

    def _let_go(self, node: str) -> None:
        """A node that stands at a failpoint goes on: the fault that it waits for does not come any more."""
        if node not in self._cluster.states():
            return  # the cluster ended before it was started
        self._cluster.pause(node)  # takes it over, should it stand there
        self._cluster.resume(node)
        self._cluster.revive(node)  # it may be a process that was superseded

    def _try(self, planned: PlannedFault, undo: Callable[[], None]) -> None:
        try:
            undo()
        except Exception as error:  # whatever it is, the other faults must be undone
            self._record(events.NotHealed(fault=planned.id, reason=str(error)))

    def _undo(self) -> None:
        """Undo every active fault, whatever becomes of the others, and record what is left."""
        self._orchestrator.ended = True
        for planned in self._orchestrator.active():
            self._try(planned, partial(self._heal, planned))
        for planned in self.plan.faults:
            if planned.fault.when is not None and planned.fault.when.failpoint:
                self._try(planned, partial(self._let_go, planned.fault.when.node))
        try:
            self._record(events.Residue(left=self._cluster.residue()))
        except (ClusterError, LinkError, OSError) as error:
            self._record(events.Residue(left=[], unknown=str(error)))
