"""Sets the links between nodes through Toxiproxy's HTTP API, on the embedded server or the real one.

An adapter over toxiproxy-python 0.1.1, which has no timeouts, passes over 5xx answers, keeps the server's address in
class attributes (one for the whole process) and can't update a toxic. Every change is read back: what a server doesn't
say afterwards didn't happen. Fields and units are those of https://github.com/Shopify/toxiproxy#http-api.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests
from toxiproxy.api import APIConsumer  # type: ignore[import-untyped]
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists  # type: ignore[import-untyped]

# Held while APIConsumer's class attributes name the server that a request goes to.
_consumer_lock = threading.Lock()

_REFUSALS = {ProxyExists: 409, NotFound: 404, InvalidToxic: 400}  # what toxiproxy-python raises for which status
_NO_PROXY = {"http": None, "https": None, "all": None}  # an HTTP proxy in the environment must not see local traffic
_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:-]*"  # safe as a segment of a URL's path


class LinkError(Exception):
    """A link isn't as it was asked to be; the message says what was asked, what was answered and what to do.

    `status` is the HTTP status of the answer, None where there was none or it said success.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Toxic:
    """One toxic on one stream of a link.

    Attributes by type: `latency` takes latency and jitter in ms, `bandwidth` rate in KB/s (1 KB = 1000 bytes),
    `timeout` timeout in ms (0: drop all data until the toxic is removed, which closes the connection). `stream` is
    "upstream" (towards the server) or "downstream"; `toxicity` the probability with which a connection is hit.
    """

    type: str
    stream: str
    attributes: Mapping[str, int | float]
    toxicity: float = 1.0
    name: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", f"{self.type}_{self.stream}")

    def as_json(self) -> dict[str, Any]:
        """The toxic as the HTTP API writes it."""
        return {"name": self.name, "type": self.type, "stream": self.stream, "toxicity": self.toxicity,
                "attributes": {name: _whole(value) for name, value in self.attributes.items()}}


class Links:
    """The links of one cluster, on the server whose API is at `api` (`host:port` or `http://host:port`).

    Every method takes at most `timeout_s` seconds per request, may be called from any thread, and raises `LinkError`
    where the server can't be reached, refuses, or doesn't show afterwards what was set.
    """

    def __init__(self, api: str, timeout_s: float = 2.0) -> None:
        found = re.fullmatch(r"(?:http://)?(?P<host>[^/:\s]+|\[[0-9a-fA-F:]+\]):(?P<port>[0-9]{1,5})/?", api)
        if not found:
            raise LinkError(f"{api!r} is not the address of a link server: write it like 127.0.0.1:8474")
        self._host, self._port = found["host"], int(found["port"])
        self._timeout_s = timeout_s
        self._server = f"the link server at {self._host}:{self._port}"

    def create(self, name: str, upstream: str, listen: str = "127.0.0.1:0") -> str:
        """Create an enabled link to `upstream` (`host:port`); port 0 in `listen` takes a free one.

        Returns:
            The address that the link listens on, with its actual port.

        Raises:
            LinkError: see `Links`; status 409 where a link of this name exists.
        """
        asked = f"create link {name} to {upstream}"
        self._send("POST", "/proxies", asked, {"name": name, "upstream": upstream, "listen": listen, "enabled": True})
        shown = self._show(name, asked)
        self._expect(asked, {"upstream": upstream, "enabled": True}, shown)
        actual = str(shown.get("listen"))
        if not _listens_as_asked(listen, actual):
            raise self._unlike(asked, "listen", listen, actual)
        return actual

    def add(self, link: str, toxic: Toxic) -> None:
        """Add a toxic to a link; it takes effect on open connections too.

        Raises:
            LinkError: see `Links`; status 404 where there is no such link, 409 where it has a toxic of this name,
                400 where the server doesn't know the type.
        """
        asked = f"add toxic {toxic.name} to link {link}"
        self._send("POST", f"{_path(link)}/toxics", asked, toxic.as_json())
        self._expect_toxic(asked, link, toxic)

    def update(self, link: str, toxic: Toxic) -> None:
        """Change attributes and toxicity of the toxic of this name; its type and stream can't change.

        Raises:
            LinkError: see `Links`; status 404 where there is no such link or toxic.
        """
        asked = f"update toxic {toxic.name} of link {link}"
        change = toxic.as_json()
        self._send("POST", _path(link, toxic.name), asked, {key: change[key] for key in ("toxicity", "attributes")})
        self._expect_toxic(asked, link, toxic)

    def remove(self, link: str, toxic_name: str) -> None:
        """Remove a toxic from a link; one that is gone already is fine.

        Raises:
            LinkError: see `Links`; status 404 where there is no such link.
        """
        asked = f"remove toxic {toxic_name} from link {link}"
        self._send("DELETE", _path(link, toxic_name), asked, gone_is_fine=True)
        if any(toxic.name == toxic_name for toxic in self.toxics(link)):
            raise self._unlike(asked, "toxics", f"no {toxic_name}", toxic_name)

    def toxics(self, link: str) -> list[Toxic]:
        """The toxics of a link: those of the upstream direction first, each in the order they were added.

        Raises:
            LinkError: see `Links`; status 404 where there is no such link.
        """
        asked = f"list the toxics of link {link}"
        listed = self._send("GET", f"{_path(link)}/toxics", asked)
        try:
            return [_toxic(entry) for entry in listed]
        except (KeyError, TypeError) as error:
            raise self._failed(asked, f"something that isn't a list of toxics ({error!r})", None) from error

    def set_enabled(self, link: str, enabled: bool) -> None:
        """Cut a link (all its connections close, new ones are refused), or let it listen again at the same address.

        Raises:
            LinkError: see `Links`; status 404 where there is no such link, 500 where its port was taken meanwhile.
        """
        asked = f"{'enable' if enabled else 'disable'} link {link}"
        self._send("POST", _path(link), asked, {"enabled": enabled})
        self._expect(asked, {"enabled": enabled}, self._show(link, asked))

    def enabled(self, link: str) -> bool:
        """Whether a link lets connections in.

        Raises:
            LinkError: see `Links`; status 404 where there is no such link.
        """
        return self._show(link, f"show link {link}").get("enabled") is True

    def delete(self, link: str) -> None:
        """Delete a link and close its connections; one that is gone already is fine.

        Raises:
            LinkError: see `Links`.
        """
        asked = f"delete link {link}"
        self._send("DELETE", _path(link), asked, gone_is_fine=True)
        if link in self._list(asked):
            raise self._unlike(asked, "links", f"no {link}", link)

    def reset(self) -> None:
        """Enable all links and remove all toxics.

        Raises:
            LinkError: see `Links`.
        """
        asked = "reset all links"
        self._send("POST", "/reset", asked)
        for shown in self._list(asked).values():
            self._expect(asked, {"enabled": True, "toxics": []}, shown)

    def version(self) -> str:
        """The server's version, as it tells it.

        Raises:
            LinkError: see `Links`.
        """
        told = self._send("GET", "/version", "tell its version")
        return str(told["version"] if isinstance(told, dict) and "version" in told else told)

    def _show(self, link: str, asked: str) -> dict[str, Any]:
        shown = self._send("GET", _path(link), asked)
        if not isinstance(shown, dict):
            raise self._failed(asked, f"{shown!r}, which isn't a link", None)
        return shown

    def _list(self, asked: str) -> dict[str, Any]:
        listed = self._send("GET", "/proxies", asked)
        if not isinstance(listed, dict):
            raise self._failed(asked, f"{listed!r}, which isn't a table of links", None)
        return listed

    def _expect_toxic(self, asked: str, link: str, toxic: Toxic) -> None:
        shown = self._send("GET", _path(link, toxic.name), asked)
        attributes = shown.pop("attributes", None) or {} if isinstance(shown, dict) else {}
        wanted = toxic.as_json()
        self._expect(asked, wanted.pop("attributes"), attributes)
        self._expect(asked, wanted, shown)

    def _expect(self, asked: str, wanted: Mapping[str, Any], shown: Any) -> None:
        """Compare what was set with what the server shows; it may show more."""
        for field, value in wanted.items():
            actual = shown.get(field) if isinstance(shown, dict) else None
            if not _same(value, actual):
                raise self._unlike(asked, field, value, actual)

    def _send(self, method: str, path: str, asked: str, body: Any = None, *, gone_is_fine: bool = False) -> Any:
        """Send one request; the JSON of the answer, its text where it isn't JSON."""
        call = {"GET": APIConsumer.get, "POST": APIConsumer.post, "DELETE": APIConsumer.delete}[method]
        options = {"timeout": self._timeout_s, "allow_redirects": False, "proxies": _NO_PROXY}
        if body is not None:
            options["json"] = body
        try:
            with _consumer_lock:
                APIConsumer.host, APIConsumer.port = self._host, self._port
                response = call(path, **options)
        except tuple(_REFUSALS) as error:
            status = _REFUSALS[type(error)]
            if gone_is_fine and status == 404:
                return None
            raise self._failed(asked, f"{status} {_text(error.args[0])}", status) from error
        except requests.RequestException as error:
            raise LinkError(f"{self._server} was asked to {asked} and gave no answer ({type(error).__name__}, "
                            f"time limit {self._timeout_s:g} s): check that it is running") from error
        if not 200 <= response.status_code < 300:
            raise self._failed(asked, f"{response.status_code} {response.text.strip()}", response.status_code)
        try:
            return response.json() if response.content else None
        except ValueError:
            return response.text.strip()

    def _failed(self, asked: str, answer: str, status: int | None) -> LinkError:
        return LinkError(f"{self._server} was asked to {asked} and answered {answer}: {_ADVICE.get(status, _ADVICE[None])}",
                         status)

    def _unlike(self, asked: str, field: str, wanted: Any, actual: Any) -> LinkError:
        return LinkError(f"{self._server} was asked to {asked}; {field} should be {wanted!r} now and is {actual!r}: "
                         f"check that the server supports it and that nothing else changes its links")


_ADVICE = {
    400: "correct the setting; see Toxiproxy's HTTP API documentation",
    403: "use an address on loopback, and a server that belongs to this cluster",
    404: "check the name; the server may have been restarted without its links",
    409: "choose another name, or delete the old one first",
    500: "check that the listen address is free, then try again",
    None: "check that a Toxiproxy 2.x server is what answers there",
}


def _path(link: str, toxic: str | None = None) -> str:
    for name in (link, toxic):
        if name is not None and not re.fullmatch(_NAME, name):
            raise LinkError(f"{name!r} can't name a link or toxic: use letters, digits and any of _ . : - "
                            f"(not . : - in front)")
    return f"/proxies/{link}" if toxic is None else f"/proxies/{link}/toxics/{toxic}"


def _toxic(entry: Mapping[str, Any]) -> Toxic:
    return Toxic(entry["type"], entry["stream"], dict(entry["attributes"]), float(entry["toxicity"]), entry["name"])


def _listens_as_asked(asked: str, actual: str) -> bool:
    host, _, port = asked.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host
    actual_host, _, actual_port = actual.rpartition(":")
    return host == actual_host and actual_port != "0" and port in ("0", actual_port)


def _whole(value: int | float) -> int | float:
    """Toxiproxy takes whole numbers only where Go's decoder sees no decimal point: 100, not 100.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _same(wanted: Any, actual: Any) -> bool:
    if isinstance(wanted, float) and isinstance(actual, (int, float)):
        return math.isclose(wanted, actual, rel_tol=1e-6)  # Toxiproxy keeps 32 bits of a toxicity
    return bool(wanted == actual)


def _text(content: Any) -> str:
    return content.decode(errors="replace").strip() if isinstance(content, bytes) else str(content)
