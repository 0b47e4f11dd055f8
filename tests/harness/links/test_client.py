"""The adapter: on both servers, and on ones that hang, fail or lie."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from toxiproxy.api import APIConsumer

from diloco_chaos.harness.links.client import LinkError, Links
from diloco_chaos.harness.links.toxic import Toxic

UPSTREAM = "127.0.0.1:9"
TOXICS = [Toxic("bandwidth", "upstream", {"rate": 500}, name="narrow"),
          Toxic("latency", "downstream", {"latency": 40, "jitter": 4}, toxicity=0.25),
          Toxic("timeout", "downstream", {"timeout": 0}, toxicity=1 / 3)]
ATTRIBUTES = {"noop": {}, "latency": {"latency": 40, "jitter": 4}, "bandwidth": {"rate": 500},
              "timeout": {"timeout": 100}, "reset_peer": {"timeout": 100}, "slow_close": {"delay": 100},
              "slicer": {"average_size": 100, "size_variation": 10, "delay": 50}, "limit_data": {"bytes": 100}}


def test_a_created_link_listens_at_the_address_returned(links: Links) -> None:
    host, _, port = links.create("a", UPSTREAM).rpartition(":")
    assert host == "127.0.0.1"
    socket.create_connection((host, int(port)), 20).close()
    assert links.enabled("a")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_link_can_be_created_at_a_given_address(links: Links, host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert links.create("a", UPSTREAM, f"{host}:{port}") == f"127.0.0.1:{port}"


def test_added_toxics_are_listed_as_they_were_set(links: Links) -> None:
    links.create("a", UPSTREAM)
    for toxic in TOXICS:
        links.add("a", toxic)
    listed = links.toxics("a")
    assert [(t.name, t.type, t.stream, t.attributes) for t in listed] == [
        (t.name, t.type, t.stream, t.attributes) for t in TOXICS]
    assert [t.toxicity for t in listed] == pytest.approx([t.toxicity for t in TOXICS])


def test_an_updated_toxic_is_listed_as_it_was_set(links: Links) -> None:
    links.create("a", UPSTREAM)
    links.add("a", Toxic("latency", "upstream", {"latency": 40, "jitter": 4}))
    changed = Toxic("latency", "upstream", {"latency": 80.0, "jitter": 0}, toxicity=0.5)
    links.update("a", changed)
    assert links.toxics("a") == [changed]


@pytest.mark.parametrize("kind", ATTRIBUTES)
def test_every_type_can_be_set_changed_and_read_back(links: Links, stream: str, kind: str) -> None:
    links.create("a", UPSTREAM)
    added = Toxic(kind, stream, ATTRIBUTES[kind], toxicity=0.5)
    links.add("a", added)
    assert links.toxics("a") == [added]
    doubled = {name: 2 * value for name, value in ATTRIBUTES[kind].items()}
    changed = Toxic(kind, stream, doubled, toxicity=0.25)
    links.update("a", changed)
    assert links.toxics("a") == [changed]
    links.remove("a", changed.name)
    assert links.toxics("a") == []


@pytest.mark.parametrize("attributes", [{}, {"average_size": 0}, {"average_size": 10, "size_variation": 10}])
def test_a_slicer_that_the_real_server_does_not_bear_is_not_sent(links: Links, attributes: dict[str, int]) -> None:
    links.create("a", UPSTREAM)
    with pytest.raises(LinkError, match="less than that"):
        links.add("a", Toxic("slicer", "upstream", attributes))
    assert links.toxics("a") == []


def test_a_slicer_is_judged_by_what_an_update_makes_of_it(links: Links) -> None:
    links.create("a", UPSTREAM)
    links.add("a", Toxic("slicer", "upstream", ATTRIBUTES["slicer"]))
    links.update("a", Toxic("slicer", "upstream", {"delay": 7}))
    with pytest.raises(LinkError, match="less than that"):
        links.update("a", Toxic("slicer", "upstream", {"average_size": 5}))
    assert [dict(t.attributes) for t in links.toxics("a")] == [{**ATTRIBUTES["slicer"], "delay": 7}]


def test_removing_and_deleting_twice_is_fine(links: Links) -> None:
    links.create("a", UPSTREAM)
    links.add("a", TOXICS[0])
    for _ in range(2):
        links.remove("a", "narrow")
        assert links.toxics("a") == []
    for _ in range(2):
        links.delete("a")


def test_a_link_can_be_disabled_and_reset(links: Links) -> None:
    links.create("a", UPSTREAM)
    links.add("a", TOXICS[0])
    links.set_enabled("a", False)
    assert not links.enabled("a")
    links.reset()
    assert links.enabled("a")
    assert links.toxics("a") == []


def test_the_version_is_told(links: Links) -> None:
    assert links.version()


@pytest.mark.parametrize(("status", "ask"), [
    (404, lambda links: links.enabled("none")),
    (404, lambda links: links.set_enabled("none", True)),
    (404, lambda links: links.toxics("none")),
    (404, lambda links: links.add("none", TOXICS[0])),
    (404, lambda links: links.remove("none", "narrow")),
    (404, lambda links: links.update("a", TOXICS[0])),
    (409, lambda links: links.create("a", UPSTREAM)),
    (400, lambda links: links.add("a", Toxic("earthquake", "upstream", {}))),
    (400, lambda links: links.add("a", Toxic("latency", "sideways", {}))),
    (400, lambda links: links.add("a", Toxic("latency", "upstream", {"latency": 0.5}))),
    (500, lambda links: links.create("b", UPSTREAM, links.create("c", UPSTREAM))),
])
def test_a_refusal_says_what_was_asked_of_whom_and_what_was_answered(
        server: Any, links: Links, status: int, ask: Callable[[Links], Any]) -> None:
    links.create("a", UPSTREAM)
    with pytest.raises(LinkError) as refusal:
        ask(links)
    assert refusal.value.status == status
    for part in (server.address, "was asked to", f"answered {status}"):
        assert part in str(refusal.value)


def test_an_attribute_that_the_server_passes_over_is_an_error(links: Links) -> None:
    links.create("a", UPSTREAM)
    with pytest.raises(LinkError, match="latencey should be 5 now and is None"):
        links.add("a", Toxic("latency", "upstream", {"latencey": 5}))


@pytest.mark.parametrize("name", ["", "a/b", "a b", "..", "a?b", "a%2Fb", "a\n"])
def test_a_name_that_does_not_fit_a_path_is_refused(links: Links, name: str) -> None:
    with pytest.raises(LinkError, match="can't name a link"):
        links.create(name, UPSTREAM)
    with pytest.raises(LinkError, match="can't name a link"):
        links.remove("a", name)


def test_an_http_proxy_in_the_environment_is_passed_by(links: Links, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    assert links.version()


@pytest.fixture
def slow_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads get their turn between naming a server and sending the request."""
    def slowly(send: Callable[..., Any]) -> Callable[..., Any]:
        def pause_and_send(*args: Any, **options: Any) -> Any:
            time.sleep(0.001)
            return send(*args, **options)
        return pause_and_send

    for method in ("get", "post", "delete"):
        monkeypatch.setattr(APIConsumer, method, slowly(getattr(APIConsumer, method)))


@pytest.mark.usefixtures("slow_consumer")
def test_two_servers_are_kept_apart_in_many_threads(links: Links, embedded: Any) -> None:
    other = Links(embedded.address, timeout_s=20)

    def churn(number: int) -> None:
        mine, theirs = f"mine{number}", f"theirs{number}"
        for _ in range(5):
            links.create(mine, UPSTREAM)
            other.create(theirs, UPSTREAM)
            links.add(mine, TOXICS[0])
            assert links.toxics(mine) == [TOXICS[0]]
            assert other.toxics(theirs) == []
            links.delete(mine)
            other.delete(theirs)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(churn, range(8)))


@pytest.mark.parametrize("api", ["", "127.0.0.1", "https://127.0.0.1:8474", "127.0.0.1:8474/x", "a b:1"])
def test_what_is_no_server_address_is_refused(api: str) -> None:
    with pytest.raises(LinkError, match=r"127\.0\.0\.1:8474"):
        Links(api)


Answers = Mapping[tuple[str, str], tuple[int, Any]]


@contextlib.contextmanager
def pretender(answers: Answers) -> Iterator[str]:
    """A server that gives fixed answers, and none at all to other requests until the test is over."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            if (self.command, self.path) not in answers:
                over.wait(20)
                return
            status, content = answers[self.command, self.path]
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{listening.server_address[1]}"
        over.set()
        listening.shutdown()


SHOWN = {"name": "a", "listen": "127.0.0.1:1", "upstream": UPSTREAM, "enabled": True, "toxics": []}


@pytest.mark.parametrize(("answers", "told"), [
    ({}, "gave no answer"),
    ({("POST", "/proxies/a"): (500, {"error": "out of order"})}, "answered 500 .*out of order"),
    ({("POST", "/proxies/a"): (503, b"")}, "answered 503"),
    ({("POST", "/proxies/a"): (302, b"")}, "answered 302"),
    ({("POST", "/proxies/a"): (200, b"<html>"), ("GET", "/proxies/a"): (200, b"<html>")}, "isn't a link"),
    ({("POST", "/proxies/a"): (200, SHOWN), ("GET", "/proxies/a"): (200, SHOWN)},
     "enabled should be False now and is True"),
    ({("POST", "/proxies/a"): (200, SHOWN), ("GET", "/proxies/a"): (404, {"error": "proxy not found"})},
     "answered 404"),
])
def test_a_server_that_hangs_fails_or_lies_is_an_error(answers: Answers, told: str) -> None:
    with pretender(answers) as api, pytest.raises(LinkError, match=f"{api} was asked to disable.*{told}"):
        Links(api, timeout_s=0.2 if not answers else 20).set_enabled("a", False)


@pytest.mark.parametrize(("ask", "told"), [
    (lambda links: links.reset(), "enabled should be True"),
    (lambda links: links.delete("a"), "links should be 'no a' now"),
    (lambda links: links.remove("a", "narrow"), "toxics should be 'no narrow' now"),
    (lambda links: links.add("a", TOXICS[0]), "rate should be 500 now and is 499"),
    (lambda links: links.update("a", TOXICS[0]), "rate should be 500 now and is 499"),
])
def test_what_a_server_does_not_show_did_not_happen(ask: Callable[[Links], None], told: str) -> None:
    narrow = {**TOXICS[0].as_json(), "attributes": {"rate": 499}}
    answers: Answers = {
        ("POST", "/reset"): (204, b""), ("GET", "/proxies"): (200, {"a": {**SHOWN, "enabled": False}}),
        ("DELETE", "/proxies/a"): (204, b""), ("DELETE", "/proxies/a/toxics/narrow"): (204, b""),
        ("GET", "/proxies/a/toxics"): (200, [narrow]), ("GET", "/proxies/a/toxics/narrow"): (200, narrow),
        ("POST", "/proxies/a/toxics"): (200, narrow), ("POST", "/proxies/a/toxics/narrow"): (200, narrow)}
    with pretender(answers) as api, pytest.raises(LinkError, match=told):
        ask(Links(api, timeout_s=20))


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "127.0.0.1:0", "127.0.0.1:2", None])
def test_a_link_that_listens_elsewhere_is_an_error(listen: str | None) -> None:
    answers: Answers = {("GET", "/proxies"): (200, {}), ("POST", "/proxies"): (201, SHOWN),
                        ("GET", "/proxies/a"): (200, {**SHOWN, "listen": listen})}
    with pretender(answers) as api, pytest.raises(LinkError, match=r"listen should be '127\.0\.0\.1:1' now"):
        Links(api, timeout_s=20).create("a", UPSTREAM, "127.0.0.1:1")


def test_a_server_that_is_not_there_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(LinkError, match=f"127.0.0.1:{port} .* check that it is running") as failure:
        Links(f"127.0.0.1:{port}").version()
    assert failure.value.status is None
