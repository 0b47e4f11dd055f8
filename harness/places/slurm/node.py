"""An incarnation that is a step of a node's job: Slurm signals it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress

from diloco_chaos.harness.places.base import NodeSpec, NodeState
from diloco_chaos.harness.places.duty_cycle import DutyCycle
from diloco_chaos.harness.places.remote.connection import AgentError, GoneError
from diloco_chaos.harness.places.remote.node import Host, RemoteNode
from diloco_chaos.harness.places.slurm.job import STEPS
from diloco_chaos.harness.record.undo_log import UndoLog

SignalStep = Callable[[str, signal.Signals], None]
"""Signal a step, by its number in the job."""
_BEGUN_S, _LOOK_S = 60.0, 0.02
_SIGNALLED = range(129, 193)
"""Exit statuses that tell of a signal."""


class Step(RemoteNode):
    """See the module. What holds it back for moments (a straggler) is its agent: Slurm's controller is not bothered
    with that."""

    def __init__(self, spec: NodeSpec, number: int, undo_log: UndoLog, host: Host,
                 start: Callable[[RemoteNode], None], signal_step: SignalStep) -> None:
        self._signal_step = signal_step
        self._duty: DutyCycle | None = None
        super().__init__(spec, number, undo_log, host, start)

    def send(self, number: signal.Signals) -> None:
        """By `scancel --signal`, after all that was asked before."""
        self.host.soon(lambda: self._through_slurm(number))

    def _signal_now(self, number: signal.Signals) -> None:
        if not self.host.lost:
            self._through_slurm(number)

    def _through_slurm(self, number: signal.Signals) -> None:
        if (step := self._step()) and self.ended() is None:
            self._signal_step(step, number)

    def _step(self) -> str:
        """Its number; empty where it has none any more. One that was just started has none yet."""
        until = time.monotonic() + _BEGUN_S
        while self.ended() is None and not self.host.lost:
            with suppress(GoneError):
                return self.agent.fetch("get", path=f"{STEPS}/{self.process}")[1].split()[1].decode()
            if time.monotonic() > until:
                raise AgentError(f"{self.name}: its step did not begin within {_BEGUN_S:g} s")
            time.sleep(_LOOK_S)
        return ""

    def ended(self) -> int | None:
        """As `srun` says, which shows a signal as a shell does."""
        status = super().ended()
        return _SIGNALLED.start - 1 - status if status in _SIGNALLED and status is not None else status

    def throttle(self, share: float | None, spread: float, seed: int) -> None:
        """Stopped and continued in turn."""
        if self._duty is not None:
            self._duty.end()
            self._duty = None
        if share is not None and self.alive:
            self._duty = DutyCycle(_ByAgent(self), share, spread, seed)

    @property
    def throttled(self) -> bool:
        """Whether it is, now and then."""
        return self._duty is not None

    def known(self) -> NodeState:
        """Its state; what holds it back pauses it, too."""
        known = super().known()
        paused = known.state == "running" and self._duty is not None and self._duty.paused
        return NodeState("paused", known.incarnation, None) if paused else known

    def stands_still(self) -> bool:
        """Whether it is stopped by more than its share of the time."""
        return self._duty is None and super().stands_still()


class _ByAgent:
    """Signals a node's processes through its agent. Implements `Signalled`."""

    pid = 0

    def __init__(self, node: Step) -> None:
        self._node = node

    def send_signal(self, sig: int) -> None:
        """In the order of asking, also where the connection is lost for a while; nothing happens where it is gone."""
        if not self._node.host.lost and self._node.ended() is None:
            self._node.agent.soon("signal", name=self._node.process, number=sig)
