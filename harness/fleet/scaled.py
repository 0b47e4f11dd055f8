"""A fleet, scaled to a run of minutes on one machine: as many failures for each step of a learner, and each as long in
steps. A peer of the run stands for a learner, or where there are none for an eighth of the slices."""

from __future__ import annotations

from typing import NamedTuple

from diloco_chaos.harness.failures.process import LEAST_S, FailureProcess
from diloco_chaos.harness.fleet.closed_forms import begun, goodput
from diloco_chaos.harness.fleet.fleet import Fleet

_PEERS, _MOST_LEARNERS = 8, 16
_STEP_A_PEER_S = 0.025
"""A machine with two cores holds this pace with each peer."""
_LEAST_AWAY = 0.1
"""Share of its time for which a peer of an elastic run is away, even if the fleet's slices are replaced at once."""
_LEAST_OUTAGE_S = 8.0
"""Several times what a process takes to start, which differs from place to place."""


class ScaledError(ValueError):
    """No run on one machine stands for this fleet; the message says why."""


class Scaled(NamedTuple):
    """The run. All times are its own, in seconds."""

    fleet: Fleet
    """The same question of the run: its peers are slices of one chip."""
    step_time: float
    """Of an inner step."""
    lasts: float
    """Until there were as many failures as are wanted, on average."""

    @property
    def up(self) -> float:
        """Return the time in seconds from when a peer is back to its next failure, on average."""
        return self.fleet.mtbf

    @property
    def outage(self) -> float:
        """Return the time in seconds for which a peer that has failed is away."""
        return self.fleet.repair

    @property
    def stands(self) -> float:
        """Return the time in seconds for which an elastic group stands when a peer goes, and when it is back."""
        return self.fleet.shrink


def scaled(fleet: Fleet, step_s: float, failures: int) -> Scaled:
    """`step_s`: seconds of an inner step of the fleet. `failures`: of the whole run, on average. The run's steps are as
    long as it takes for processes to be back in time.

    Raises:
        ScaledError: it can't stand for this fleet.
    """
    peers = fleet.learners if fleet.mode == "decoupled" else _PEERS
    if peers > _MOST_LEARNERS:
        raise ScaledError(f"{peers} learners are more than the {_MOST_LEARNERS} that a run on one machine has")
    if fleet.trace and fleet.process is None:
        raise ScaledError("a run of minutes stands for no trace that is replayed: take --how fitted")
    try:
        trains = goodput(fleet.model_copy(update={"process": None, "trace": ""}))
    except ValueError as error:
        raise ScaledError(str(error)) from error
    every = peers / fleet.interruptions_per_s  # from one failure of a peer to its next
    if fleet.mode == "data_parallel":  # all stand as long as one is away
        up, outage, stands = every, (1 / begun(fleet) - 1) / fleet.interruptions_per_s, 0.0
    elif fleet.mode == "decoupled":  # a learner is away as long as the fleet's stands, and lacks what is repaired
        outage, stands = (1 - trains) * every, 0.0
        up = every - outage
    else:  # a process is away for longer than a spare takes
        outage = max(1 - fleet.in_service, _LEAST_AWAY) * every
        up, stands = every - outage, (fleet.detection + fleet.shrink + fleet.growths * fleet.grow) / 2
    step_time = max(_STEP_A_PEER_S * peers, _LEAST_OUTAGE_S * step_s / outage)
    up, outage, stands = (seconds * step_time / step_s for seconds in (up, outage, stands))
    alone = Fleet(mode=fleet.mode, chips=peers, slice_chips=1, learners=peers).model_copy(update={
        "mtbf": up, "repair": outage, "restart": outage, "shrink": stands, "grow": stands, "grow_within": 0.0,
        "restart_shape": 0.0, "recovery": 0.0, "process": _shrunk(fleet, up)})
    lasts = failures * (up / peers + outage if fleet.mode == "data_parallel" else (up + outage) / peers)
    return Scaled(alone, step_time, lasts)


def _shrunk(fleet: Fleet, up: float) -> FailureProcess | None:
    """Return the fleet's process in the run's time, in which a peer fails after `up` seconds on average."""
    if fleet.process is None:
        return None
    times = up / fleet.slice_mtbf
    wave = fleet.process.wave_length
    return fleet.process.at_pace(times).model_copy(update={"wave_length": wave and max(LEAST_S, wave * times)})
