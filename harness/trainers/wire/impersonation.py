"""Somebody who has the run's token speaks in a learner's name: what about, and how far it came. A trainer knows how."""

from __future__ import annotations

import socket
import time

from diloco_chaos.harness.trainers.wire.frames import Decoder, FrameError, encode
from diloco_chaos.harness.trainers.wire.impostor import Impostor

_CHUNK = 1 << 18


def attack(rogue: Impostor, address: str, count: int, timeout_s: float) -> int:
    """Send so many through a link (host:port), coming back whenever the real learner takes its place again; how many
    were taken in time."""
    until = time.monotonic() + timeout_s
    while rogue.sent < count and time.monotonic() < until:
        try:
            _talk(rogue, address, count, until)
        except ConnectionRefusedError:
            break  # there is no syncer to send anything to
        except (OSError, FrameError):
            pass  # the real learner took its place again
        if rogue.sent < count:
            time.sleep(rogue.pause())
    return rogue.sent


def _talk(rogue: Impostor, address: str, count: int, until: float) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), max(0.1, until - time.monotonic())) as link:
        link.sendall(encode(rogue.hello()))
        decoder = Decoder(rogue.messages)
        while rogue.sent < count and time.monotonic() < until and (data := link.recv(_CHUNK)):
            for message, tensors in decoder.feed(data):
                for answer, payload in rogue.on_message(message, tensors):
                    link.sendall(encode(answer, payload))
