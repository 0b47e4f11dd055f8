"""A node's process in a container. What is asked of the engine about it is done in the order of asking."""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import requests
from docker.errors import APIError, DockerException, NotFound

from diloco_chaos.harness.base.processes import Identity, children, cpu_seconds, family, file_limits, identity, state
from diloco_chaos.harness.places.compose.compose_file import PERIOD_US
from diloco_chaos.harness.places.compose.engine import ContainerWatch, EngineError, asked
from diloco_chaos.harness.places.nodes.duty_cycle import QuotaCycle
from diloco_chaos.harness.places.nodes.process import Process
from diloco_chaos.harness.preload.page import STAND

_LEAST_QUOTA_US = 1000  # the kernel's own
_SAMPLE_S, _HISTORY = 1.0, 6
_LEAST_HISTORY_S = 1.5
_NOT_RUNNING = 409
_LOG_ENDS_S = 5.0
_GONE = (404, _NOT_RUNNING)


class ContainerProcess(Process):
    """See the module. `create` makes and starts the container; it is called at once, in a thread."""

    def __init__(self, name: str, watch: ContainerWatch, log: Path, create: Callable[[], Any], quota: int = -1,
                 follow: bool = False) -> None:
        """`name`: the node's. `log`: where its log is kept. `quota`: microseconds of processor per period that it may
        use at any time, -1: all. `follow`: keep its log while it runs; else at its end."""
        self._name, self._watch = name, watch
        self._hand = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._made: Future[Any] = self._hand.submit(create)
        self._paused = self._over = False
        self._usual_quota, self._quota = quota, None  # type: int, int | None
        self._cycle: QuotaCycle | None = None
        self._used: deque[tuple[float, float]] = deque(maxlen=_HISTORY)
        self._pid = 0
        self.log = ContainerLog(name, log, self._made, follow)

    @property
    def container(self) -> Any:
        """The container; waits until it was started.

        Raises:
            EngineError: it could not be.
        """
        return self._made.result()

    @property
    def pid(self) -> int:
        """The node's process on this machine: the child of the container's init."""
        if not self._pid:
            with asked(f"look at {self._name}"):
                self.container.reload()
            below = children(int(self.container.attrs["State"]["Pid"]))
            self._pid = below[0] if below else 0
        return self._pid

    def all_of_it(self) -> list[Identity]:
        """Return the processes in it as this machine shows them, the node's own first; none where the engine is on
        another machine, or the container is gone."""
        if not self._made.done() or self.ended() is not None or not self.pid:
            return []
        return [process for pid in family(self.pid) if (process := identity(pid)) is not None]

    @property
    def known_pid(self) -> int | None:
        """None while the container is being made."""
        return self.pid or None if self._made.done() else None

    def details(self) -> Mapping[str, Any]:
        """Return whether the kernel killed something in it for want of memory, for the tape."""
        return {"oom": True} if self.id in self._watch.out_of_memory else {}

    @property
    def id(self) -> str:
        """The container's; empty: it was not started (yet)."""
        return str(self.container.id) if self._made.done() and self._made.exception() is None else ""

    def send(self, number: signal.Signals) -> None:
        """A signal for the container's init, which passes it on; SIGKILL ends all that is in it."""
        self._soon(f"signal {self._name}", lambda: self.container.kill(number.name))

    def stand(self) -> None:
        """Send the node's process `STAND`, by the container's init, and wait until the engine has sent it."""
        self._soon(f"signal {self._name}", lambda: self.container.kill(STAND)).result()

    def ended(self) -> int | None:
        """Return its exit status as the engine's events say it; None: they have not said any."""
        if not self._made.done():
            return None
        code = self._watch.exits.get(self.container.id)
        return None if code is None else _status(code)

    def is_gone(self) -> bool:
        """The engine may not have told yet."""
        return self.ended() is not None or identity(self.pid) is None

    def over(self, expected: bool) -> None:
        """Its log is kept beside the run's other ones."""
        saved = self._soon(f"read the log of {self._name}", self.log.save)
        if not expected or self.log.followed:  # then its last lines explain what happened
            saved.result()
        self._over, self._paused = True, False

    def freeze(self) -> None:
        """Stop it by the cgroup's freezer."""
        self._used.clear()
        self._soon(f"pause {self._name}", lambda: self.container.pause()).result()
        self._paused = True

    def thaw(self) -> None:
        """Let it go on, and send SIGCONT for one that had stopped itself."""
        self._soon(f"unpause {self._name}", lambda: self.container.unpause()).result()
        self.send(signal.SIGCONT)
        self._paused = False

    def throttle(self, share: float, spread: float, seed: int) -> None:
        """Throttle it by a CPU quota: this share of what the node has been using until now, which a paced learner uses
        evenly."""
        usual = self._usage()
        self._used.clear()  # what was before tells nothing of what will be after
        self._cycle = QuotaCycle(lambda drawn: self._set_quota(drawn * usual), share, spread, seed)

    def unthrottle(self) -> None:
        """Give it its usual quota back."""
        if self._cycle is not None:
            self._cycle.end()
            self._cycle = None
        if self._quota is not None and not self._over:
            self._set_quota(None)

    @property
    def throttled(self) -> bool:
        """Return whether a quota is on."""
        return self._quota is not None

    def stands_still(self) -> bool:
        """Return whether the engine has paused it, or it has stopped itself."""
        with asked(f"look at {self._name}"):
            self.container.reload()
        return bool(self.container.status == "paused" or state(self.pid) == "T")

    def sample(self, now: float) -> None:
        """Note how much of a processor it has used; call it often."""
        late = not self._used or now - self._used[-1][0] >= _SAMPLE_S
        idle = self._over or self._paused or self._cycle is not None
        if late and self._made.done() and not idle:
            self._used.append((now, cpu_seconds(self.pid)))

    def file_limits(self, limits: tuple[int, int] | None) -> tuple[int, int]:
        """Set from inside, by a process of the same user: from outside that takes privileges."""
        if self._paused:
            raise EngineError(f"{self._name} is paused: its limit can't be changed from inside its container")
        before = None if self.ended() is not None else file_limits(self.pid)
        if before is None:
            raise ProcessLookupError(self._name)
        if limits is not None:
            soft, hard = ("unlimited" if limit == resource.RLIM_INFINITY else str(limit) for limit in limits)
            self.execute("sh", "-c", f"set -- $(cat /proc/1/task/1/children); prlimit --pid $1 --fsize={soft}:{hard}")
        return before

    def in_background(self, act: Callable[[], object]) -> None:
        """Do this after all that was asked before, without waiting for it."""
        self._soon(f"do something to {self._name}", act)

    def execute(self, *argv: str) -> tuple[int, str]:
        """Run a program in it: exit status and output; where it is gone there is neither success nor output.

        Raises:
            EngineError: the engine does not answer.
        """
        with asked(f"run {argv[0]} in {self._name}"):
            try:
                done = self.container.exec_run(list(argv))
            except APIError as error:
                # One that ends between the two requests that this takes is an error of the engine's own, 500.
                if error.status_code not in _GONE and "is not running" not in str(error.explanation):
                    raise
                return 1, ""
        return int(done.exit_code), done.output.decode(errors="replace").strip()

    def squeeze(self, limit: int) -> None:
        """Limit its memory to so many bytes.

        Raises:
            EngineError: the kernel refused.
        """
        with asked(f"limit the memory of {self._name}"):
            self.container.update(mem_limit=limit, memswap_limit=limit)

    def reap(self, until: float) -> None:
        """Wait for it, kill it, keep its log; the cluster removes it with everything else."""
        with suppress(Exception):  # one that could never be started has nothing to be waited for
            while self.ended() is None and time.monotonic() < until:
                time.sleep(0.01)
            if not self._over:
                self.log.save()
        self._hand.shutdown(wait=False, cancel_futures=True)

    def _usage(self) -> float:
        """Processors in use, over the last seconds in which nothing was done to it."""
        if len(self._used) < 2 or self._used[-1][0] - self._used[0][0] < _LEAST_HISTORY_S:
            return 1.0
        (began, before), (ended, after) = self._used[0], self._used[-1]
        return max(after - before, 0.01) / (ended - began)

    def _set_quota(self, processors: float | None) -> None:
        self._quota = None if processors is None else max(_LEAST_QUOTA_US, round(processors * PERIOD_US))
        quota = self._usual_quota if self._quota is None else self._quota
        self._soon(f"set the CPU quota of {self._name}",
                   lambda: self.container.update(cpu_period=PERIOD_US, cpu_quota=quota)).result()

    def _soon(self, what: str, act: Callable[[], object]) -> Future[None]:
        """Do it after all that was asked before; what is done to one that is gone is done to nobody."""
        def done() -> None:
            try:
                act()
            except NotFound:
                pass
            except (DockerException, requests.RequestException) as error:
                if not _does_not_run(error):
                    with asked(what):
                        raise
        try:
            return self._hand.submit(done)
        except RuntimeError:  # it was reaped: nothing more is done to it
            over: Future[None] = Future()
            over.set_result(None)
            return over


class ContainerLog:
    """A container's output, kept in a file of the run's."""

    def __init__(self, name: str, path: Path, made: Future[Any], followed: bool) -> None:
        """`made`: the container. `followed`: the file has it while the container runs; else once it is saved."""
        self.followed = followed
        self._path, self._made = path, made
        self._complete = False
        self._follower = threading.Thread(target=self._follow, daemon=True, name=f"log of {name}")
        if followed:
            self._follower.start()

    def save(self) -> None:
        """Keep what it has said until now."""
        if self.followed:
            self._follower.join(_LOG_ENDS_S)
        if not self._complete:
            self._path.write_bytes(self._made.result().logs())

    def _follow(self) -> None:
        """Write what it says as it says it; what was missed is there at its end."""
        with suppress(EngineError, DockerException, OSError), open(self._path, "wb", 0) as log:
            for said in self._made.result().logs(stream=True, follow=True):
                log.write(said)
            self._complete = True


def _does_not_run(error: Exception) -> bool:
    return isinstance(error, APIError) and (error.status_code == _NOT_RUNNING or "is not paused" in str(error))


def _status(code: int) -> int:
    """Exit codes above 128 tell the signal, as a shell's do."""
    known = {128 + number.value for number in signal.Signals}
    return 128 - code if code in known else code
