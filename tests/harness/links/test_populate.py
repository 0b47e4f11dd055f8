"""Many proxies at once, on both servers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

Api = Callable[..., tuple[int, Any]]

LATENCY = {"type": "latency", "attributes": {"latency": 100}}


def wanted(name: str, listen: str = "127.0.0.1:0", upstream: str = "127.0.0.1:9", **fields: Any) -> dict[str, Any]:
    return {"name": name, "listen": listen, "upstream": upstream, **fields}


@pytest.fixture
def taken() -> Iterator[str]:
    """An address that something else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def proxy(api: Api) -> dict[str, Any]:
    """A proxy named `a` with a toxic, as the server shows it."""
    api("POST", "/proxies", wanted("a"))
    api("POST", "/proxies/a/toxics", LATENCY)
    shown = api("GET", "/proxies/a")[1]
    assert isinstance(shown, dict)
    return shown


def test_populating_creates_all_in_the_order_given(api: Api) -> None:
    status, answer = api("POST", "/populate", [wanted("b"), wanted("a", enabled=False), wanted("c", enabled=None)])
    assert status == 201
    assert set(answer) == {"proxies"}
    shown = {proxy["name"]: proxy for proxy in answer["proxies"]}
    assert list(shown) == ["b", "a", "c"]
    assert [proxy["enabled"] for proxy in answer["proxies"]] == [True, False, True]
    assert [proxy["toxics"] for proxy in answer["proxies"]] == [[], [], []]
    assert api("GET", "/proxies") == (200, shown)


@pytest.mark.parametrize("body", [b"[]", b"null"])
def test_populating_nothing_does_nothing(api: Api, proxy: dict[str, Any], body: bytes) -> None:
    assert api("POST", "/populate", body) == (201, {"proxies": None})
    assert api("GET", "/proxies") == (200, {"a": proxy})


@pytest.mark.parametrize("enabled", [True, False])
def test_a_proxy_whose_addresses_fit_stays_as_it_is(api: Api, proxy: dict[str, Any], enabled: bool) -> None:
    same = wanted("a", proxy["listen"].replace("127.0.0.1", "localhost"), enabled=enabled)
    assert api("POST", "/populate", [same]) == (201, {"proxies": [proxy]})


def test_a_disabled_proxy_whose_addresses_fit_stays_disabled(api: Api, proxy: dict[str, Any]) -> None:
    api("POST", "/proxies/a", {"enabled": False})
    answer = api("POST", "/populate", [wanted("a", proxy["listen"])])
    assert answer == (201, {"proxies": [{**proxy, "enabled": False}]})


def test_a_proxy_to_another_upstream_is_replaced(api: Api, proxy: dict[str, Any]) -> None:
    status, answer = api("POST", "/populate", [wanted("a", proxy["listen"], "127.0.0.1:7")])
    assert (status, answer) == (201, {"proxies": [{**proxy, "upstream": "127.0.0.1:7", "toxics": []}]})


def test_a_proxy_that_listens_elsewhere_is_replaced(api: Api, proxy: dict[str, Any]) -> None:
    host, _, port = proxy["listen"].rpartition(":")
    status, answer = api("POST", "/populate", [wanted("a")])
    (shown,) = answer["proxies"]
    assert (status, shown["enabled"], shown["toxics"]) == (201, True, [])
    assert shown["listen"] != proxy["listen"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 20)


def test_a_name_given_twice_is_created_and_replaced(api: Api) -> None:
    status, answer = api("POST", "/populate", [wanted("a"), wanted("a", upstream="127.0.0.1:7")])
    assert status == 201
    assert answer["proxies"][-1]["upstream"] == "127.0.0.1:7"
    assert api("GET", "/proxies") == (200, {"a": answer["proxies"][-1]})


@pytest.mark.parametrize("field", ["name", "upstream"])
@pytest.mark.parametrize("value", ["", None])
def test_nothing_is_done_where_a_required_field_is_missing(
        api: Api, proxy: dict[str, Any], field: str, value: str | None) -> None:
    answer = api("POST", "/populate", [wanted("b"), {**wanted("c"), field: value}])
    told = f"missing required field: {field} at proxy 2"
    assert answer == (400, {"error": told, "status": 400, "proxies": None})
    assert api("GET", "/proxies") == (200, {"a": proxy})


@pytest.mark.parametrize("body", [b"", b"{", b"5", b"{}", b"[5]", b"[[]]", b'[{"name": 5}]', b'[{"enabled": "no"}]'])
def test_a_bad_body_is_a_bad_request(api: Api, body: bytes) -> None:
    status, answer = api("POST", "/populate", body)
    assert status == answer["status"] == 400
    assert answer["error"].startswith("bad request body: ")
    assert answer["proxies"] is None


def test_an_entry_that_is_null_has_no_fields(api: Api) -> None:
    told = "missing required field: name at proxy 1"
    assert api("POST", "/populate", [None]) == (400, {"error": told, "status": 400, "proxies": None})


def test_a_failure_ends_it_and_shows_what_was_done_before(api: Api, taken: str) -> None:
    status, answer = api("POST", "/populate", [wanted("a"), wanted("b", taken), wanted("c")])
    assert status == answer["status"] == 500
    assert "address already in use" in answer["error"].lower()
    assert [proxy["name"] for proxy in answer["proxies"]] == ["a"]
    assert list(api("GET", "/proxies")[1]) == ["a"]


def test_a_proxy_whose_successor_fails_stays_and_is_disabled(
        api: Api, proxy: dict[str, Any], taken: str) -> None:
    status, answer = api("POST", "/populate", [wanted("a", taken)])
    assert (status, answer["proxies"]) == (500, None)
    assert api("GET", "/proxies/a") == (200, {**proxy, "enabled": False})
    assert api("POST", "/proxies/a", {"enabled": True}) == (200, proxy)
