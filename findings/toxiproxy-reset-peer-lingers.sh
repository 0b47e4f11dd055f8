#!/usr/bin/env bash
# Toxiproxy 2.12.0: a reset_peer toxic resets connections that it never hit, and closes those that it hits normally if they
# are older than it.
#
# The guess was: reset_peer resets the connections that it hits and leaves all others alone. Seen: a connection from before
# the toxic that it hits gets an end of file (FIN) on both sides, no reset. A connection that was made while the toxic
# existed ends in a reset instead of an end of file, whoever closes it and whenever: also with `toxicity: 0`, and also
# after the toxic was removed. A program that is to be tried against resets sees an orderly end, and one that was spared
# sees a reset long after the fault.
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
cat >"$place/ends.py" <<'PYTHON'
import json
import socket
import sys
import time
from http.client import HTTPConnection

PATIENCE_S = 20


def call(method, path, body=None):
    connection = HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=PATIENCE_S)
    connection.request(method, path, json.dumps(body) if body else None)
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status < 300, text
    return json.loads(text) if text else None


def reset_peer(toxicity):
    call("POST", "/proxies/p/toxics", {"name": "r", "type": "reset_peer", "stream": "upstream", "toxicity": toxicity,
                                       "attributes": {"timeout": 0}})


def connect():
    client = socket.create_connection((host, int(port)), PATIENCE_S)
    server = upstream.accept()[0]
    server.settimeout(PATIENCE_S)
    return client, server


def end(side):
    try:
        return "end of file" if side.recv(1) == b"" else "data"
    except ConnectionResetError:
        return "reset"


deadline = time.monotonic() + PATIENCE_S
while True:
    try:
        call("GET", "/version")
        break
    except ConnectionRefusedError:
        assert time.monotonic() < deadline
        time.sleep(0.05)
upstream = socket.create_server(("127.0.0.1", 0))
proxy = call("POST", "/proxies", {"name": "p", "listen": "127.0.0.1:0",
                                  "upstream": f"127.0.0.1:{upstream.getsockname()[1]}"})
host, _, port = proxy["listen"].rpartition(":")

older = connect()
reset_peer(1.0)
newer = connect()
for name, (client, server) in (("older", older), ("newer", newer)):
    client.sendall(b"?")
    print(f"hit, {name}: {end(client)} at the client, {end(server)} at the server")
call("DELETE", "/proxies/p/toxics/r")
older = connect()
reset_peer(0.0)
newer, newest = connect(), connect()
for name, (client, server) in (("older", older), ("newer", newer)):
    client.close()
    print(f"spared, {name}, closed by the client: {end(server)}")
call("DELETE", "/proxies/p/toxics/r")
newest[1].close()
print(f"spared, newer, closed by the server after the removal: {end(newest[0])}")
PYTHON
seen=$(python3 "$place/ends.py" "$port")
echo "$seen"
# Output seen with Go 1.26 on Linux:
expected='hit, older: end of file at the client, end of file at the server
hit, newer: reset at the client, reset at the server
spared, older, closed by the client: end of file
spared, newer, closed by the client: reset
spared, newer, closed by the server after the removal: reset'
[ "$seen" = "$expected" ] || { echo "this has changed" >&2; exit 1; }
