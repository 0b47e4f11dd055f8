"""Sets the links between nodes through Toxiproxy's HTTP API, on the embedded server or the real one.

An adapter over toxiproxy-python, which can't update a toxic and believes what it is told. Here every change
is read back: what a server doesn't show afterwards didn't happen. Fields and units are those of Toxiproxy's
HTTP API documentation (https://github.com/Shopify/toxiproxy#http-api).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from diloco_chaos.harness.links.consumer import Consumer, LinkError
from diloco_chaos.harness.links.corruption import Corrupted
from diloco_chaos.harness.links.toxic import EMBEDDED, Toxic

__all__ = ["LinkError", "Links"]

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.:-]*"  # safe as a segment of a URL's path
_RECEIVED = r'toxiproxy_proxy_received_bytes_total\{[^}\n]*proxy="([^"\n]*)"[^}\n]*\} (\S+)'


class Links:
    """The links of one cluster, on the server whose API is at `api` (`host:port` or `http://host:port`).

    Every method waits at most `timeout_s` seconds for each answer, may be called from any thread, and raises
    `LinkError` where the server can't be reached, refuses, or doesn't show afterwards what was set.
    """

    def __init__(self, api: str, timeout_s: float = 2.0) -> None:
        self._consumer = Consumer(api, timeout_s)
        self._send = self._consumer.send
        self._once: bool | None = None

    def create(self, name: str, upstream: str, listen: str = "127.0.0.1:0", enabled: bool = True) -> str:
        """Create a link to `upstream` (`host:port`); port 0 in `listen` takes a free one.

        Returns:
            The address that the link listens on, with its actual port.

        Raises:
            LinkError: see `Links`; status 409 where a link of this name exists.
        """
        asked = f"create link {name} to {upstream}"
        _path(name)  # refuses a name that no later request could be about
        body = {"name": name, "upstream": upstream, "listen": listen, "enabled": enabled}
        self._send("POST", "/proxies", asked, body)
        shown = self._show(name, asked)
        self._expect(asked, {"upstream": upstream, "enabled": enabled}, shown)
        actual = str(shown.get("listen"))
        if not _listens_as_asked(listen, actual):
            raise self._consumer.unlike(asked, "listen", listen, actual)
        return actual

    def add(self, link: str, toxic: Toxic) -> None:
        """Add a toxic to a link; it takes effect on open connections too.

        Raises:
            LinkError: see `Links`; status 404 where there is no such link, 409 where it has a toxic of this
                name, 400 where the server doesn't know the type; not sent where the real server does not bear it.
        """
        asked = f"add toxic {toxic.name} to link {link}"
        toxic = self._as_drawn(toxic)
        _refuse_unsafe(asked, toxic.type, toxic.attributes)
        self._send("POST", f"{_path(link)}/toxics", asked, toxic.as_json())
        self._expect_toxic(asked, link, toxic)

    def update(self, link: str, toxic: Toxic) -> None:
        """Change attributes and toxicity of the toxic of this name; its type and stream can't change.

        Raises:
            LinkError: see `Links`; status 404 where there is no such link or toxic; not sent where it would
                be more than the real server bears.
        """
        asked = f"update toxic {toxic.name} of link {link}"
        toxic = self._as_drawn(toxic)
        if toxic.type == "slicer":
            present = next((t.attributes for t in self._toxics(link, asked) if t.name == toxic.name), {})
            _refuse_unsafe(asked, toxic.type, {**present, **toxic.attributes})
        settings = toxic.as_json()
        change = {field: settings[field] for field in ("toxicity", "attributes", "draw") if field in settings}
        self._send("POST", _path(link, toxic.name), asked, change)
        self._expect_toxic(asked, link, toxic)

    def remove(self, link: str, toxic_name: str) -> None:
        """Remove a toxic from a link; one that is gone already is fine.

        Raises:
            LinkError: see `Links`; status 404 where there is no such link.
        """
        asked = f"remove toxic {toxic_name} from link {link}"
        self._send("DELETE", _path(link, toxic_name), asked, gone_is_fine=True)
        if any(toxic.name == toxic_name for toxic in self._toxics(link, asked)):
            raise self._consumer.unlike(asked, "toxics", f"no {toxic_name}", toxic_name)

    def toxics(self, link: str) -> list[Toxic]:
        """The toxics of a link: those of the upstream direction first, each in the order they were added.

        Raises:
            LinkError: see `Links`; status 404 where there is no such link.
        """
        return self._toxics(link, f"list the toxics of link {link}")

    def set_enabled(self, link: str, enabled: bool) -> None:
        """Cut a link (its connections close, new ones are refused), or let it listen at its address again.

        Raises:
            LinkError: see `Links`; status 404 where there is no such link, 500 where its port was taken
                meanwhile.
        """
        asked = f"{'enable' if enabled else 'disable'} link {link}"
        self._send("POST", _path(link), asked, {"enabled": enabled})
        self._expect(asked, {"enabled": enabled}, self._show(link, asked))

    def lead(self, link: str, upstream: str) -> None:
        """Have a link lead elsewhere (`host:port`); its connections close.

        Raises:
            LinkError: see `Links`; status 404 where there is no such link.
        """
        asked = f"lead link {link} to {upstream}"
        self._send("POST", _path(link), asked, {"upstream": upstream})
        self._expect(asked, {"upstream": upstream}, self._show(link, asked))

    def enabled(self, link: str) -> bool:
        """Return whether a link lets connections in.

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
            raise self._consumer.unlike(asked, "links", f"no {link}", link)

    def reset(self) -> None:
        """Enable all links and remove all toxics.

        Raises:
            LinkError: see `Links`.
        """
        asked = "reset all links"
        self._send("POST", "/reset", asked)
        for shown in self._list(asked).values():
            self._expect(asked, {"enabled": True, "toxics": []}, shown)

    def carried(self) -> dict[str, int]:
        """Return the bytes that each link has received from both of its sides, by link, deleted links included.

        The real server counts a connection when it ends, and only with `-proxy-metrics`; without that the table is
        empty.

        Raises:
            LinkError: see `Links`.
        """
        try:
            text = str(self._send("GET", "/metrics", "tell what links carried"))
        except LinkError as error:
            if error.status == 404:
                return {}
            raise
        received: dict[str, int] = {}
        for proxy, count in re.findall(_RECEIVED, text):
            received[proxy] = received.get(proxy, 0) + int(float(count))
        return received

    def corrupted(self) -> dict[tuple[str, str], Corrupted]:
        """Return what toxics of the type `corrupt` have done, by link and toxic, removed ones included.

        Raises:
            LinkError: see `Links`; status 404 on the real server, which has none.
        """
        asked = "tell what was corrupted"
        listed = self._send("GET", "/corrupted", asked)
        try:
            return {(entry["proxy"], entry["toxic"]): Corrupted(*(entry[field.name] for field in fields(Corrupted)))
                    for entry in listed}
        except (KeyError, TypeError) as error:
            raise self._consumer.failed(asked, f"what isn't a list of accounts ({error!r})") from error

    def version(self) -> str:
        """Return the version that the server reports.

        Raises:
            LinkError: see `Links`.
        """
        answer = self._send("GET", "/version", "tell its version")
        return str(answer["version"] if isinstance(answer, dict) and "version" in answer else answer)

    def draws_once(self) -> bool:
        """Return whether several toxics of a link can have one draw for each connection; the real server draws for
        each.

        Raises:
            LinkError: see `Links`.
        """
        if self._once is None:
            self._once = self.version().endswith(EMBEDDED)
        return self._once

    def _as_drawn(self, toxic: Toxic) -> Toxic:
        """Return the toxic as this server can draw it."""
        return toxic if not toxic.draw or toxic.toxicity >= 1 or self.draws_once() else toxic.drawn_alone()

    def _toxics(self, link: str, asked: str) -> list[Toxic]:
        listed = self._send("GET", f"{_path(link)}/toxics", asked)
        try:
            return [_toxic(entry) for entry in listed]
        except (KeyError, TypeError) as error:
            raise self._consumer.failed(asked, f"what isn't a list of toxics ({error!r})") from error

    def _show(self, link: str, asked: str) -> dict[str, Any]:
        shown = self._send("GET", _path(link), asked)
        if not isinstance(shown, dict):
            raise self._consumer.failed(asked, f"{shown!r}, which isn't a link")
        return shown

    def _list(self, asked: str) -> dict[str, Any]:
        listed = self._send("GET", "/proxies", asked)
        if not isinstance(listed, dict):
            raise self._consumer.failed(asked, f"{listed!r}, which isn't a table of links")
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
                raise self._consumer.unlike(asked, field, value, actual)


def _path(link: str, toxic: str | None = None) -> str:
    for name in (link, toxic):
        if name is not None and not re.fullmatch(_NAME, name):
            raise LinkError(f"{name!r} can't name a link or toxic: use letters, digits and any of _ . : - "
                            f"(not . : - in front)")
    return f"/proxies/{link}" if toxic is None else f"/proxies/{link}/toxics/{toxic}"


def _toxic(entry: Mapping[str, Any]) -> Toxic:
    return Toxic(entry["type"], entry["stream"], dict(entry["attributes"]), float(entry["toxicity"]),
                 entry["name"], str(entry.get("draw", "")))


def _refuse_unsafe(asked: str, kind: str, attributes: Mapping[str, int | float]) -> None:
    """Let nothing through that the real server accepts and does not bear: all links would be gone."""
    size, variation = attributes.get("average_size", 0), attributes.get("size_variation", 0)
    if kind == "slicer" and not 0 <= variation < size:
        raise LinkError(f"asked to {asked}: a slicer's average_size must be 1 or more and its size_variation less "
                        f"than that, not {size} and {variation}")


def _listens_as_asked(asked: str, actual: str) -> bool:
    host, _, port = asked.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host
    actual_host, _, actual_port = actual.rpartition(":")
    same = host == actual_host or (host == "0.0.0.0" and actual_host == "[::]")  # noqa: S104 - Go's word for it
    return same and actual_port != "0" and port in ("0", actual_port)


def _same(wanted: Any, actual: Any) -> bool:
    if isinstance(wanted, float) and isinstance(actual, (int, float)):
        return math.isclose(wanted, actual, rel_tol=1e-6)  # Toxiproxy keeps 32 bits of a toxicity
    return bool(wanted == actual)
