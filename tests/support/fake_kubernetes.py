"""A Kubernetes whose API server is made up: its pods are agents on this machine, each in a folder of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace

import psutil

import remote_runs
from diloco_chaos.harness.links.client import LinkError
from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.places.cluster import Cluster
from diloco_chaos.harness.places.kubernetes import site as module
from diloco_chaos.harness.places.kubernetes.api import PART, ApiAwayError, KubernetesError
from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
from diloco_chaos.harness.places.remote import agent
from diloco_chaos.harness.record.tape.events import Start
from remote_runs import TOKEN

HUB = """
import json, os, sys, time
os.makedirs("tape", exist_ok=True)
with open(f"tape/hub.{sys.argv[1]}.jsonl", "a") as tape:
    told = {"t": 0, "node": "hub", "inc": int(sys.argv[1]), "event": "listening", "port": 7000}
    tape.write(json.dumps(told) + chr(10))
os.makedirs("state", exist_ok=True)
open("state/kept", "w").write("kept")
time.sleep(600)
"""
WORKER = """
import json, os, sys, time
os.makedirs("tape", exist_ok=True)
with open(f"tape/worker.{sys.argv[1]}.jsonl", "a") as tape:
    t = time.monotonic() - float(sys.argv[2])
    tape.write(json.dumps({"t": t, "node": "worker", "inc": int(sys.argv[1]), "event": "start"}) + chr(10))
time.sleep(600)
"""


class FakeApi:
    """See the module. Pods are placed on two machines in turn."""

    def __init__(self, folder):
        self.folder, self.there, self.made, self.resized = folder, {}, [], []
        self.away, self.refuses, self.removed = False, False, False

    def _must_answer(self):
        if self.away:
            raise ApiAwayError("the API server does not answer")

    def make(self, namespace, what):
        self._must_answer()
        self.made.append(what)
        if what["kind"] == "Pod":
            self._run(what["metadata"]["name"], what["metadata"]["labels"][PART])
        return SimpleNamespace(metadata=SimpleNamespace(uid="uid"))

    def let_go_on(self, namespace, job):
        self._run("owner-x", "owner")

    def _run(self, name, part):
        folder = self.folder / name
        folder.mkdir()
        process = subprocess.Popen([sys.executable, agent.__file__, "--run", str(folder), "--port", "0"], cwd=folder,
                                   env=os.environ | {"DILOCO_CHAOS_TOKEN": TOKEN}, stdout=subprocess.PIPE, text=True)
        port = int(process.stdout.readline().split()[-1])
        self.there[name] = SimpleNamespace(name=name, part=part, port=port, process=process,
                                           machine=f"m{len(self.there) % 2 + 1}")

    def pods(self, namespace, run, part=""):
        self._must_answer()
        return [SimpleNamespace(
            metadata=SimpleNamespace(name=pod.name, creation_timestamp=0, deletion_timestamp=None),
            spec=SimpleNamespace(node_name=pod.machine),
            status=SimpleNamespace(phase="Running" if pod.process.poll() is None else "Failed", reason="Gone",
                                   container_statuses=[], conditions=[]))
            for pod in list(self.there.values()) if part in ("", pod.part)]

    def delete_pod(self, namespace, name, grace=0):
        self._must_answer()
        if (pod := self.there.get(name)) is not None:
            self.folder.joinpath(f"{name}.deleted").touch()
            try:
                pod.process.terminate()
                pod.process.wait(grace)
            except subprocess.TimeoutExpired:
                end_container(pod.process)
                pod.process.wait(20)
            self.there.pop(name, None)
        return pod is not None

    def evict_pod(self, namespace, name):
        self.delete_pod(namespace, name, grace=2)

    def resize(self, namespace, pod, resources):
        self.resized.append((pod, resources["limits"]))

    def dial(self, namespace, pod, port):
        self._must_answer()
        try:
            return socket.create_connection(("127.0.0.1", self.there[pod].port), 1.0)
        except (KeyError, OSError) as error:
            raise KubernetesError(str(error)) from error

    def answers(self):
        return not self.away

    def remove(self, namespace, run):
        self._must_answer()
        for pod in list(self.there):
            self.delete_pod(namespace, pod)
        self.removed = True
        return True

    def wait_removed(self, namespace, run, seconds):
        return ["namespace, which is being terminated"] if self.refuses else []

    def close(self):
        for pod in self.there.values():
            end_container(pod.process)
            pod.process.wait()


def end_container(first):
    """Kill its first process, and with it all others."""
    others = psutil.Process(first.pid).children(recursive=True) if first.poll() is None else []
    first.kill()
    for process in others:
        with suppress(psutil.NoSuchProcess):
            process.kill()


class FakeLinks:
    """Toxiproxy, as far as it is asked."""

    def __init__(self, address):
        self.proxies = {}

    def version(self):
        return "2.12.0"

    def create(self, side, upstream, listen="", enabled=True):
        self.proxies[side] = upstream
        return listen

    def toxics(self, side):
        return []

    def enabled(self, side):
        if side not in self.proxies:
            raise LinkError("no such link")
        return True


class Ground(remote_runs.Ground):
    """Of pods."""

    def __init__(self, path, api, **settings):
        super().__init__(path)
        self.api = api
        self.site = module.KubernetesSite(self.run, self.record, self.undo_log,
                                          KubernetesSettings(context="c", start_within=20, **settings))
        self.cluster = Cluster(self.site)

    def start(self, worker=WORKER, program=sys.executable, **more):
        """Start a hub and a worker. `worker`: its source, for this program. `more`: of the worker's spec."""
        hub = NodeSpec("hub", (sys.executable, "-c", HUB, "{incarnation}"), listens=True, state="state")
        spec = NodeSpec("worker", (program, "-c", worker, "{incarnation}", "{epoch}"), connects_to="hub",
                        epoch=self.epoch, **more)
        self.cluster.start([hub, spec])
        return self.cluster

    def back(self):
        """The worker's next incarnation has begun."""
        self.until(lambda: any(event.inc == 1 for event in self.tape().of(Start, node="worker")))
