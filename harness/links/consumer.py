"""One request to a link server, through toxiproxy-python.

That client (0.1.1) has no timeouts, passes over 5xx answers and keeps the server's address in class
attributes, one for the whole process. What is added here: a time limit, a look at every status, a lock, and
errors that say what to do.
"""

from __future__ import annotations

import re
import threading
from typing import Any

import requests
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

# Held while APIConsumer's class attributes name the server that a request goes to.
_consumer_lock = threading.Lock()

_REFUSALS = {ProxyExists: 409, NotFound: 404, InvalidToxic: 400}  # toxiproxy-python's exception for a status
_NO_PROXY = {"http": None, "https": None, "all": None}  # local traffic passes by a proxy in the environment

_ADDRESS = r"(?:http://)?(?P<host>[^/:\s]+|\[[0-9a-fA-F:]+\]):(?P<port>[0-9]{1,5})/?"

_ADVICE = {
    400: "correct the setting; see Toxiproxy's HTTP API documentation",
    403: "use an address on loopback, and a server that belongs to this cluster",
    404: "check the name; the server may have been restarted without its links",
    409: "choose another name, or delete the old one first",
    500: "check that the listen address is free, then try again",
}
_OTHER_ADVICE = "check that a Toxiproxy 2.x server is what answers there"


class LinkError(Exception):
    """A link isn't as it was asked to be; the message says what was asked, what was answered and what to do.

    `status` is the HTTP status of the answer, None where there was none or it said success.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Consumer:
    """Sends requests to the server whose API is at `api` (`host:port` or `http://host:port`).

    Raises:
        LinkError: `api` is no such address.
    """

    def __init__(self, api: str, timeout_s: float) -> None:
        match = re.fullmatch(_ADDRESS, api)
        if not match:
            raise LinkError(f"{api!r} is not the address of a link server: write it like 127.0.0.1:8474")
        self._host, self._port = match["host"], int(match["port"])
        self._timeout_s = timeout_s

    def send(self, method: str, path: str, asked: str, body: Any = None, *,
             gone_is_fine: bool = False) -> Any:
        """Send one request; the JSON of the answer (its text where it isn't JSON), None where it has none.

        `asked` is the request in words, for errors; with `gone_is_fine` a 404 is an answer without content.

        Raises:
            LinkError: no answer in time, or one that isn't success.
        """
        try:
            response = self._call(method, path, body)
        except tuple(_REFUSALS) as error:
            status = _REFUSALS[type(error)]
            if gone_is_fine and status == 404:
                return None
            raise self.failed(asked, f"{status} {_text(error.args[0])}", status) from error
        except requests.RequestException as error:
            raise LinkError(f"{self._was_asked_to(asked)} and gave no answer ({type(error).__name__}, "
                            f"time limit {self._timeout_s:g} s): check that it is running") from error
        if not 200 <= response.status_code < 300:
            raise self.failed(asked, f"{response.status_code} {response.text.strip()}", response.status_code)
        try:
            return response.json() if response.content else None
        except ValueError:
            return response.text.strip()

    def failed(self, asked: str, answer: str, status: int | None = None) -> LinkError:
        """The error for an answer that doesn't do what was asked."""
        advice = _OTHER_ADVICE if status is None else _ADVICE.get(status, _OTHER_ADVICE)
        return LinkError(f"{self._was_asked_to(asked)} and answered {answer}: {advice}", status)

    def unlike(self, asked: str, field: str, wanted: Any, actual: Any) -> LinkError:
        """The error for a server that agreed, and doesn't show it."""
        return LinkError(f"{self._was_asked_to(asked)}; {field} should be {wanted!r} now and is {actual!r}: "
                         f"check that the server supports it and that nothing else changes its links")

    def _call(self, method: str, path: str, body: Any) -> requests.Response:
        call = {"GET": APIConsumer.get, "POST": APIConsumer.post, "DELETE": APIConsumer.delete}[method]
        options = {} if body is None else {"json": body}
        with _consumer_lock:
            APIConsumer.host, APIConsumer.port = self._host, self._port
            response: requests.Response = call(path, timeout=self._timeout_s, allow_redirects=False,
                                               proxies=_NO_PROXY, **options)
        return response

    def _was_asked_to(self, asked: str) -> str:
        return f"the link server at {self._host}:{self._port} was asked to {asked}"


def _text(content: Any) -> str:
    return content.decode(errors="replace").strip() if isinstance(content, bytes) else str(content)
