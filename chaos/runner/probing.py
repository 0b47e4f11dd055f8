"""Measures what faults do while they last, beside the run: probes take time, and other faults must not wait."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from diloco_chaos.chaos.runner.runtime import Prober
from diloco_chaos.chaos.scenario.plan import Plan, PlannedFault
from diloco_chaos.faults import Fault, FaultContext, Observation
from diloco_chaos.harness.links.probe import Sounding
from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.places.capabilities import Asks
from diloco_chaos.harness.places.cluster import Cluster
from diloco_chaos.harness.record.tape.events import Observed, Verified
from diloco_chaos.harness.trainers.wire.impostor import About, Content, Impostor

_PROBES = 5


class Sensing:
    """The measurements that faults need, and what was observed of the faults. Everything but the measuring itself is
    called from one thread."""

    def __init__(self, plan: Plan, cluster: Cluster, prober: Prober, specs: Mapping[str, NodeSpec],
                 token: str) -> None:
        """`token`: what the run's nodes know each other by."""
        self._plan, self._cluster, self._prober, self._specs, self._token = plan, cluster, prober, specs, token
        self._pending: list[tuple[type[Observed | Verified], PlannedFault, Future[Any]]] = []
        self._over: set[str] = set()
        self._baselines: dict[str, float] = {}

    @property
    def next_at(self) -> float:
        """Return when there will be something to collect, where that is known."""
        return self._prober.next_at

    def calibrate(self, *, all_links: bool = False) -> None:
        """Measure every link that a fault will hit, before anything is done to it; all where that is not known."""
        hit: list[Sequence[str]] = [planned.fault.targets for planned in self._plan.faults
                                    if planned.fault.on_links]
        if all_links:
            hit = [self._plan.cluster.all_nodes]
        links = {link for targets in hit for target in targets for link in self._cluster.links_of(target)}
        for link in sorted(links):
            self._prober.begin(lambda link=link: self._calibrate(link))  # type: ignore[misc]

    def hit(self, planned: PlannedFault) -> FaultContext:
        """Return the context of a fault: what it may use."""
        return FaultContext(planned.id, self._cluster, self._probe, lambda link: self._baselines.get(link, 0.0),
                            self._rogue,
                            self._attack, self._specs.__getitem__, self._prober.together,
                            lambda: planned.id not in self._over
                            and self._prober.spent <= (planned.fault.duration or math.inf))

    def observe(self, planned: PlannedFault) -> None:
        """Begin to measure a fault that was injected."""
        if type(planned.fault).observe is not Fault.observe:
            self._pending.append((Observed, planned, self._prober.observe(planned.fault, self.hit(planned))))

    def over(self, planned: PlannedFault) -> None:
        """It is about to be undone: what is measured from now on tells nothing of it."""
        self._over.add(planned.id)

    def has_come(self, planned: PlannedFault) -> bool:
        """Return whether it was injected and undone."""
        return planned.id in self._over

    def verify(self, planned: PlannedFault) -> None:
        """Begin to measure that a fault is gone."""
        if type(planned.fault).observe_undone is not Fault.observe_undone:
            hit = self.hit(planned)
            self._pending.append((Verified, planned, self._prober.begin(lambda: planned.fault.observe_undone(hit))))

    def collect(self) -> Iterator[tuple[type[Observed | Verified], PlannedFault, Observation]]:
        """Yield what has been measured since the last call: event, fault, result."""
        done = [entry for entry in self._pending if entry[2].done()]
        if not done:
            return
        self._pending = [entry for entry in self._pending if entry not in done]
        for kind, planned, future in done:
            error = future.exception()
            observed: Observation = {"ok": False,
                                     "error": f"{type(error).__name__}: {error}"} if error else future.result()
            fault = planned.fault
            if kind is Observed and fault.reversible and not fault.heeds_end and planned.id in self._over:
                observed = {"ok": False, "error": "it was over before it could be measured"}
            yield kind, planned, observed

    def close(self) -> None:
        """Measure no more."""
        self._prober.close()

    def _calibrate(self, link: str) -> None:
        answered = [sounding.seconds for sounding in map(self._probe, [link] * _PROBES) if sounding.answered]
        if answered:
            self._baselines[link] = min(answered)  # what is more than that is this machine, not the link

    def _probe(self, link: str, reply_bytes: int = 0, send_bytes: int = 0, watch_close: bool = False) -> Sounding:
        if (asks := self._cluster.having(Asks)) is not None:
            return asks.ask(link, reply_bytes, send_bytes, watch_close)
        return self._prober.ask(self._cluster.address(link), reply_bytes, send_bytes, watch_close)

    def _rogue(self, learner: str, what: Content | About) -> Impostor:
        incarnation = self._cluster.states()[learner].incarnation
        return self._plan.trainer.impostor(self._token, learner, incarnation, what)

    def _attack(self, rogue: Impostor, learner: str, count: int, timeout_s: float) -> int:
        return self._prober.attack(rogue, self._cluster.address(learner), count, timeout_s)
