"""The twelve faults: from the parts of a contestant to the faults of a scenario. The same moments and times for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.league.roles import Absent, Roles

AT_S = 10.6
"""The fault comes so long after the steady state: some rounds behind a checkpoint, whether each 5, 20, 25 or 50."""
_AT = {"at": "10.6s"}
_BACK = "2s"
"""A node that nothing else starts again is started again by its scheduler after so long."""
Faults = list[dict[str, Any]]


@dataclass(frozen=True)
class LeagueFault:
    """One of the twelve."""

    name: str
    title: str
    told: str
    """What happens, for the page."""
    aimed: Callable[[Roles], Faults | Absent]
    watched_s: float = 45.0
    """Training goes on for so long after it, at the usual pace: longer than the fault and the time to heal."""
    holds: bool = False
    """Scripts are held in the middle of a checkpoint."""


def _killed(target: str, when: Mapping[str, Any] = _AT) -> dict[str, Any]:
    """A process is started again by its launcher, a node by its scheduler."""
    return {"kill": target, **when} if "/" in target else {"kill": target, **when, "restart_after": _BACK}


def _kill_worker(roles: Roles) -> Faults | Absent:
    return [_killed(roles.worker)]


def _kill_leader(roles: Roles) -> Faults | Absent:
    return roles.leader if isinstance(roles.leader, Absent) else [_killed(roles.leader)]


def _kill_in_checkpoint(roles: Roles) -> Faults | Absent:
    if isinstance(roles.saver, Absent):
        return roles.saver
    return [{"kill": roles.saver, "when": dict(roles.midway), "restart_after": _BACK}]


def _kill_during_recovery(roles: Roles) -> Faults | Absent:
    """A worker that is a process may not be there yet when it is killed again; its node is."""
    node, _, process = roles.worker.partition("/")
    later = {"at": "12.6s"} if process else {"after": {"fault": "f1", "wait": "1s"}}
    return [_killed(roles.worker), _killed(node, later)]


def _pause(roles: Roles) -> Faults | Absent:
    return [{"pause": roles.worker, **_AT, "for": "6s"}]


def _hang(roles: Roles) -> Faults | Absent:
    return [{"hang": roles.worker, "holding": "nothing", **_AT, "for": "10s"}]


def _of_a_link(kind: str, **settings: str) -> Callable[[Roles], Faults | Absent]:
    def aimed(roles: Roles) -> Faults | Absent:
        return roles.link if isinstance(roles.link, Absent) else [{kind: roles.link, **_AT, **settings}]
    return aimed


def _coordinator(roles: Roles) -> Faults | Absent:
    if isinstance(roles.coordinator, Absent):
        return roles.coordinator
    return [{"kill": roles.coordinator, **_AT, "restart_after": "4s"}]


def _no_space(roles: Roles) -> Faults | Absent:
    if isinstance(roles.saver, Absent):
        return roles.saver
    return [{"io": roles.saver, "path": roles.files, "error": "ENOSPC", **_AT, "for": "4s"}]


def _damaged(roles: Roles) -> Faults | Absent:
    if isinstance(roles.saver, Absent):
        return roles.saver
    which = {} if roles.newest == "newest" else {"which": roles.newest}
    return [{"truncate": roles.saver, **_AT, **which, "restart_after": _BACK}]


FAULTS = (
    LeagueFault("kill-worker", "kill worker", "one worker is killed", _kill_worker),
    LeagueFault("kill-leader", "kill leader", "the one that others follow is killed", _kill_leader),
    LeagueFault("kill-in-checkpoint", "kill in checkpoint",
                "the node that saves is killed while a checkpoint is half written", _kill_in_checkpoint, holds=True),
    LeagueFault("kill-during-recovery", "kill in recovery",
                "one worker is killed, and its node is killed while it comes back", _kill_during_recovery),
    LeagueFault("pause", "pause", "one worker stands still for 6 s", _pause),
    LeagueFault("hang", "hang", "one worker's main thread stands for 10 s; its other threads and its connections live",
                _hang),
    LeagueFault("partition", "partition", "nothing passes one worker's links for 6 s",
                _of_a_link("partition", **{"for": "6s"}), watched_s=80.0),
    LeagueFault("one-way", "one way", "what one worker sends is lost for 6 s; it hears the others",
                _of_a_link("partition", direction="upstream", **{"for": "6s"}), watched_s=80.0),
    LeagueFault("slow-link", "slow link", "one worker's links take 50 ms more each way for 8 s",
                _of_a_link("latency", delay="50ms", **{"for": "8s"})),
    LeagueFault("coordinator", "coordinator restart", "where the others meet is killed, and back after 4 s",
                _coordinator, watched_s=80.0),
    LeagueFault("no-space", "no space", "nothing can be saved for 4 s (ENOSPC)", _no_space),
    LeagueFault("damaged", "damaged checkpoint",
                "the node that saves is killed, and its newest checkpoint is cut off before it is back", _damaged),
)
