"""Toxiproxy's HTTP API without the HTTP: method, path and body in, status and JSON out.

Paths, fields, defaults, status codes and error titles are those of Toxiproxy 2.x
(https://github.com/Shopify/toxiproxy#http-api). Called in the loop that carries the traffic; nothing here
waits, so that requests can't get into each other's way. `/populate` and `/metrics` are not served; a further
endpoint is one more line in `_ROUTES`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from harness.links.addresses import join_address, loopback_address
from harness.links.fields import BadRequestError, flag, json_object, text
from harness.links.proxy import Proxy
from harness.links.toxics import ToxicSettings, new_toxic, updated_toxic

VERSION = "2.12.0-embedded"  # the release whose API this follows

Answer = tuple[int, Any]  # status, and what goes into the body as JSON; None: no body


class ApiError(Exception):
    """An answer other than success."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status

    @property
    def answer(self) -> Answer:
        """The answer in Toxiproxy's form."""
        return self.status, {"error": str(self), "status": self.status}


class Api:
    """The proxies of one server, and what a request does to them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._proxies: dict[str, Proxy] = {}

    def handle(self, method: str, path: str, body: bytes) -> Answer:
        """Answer one request; every failure is an answer too."""
        try:
            route, names = _route(method, path)
            return route(self, body, *names)
        except ApiError as error:
            return error.answer
        except BadRequestError as error:
            return ApiError(400, str(error)).answer

    def close(self) -> None:
        """Drop all proxies and their connections."""
        for proxy in self._proxies.values():
            proxy.close()
        self._proxies.clear()

    def _list_proxies(self, body: bytes) -> Answer:
        return 200, {name: proxy.as_json() for name, proxy in self._proxies.items()}

    def _create_proxy(self, body: bytes) -> Answer:
        fields = json_object(body)
        name, upstream = text(fields, "name", ""), text(fields, "upstream", "")
        listen, enabled = text(fields, "listen", ""), flag(fields, "enabled", True)
        for field, value in (("name", name), ("upstream", upstream)):
            if not value:
                raise BadRequestError(f"missing required field: {field}")
        if name in self._proxies:
            raise ApiError(409, "proxy already exists")
        proxy = Proxy(name, upstream, self._rng)
        try:
            _reserve(proxy, listen)
            if enabled:
                _start(proxy)
        except ApiError:
            proxy.close()
            raise
        self._proxies[name] = proxy
        return 201, proxy.as_json()

    def _show_proxy(self, body: bytes, name: str) -> Answer:
        return 200, self._proxy(name).as_json()

    def _update_proxy(self, body: bytes, name: str) -> Answer:
        proxy = self._proxy(name)
        fields = json_object(body)
        listen, upstream = text(fields, "listen", proxy.listen), text(fields, "upstream", proxy.upstream)
        enabled = flag(fields, "enabled", proxy.enabled)
        if _canonical(listen) != proxy.listen:
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

    def _proxy(self, name: str) -> Proxy:
        if name not in self._proxies:
            raise ApiError(404, "proxy not found")
        return self._proxies[name]


_Route = Callable[..., Answer]

_ROUTES: tuple[tuple[str, dict[str, _Route]], ...] = (
    (r"/version", {"GET": Api._version}),
    (r"/reset", {"POST": Api._reset}),
    (r"/proxies", {"GET": Api._list_proxies, "POST": Api._create_proxy}),
    (r"/proxies/([^/]+)", {"GET": Api._show_proxy, "POST": Api._update_proxy, "PATCH": Api._update_proxy,
                           "DELETE": Api._delete_proxy}),
    (r"/proxies/([^/]+)/toxics", {"GET": Api._list_toxics, "POST": Api._add_toxic}),
    (r"/proxies/([^/]+)/toxics/([^/]+)", {"GET": Api._show_toxic, "POST": Api._update_toxic,
                                          "PATCH": Api._update_toxic, "DELETE": Api._remove_toxic}),
)


def _route(method: str, path: str) -> tuple[_Route, list[str]]:
    for pattern, methods in _ROUTES:
        if found := re.fullmatch(pattern, path.partition("?")[0]):
            if method not in methods:
                raise ApiError(405, "method not allowed")
            return methods[method], [unquote(name) for name in found.groups()]
    raise ApiError(404, "page not found")


def _canonical(listen: str) -> str:
    try:
        return join_address(*loopback_address(listen))
    except ValueError as error:
        raise BadRequestError(str(error)) from None


def _reserve(proxy: Proxy, listen: str) -> None:
    try:
        proxy.reserve(_canonical(listen))
    except OSError as error:
        raise ApiError(500, error.strerror or str(error)) from None


def _start(proxy: Proxy) -> None:
    try:
        proxy.start()
    except OSError as error:
        raise ApiError(500, error.strerror or str(error)) from None


def _toxic(proxy: Proxy, name: str) -> ToxicSettings:
    if name not in proxy.toxics:
        raise ApiError(404, "toxic not found")
    return proxy.toxics[name]
