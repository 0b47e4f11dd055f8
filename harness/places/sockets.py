"""Who listens where, on this machine and in its containers, as /proc tells it."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address

_ESTABLISHED, _LISTENS = "01", "0A"
_TABLES = ("tcp", "tcp6")
_WORD = struct.Struct("=I")


def listening(host: str, port: int) -> list[str]:
    """Return the sockets that take connections to this address: `socket:[INODE]`, as /proc/PID/fd shows them; none of
    another machine's.

    Raises:
        ValueError: `host` is no address.
    """
    wanted = ip_address(host)
    listeners = [(at, name) for at, name in _listeners(port) if at == wanted or at.is_unspecified]
    if not listeners or not _of_this_machine(wanted):
        return []
    return [name for at, name in listeners if at == wanted] or [name for _, name in listeners]


def connections(pid: int, port: int) -> int | None:
    """Return how many connections to this port stand, on the network that a process is on; None where that can't be
    read."""
    try:
        return sum(1 for _ in _sockets(_ESTABLISHED, port, f"/proc/{pid}/net"))
    except OSError:
        return None


def takes(pid: int, port: int) -> bool | None:
    """Return whether anything listens at this port, on the network that a process is on; None where that can't be
    read."""
    try:
        return any(True for _ in _sockets(_LISTENS, port, f"/proc/{pid}/net"))
    except OSError:
        return None


def established() -> dict[tuple[str, str], str]:
    """Return the connections of this machine: (its own end, the other one) -> the socket that holds it, as /proc/PID/fd
    shows it. An end is an address and a port, as text that is the same from both sides."""
    standing = {}
    for table in _TABLES:
        with suppress(OSError), open(f"/proc/net/{table}") as lines:
            for fields in map(str.split, lines):
                if len(fields) > 9 and fields[3] == _ESTABLISHED:
                    standing[_end(fields[1]), _end(fields[2])] = f"socket:[{fields[9]}]"
    return standing


def _end(text: str) -> str:
    address, _, port = text.partition(":")
    return f"{_address(address)}:{int(port, 16)}"


def holds(pid: int, sockets: Iterable[str]) -> bool:
    """Return whether a process has one of these open; no, where it is gone or not ours to ask."""
    wanted = set(sockets)
    with suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed since
                if os.readlink(f"/proc/{pid}/fd/{entry}") in wanted:
                    return True
    return False


def _listeners(port: int) -> Iterator[tuple[IPv4Address | IPv6Address, str]]:
    for fields in _sockets(_LISTENS, port, "/proc/net"):
        yield _address(fields[1].partition(":")[0]), f"socket:[{fields[9]}]"


def _sockets(state: str, port: int, network: str) -> Iterator[list[str]]:
    """Lines of the kernel's tables, in fields, of those that have this port here."""
    for table in _TABLES:
        if table == "tcp6" and not os.path.exists(f"{network}/{table}"):
            continue  # a kernel without IPv6
        with open(f"{network}/{table}") as lines:
            for line in lines:
                fields = line.split()
                if fields[3] == state and fields[1].endswith(f":{port:04X}"):
                    yield fields


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
