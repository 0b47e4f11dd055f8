"""Measures what faults do while they last, beside the run: probes take time, and other faults must not wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Literal

from chaos.plan import Plan, PlannedFault
from faults import Fault, Felt, Hit, LinkFault
from harness.cluster.base import Cluster, NodeSpec
from harness.trainer.probe import Sounding, probe
from harness.trainer.rogue import Rogue

_THREADS = 8
_PROBES = 5


class Sensing:
    """What faults need to feel, and what they felt. Everything but the measuring itself is called from one thread."""

    def __init__(self, plan: Plan, cluster: Cluster, token: str, specs: Mapping[str, NodeSpec]) -> None:
        self._plan, self._cluster, self._token, self._specs = plan, cluster, token, specs
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="sensing")
        self._pending: list[tuple[Literal["felt", "recovered"], PlannedFault, Future[Felt]]] = []
        self._over: set[str] = set()
        self._baselines: dict[str, float] = {}

    def calibrate(self) -> None:
        """Measure every link that a fault will hit, before anything is done to it."""
        hit = [planned.fault.targets for planned in self._plan.faults if isinstance(planned.fault, LinkFault)]
        links = {link for targets in hit for target in targets for link in self._cluster.links_of(target)}
        for link in sorted(links):
            self._pool.submit(self._calibrate, link)

    def hit(self, planned: PlannedFault) -> Hit:
        """What this fault may use."""
        return Hit(planned.id, self._cluster, self._probe, lambda link: self._baselines.get(link, 0.0), self._poison,
                   self._specs.__getitem__)

    def feel(self, planned: PlannedFault) -> None:
        """Begin to measure a fault that was injected."""
        if type(planned.fault).feel is not Fault.feel:
            self._pending.append(("felt", planned, self._pool.submit(planned.fault.feel, self.hit(planned))))

    def over(self, planned: PlannedFault) -> None:
        """It is about to be undone: what is measured from now on tells nothing of it."""
        self._over.add(planned.id)

    def recovered(self, planned: PlannedFault) -> None:
        """Begin to measure that a fault is gone."""
        if type(planned.fault).recovered is not Fault.recovered:
            self._pending.append(("recovered", planned, self._pool.submit(planned.fault.recovered, self.hit(planned))))

    def collect(self) -> Iterator[tuple[str, PlannedFault, Felt]]:
        """What has been measured since the last call: event, fault, result."""
        done = [entry for entry in self._pending if entry[2].done()]
        self._pending = [entry for entry in self._pending if entry not in done]
        for name, planned, future in done:
            error = future.exception()
            felt: Felt = {"ok": False, "error": f"{type(error).__name__}: {error}"} if error else future.result()
            if name == "felt" and planned.fault.lasts and planned.id in self._over:
                felt = {"ok": False, "error": "it was over before it could be measured"}
            yield name, planned, felt

    def close(self) -> None:
        """Measure no more."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _calibrate(self, link: str) -> None:
        answered = [sounding.seconds for sounding in map(self._probe, [link] * _PROBES) if sounding.answered]
        if answered:
            self._baselines[link] = min(answered)  # what is more than that is this machine, not the link

    def _probe(self, link: str, reply_bytes: int = 0, send_bytes: int = 0, watch_close: bool = False) -> Sounding:
        ask = partial(probe, self._cluster.address(link), self._token)
        return ask(reply_bytes, send_bytes, watch_close=watch_close)

    def _poison(self, learner: str, content: str, count: int, timeout_s: float) -> int:
        rogue = Rogue(self._cluster.address(learner), self._token, learner,
                      self._cluster.states()[learner].incarnation, len(self._plan.cluster.fragment_table()),
                      content)  # type: ignore[arg-type]
        return rogue.attack(count, timeout_s)
