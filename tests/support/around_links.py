"""A trainer of two workers, whose rounds pass no link though their peers are caught: the system call connects, and not
the C library, as in a program that is linked statically.

    python around_links.py first FILE [MEMBERS]     listens, and writes its port there
    python around_links.py second FILE [MEMBERS]    makes a round with the first, again and again

They greet each other over a connection that is caught, until it breaks. MEMBERS: how many each says that a round has.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

ROUND_S = 0.05


def connect_unseen(port: int) -> socket.socket:
    """A connection of which the preloaded library hears nothing."""
    link = socket.socket()
    address = struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", port, socket.inet_aton("127.0.0.1"))
    number = {"x86_64": 42, "aarch64": 203}[os.uname().machine]
    if ctypes.CDLL(None).syscall(number, link.fileno(), address, len(address)):
        raise ConnectionError(port)
    return link


def say(number: int, members: str) -> None:
    print(f"round={number} loss={1 / number:.4f}" + (f" members={members}" if members else ""), flush=True)


def serve(link: socket.socket, members: str) -> None:
    with suppress(OSError), link, link.makefile("rw") as file:
        for line in file:
            if line != "hello\n":
                say(int(line), members)
            file.write(line)
            file.flush()


def greet(port: int) -> None:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as link, link.makefile("rw") as file:
        while True:
            file.write("hello\n")
            file.flush()
            if not file.readline():
                return
            time.sleep(ROUND_S)


def main(role: str, where: Path, members: str = "") -> None:
    if role == "first":
        with socket.create_server(("127.0.0.1", 0)) as server:
            where.with_suffix(".new").write_text(str(server.getsockname()[1]))
            where.with_suffix(".new").rename(where)
            while True:
                threading.Thread(target=serve, args=(server.accept()[0], members), daemon=True).start()
    while not where.exists():
        time.sleep(ROUND_S)
    port, number = int(where.read_text()), 0
    threading.Thread(target=greet, args=(port,), daemon=True).start()
    with connect_unseen(port) as link, link.makefile("rw") as file:
        while True:
            number += 1
            file.write(f"{number}\n")
            file.flush()
            file.readline()
            say(number, members)
            time.sleep(ROUND_S)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
