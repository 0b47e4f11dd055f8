"""The page of a node in a pod: what the harness says goes to the one that is there, what is counted comes from it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.remote.hosts import Host
from diloco_chaos.harness.preload.cuda import CudaHits, CudaRule
from diloco_chaos.harness.preload.page import Hits, Holding, Page, Rule, Stood

_WORD = 4


class PodPage(Page):
    """A page here, and its twin in the pod that has been given it last. What is in a pod that is gone, or about to be,
    stays as it was known last; the next pod is given that."""

    def __init__(self, path: Path, token: str, spared: Sequence[str], path_there: str) -> None:
        """`path_there`: of the twin. The rest: as for a new page."""
        super().__init__(path, token, spared)
        self._path_there = path_there
        self._host: Host | None = None
        self._lock = threading.RLock()

    def bring(self, host: Host, others: Mapping[str, bytes]) -> None:
        """Give it to a pod with other files, by their names there, unless that has it already: another file would be
        none that processes have."""
        with self._lock:
            if self._host is not host:
                for name, content in others.items():
                    host.agent.ask("put", content, path=name)
                host.agent.ask("put", self.content, path=self._path_there)
                self._host = host

    @property
    def content(self) -> bytes:
        """Return all of it, as it is known here."""
        return bytes(self._map)

    def arm(self, rule: Rule) -> int:
        """Arm it there, too."""
        with self._both():
            return super().arm(rule)

    def disarm(self, number: int) -> bool:
        """Disarm it there, too."""
        with self._both():
            return super().disarm(number)

    def hang(self, holding: Holding) -> None:
        """Let main threads stand there."""
        with self._both():
            super().hang(holding)

    def release(self) -> bool:
        """Let them go on there."""
        with self._both():
            return super().release()

    def arm_cuda(self, rule: CudaRule) -> None:
        """Let calls of the CUDA runtime do so there."""
        with self._both():
            super().arm_cuda(rule)

    def disarm_cuda(self) -> bool:
        """Let them do as ever there."""
        with self._both():
            return super().disarm_cuda()

    @property
    def cuda_hits(self) -> CudaHits:
        """Return what the last rule for calls of the CUDA runtime has done there."""
        self._look()
        return super().cuda_hits

    @property
    def loaded(self) -> int:
        """Return how many processes there have had it."""
        self._look()
        return super().loaded

    @property
    def stood(self) -> Stood | None:
        """Return the main thread that stood last, with the pid that the pod knows."""
        self._look()
        return super().stood

    def hits(self, number: int) -> Hits:
        """Return what a rule has done there."""
        self._look()
        return super().hits(number)

    @contextmanager
    def _both(self) -> Iterator[None]:
        """Change it here, and then there; where that fails, it was changed nowhere."""
        with self._lock:
            self._look()
            before = self.content
            try:
                yield
                self._send(before)
            except Exception:
                self._map[:] = before
                raise

    def _look(self) -> None:
        with self._lock:
            if (host := self._there()) is None:
                return
            content = host.agent.fetch("get", path=self._path_there)[1]
            if len(content) != len(self._map):
                raise ClusterError(f"{host.name}: something has changed {self._path_there}, by which calls fail there")
            self._map[:] = content

    def _send(self, before: bytes) -> None:
        """Send the words that are others now: what says that a rule holds comes before the rule in the page, and is
        sent after it."""
        after = self.content
        places = [at for at in range(len(after) - _WORD, -1, -_WORD) if after[at:at + _WORD] != before[at:at + _WORD]]
        if places and (host := self._there()) is not None:
            host.agent.ask("patch", b"".join(after[at:at + _WORD] for at in places), path=self._path_there, at=places)

    def _there(self) -> Host | None:
        return self._host if self._host is not None and not (self._host.lost or self._host.leaving) else None
