"""When a command counts as started."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from diloco_chaos.harness.places.readiness import is_ready
from diloco_chaos.harness.trainers.core.programs import ReadyCheck

PATIENCE_S = 2.0


class Health(BaseHTTPRequestHandler):
    """200 at /health, and 503 elsewhere."""

    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 503)
        self.end_headers()

    def log_message(self, *said):
        """To nobody."""


@pytest.fixture
def served():
    with ThreadingHTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address
        server.shutdown()


@pytest.fixture
def nobody():
    """An address at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()


@pytest.mark.parametrize(("path", "ready"), [("health", True), ("loading", False)])
def test_an_answer_that_is_no_error_is_waited_for(tmp_path, served, path, ready):
    url = f"http://{served[0]}:{served[1]}/{path}"
    assert is_ready(ReadyCheck(url=url), tmp_path / "log", served, url, PATIENCE_S) == ready


def test_where_nobody_listens_nothing_is_ready(tmp_path, nobody):
    url = f"http://{nobody[0]}:{nobody[1]}/health"
    assert not is_ready(ReadyCheck(url=url), tmp_path / "log", nobody, url, PATIENCE_S)
    assert not is_ready(ReadyCheck(port=True), tmp_path / "log", nobody, "", PATIENCE_S)


def test_everything_that_is_named_must_be_there(tmp_path, served):
    wants = ReadyCheck(port=True, log="listening on")
    assert not is_ready(wants, tmp_path / "log", served, "", PATIENCE_S)
    (tmp_path / "log").write_text("loading\nlistening on 1234\n")
    assert is_ready(wants, tmp_path / "log", served, "", PATIENCE_S)
