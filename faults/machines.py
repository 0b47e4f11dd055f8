"""What happens to pods, to the machines that they are on, and to what manages both: only a cluster of machines has
these."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

from pydantic import SerializerFunctionWrapHandler, field_validator, model_serializer

from diloco_chaos.faults.base import Fault, FaultContext, Observation
from diloco_chaos.faults.evidence import SILENT, Effect, Evidence, Injection, between_contributions, exits
from diloco_chaos.faults.processes.process import Ending, Killed
from diloco_chaos.harness.base.units import Seconds, names, show_seconds
from diloco_chaos.harness.places.base import STOP_TIMEOUT_S, Ability
from diloco_chaos.harness.places.capabilities import ControlPlane, Drains, Jobs, Machines, Pods
from diloco_chaos.harness.record.tape.events import Spawn

_AWAY_WITHIN_S = 90.0


class _WithItsDisk(Ending):
    """The node's process ends, and what it has on its disk is gone with it: the next one starts somewhere else."""

    target_role = "learner"
    done: ClassVar[str]
    """What it does, for people; `{}`: to whom."""
    elsewhere: ClassVar[tuple[str, str]] = ("another pod", "the same pod")
    """What its successor is in, and what it is not in."""

    @abstractmethod
    def take(self, hit: FaultContext, target: str) -> None:
        """Take away what one node runs in."""

    def inject(self, hit: FaultContext) -> Observation:
        """Take it from every target."""
        for target in self.targets:
            self.take(hit, target)
        return {}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Return whether the node ended as on a signal to end, and its successor is elsewhere."""
        ok, words, _ = super().verify(run, on)
        spawned = {(event.target, event.incarnation): event.host
                   for event in run.tape.of(Spawn, node="harness") if event.host is not None}
        ended = {name: (event.incarnation, event.incarnation + 1)
                 for name, event in exits(run, self.targets, on).items()}
        back = [name for name, both in ended.items() if all((name, number) in spawned for number in both)]
        same = [name for name in back if len({spawned[name, number] for number in ended[name]}) == 1]
        another, the_same = self.elsewhere
        return Effect(ok and not same, words + (f", but {names(same)} came back in {the_same}" if same else
                                                f"; back in {another}" if back else ""))

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return self.done.format(names(self.targets)) + self.back()


class DeletePod(_WithItsDisk):
    """The node's pod is deleted (`kubectl delete pod`): SIGTERM, and SIGKILL after its grace period."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"delete_pod", "restart"})
    done: ClassVar[str] = "pod of {} deleted"

    kind: Literal["delete_pod"] = "delete_pod"
    grace: Seconds = STOP_TIMEOUT_S
    """From SIGTERM to SIGKILL, in whole seconds, as a pod's `terminationGracePeriodSeconds`."""

    @field_validator("grace")
    @classmethod
    def _by_the_second(cls, value: float) -> float:
        if value < 1 or value % 1:
            raise ValueError("Kubernetes counts a grace period in whole seconds, 1s or more; a pod that is deleted by "
                             "force is `preempt` with `beside: 100ms, grace: 2s`")
        return value

    @model_serializer(mode="wrap")
    def _without_default(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document without what older frozen plans lack."""
        document: dict[str, Any] = serialize(self)
        return {key: value for key, value in document.items() if (key, value) != ("grace", STOP_TIMEOUT_S)}

    @property
    def grace_s(self) -> float:
        """Return how many seconds the target has to end by itself."""
        return self.grace

    def take(self, hit: FaultContext, target: str) -> None:
        """Delete it."""
        hit.having(Pods).delete_pod(target, self.restart_after, grace=self.grace)


class Evict(_WithItsDisk):
    """The node's pod is evicted through the Eviction API, as by whoever needs its place."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"evict", "restart"})
    done: ClassVar[str] = "pod of {} evicted"

    kind: Literal["evict"] = "evict"

    def take(self, hit: FaultContext, target: str) -> None:
        """Evict it."""
        hit.having(Pods).delete_pod(target, self.restart_after, evict=True)


class DrainNode(_WithItsDisk):
    """The machine under a node is drained: this run's pods on it are evicted, and it gets none of them any more."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"drain_node", "restart"})
    done: ClassVar[str] = "machine under {} drained"

    kind: Literal["drain_node"] = "drain_node"

    def take(self, hit: FaultContext, target: str) -> None:
        """Drain the machine under it."""
        hit.having(Drains).drain(target, self.restart_after)


class Requeue(_WithItsDisk):
    """The node's job is put back into the queue (`scontrol requeue`), as one that is preempted: SIGTERM, and SIGKILL
    after the time that its queue gives it. The node starts again once its job does."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"requeue", "restart"})
    done: ClassVar[str] = "job of {} requeued"
    elsewhere: ClassVar[tuple[str, str]] = ("its job's next start", "a job that was not requeued")

    kind: Literal["requeue"] = "requeue"

    def take(self, hit: FaultContext, target: str) -> None:
        """Requeue its job."""
        hit.having(Jobs).requeue(target, self.restart_after)


class NodePowerLoss(Killed):
    """The machine under a node loses its power, with all that is on it. It is back at the end of the run; the node
    starts again on another machine."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"node_power_loss", "restart"})
    target_role = "learner"

    kind: Literal["node_power_loss"] = "node_power_loss"

    def inject(self, hit: FaultContext) -> Observation:
        """Take it from that under every target."""
        for target in self.targets:
            hit.having(Machines).lose_machine(target, self.restart_after)
        return {}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """All that it ran in is gone, and nothing came after it."""
        ok, words, _ = super().verify(run, on)
        lost = [str(event.lost or "") for event in exits(run, self.targets, on).values()]
        return Effect(ok and all(lost), "; ".join(filter(None, lost)) or words)

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"machine under {names(self.targets)} without power{self.back()}"


class NodePartition(Fault):
    """The machine under a node is cut off from all others: its pods go on, and nobody can tell them anything."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"node_partition"})
    target_role = "learner"
    cuts_off: ClassVar[bool] = True
    shown_as = "partitioned"

    kind: Literal["node_partition"] = "node_partition"

    def inject(self, hit: FaultContext) -> Observation:
        """Cut that under every target off."""
        for target in self.targets:
            hit.having(Machines).part_machine(target, True)
        return {}

    def undo(self, hit: FaultContext) -> None:
        """Let it back."""
        for target in self.targets:
            hit.having(Machines).part_machine(target, False)

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Judge it by how long nothing of a node on it was merged."""
        silent = min(between_contributions(run, target, on.began, on.ended or run.end) for target in self.targets)
        return Effect(silent >= SILENT * (self.duration or 0), f"nothing came through for {show_seconds(silent)}")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"machine under {names(self.targets)} cut off {self.describe_duration()}"

    def expected_lost_time(self) -> float:
        """Return the time for which it lasts, in seconds."""
        return self.duration or 0.0


class RestartControlPlane(Fault):
    """What manages the pods is restarted. Training is to notice nothing: no pod needs it to go on."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"restart_control_plane"})
    reversible: ClassVar[bool] = False
    target_role = "syncer"

    kind: Literal["restart_control_plane"] = "restart_control_plane"

    def inject(self, hit: FaultContext) -> Observation:
        """Have it restarted."""
        hit.having(ControlPlane).restart_control_plane()
        return {}

    def observe(self, hit: FaultContext) -> Observation:
        """Measure how long the control plane did not answer, in seconds."""
        away = hit.having(ControlPlane).control_plane_away(_AWAY_WITHIN_S)
        return {"ok": away > 0, "away_s": round(away, 2)}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """It did not answer for a while, and does again."""
        away = float(on.observed.get("away_s", 0.0))
        return Effect(away > 0, f"it did not answer for {show_seconds(away)}" if away else "it always answered")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return "the control plane restarted"

