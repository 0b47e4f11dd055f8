"""Pods of a Kubernetes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from diloco_chaos.harness.base.extras import require
from diloco_chaos.harness.places.base import EVERYWHERE, Ability
from diloco_chaos.harness.places.place import PLACE_FILE, Option, Part, Requirement
from diloco_chaos.harness.places.remote import by_command

if TYPE_CHECKING:
    from diloco_chaos.harness.places.base import Recorder
    from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
    from diloco_chaos.harness.places.site import Site
    from diloco_chaos.harness.record.undo_log import UndoLog
    from diloco_chaos.harness.record.undos import Undo
    from diloco_chaos.harness.trainers.core.programs import Program

CONTEXT = Option("context", "Of the kubeconfig, for --on kubernetes.", metavar="NAME")
YES = Option("yes", "The kubeconfig's current context is the one that is meant.", False)
_OF_PODS: frozenset[Ability] = frozenset({"delete_pod", "evict", "drain_node"})


class Kubernetes(by_command.OfMachines):
    """See the module."""

    name = "kubernetes"
    nodes = "pods"
    can: ClassVar[frozenset[Ability]] = EVERYWHERE | _OF_PODS | {
        "exhaust_memory", "fill_disk", "restart_links", "fail_calls", "hang", "hang_inner", "cuda", "signal_inner"}
    unable = "a pod can't be made to do that"
    cannot: ClassVar[Mapping[Ability, str]] = {
        "disconnect": "nobody can take a pod off its network without ruling the machine: partition the link, or say "
                      "how a machine is cut off (node_partition)",
        "restart_engine": "there is no engine under pods that is a run's to restart: see node_power_loss and "
                          "restart_control_plane",
        "lose_power": "only a simulation can lose what was not on stable storage: see node_power_loss",
        "lose_unsynced": "what a pod has not synced is known by names that only the pod knows",
        "jump_clock": "only a simulation has a clock for each node",
        "share_links": "only a simulation has links that share a rate",
        **by_command.SAY_HOW}
    alone: ClassVar[Mapping[Ability, str]] = {**dict.fromkeys(_OF_PODS, "only Kubernetes has pods"),
                                              **by_command.ALONE}
    takes: ClassVar[frozenset[Part]] = frozenset({"image", "files"})
    refuses: ClassVar[Mapping[Part, str]] = {
        "peers: caught": "what catches connections is on the machine of an engine, and can't be brought into pods: "
                         "name the peers in the command",
        "service": "a compose file says nothing to a Kubernetes: write `image: NAME`",
        "left_behind: keep": "a pod's container ends with all that runs in it",
        "spare": "no pod can be added to a run of commands"}
    in_images = True
    only_cpu = "containers have none"
    not_resumed = "it ran in pods, and what these kept is gone with them"
    options = (PLACE_FILE, CONTEXT, YES)

    settings: KubernetesSettings

    def __init__(self, settings: KubernetesSettings | None = None) -> None:
        """`settings`: those of the file that DILOCO_CHAOS_KUBERNETES names, if not given.

        Raises:
            ClusterError: there is no such file, or it names no context.
            MissingExtraError: the official client is not installed.
        """
        self.settings = settings or chosen({})

    @classmethod
    def chosen(cls, given: Mapping[str, Any]) -> Self:
        """Return this place on the cluster that the options name."""
        return cls(chosen(given))

    def must_be_ready(self, programs: Collection[Program]) -> None:
        """The cluster must be new enough, and allow what runs need."""
        from diloco_chaos.harness.places.kubernetes.access import must_be_ready
        must_be_ready(self.settings)

    def site(self, run: Path, record: Recorder, undo_log: UndoLog) -> Site:
        """Pods with the run's label."""
        from diloco_chaos.harness.places.kubernetes.site import KubernetesSite
        return KubernetesSite(run, record, undo_log, self.settings)

    @classmethod
    def requirements(cls, given: Mapping[str, Any]) -> list[Requirement]:
        """Return what the cluster is, and what it allows."""
        settings = chosen(given)
        from diloco_chaos.harness.places.kubernetes.access import requirements
        return requirements(settings)

    @classmethod
    def undos(cls) -> tuple[type[Undo], ...]:
        """Everything in a namespace with the run's label."""
        from diloco_chaos.harness.places.kubernetes.undos import Namespace
        return (Namespace,)


def chosen(given: Mapping[str, Any]) -> KubernetesSettings:
    """The settings that options, a file and the kubeconfig say together."""
    require("kubernetes", "kubernetes", "--on kubernetes")
    from diloco_chaos.harness.places.kubernetes.access import named
    from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
    said = KubernetesSettings.given(given.get("place"))
    return named(said, given.get("context", ""), current=bool(given.get("yes")))
