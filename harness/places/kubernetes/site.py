"""A run on Kubernetes: a pod and an agent for each node, and the real Toxiproxy between them."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from diloco_chaos.harness.places.base import NodeSpec, Recorder
from diloco_chaos.harness.places.kubernetes.api import PART, KubernetesApi, KubernetesError
from diloco_chaos.harness.places.kubernetes.manifests import LINKS, NODES, Manifests
from diloco_chaos.harness.places.kubernetes.owner import Owner
from diloco_chaos.harness.places.kubernetes.pod_faults import FILLING, PodDisks, PodMemory, PodRemoval
from diloco_chaos.harness.places.kubernetes.pods import ANY, LISTEN, PYTHON, KubernetesPods, PodAddresses, PodHosting
from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
from diloco_chaos.harness.places.kubernetes.toxiproxy import ToxiproxyPod
from diloco_chaos.harness.places.kubernetes.undos import Namespace
from diloco_chaos.harness.places.kubernetes.watch import PodWatch
from diloco_chaos.harness.places.kubernetes.within.preloads import PodCuda, PodHangs, PodPreloads
from diloco_chaos.harness.places.links.numbered import LinkRestart, NumberedLinks
from diloco_chaos.harness.places.links.run_links import RunLinks
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.remote import agent
from diloco_chaos.harness.places.remote.files import AgentFiles
from diloco_chaos.harness.places.remote.hosts import Hosts
from diloco_chaos.harness.places.remote.inner import RemoteProcesses
from diloco_chaos.harness.places.remote.machine_faults import MachineFaults
from diloco_chaos.harness.places.remote.machines import WatchedMachines
from diloco_chaos.harness.places.remote.process import QuotaHand, RemoteProcess
from diloco_chaos.harness.places.remote.run import RemoteRun
from diloco_chaos.harness.places.site import Site
from diloco_chaos.harness.preload.library import PRELOADED
from diloco_chaos.harness.record.undo_log import UndoLog, run_label

_GONE_S = 20.0


class KubernetesSite(Site):
    """See the module."""

    nodes: Nodes[RemoteProcess]

    def __init__(self, run: Path, record: Recorder, undo_log: UndoLog, settings: KubernetesSettings) -> None:
        """See `diloco_chaos.harness.places.place.Place.site`.

        Raises:
            KubernetesError: the cluster can't be used.
        """
        (run / "logs").mkdir(parents=True, exist_ok=True)
        self._undo_log, self._settings = undo_log, settings
        self._api = KubernetesApi(settings.context)
        self._pods = KubernetesPods(self._api, Manifests(settings, run_label(undo_log.token), run))
        self.hosts = Hosts(PodHosting(self._pods, run, undo_log.token), settings.start_within)
        self.nodes = Nodes(run, record, undo_log, self._spawn, on_end=lambda *end: self._memory.on_end(*end))
        self._memory = PodMemory(self._pods, self.nodes)
        self._toxiproxy = ToxiproxyPod(self._pods)
        server = NumberedLinks(lambda: self._toxiproxy.links, self._pods.objects.name(LINKS), self._toxiproxy.asked_at)
        self.links = RunLinks(server, self.nodes, undo_log)
        self.files = files = AgentFiles(run, self.nodes, self.hosts, ignored=FILLING)
        self._addresses = PodAddresses(self._pods, self.hosts, self.nodes)
        self.owner = Owner(self._pods, self.links, run, undo_log.token)
        self._remote = RemoteRun(run, record, undo_log, self.hosts, self.nodes, self.links, self._addresses,
                                 settings.start_within)
        self._machines = MachineFaults(self.hosts, self.nodes, settings, undo_log, self._api.answers)
        self._preloads = PodPreloads(run, self.nodes, undo_log)
        self._hangs = PodHangs(self._preloads, self.nodes, undo_log)
        self._cuda = PodCuda(self._preloads, self.nodes, undo_log)
        self.parts = (self.owner, self._machines, WatchedMachines(self.hosts), self._memory,
                      PodDisks(self.nodes, self.hosts, files), PodRemoval(self._pods, self.nodes, self.hosts),
                      LinkRestart(self.links, self._toxiproxy.restart), RemoteProcesses(self.nodes),
                      self._preloads, self._hangs, self._cuda)

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """The namespace, the owner, the links, the node that others connect to, then all others."""
        self._preloads.begin(nodes)
        self._remote.owe(Namespace, context=self._settings.context, run=self._pods.objects.run,
                         namespace=self._pods.namespace)
        self._begin()
        self._remote.prepare(nodes)
        self._toxiproxy.make()
        until = time.monotonic() + self._settings.start_within
        self.hosts.owner = self.owner.begin()
        self._toxiproxy.wait()
        self.owner.wait(until)
        self.owner.stand_beside()
        self._remote.start(nodes, self.owner.echo)
        self._preloads.must_be_loaded(nodes)

    def join(self, node: NodeSpec) -> None:
        """Start a node in a pod of its own."""
        self._preloads.begin([node])
        self._remote.join(node)

    def poll(self) -> None:
        """Supervise, and have the owner's pod answer and ask for us."""
        self._remote.poll()
        self.owner.stand_beside()

    def dump_stacks(self, nodes: Collection[str]) -> None:
        """Write where their agents see them stand to files in the run's folder, too."""
        self._remote.write_stacks(nodes)
        super().dump_stacks(nodes)

    def residue(self) -> list[str]:
        """Return what every place has left, and what still holds in processes."""
        return [*super().residue(), *self._preloads.residue(), *self._hangs.residue(), *self._cuda.residue()]

    def stop(self) -> None:
        """End every node and link, and remove everything. Where the API server does not answer, that stays owed."""
        self._remote.end()
        self._preloads.end()
        self.owner.close()
        self._toxiproxy.close()
        self._addresses.close()
        self._remote.leave_nothing(self._machines.undo, remove=self._remove)
        self._api.close()

    def _begin(self) -> None:
        """Make everything but the pods, and begin to watch the pods."""
        self._pods.begin()
        objects = self._pods.objects
        for manifest in (objects.secret(self._undo_log.token), objects.agent(Path(agent.__file__).read_text()),
                         objects.service(NODES, {}), objects.service(LINKS, {PART: LINKS})):
            self._pods.make(manifest)
        self._pods.watch = PodWatch(self._api, objects.namespace, objects.run)
        self._remote.watching.append(self._pods.watch)

    def _spawn(self, spec: NodeSpec, number: int) -> RemoteProcess | None:
        if (host := self.hosts.for_next(spec, number)) is None:
            return None
        name = f"{spec.name}.{number}"
        hand = QuotaHand(name, host, partial(self._set_processors, host.name))
        return RemoteProcess(name, host, hand, partial(self._start, spec, number), spec.epoch)

    def _start(self, spec: NodeSpec, number: int, process: RemoteProcess) -> None:
        """Have its agent start it; called in the host's thread."""
        self._preloads.bring(spec.name, process.host)
        if (program := spec.program) is not None:
            started = self._remote.started(spec, program, number, process)
            env = {**started.env, **self._preloads.environment(spec.name, started.env.get(PRELOADED, ""))}
            process.agent.ask("spawn", name=process.name, argv=started.argv, env=env, cwd=started.cwd)
            return
        process.ahead = process.host.clock.best(time.monotonic()).ahead
        argv = spec.command(number, python=PYTHON, host=ANY, listen=LISTEN,
                            connect=self.links.addresses.get(spec.name, ""), ahead=process.ahead)
        process.agent.ask("spawn", name=process.name, argv=argv, env=self._preloads.environment(spec.name, ""))

    def _set_processors(self, pod: str, processors: float | None) -> None:
        self._api.resize(self._pods.namespace, pod, self._pods.objects.resources(processors=processors))

    def _remove(self) -> None:
        self._api.remove(self._pods.namespace, self._pods.objects.run)
        if left := self._api.wait_removed(self._pods.namespace, self._pods.objects.run, _GONE_S):
            raise KubernetesError(f"not removed yet: {', '.join(left)}")
