"""A learner that sends what no learner should: it speaks the wire's protocol from outside, in a real one's name."""

from __future__ import annotations

import socket
import time
from typing import Literal

import numpy as np

from harness.trainer.messages import Answer, Broadcast, Hello, Report, Request, Welcome
from harness.trainer.tensors import Tensors, digest
from harness.trainer.wire import Decoder, FrameError, encode

Content = Literal["nan", "inf", "shape"]
_CHUNK = 1 << 18
_PAUSE_S = 0.05


class Rogue:
    """Takes a learner's place at the syncer, and answers every request with poison.

    Its answers claim step 0, which no learner ever takes, so that they can't be mistaken for the real one's.
    """

    def __init__(self, address: str, token: str, learner: str, incarnation: int, fragments: int,
                 content: Content) -> None:
        """`address`: host:port of the link; `fragments`: P."""
        self._address, self._token, self._learner, self._incarnation = address, token, learner, incarnation
        self._fragments, self._content = fragments, content
        self._held: dict[int, tuple[int, Tensors]] = {}
        self._step = 0
        self.sent = 0
        """Poisoned contributions that were written to the wire."""

    def attack(self, count: int, timeout_s: float) -> int:
        """Send so many, coming back whenever the real learner takes its place again; how many were sent in time."""
        until = time.monotonic() + timeout_s
        while self.sent < count and time.monotonic() < until:
            try:
                self._talk(count, until)
            except ConnectionRefusedError:
                break  # there is no syncer to send anything to
            except (OSError, FrameError):
                time.sleep(_PAUSE_S)
        return self.sent

    def _talk(self, count: int, until: float) -> None:
        host, _, port = self._address.rpartition(":")
        with socket.create_connection((host, int(port)), max(0.1, until - time.monotonic())) as link:
            link.sendall(encode(Hello(token=self._token, node=self._learner, incarnation=self._incarnation, step=0,
                                      tokens=0, position=0, versions=[-1] * self._fragments,
                                      steps=[0] * self._fragments)))
            decoder = Decoder()
            while self.sent < count and time.monotonic() < until and (data := link.recv(_CHUNK)):
                for message, tensors in decoder.feed(data):
                    if isinstance(message, Welcome):
                        self._step = message.step
                    elif isinstance(message, Broadcast):
                        self._held[message.fragment] = (message.version, tensors)
                        self._claim(link)
                    elif isinstance(message, Request):
                        self._answer(link, message)
                        self.sent += 1

    def _claim(self, link: socket.socket) -> None:
        """Say that there is something to ask for."""
        if len(self._held) == self._fragments:
            link.sendall(encode(Report(step=self._step, tokens=0, position=0, fragments=[
                (self._held[index][0], 1, 1) for index in range(self._fragments)])))

    def _answer(self, link: socket.socket, request: Request) -> None:
        version, value = self._held[request.fragment]
        poisoned = {name: _poisoned(array, self._content) for name, array in value.items()}
        link.sendall(encode(Answer(round=request.round, fragment=request.fragment, base_version=version, first_step=0,
                                   last_step=0, steps=1, tokens=1, digest=digest(poisoned)), poisoned))


def _poisoned(array: np.ndarray[tuple[int, ...], np.dtype[np.float32]], content: Content,
              ) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    if content == "shape":
        return np.zeros((*array.shape, 2), np.float32)
    return np.full_like(array, np.nan if content == "nan" else np.inf)
