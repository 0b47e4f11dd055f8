"""Who listens where on this machine, as /proc tells it."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address

_LISTENS = "0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_WORD = struct.Struct("=I")


def listening(host: str, port: int) -> list[str]:
    """What takes connections to this address: `socket:[INODE]`, as /proc/PID/fd has it; none of another machine's.

    Raises:
        ValueError: `host` is no address.
    """
    wanted = ip_address(host)
    found = [(at, name) for at, name in _listeners(port) if at == wanted or at.is_unspecified]
    if not found or not _of_this_machine(wanted):
        return []
    return [name for at, name in found if at == wanted] or [name for _, name in found]


def holds(pid: int, sockets: Iterable[str]) -> bool:
    """Whether a process has one of these open; no, where it is gone or not ours to ask."""
    wanted = set(sockets)
    with suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed since
                if os.readlink(f"/proc/{pid}/fd/{entry}") in wanted:
                    return True
    return False


def _listeners(port: int) -> Iterator[tuple[IPv4Address | IPv6Address, str]]:
    ending = f":{port:04X}"
    for table in _TABLES:
        with suppress(FileNotFoundError), open(table) as lines:  # a kernel without IPv6
            for line in lines:
                fields = line.split()
                if fields[3] == _LISTENS and fields[1].endswith(ending):
                    yield _address(fields[1].removesuffix(ending)), f"socket:[{fields[9]}]"


def _address(text: str) -> IPv4Address | IPv6Address:
    """An address as the kernel prints it: words of four bytes in the machine's order."""
    packed = b"".join(_WORD.pack(int(text[at:at + 8], 16)) for at in range(0, len(text), 8))
    whole = ip_address(packed)
    return (whole.ipv4_mapped or whole) if isinstance(whole, IPv6Address) else whole


def _of_this_machine(address: IPv4Address | IPv6Address) -> bool:
    if address.is_loopback:
        return True
    with socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
