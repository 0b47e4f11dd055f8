"""Runs to be judged, made under virtual time in memory, and a `Story` to forge them with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec import structs

from diloco_chaos.chaos.checks import CHECKS, Judgement, judge
from diloco_chaos.chaos.checks.base import Verdict
from diloco_chaos.chaos.evidence.baseline import LossPoint, Reference
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.harness.base.tensors import Tensors, copy
from diloco_chaos.harness.record.tape.events import Event, Merge, MergedPart
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from inmemory import InMemoryCluster
from recorded_events import an_event, changed

CLUSTER = ("{model: micro, learners: 4, quorum: 1, fragments: 4, sync_every: 8, overlap: 2, batch: 1, warmup: 0, "
           "step_time: 60ms, snapshots: 5, budget: %s}")
CALM = f"""
diloco_chaos: 1
name: calm
cluster: {CLUSTER % 150}
checks:
  participation: [{{learner: learner-3, at_least: 80%}}]
  loss_parity: {{against_baseline: 2%, against_synchronous: 4%}}
"""
STORM = f"""
diloco_chaos: 1
name: storm
cluster: {CLUSTER % 350}
faults:
  - {{kill: learner-1, at: 4s, restart_after: 2s}}
  - {{straggler: learner-2, at: 6s, for: 4s, factor: 0.5}}
  - {{latency: learner-3, at: 7s, for: 3s, delay: 12ms}}
  - {{partition: learner-4, at: 12s, for: 2s}}
checks:
  self_healing: {{within: 4s}}
  reintegration: {{within: 4s}}
  participation: [{{learner: learner-3, at_least: 80%}}]
  goodput: {{at_least: 70%}}
  loss_parity: {{against_baseline: 2%, against_synchronous: 4%}}
"""
REBORN = f"""
diloco_chaos: 1
name: reborn
cluster: {CLUSTER % 120}
faults:
  - {{kill: syncer, at: 3s, restart_after: 1s}}
checks:
  no_global_stall: {{max_gap: 2s}}
"""
Where = Callable[[Event], bool]

ALWAYS = {name for name, check in CHECKS.items() if check.unverified == "judged"}
"""Checks that mean the same whether or not a fault was observed and the machine kept its pace."""


@dataclass(frozen=True, repr=False)
class Story:
    """A plan and what is said to have happened. Every method returns another story and leaves this one as it was."""

    plan: Plan
    events: tuple[Event, ...]
    curve: tuple[LossPoint, ...] = ()
    references: dict[str, Reference] = field(default_factory=dict)
    torn: dict[tuple[str, int], str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<{self.plan.scenario}: {len(self.events)} events>"

    # -- reading -------------------------------------------------------------------------------------------------

    def history(self) -> History:
        """A fresh history: nothing is cached from another judgement."""
        tape = Tape(self.events)
        tape.torn.update(self.torn)
        return History(self.plan, tape, self.curve, self.references)

    def judged(self) -> Judgement:
        return judge(self.history())

    def verdict(self, name: str) -> Verdict:
        """One check's line as the report has it: judged alone, but for `faults_verified`, on which others depend."""
        only = {key: check for key, check in CHECKS.items() if key in (name, "faults_verified")}
        return next(verdict for verdict in judge(self.history(), only).checks if verdict.name == name)

    def describe(self) -> dict[str, str]:
        """Every check's verdict."""
        return {verdict.name: verdict.verdict for verdict in self.judged().checks}

    def all(self, name: str, node: str | None = None, **fields: Any) -> list[Event]:
        return [event for event in self.events if event.event == name and node in (None, event.node)
                and all(getattr(event, key, None) == value for key, value in fields.items())]

    def one(self, name: str, node: str | None = None, **fields: Any) -> Event:
        """The first event like this."""
        return self.all(name, node, **fields)[0]

    @property
    def zero(self) -> float:
        return self.one("steady").t

    @property
    def end(self) -> float:
        return self.one("finished", "syncer").t

    # -- forging -------------------------------------------------------------------------------------------------

    def having(self, **changes: Any) -> Story:
        """Another plan, curve, set of references, or places where the tape is torn."""
        return dataclasses.replace(self, **changes)

    def bounded(self, checks: str = "{}", faults: str | None = None, **cluster: Any) -> Story:
        """The same events under other checks, faults (both as one line of YAML) or settings of the cluster."""
        old = self.plan.model_dump(mode="json", by_alias=True)
        new = freeze(parse(f"diloco_chaos: 1\nname: other\nchecks: {checks}\nfaults: {faults or '[]'}\n"), 0)
        new = new.model_dump(mode="json", by_alias=True)
        plan = Plan.model_validate(old | {"checks": new["checks"], "cluster": old["cluster"] | cluster,
                                          "faults": old["faults"] if faults is None else new["faults"]})
        return self.having(plan=plan).forged("begin", plan=plan.digest)

    def without(self, where: str | Event | Where) -> Story:
        """Events that nobody recorded: by name, one of them, or whatever meets a condition."""
        return self.having(events=tuple(event for event in self.events if not _meets(event, where)))

    def forged(self, where: str | Event | Where, /, t: float | None = None, later: float = 0.0,
               life: int | None = None, **fields: Any) -> Story:
        """These events changed: their time, the incarnation that wrote them, and fields (a value, or a function of the
        old one)."""
        def change(event: Event) -> Event:
            if not _meets(event, where):
                return event
            mine = {key: value(deepcopy(getattr(event, key))) if callable(value) else value
                    for key, value in fields.items()}
            return structs.replace(changed(event, **mine), t=(event.t if t is None else t) + later,
                                   inc=event.inc if life is None else life)
        return self.having(events=tuple(change(event) for event in self.events))

    def part(self, merge: Event, index: int = 0, **fields: Any) -> Story:
        """One contribution of a merge changed."""
        def change(parts: list[MergedPart]) -> list[MergedPart]:
            return [structs.replace(part, **{key: value(getattr(part, key)) if callable(value) else value
                                             for key, value in fields.items()})
                    if number == index else part for number, part in enumerate(parts)]
        return self.forged(merge, contributions=change)

    def plus(self, *events: Event) -> Story:
        """Events that never took place."""
        return self.having(events=self.events + events)

    def said(self, t: float, node: str, event: str, life: int = 0, /, **fields: Any) -> Story:
        """One more event, of incarnation `life`."""
        return self.plus(an_event(t, node, life, event, fields))

    def silent(self, names: str | tuple[str, ...], start: float, end: float, node: str | None = None) -> Story:
        """Nothing of these names was recorded from `start` to `end`."""
        return self.without(lambda event: event.event in names and start <= event.t < end
                            and node in (None, event.node))

    def torn_at(self, t: float, node: str, incarnation: int = 0) -> Story:
        """A node's file that ends in the middle of a line."""
        where = f"{node}.{incarnation}.jsonl, line 7: the line has no end"
        return self.without(lambda event: (event.node, event.inc) == (node, incarnation)
                            and event.t > t).having(torn=self.torn | {(node, incarnation): where})

    def unmerged(self, start: float, end: float, *learners: str) -> Story:
        """Merges from `start` to `end` without what these learners (none named: all) contributed."""
        def kept(parts: list[MergedPart]) -> list[MergedPart]:
            return [part for part in parts if learners and part.learner not in learners]
        return self.forged(lambda event: isinstance(event, Merge) and start <= event.t < end, contributions=kept)


def _meets(event: Event, where: str | Event | Where) -> bool:
    if isinstance(where, str):
        return event.event == where
    return event is where if isinstance(where, Event) else where(event)


class Toy:
    """A replica that walks towards its own target with some noise: nothing is learned, but everything moves."""

    def __init__(self, initial: Tensors, index: int) -> None:
        self._values, self._random = copy(initial), np.random.default_rng(index)
        self._target = 0.01 * (index + 1)

    def read(self, names: tuple[str, ...]) -> Tensors:
        return {name: self._values[name].copy() for name in names}

    def write(self, tensors: Tensors) -> None:
        self._values |= copy(tensors)

    def state(self) -> Tensors:
        return copy(self._values)

    def load(self, state: Tensors) -> None:
        self._values |= copy(state)

    def train(self, position: int, lr: float) -> float:
        for array in self._values.values():
            noise = np.float32(self._random.standard_normal())
            array -= np.float32(lr) * (array - np.float32(self._target) + np.float32(0.01) * noise)
        return 1 / (1 + position)

    def evidence(self) -> None:
        return None


class Dead:
    """What is left of a process that was killed: timers, and what it was saving, find nobody."""

    def on_timer(self, key: str, now: float) -> tuple[()]:
        return ()

    def on_saved(self, checkpoint: int, now: float) -> tuple[()]:
        return ()


class Ground(InMemoryCluster):
    """The in-memory cluster with what a harness does to it, and what a harness records."""

    def __init__(self, config: TrainerConfig, **options: Any) -> None:
        initial = config.spec.initial(config.seed)
        self.slow: dict[str, float] = {}
        super().__init__(config, lambda index: Toy(initial, index), initial, **options)

    def begin(self, plan: Plan) -> Ground:
        self.say("begin", plan=plan.digest, scenario=plan.scenario, seed=plan.seed)
        for name in ("syncer", *self.config.names):
            self.say("spawn", target=name, incarnation=0, pid=1)
        return self

    def say(self, event: str, **fields: Any) -> None:
        self.tape.append(an_event(self.now, "harness", 0, event, fields))

    def until(self, t: float) -> None:
        self.run(t)
        self.now = t

    def until_steady(self) -> float:
        while not self.syncer.steady:
            self.until(self.now + 0.01)
        return next(event.t for event in self.tape if event.event == "steady")

    def inject(self, fault: str, act: Callable[[], None] = lambda: None, **observed: Any) -> None:
        self.say("injecting", fault=fault, kind="", targets=[], description="")
        act()
        self.say("injected", fault=fault, observed={"ok": True} | observed)

    def heal(self, fault: str, act: Callable[[], None] = lambda: None, **observed: Any) -> None:
        act()
        self.say("healed", fault=fault, observed=observed)

    def kill(self, name: str) -> None:
        self.disconnect(name, reconnect=False)
        self.learners[name] = Dead()
        self.say("exit", target=name, incarnation=self.incarnations[name], status=-9, killed=True)

    def start_again(self, name: str) -> None:
        self.say("spawn", target=name, incarnation=self.incarnations[name] + 1, pid=2)
        self.start_learner(name)

    def cut(self, name: str) -> None:
        self.disconnect(name, reconnect=False)
        self._do(name, list(self.learners[name].on_lost("cut off", self.now)))

    def mend(self, name: str) -> None:
        self._connect(name)

    def kill_syncer(self) -> None:
        before = len(self.tape)
        for name in self.config.names:
            self.cut(name)
        self.tape[before:] = [event for event in self.tape[before:] if event.node != "syncer"]  # it died without a word
        self.say("exit", target="syncer", incarnation=self.incarnations["syncer"], status=-9, killed=True)

    def syncer_again(self) -> None:
        self.incarnations["syncer"] += 1
        self.say("spawn", target="syncer", incarnation=self.incarnations["syncer"], pid=3)
        self.start_syncer()
        for name in self.config.names:
            self._at(0.001, lambda name=name: self._connect(name))

    def finish(self) -> None:
        """To the end of training, and what the harness writes after it."""
        self.run()
        self.now += 0.05
        for name, incarnation in self.incarnations.items():
            self.tape.append(an_event(self.now, name, incarnation, "exit"))
            self.say("exit", target=name, incarnation=incarnation, status=0, killed=False)
        self.say("ending", awaited=["syncer", *sorted(self.incarnations.keys() - {"syncer"})], within=4.0)
        self.say("residue", left=[])
        self.say("end", outcome="finished", message="")

    def _train(self, name: str, effect: Any) -> None:
        usual, self._compute = self._compute, self.slow.get(name, self._compute)
        super()._train(name, effect)
        self._compute = usual


def told(ground: Ground, plan: Plan) -> Story:
    """The story of a run, its loss falling like that of its references."""
    def curve(worse: float) -> tuple[LossPoint, ...]:
        budget = plan.cluster.budget_tokens
        return tuple(LossPoint(number=number, processed=budget * number // 5, merged=budget * number // 5, t=number,
                               loss=worse * (5.5 - 0.4 * number)) for number in range(6))
    references = {kind: Reference(kind=kind, key="k", curve=curve(1.0), merge_gap_p99=0.15, wall=10.0)
                  for kind in ("fault-free", "synchronous")}
    return Story(plan, tuple(ground.tape), curve(1.01), references)


def calmly(text: str, **cluster: Any) -> Story:
    """A run in which nothing is broken."""
    plan = freeze(parse(text), 0)
    plan = plan.model_copy(update={"cluster": plan.cluster.model_copy(update=cluster)})
    ground = Ground(plan.cluster).begin(plan)
    ground.finish()
    return told(ground, plan)


def stormy() -> Story:
    """A learner was killed and came back, one limped, one was far away, one was cut off; all healed."""
    plan = freeze(parse(STORM), 0)
    ground = Ground(plan.cluster).begin(plan)
    zero = ground.until_steady()
    ground.until(zero + 4)
    ground.inject("f1", lambda: ground.kill("learner-1"), exit_status="SIGKILL")
    ground.until(zero + 6)
    ground.start_again("learner-1")
    ground.inject("f2", lambda: ground.slow.update({"learner-2": 0.12}))
    ground.until(zero + 7)
    ground.inject("f3", delay_s=0.012)
    ground.until(zero + 10)
    ground.heal("f2", ground.slow.clear)
    ground.heal("f3")
    ground.until(zero + 12)
    ground.inject("f4", lambda: ground.cut("learner-4"))
    ground.until(zero + 14)
    ground.heal("f4", lambda: ground.mend("learner-4"), back=True)
    ground.finish()
    return told(ground, plan)


def with_a_syncer_born_again() -> Story:
    """The syncer was killed and went on from what it had committed."""
    plan = freeze(parse(REBORN), 0)
    ground = Ground(plan.cluster).begin(plan)
    ground.until(ground.until_steady() + 3.06)
    ground.inject("f1", ground.kill_syncer, exit_status="SIGKILL")
    ground.until(ground.now + 1.1)
    ground.syncer_again()
    ground.finish()
    return told(ground, plan)


def losing(lose: Callable[[str, str, Any], bool], **cluster: Any) -> Story:
    """A short run that loses messages as told."""
    plan = freeze(parse(CALM), 0)
    plan = plan.model_copy(update={"cluster": plan.cluster.model_copy(update={"budget": 24} | cluster)})
    ground = Ground(plan.cluster, lose=lose).begin(plan)
    ground.finish()
    return told(ground, plan)
