"""Toxiproxy's HTTP API without the HTTP: method, path and body in, status and JSON out.

Paths, fields, defaults, status codes and error titles are those of Toxiproxy 2.x
(https://github.com/Shopify/toxiproxy#http-api). Called in the loop that carries the traffic; nothing here
waits, so that requests can't get into each other's way. A further endpoint is one more line in `_ROUTES`.

Different on purpose: a listen address that is malformed, or not on loopback, is a bad request (Toxiproxy
answers 500, or listens); an update that fails because an address is taken leaves the proxy as it was;
`/metrics` needs no command line flag; and `/corrupted` tells what toxics of the type `corrupt` did, a type of
ours.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from diloco_chaos.harness.links.addresses import NotLoopbackError, join_address, listen_address
from diloco_chaos.harness.links.corruption import Corruptions
from diloco_chaos.harness.links.fields import BadRequestError, flag, json_object, json_objects, text
from diloco_chaos.harness.links.metrics import MEDIA_TYPE, Metrics
from diloco_chaos.harness.links.proxy import Proxy
from diloco_chaos.harness.links.toxic import EMBEDDED
from diloco_chaos.harness.links.toxics import ToxicSettings, new_toxic, updated_toxic

VERSION = f"2.12.0{EMBEDDED}"  # the release whose API this follows


@dataclass(frozen=True)
class Text:
    """A body that isn't JSON."""

    content: str
    media_type: str = "text/plain; charset=utf-8"


Answer = tuple[int, Any]  # status and body: `Text` as it is, None for none, anything else as JSON


class ApiError(Exception):
    """An answer other than success."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status

    @property
    def answer(self) -> Answer:
        """The answer in Toxiproxy's form."""
        return self.status, {"error": str(self), "status": self.status}


@dataclass(frozen=True)
class _Wanted:
    """The proxy that a request asks for."""

    name: str
    listen: str
    upstream: str
    enabled: bool


class LinksApi:
    """The proxies of one server, and what a request does to them."""

    def __init__(self, rng: random.Random, also: str = "") -> None:
        """`also`: an IP that proxies may listen on besides loopback."""
        self._rng, self._also = rng, also
        self._metrics, self._corruptions = Metrics(), Corruptions()
        self._proxies: dict[str, Proxy] = {}

    def handle(self, method: str, path: str, body: bytes) -> Answer:
        """Answer one request; every failure is an answer too."""
        try:
            route, names = _route(method, path)
            return route(self, body, *names)
        except (ApiError, BadRequestError) as error:
            return _failure(error)

    def close(self) -> None:
        """Drop all proxies and their connections."""
        for proxy in self._proxies.values():
            proxy.close()
        self._proxies.clear()

    def _list_proxies(self, body: bytes) -> Answer:
        return 200, {name: proxy.as_json() for name, proxy in self._proxies.items()}

    def _create_proxy(self, body: bytes) -> Answer:
        wanted = _wanted(json_object(body))
        if wanted.name in self._proxies:
            raise ApiError(409, "proxy already exists")
        proxy = self._proxies[wanted.name] = self._made(wanted)
        return 201, proxy.as_json()

    def _populate(self, body: bytes) -> Answer:
        """A failure is answered with what was done before it, and ends it."""
        done: list[Proxy] = []
        try:
            entries = [_wanted(fields, f" at proxy {number}")
                       for number, fields in enumerate(json_objects(body), start=1)]
            for wanted in entries:
                _allowed(wanted.listen, self._also)  # nothing is done where one of them would be open to others
            for wanted in entries:
                done.append(self._put(wanted))
        except (ApiError, BadRequestError) as error:
            status, failure = _failure(error)
            return status, {**failure, "proxies": _listed(done)}
        return 201, {"proxies": _listed(done)}

    def _put(self, wanted: _Wanted) -> Proxy:
        """The proxy of this name where both addresses fit, as it is; else a new one in its place."""
        present = self._proxies.get(wanted.name)
        if present is not None:
            if (present.listen, present.upstream) == (_canonical(wanted.listen, self._also), wanted.upstream):
                return present
            present.stop()  # and stays stopped if its successor fails, as Toxiproxy does
        proxy = self._made(wanted)
        if present is not None:
            present.close()
        self._proxies[wanted.name] = proxy
        return proxy

    def _made(self, wanted: _Wanted) -> Proxy:
        proxy = Proxy(wanted.name, wanted.upstream, self._rng, self._metrics, self._also, self._corruptions)
        try:
            _reserve(proxy, wanted.listen)
            if wanted.enabled:
                _start(proxy)
        except ApiError:
            proxy.close()
            raise
        return proxy

    def _show_proxy(self, body: bytes, name: str) -> Answer:
        return 200, self._proxy(name).as_json()

    def _update_proxy(self, body: bytes, name: str) -> Answer:
        proxy = self._proxy(name)
        fields = json_object(body)
        listen, upstream = text(fields, "listen", proxy.listen), text(fields, "upstream", proxy.upstream)
        enabled = flag(fields, "enabled", proxy.enabled)
        if _canonical(listen, self._also) != proxy.listen:
            _reserve(proxy, listen)
        if upstream != proxy.upstream:
            proxy.stop()  # connections to the old upstream end, as those to an old listen address do
            proxy.upstream = upstream
        if enabled:
            _start(proxy)
        else:
            proxy.stop()
        return 200, proxy.as_json()

    def _delete_proxy(self, body: bytes, name: str) -> Answer:
        self._proxy(name).close()
        del self._proxies[name]
        return 204, None

    def _list_toxics(self, body: bytes, name: str) -> Answer:
        return 200, self._proxy(name).toxics_json()

    def _add_toxic(self, body: bytes, name: str) -> Answer:
        proxy = self._proxy(name)
        toxic = new_toxic(json_object(body))
        if toxic.name in proxy.toxics:
            raise ApiError(409, "toxic already exists")
        proxy.put_toxic(toxic)
        return 200, toxic.as_json()

    def _show_toxic(self, body: bytes, name: str, toxic_name: str) -> Answer:
        return 200, _toxic(self._proxy(name), toxic_name).as_json()

    def _update_toxic(self, body: bytes, name: str, toxic_name: str) -> Answer:
        proxy = self._proxy(name)
        toxic = updated_toxic(_toxic(proxy, toxic_name), json_object(body))
        proxy.put_toxic(toxic)
        return 200, toxic.as_json()

    def _remove_toxic(self, body: bytes, name: str, toxic_name: str) -> Answer:
        proxy = self._proxy(name)
        _toxic(proxy, toxic_name)
        proxy.remove_toxic(toxic_name)
        return 204, None

    def _reset(self, body: bytes) -> Answer:
        for proxy in self._proxies.values():
            for name in list(proxy.toxics):
                proxy.remove_toxic(name)
            _start(proxy)
        return 204, None

    def _version(self, body: bytes) -> Answer:
        return 200, {"version": VERSION}

    def _show_metrics(self, body: bytes) -> Answer:
        return 200, Text(self._metrics.as_text(), MEDIA_TYPE)

    def _show_corrupted(self, body: bytes) -> Answer:
        return 200, self._corruptions.as_json()

    def _no_page(self, body: bytes) -> Answer:
        return 404, Text("404 page not found\n")

    def _wrong_method(self, body: bytes, *names: str) -> Answer:
        return 405, None

    def _proxy(self, name: str) -> Proxy:
        if name not in self._proxies:
            raise ApiError(404, "proxy not found")
        return self._proxies[name]


_Route = Callable[..., Answer]

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_ROUTES: tuple[tuple[str, dict[str, _Route]], ...] = (
    (r"/version", {"GET": LinksApi._version}),
    (r"/metrics", dict.fromkeys(_METHODS, LinksApi._show_metrics)),
    (r"/corrupted", {"GET": LinksApi._show_corrupted}),
    (r"/reset", {"POST": LinksApi._reset}),
    (r"/populate", {"POST": LinksApi._populate}),
    (r"/proxies", {"GET": LinksApi._list_proxies, "POST": LinksApi._create_proxy}),
    (r"/proxies/([^/]+)", {"GET": LinksApi._show_proxy, "POST": LinksApi._update_proxy, "PATCH": LinksApi._update_proxy,
                           "DELETE": LinksApi._delete_proxy}),
    (r"/proxies/([^/]+)/toxics", {"GET": LinksApi._list_toxics, "POST": LinksApi._add_toxic}),
    (r"/proxies/([^/]+)/toxics/([^/]+)", {"GET": LinksApi._show_toxic, "POST": LinksApi._update_toxic,
                                          "PATCH": LinksApi._update_toxic, "DELETE": LinksApi._remove_toxic}),
)


def _route(method: str, path: str) -> tuple[_Route, list[str]]:
    for pattern, methods in _ROUTES:
        if match := re.fullmatch(pattern, path.partition("?")[0]):
            return methods.get(method, LinksApi._wrong_method), [unquote(name) for name in match.groups()]
    return LinksApi._no_page, []


def _wanted(fields: Mapping[str, Any], where: str = "") -> _Wanted:
    wanted = _Wanted(text(fields, "name", ""), text(fields, "listen", ""), text(fields, "upstream", ""),
                     flag(fields, "enabled", True))
    for field, value in (("name", wanted.name), ("upstream", wanted.upstream)):
        if not value:
            raise BadRequestError(f"missing required field: {field}{where}")
    return wanted


def _listed(proxies: list[Proxy]) -> list[dict[str, Any]] | None:
    return [proxy.as_json() for proxy in proxies] or None  # Toxiproxy writes an empty list as null


def _failure(error: ApiError | BadRequestError) -> Answer:
    return (error if isinstance(error, ApiError) else ApiError(400, str(error))).answer


def _canonical(listen: str, also: str) -> str:
    try:
        return join_address(*listen_address(listen, also))
    except ValueError as error:
        raise BadRequestError(str(error)) from None


def _allowed(listen: str, also: str) -> None:
    """What is no address at all is its proxy's own failure, which leaves those before it as they are."""
    try:
        listen_address(listen, also)
    except NotLoopbackError as error:
        raise BadRequestError(str(error)) from None
    except ValueError:
        pass


def _reserve(proxy: Proxy, listen: str) -> None:
    try:
        proxy.reserve(listen)
    except OSError as error:
        raise ApiError(500, error.strerror or str(error)) from None
    except ValueError as error:
        raise BadRequestError(str(error)) from None


def _start(proxy: Proxy) -> None:
    try:
        proxy.start()
    except OSError as error:
        raise ApiError(500, error.strerror or str(error)) from None


def _toxic(proxy: Proxy, name: str) -> ToxicSettings:
    if name not in proxy.toxics:
        raise ApiError(404, "toxic not found")
    return proxy.toxics[name]
