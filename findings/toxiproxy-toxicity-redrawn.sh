#!/usr/bin/env bash
# Toxiproxy 2.12.0: which living connections a toxic hits is drawn again when the toxic behind it comes or goes.
#
# The guess was: `toxicity: 0.5` picks half of the connections, each once, when it is made or when the toxic is added; what
# else is on the proxy has nothing to do with it. Seen: a toxic that does nothing (noop), added behind it in the same
# direction or removed from there, draws anew for every living connection, so that one that was hit is spared in the
# middle of a fault and another one is hit. It does so only to the toxic directly before it. A toxic farther along, or in
# the other direction, changes nothing.
#
# Needs Go. Fails if any of that changes.
set -euo pipefail
command -v go >/dev/null || { echo "install Go first" >&2; exit 2; }
place=$(mktemp -d)
server=
cleanup() {
  [ -z "$server" ] || kill "$server" || true
  rm -rf "$place"
}
trap cleanup EXIT
GOBIN="$place" GOFLAGS=-modcacherw go install github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0 2>/dev/null
port=$(python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$place/server" -host 127.0.0.1 -port "$port" >/dev/null 2>&1 &
server=$!
cat >"$place/toss.py" <<'PYTHON'
import json
import select
import socket
import sys
import time
from http.client import HTTPConnection

PATIENCE_S, COUNT = 20, 80


def call(method, path, body=None):
    connection = HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=PATIENCE_S)
    connection.request(method, path, json.dumps(body) if body else None)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status < 300, text
    return json.loads(text) if text else None


def add(name, kind="noop", stream="upstream", **more):
    call("POST", "/proxies/p/toxics", {"name": name, "type": kind, "stream": stream, **more})


def remove(name):
    call("DELETE", f"/proxies/p/toxics/{name}")


def lost():
    """Which connections lose what is sent upstream."""
    for client, _ in pairs:
        client.sendall(b"?")
    time.sleep(0.5)
    came = select.select([server for _, server in pairs], [], [], 0)[0]
    for server in came:
        server.recv(100)
    return [server not in came for _, server in pairs]


deadline = time.monotonic() + PATIENCE_S
while True:
    try:
        call("GET", "/version")
        break
    except ConnectionRefusedError:
        assert time.monotonic() < deadline
        time.sleep(0.05)
upstream = socket.create_server(("127.0.0.1", 0), backlog=COUNT)
proxy = call("POST", "/proxies", {"name": "p", "listen": "127.0.0.1:0",
                                  "upstream": f"127.0.0.1:{upstream.getsockname()[1]}"})
host, _, port = proxy["listen"].rpartition(":")
pairs = []
for _ in range(COUNT):
    client = socket.create_connection((host, int(port)))
    pairs.append((client, upstream.accept()[0]))
add("half", "timeout", toxicity=0.5, attributes={"timeout": 0})
before = lost()
for what, change in (("nothing is done", lambda: None), ("a noop is added behind it", lambda: add("behind")),
                     ("another one farther along", lambda: add("farther")),
                     ("that one is removed", lambda: remove("farther")),
                     ("the one behind it is removed", lambda: remove("behind")),
                     ("a noop is added downstream", lambda: add("other", stream="downstream"))):
    change()
    after = lost()
    print(f"{what}: {'others are hit' if after != before else 'the same are hit'}")
    before = after
PYTHON
seen=$(python3 "$place/toss.py" "$port")
echo "$seen"
# Output seen with Go 1.26 on Linux:
expected='nothing is done: the same are hit
a noop is added behind it: others are hit
another one farther along: the same are hit
that one is removed: the same are hit
the one behind it is removed: others are hit
a noop is added downstream: the same are hit'
[ "$seen" = "$expected" ] || { echo "this has changed" >&2; exit 1; }
