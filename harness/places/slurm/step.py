"""How a node's process in a job is moved: it is a step, which Slurm signals.

What holds it back for moments (a straggler) is its agent: Slurm's controller is not bothered with that.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress

from diloco_chaos.harness.places.nodes.duty_cycle import DutyCycle
from diloco_chaos.harness.places.remote.connection import AgentError, GoneError
from diloco_chaos.harness.places.remote.hosts import Host
from diloco_chaos.harness.places.remote.process import Hand
from diloco_chaos.harness.places.slurm.job import STEPS

SignalStep = Callable[[str, signal.Signals], None]
"""Signal a step, by its number in the job."""
_BEGUN_S, _LOOK_S = 60.0, 0.02
_SIGNALLED = range(129, 193)
"""Exit statuses that tell of a signal."""


class StepHand(Hand):
    """See the module."""

    pid = 0

    def __init__(self, process: str, host: Host, signal_step: SignalStep) -> None:
        """`process`: NODE.NUMBER."""
        self._process, self._host, self._signal_step = process, host, signal_step
        self._duty: DutyCycle | None = None

    def send(self, number: signal.Signals) -> None:
        """Signal it by `scancel --signal`."""
        self._host.soon(lambda: self._through_slurm(number))

    def send_now(self, number: signal.Signals) -> None:
        """Signal it by `scancel --signal`."""
        if not self._host.lost:
            self._through_slurm(number)

    def status(self, reported: int) -> int:
        """Return the exit status for the one that `srun` reported, which shows a signal as a shell does."""
        return _SIGNALLED.start - 1 - reported if reported in _SIGNALLED else reported

    def throttle(self, share: float, spread: float, seed: int) -> None:
        """Stop and continue it in turn."""
        self._duty = DutyCycle(self, share, spread, seed)

    def unthrottle(self) -> None:
        """End the duty cycle."""
        if self._duty is not None:
            self._duty.end()
            self._duty = None

    @property
    def throttled(self) -> bool:
        """Return whether a duty cycle stops it now and then."""
        return self._duty is not None

    @property
    def stops(self) -> bool:
        """Return whether it is stopped now and then: the duty cycle does so, by signals of the agent's."""
        return self._duty is not None

    @property
    def stopped(self) -> bool:
        """Return whether the duty cycle has stopped it at the moment."""
        return self._duty is not None and self._duty.paused

    def send_signal(self, sig: int) -> None:
        """Send a signal of the duty cycle by the agent: in the order of asking, also where the connection is lost for a
        while."""
        if not self._gone():
            self._host.agent.soon("signal", name=self._process, number=sig)

    def _gone(self) -> bool:
        return bool(self._host.lost) or self._process in self._host.agent.exits

    def _through_slurm(self, number: signal.Signals) -> None:
        if (step := self._step()) and not self._gone():
            self._signal_step(step, number)

    def _step(self) -> str:
        """Return its step's number, empty where it has none any more. One that was just started has none yet: wait for
        that."""
        until = time.monotonic() + _BEGUN_S
        while not self._gone():
            with suppress(GoneError):
                return self._host.agent.fetch("get", path=f"{STEPS}/{self._process}")[1].split()[1].decode()
            if time.monotonic() > until:
                raise AgentError(f"{self._process.rpartition('.')[0]}: its step did not begin within {_BEGUN_S:g} s")
            time.sleep(_LOOK_S)
        return ""
