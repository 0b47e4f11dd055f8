"""A connection to a port on a pod's loopback, by way of the API server (`kubectl port-forward`)."""

from __future__ import annotations

import socket
from contextlib import suppress
from functools import partial
from typing import Any

from kubernetes import stream
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import ws_client

_forwarding: Any = stream.portforward.func
"""How the client turns the call of an API's method into a websocket's; `portforward` is this, for its own kind."""
_websockets: Any = ws_client  # it has no annotations


class QuietForward(ws_client.PortForward):
    """The client's, but for its thread: an exception there means that the connection is broken, which both of its ends
    notice. The client leaves it to `threading.excepthook`, which prints a traceback."""

    def _proxy(self) -> None:
        """Carry bytes both ways until one end is closed; called by a thread of the connection's own."""
        with suppress(Exception):
            super()._proxy()  # type: ignore[no-untyped-call]
        for port in self.local_ports.values():
            port.python.close()
        self.websocket.shutdown()


def connection(method: Any, namespace: str, pod: str, port: int, timeout: float) -> socket.socket:
    """A connection to a pod's port.

    Args:
        method: of the API, `connect_get_namespaced_pod_portforward`; a method of its client is replaced while the
            connection is made, so make one at a time.
        namespace: the pod's.
        pod: its name.
        port: on its loopback.
        timeout: of the API server's answer, in seconds.

    Raises:
        ApiException: there is none.
    """
    forward = _forwarding(partial(_forwarded, port), {"_preload_content": False}, method, pod, namespace,
                          ports=str(port), _request_timeout=timeout)
    made: socket.socket = forward.socket(port)._socket
    made.setblocking(True)
    return made


def _forwarded(port: int, configuration: Any, _method: str, url: str, **asked: Any) -> QuietForward:
    """Open a forward as the client's `portforward_call` does, for one port."""
    try:
        address = _websockets.get_websocket_url(url, asked.get("query_params"))
        websocket = _websockets.create_websocket(configuration, address, asked.get("headers"))
        return QuietForward(websocket, [port])  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ApiException(status=0, reason=str(error)) from error
