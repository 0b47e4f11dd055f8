"""Toxiproxy's HTTP API, on both servers."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest

Api = Callable[..., tuple[int, Any]]

PROXY = {"name": "a", "listen": "127.0.0.1:0", "upstream": "127.0.0.1:9"}
LATENCY = {"type": "latency", "attributes": {"latency": 100}}


@pytest.fixture
def proxy(api: Api) -> dict[str, Any]:
    """A proxy named `a`, as the server shows it."""
    status, shown = api("POST", "/proxies", PROXY)
    assert status == 201
    assert isinstance(shown, dict)
    return shown


def without_logger(shown: dict[str, Any]) -> dict[str, Any]:
    """Toxiproxy 2.12 lets an internal field slip into its answers."""
    return {key: value for key, value in shown.items() if key != "Logger"}


def error(status: int, text: str) -> tuple[int, dict[str, Any]]:
    return status, {"error": text, "status": status}


def test_a_created_proxy_is_shown_with_its_actual_port(api: Api, proxy: dict[str, Any]) -> None:
    host, _, port = proxy["listen"].rpartition(":")
    assert host == "127.0.0.1"
    assert 0 < int(port) < 65536
    assert without_logger(proxy) == {**PROXY, "listen": proxy["listen"], "enabled": True, "toxics": []}
    assert api("GET", "/proxies/a") == (200, proxy)
    assert api("GET", "/proxies") == (200, {"a": proxy})


def test_a_proxy_can_be_created_disabled_and_enabled_later(api: Api) -> None:
    assert api("POST", "/proxies", {**PROXY, "enabled": False})[1]["enabled"] is False
    status, shown = api("POST", "/proxies/a", {"enabled": True})
    assert (status, shown["enabled"]) == (200, True)
    assert not shown["listen"].endswith(":0")


def test_a_second_proxy_of_a_name_is_a_conflict(api: Api, proxy: dict[str, Any]) -> None:
    assert api("POST", "/proxies", PROXY) == error(409, "proxy already exists")


@pytest.mark.parametrize("field", ["name", "upstream"])
@pytest.mark.parametrize("body", [{}, {"name": "a", "upstream": "127.0.0.1:9"}])
def test_name_and_upstream_are_required(api: Api, field: str, body: dict[str, str]) -> None:
    present = {key: value for key, value in body.items() if key != field}
    status, answer = api("POST", "/proxies", present)
    assert status == answer["status"] == 400
    assert answer["error"].startswith("missing required field: ")


@pytest.mark.parametrize("body", [b"", b"{", b"garbage", b"[]", b"5", b'{"name": 5}', b'{"enabled": "yes"}',
                                  b'{"name": NaN}', b"\xff\xfe"])
def test_a_bad_body_is_a_bad_request(api: Api, proxy: dict[str, Any], body: bytes) -> None:
    status, answer = api("POST", "/proxies", body)
    assert status == answer["status"] == 400
    assert answer["error"].startswith("bad request body: ")
    assert api("GET", "/proxies") == (200, {"a": proxy})


def test_a_listen_address_in_use_is_a_server_error(api: Api) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, answer = api("POST", "/proxies", {**PROXY, "listen": f"127.0.0.1:{taken.getsockname()[1]}"})
    assert status == answer["status"] == 500
    assert "address already in use" in answer["error"].lower()
    assert api("GET", "/proxies") == (200, {})


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_an_update_changes_what_it_names(api: Api, proxy: dict[str, Any], method: str) -> None:
    assert api(method, "/proxies/a", {"enabled": False}) == (200, {**proxy, "enabled": False})
    assert api(method, "/proxies/a", {}) == (200, {**proxy, "enabled": False})
    assert api(method, "/proxies/a", {"enabled": True}) == (200, {**proxy, "enabled": True})
    elsewhere = {**proxy, "upstream": "127.0.0.1:7"}
    assert api(method, "/proxies/a", {"upstream": "127.0.0.1:7"}) == (200, elsewhere)
    same = proxy["listen"].replace("127.0.0.1", "localhost")
    assert api(method, "/proxies/a", {"listen": same}) == (200, elsewhere)


def test_an_update_can_move_the_listen_address(api: Api, proxy: dict[str, Any]) -> None:
    status, moved = api("POST", "/proxies/a", {"listen": "127.0.0.1:0"})
    assert (status, moved["enabled"]) == (200, True)
    assert moved["listen"] not in (proxy["listen"], "127.0.0.1:0")


def test_a_deleted_proxy_is_gone(api: Api, proxy: dict[str, Any]) -> None:
    assert api("DELETE", "/proxies/a") == (204, "")
    assert api("GET", "/proxies") == (200, {})
    assert api("DELETE", "/proxies/a") == error(404, "proxy not found")


@pytest.mark.parametrize(("method", "path"), [
    ("GET", "/proxies/none"), ("POST", "/proxies/none"), ("DELETE", "/proxies/none"),
    ("GET", "/proxies/none/toxics"), ("POST", "/proxies/none/toxics"),
    ("GET", "/proxies/none/toxics/x"), ("POST", "/proxies/none/toxics/x"),
    ("DELETE", "/proxies/none/toxics/x")])
def test_an_unknown_proxy_is_not_found(api: Api, method: str, path: str) -> None:
    assert api(method, path, {} if method == "POST" else None) == error(404, "proxy not found")


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
def test_an_unknown_toxic_is_not_found(api: Api, proxy: dict[str, Any], method: str) -> None:
    body: Any = {} if method in ("POST", "PATCH") else None
    assert api(method, "/proxies/a/toxics/none", body) == error(404, "toxic not found")


def test_an_added_toxic_has_toxiproxys_defaults(api: Api, proxy: dict[str, Any]) -> None:
    shown = {"name": "latency_downstream", "type": "latency", "stream": "downstream", "toxicity": 1,
             "attributes": {"latency": 100, "jitter": 0}}
    assert api("POST", "/proxies/a/toxics", LATENCY) == (200, shown)
    assert api("GET", "/proxies/a/toxics") == (200, [shown])
    assert api("GET", "/proxies/a/toxics/latency_downstream") == (200, shown)
    assert api("GET", "/proxies/a") == (200, {**proxy, "toxics": [shown]})


@pytest.mark.parametrize(("kind", "attributes"), [
    ("latency", {"latency": 0, "jitter": 0}), ("bandwidth", {"rate": 0}), ("timeout", {"timeout": 0}),
    ("reset_peer", {"timeout": 0}), ("slow_close", {"delay": 0}), ("limit_data", {"bytes": 0}), ("noop", {}),
    ("slicer", {"average_size": 0, "size_variation": 0, "delay": 0})])
def test_attributes_default_to_0(api: Api, proxy: dict[str, Any], kind: str, attributes: Any) -> None:
    assert api("POST", "/proxies/a/toxics", {"type": kind})[1]["attributes"] == attributes


def test_toxics_are_listed_upstream_first_in_the_order_they_came(api: Api, proxy: dict[str, Any]) -> None:
    for name, stream in [("d1", "downstream"), ("u1", "upstream"), ("d2", "downstream"), ("u2", "upstream")]:
        assert api("POST", "/proxies/a/toxics", {**LATENCY, "name": name, "stream": stream})[0] == 200
    assert [toxic["name"] for toxic in api("GET", "/proxies/a/toxics")[1]] == ["u1", "u2", "d1", "d2"]


def test_a_second_toxic_of_a_name_is_a_conflict_in_either_stream(api: Api, proxy: dict[str, Any]) -> None:
    assert api("POST", "/proxies/a/toxics", {**LATENCY, "name": "t"})[0] == 200
    for stream in ("upstream", "downstream"):
        again = {**LATENCY, "name": "t", "stream": stream}
        assert api("POST", "/proxies/a/toxics", again) == error(409, "toxic already exists")


@pytest.mark.parametrize("body", [{"type": "earthquake"}, {"type": ""}, {}])
def test_an_unknown_type_is_a_bad_request(api: Api, proxy: dict[str, Any], body: dict[str, Any]) -> None:
    assert api("POST", "/proxies/a/toxics", body) == error(400, "invalid toxic type")


@pytest.mark.parametrize("stream", ["", "sideways"])
def test_an_unknown_stream_is_a_bad_request(api: Api, proxy: dict[str, Any], stream: str) -> None:
    told = "stream was invalid, can be either upstream or downstream"
    assert api("POST", "/proxies/a/toxics", {**LATENCY, "stream": stream}) == error(400, told)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", json.dumps({**LATENCY, "attributes": 5}).encode(),
                                  json.dumps({**LATENCY, "attributes": {"latency": 1.5}}).encode(),
                                  json.dumps({**LATENCY, "attributes": {"latency": "100"}}).encode(),
                                  json.dumps({**LATENCY, "toxicity": "1"}).encode()])
def test_a_bad_toxic_is_a_bad_request(api: Api, proxy: dict[str, Any], body: bytes) -> None:
    status, answer = api("POST", "/proxies/a/toxics", body)
    assert status == answer["status"] == 400
    assert answer["error"].startswith("bad request body: ")
    assert api("GET", "/proxies/a/toxics") == (200, [])


def test_attributes_that_a_type_does_not_have_are_passed_over(api: Api, proxy: dict[str, Any]) -> None:
    body = {**LATENCY, "attributes": {"latency": 5, "rate": 7}}
    assert api("POST", "/proxies/a/toxics", body)[1]["attributes"] == {"latency": 5, "jitter": 0}


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_toxic_update_changes_what_it_names(api: Api, proxy: dict[str, Any], method: str) -> None:
    _, shown = api("POST", "/proxies/a/toxics", {**LATENCY, "name": "t"})
    changed = {**shown, "attributes": {"latency": 100, "jitter": 7}}
    assert api(method, "/proxies/a/toxics/t", {"attributes": {"jitter": 7}}) == (200, changed)
    changed["toxicity"] = 0.5
    assert api(method, "/proxies/a/toxics/t", {"toxicity": 0.5, "stream": "upstream"}) == (200, changed)
    assert api("GET", "/proxies/a/toxics") == (200, [changed])


def test_a_removed_toxic_is_gone(api: Api, proxy: dict[str, Any]) -> None:
    api("POST", "/proxies/a/toxics", {**LATENCY, "name": "t"})
    assert api("DELETE", "/proxies/a/toxics/t") == (204, "")
    assert api("GET", "/proxies/a/toxics") == (200, [])
    assert api("DELETE", "/proxies/a/toxics/t") == error(404, "toxic not found")


def test_reset_enables_all_proxies_and_removes_all_toxics(api: Api, proxy: dict[str, Any]) -> None:
    api("POST", "/proxies/a/toxics", LATENCY)
    api("POST", "/proxies/a", {"enabled": False})
    assert api("POST", "/reset") == (204, "")
    assert api("GET", "/proxies/a") == (200, proxy)


def test_the_version_is_told(api: Api) -> None:
    status, answer = api("GET", "/version")
    assert status == 200
    assert answer["version"].strip()


@pytest.mark.parametrize("path", ["/nowhere", "/", "/proxies/", "/proxies/a/b/c/d", "/toxics", "/metrics/a"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_an_unknown_path_is_not_found(api: Api, method: str, path: str) -> None:
    assert api(method, path) == (404, "404 page not found\n")


@pytest.mark.parametrize(("path", "methods"), [
    ("/version", ["GET"]), ("/reset", ["POST"]), ("/populate", ["POST"]), ("/proxies", ["GET", "POST"]),
    ("/proxies/a", ["GET", "POST", "PATCH", "DELETE"]), ("/proxies/a/toxics", ["GET", "POST"]),
    ("/proxies/a/toxics/t", ["GET", "POST", "PATCH", "DELETE"])])
def test_a_path_refuses_other_methods_than_its_own(api: Api, path: str, methods: list[str]) -> None:
    for method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} - set(methods):
        assert api(method, path) == (405, "")


def test_a_query_is_passed_over(api: Api) -> None:
    assert api("GET", "/proxies?x=/version") == (200, {})


def test_null_is_an_object_without_fields(api: Api, proxy: dict[str, Any]) -> None:
    assert api("POST", "/proxies", b"null") == error(400, "missing required field: name")
    assert api("PATCH", "/proxies/a", b"null") == (200, proxy)
    assert api("POST", "/proxies/a/toxics", b"null") == error(400, "invalid toxic type")


def test_the_case_of_a_field_does_not_matter(api: Api) -> None:
    fields = {"Name": "a", "LISTEN": "127.0.0.1:0", "upStream": "127.0.0.1:9", "eNabled": False}
    status, shown = api("POST", "/proxies", fields)
    assert (status, shown["name"], shown["upstream"], shown["enabled"]) == (201, "a", "127.0.0.1:9", False)
    toxic = {"Type": "latency", "Stream": "Upstream", "Attributes": {"Latency": 7}}
    shown = api("POST", "/proxies/a/toxics", toxic)[1]
    assert shown["attributes"] == {"latency": 7, "jitter": 0}


def test_browsers_are_refused(api: Api) -> None:
    assert api("GET", "/proxies", headers={"User-Agent": "Mozilla/5.0 (X11; Linux x86_64)"})[0] == 403
