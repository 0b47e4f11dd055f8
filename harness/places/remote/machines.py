"""What else goes on on the machines that a run's nodes are on, from what their agents tell: see `harness.base.machine`.

Agents on one machine are told by its start (boot id); what their containers use is the run's. What only a process of
the harness' own could tell of another machine (how late it is woken, how long its disk takes) is not known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from diloco_chaos.harness.base.machine import Sample
from diloco_chaos.harness.places.remote import agent
from diloco_chaos.harness.places.remote.hosts import Hosts
from diloco_chaos.harness.record.tape.events import Machine

_RESOURCES = ("cpu", "io", "memory")
_STAT = 8
_LEAST_S = 0.3
"""Between two looks; what less time tells is chance."""
_SILENT = 4
"""An agent that has reported nothing new so many times is not waited for: it may be cut off."""


class AgentReport(NamedTuple):
    """One agent's report at one moment."""

    agent: str
    boot: str
    at: float
    """Its machine's clock, seconds."""
    used: float
    """Seconds of processor that its container has used."""
    machine: Mapping[str, Any]


class AgentMachines:
    """The machines of one run, by what their agents report; they are looked at again and again."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, AgentReport]] = {}  # boot id -> agent -> what it reported last time
        self._same: dict[str, tuple[float, int]] = {}  # agent -> its clock, and how often that was the same

    def samples(self, looks: Iterable[AgentReport], here: str, own: Sample) -> dict[str, Sample]:
        """Return what each machine did since the last call, by its boot id; machines on which an agent came or went
        meanwhile are left out. `here`: this machine's boot id. `own`: what this machine did; where no node runs on it,
        its sample is that without what others did, which held up no node."""
        now: dict[str, dict[str, AgentReport]] = {}
        for look in filter(self._tells, looks):
            now.setdefault(look.boot, {})[look.agent] = look
        samples = {} if here in now else {here: replace(own, others=0.0, stolen=0.0, cpu=0.0, io=0.0, memory=0.0,
                                                        sync=0.0)}
        for boot, agents in now.items():
            before = self._before.get(boot, {})
            if before.keys() == agents.keys() and any(agents[name].at - before[name].at < _LEAST_S for name in agents):
                continue  # not all have reported anything new
            self._before[boot] = agents
            if before.keys() == agents.keys() and (sample := _between(before, agents)) is not None:
                samples[boot] = sample if boot != here else replace(
                    own, ours=own.ours + sample.ours, others=max(0.0, own.others - sample.ours), waited=None)
        return samples

    def _tells(self, look: AgentReport) -> bool:
        at, count = self._same.get(look.agent, (look.at, -1))
        self._same[look.agent] = look.at, count + 1 if at == look.at else 0
        return self._same[look.agent][1] < _SILENT


class WatchedMachines:
    """Implements `diloco_chaos.harness.places.capabilities.Watched`."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts, self._machines = hosts, AgentMachines()

    def machines(self, here: Sample) -> list[Machine]:
        """Return every machine with its sample, from what all agents reported last. `here`: this machine's sample."""
        hosts = self._hosts.all()
        looks = [AgentReport(host.name, host.agent.boot, float(report["at"]), float(report["used"]), report["machine"])
                 for host in hosts if (report := host.report) and not host.lost]
        names = {host.agent.boot: self._hosts.machine(host) for host in hosts}
        boot = agent.boot()
        return [Machine(**sample.fields(), machine="harness" if which == boot else names.get(which, ""))
                for which, sample in self._machines.samples(looks, boot, here).items()]


def _between(before: Mapping[str, AgentReport], now: Mapping[str, AgentReport]) -> Sample | None:
    first, last = (next(iter(looks.values())) for looks in (before, now))
    seconds = last.at - first.at
    stats = [stat for look in (first, last) if isinstance(stat := look.machine.get("stat"), list)
             and len(stat) == _STAT]
    if len(stats) < 2:
        return None
    ticks = float(last.machine.get("ticks", 100)) * seconds
    spent = [(after - earlier) / ticks for earlier, after in zip(*stats, strict=True)]
    idle, stolen, every = spent[3] + spent[4], spent[7], sum(spent)
    ours = max(0.0, sum((now[agent].used - before[agent].used) / (now[agent].at - before[agent].at) for agent in now))
    waited = {what: min(1.0, max(0.0, (last.machine.get(what, 0) - first.machine.get(what, 0)) / 1e6 / seconds))
              for what in _RESOURCES}
    return Sample(seconds, int(last.machine["cores"]), max(0.0, idle), ours, max(0.0, every - idle - stolen - ours),
                  max(0.0, stolen), 0.0, **waited, disk_ours=0.0, disk_all=0.0, memory_ours=0.0, memory_left=1.0,
                  sync=0.0)
