"""Addresses as Toxiproxy writes them, and sockets bound to them: on loopback, unless somebody says more."""

from __future__ import annotations

import ipaddress
import socket


class NotLoopbackError(ValueError):
    """A proxy was asked to listen where other machines could reach it."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`.

    Raises:
        ValueError: it is neither.
    """
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"address {address}: must be host:port")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """The address that `split_address` takes apart."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listen_address(address: str, also: str = "") -> tuple[str, int]:
    """Numeric host and port of a listen address. `also`: an IP that may be listened on besides loopback; empty: none.

    Raises:
        NotLoopbackError: the host is anything but `localhost`, a loopback IP or that one, an empty one (all
            interfaces) included.
        ValueError: it isn't `host:port`.
    """
    host, port = split_address(address)
    try:
        ip = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        ip = None
    if ip is None or not (ip.is_loopback or str(ip) == also):
        raise NotLoopbackError(f"listen address {address} is not on loopback: use 127.0.0.1, port 0 for any")
    return str(ip), port


def bound_socket(host: str, port: int, backlog: int | None = None) -> socket.socket:
    """A non-blocking TCP socket bound to the address.

    Without a `backlog` it doesn't listen: connections to it are refused, and no one else gets the address.

    Raises:
        OSError: the address is taken.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind((host, port))
        if backlog is not None:
            sock.listen(backlog)
    except OSError as error:
        sock.close()
        why = (error.strerror or str(error)).lower()  # as Go writes it, and so Toxiproxy
        raise OSError(error.errno, f"listen tcp {join_address(host, port)}: bind: {why}") from error
    return sock
