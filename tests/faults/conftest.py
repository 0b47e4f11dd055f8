"""A cluster that only writes down what is asked of it, with links that behave as they are told."""

import pytest
from pydantic import TypeAdapter

from diloco_chaos.faults import AnyEntry, FaultContext
from diloco_chaos.harness.links.probe import Sounding
from diloco_chaos.harness.places.base import NodeSpec

ADAPTER = TypeAdapter(AnyEntry)


class Recorder:
    """Does nothing but remember; its links are shaped by the toxics that are on them."""

    def __init__(self):
        self.calls = []
        self.toxics = {}
        self.down = set()
        self.files = {"fragment-00.safetensors": bytes(range(256)) * 20, "fragment-01.safetensors": b"x" * 5000,
                      "fragment-00.mirror.safetensors": bytes(range(256)) * 20,
                      "fragment-01.mirror.safetensors": b"x" * 5000}
        self.tape = 100
        self.once = True
        for name in ("exhaust_memory", "disconnect", "empty_disk", "restart_engine", "lose_power", "jump_clock",
                     "delete_pod", "drain", "lose_machine", "part_machine", "restart_control_plane",
                     "control_plane_away", "arm", "disarm", "hits", "hang", "press", "kill_unsynced",
                     "release", "press_on", "lift", "felt", "fail_cuda", "heal_cuda", "cuda_hits"):
            setattr(self, name, self.recorded(name))  # a capability is looked for where nothing is made up

    def __getattr__(self, name):
        return self.recorded(name)

    def recorded(self, name):
        def called(*arguments, **_):
            self.calls.append((name, *arguments))
        return called

    def having(self, capability):
        return self if isinstance(self, capability) else None

    def draws_once(self):
        return self.once

    def links_of(self, node):
        return ["learner-1", "learner-2", "learner-3"] if node == "syncer" else [node]

    def state_files(self, node):
        return {name: len(content) for name, content in self.files.items()}

    def fill_disk(self, node, restart_after):
        self.calls.append(("fill_disk", node, restart_after))
        return 1000

    def signal_process(self, node, process, number):
        self.calls.append(("signal_process", node, process, number))
        return [41]

    def restart_links(self):
        self.calls.append(("restart_links",))
        return 0.5

    def tape_size(self, node):
        return self.tape

    def alter(self, node, name, change):
        changed = change(self.files[name])
        self.files[name] = changed
        if changed is None:
            del self.files[name]
        return True

    def degrade(self, link, toxics):
        self.toxics.setdefault(link, {}).update({toxic.name: toxic for toxic in toxics})

    def restore(self, link, toxics):
        for toxic in toxics:
            self.toxics.get(link, {}).pop(toxic.name, None)

    def disable_link(self, link):
        self.down.add(link)

    def enable_link(self, link):
        self.down.discard(link)

    def probe(self, link, reply_bytes=0, send_bytes=0, watch_close=False):
        """What a real link would do to a question."""
        if link in self.down:
            return Sounding("refused")
        on = list(self.toxics.get(link, {}).values())
        seconds, received = 0.001, 60 + reply_bytes
        for toxic in on:
            values = toxic.attributes
            load = send_bytes if toxic.stream == "upstream" else reply_bytes
            match toxic.type:
                case "timeout":
                    return Sounding("silent", 1.0)
                case "reset_peer":
                    return Sounding("reset", values["timeout"] / 1e3)
                case "latency":
                    seconds += values["latency"] / 1e3
                case "bandwidth":
                    seconds += load / values["rate"] / 1e3
                case "slicer":
                    seconds += load / values["average_size"] * values["delay"] / 1e6
                case "limit_data" if load > values["bytes"]:
                    return Sounding("closed", seconds, values["bytes"] if toxic.stream == "downstream" else 0)
        closing = sum(toxic.attributes["delay"] / 1e3 for toxic in on if toxic.type == "slow_close")
        return Sounding("answered", seconds, received, closing if watch_close else None)


@pytest.fixture
def cluster():
    return Recorder()


@pytest.fixture
def hit(cluster):
    def attack(rogue, learner, count, timeout_s):
        cluster.calls.append(("poison", learner, rogue, count))
        return count
    return FaultContext("f1", cluster, cluster.probe, lambda link: 0.001, lambda learner, content: content, attack,
                        lambda name: NodeSpec(name, ()), lambda ask, items: [ask(item) for item in items])


@pytest.fixture
def fault():
    def make(**settings):
        trigger = {} if {"at", "when", "after"} & settings.keys() else {"at": "1s"}
        return ADAPTER.validate_python(trigger | settings)
    return make
