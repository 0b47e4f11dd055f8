"""Two that average what they learned after each round: `exchanging_job.py serve|ask PORT [BUG]`.

The one that serves answers a round's values with their average, and the same round twice with the same
answer. Each message has a checksum; what does not match it is asked for again. With the bug
`trusts` nothing is checked.
"""

import socket
import struct
import sys
import time
import zlib
from array import array

ROUNDS, VALUES, PREFIX = 60, 5000, struct.Struct(">II")


def send(connection, number, values):
    """One message."""
    body = struct.pack(">I", number) + values.tobytes()
    connection.sendall(PREFIX.pack(len(body), zlib.crc32(body)) + body)


def receive(connection, trusts):
    """The next message: the round's number and its values; ConnectionError: it can't be used."""
    size, checksum = PREFIX.unpack(exactly(connection, PREFIX.size))
    if size != 4 + 4 * VALUES:
        raise ConnectionError("a size that none has")
    body = exactly(connection, size)
    if not trusts and zlib.crc32(body) != checksum:
        raise ConnectionError("the checksum does not match")
    return struct.unpack_from(">I", body)[0], array("f", body[4:])


def exactly(connection, size):
    """So many bytes."""
    data = connection.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise ConnectionError("it has ended")
    return data


def trained(values):
    """A round's own work."""
    time.sleep(0.1)
    return array("f", (0.98 * value for value in values))


def report(number, values):
    """The round's line."""
    print(f"step={number} loss={sum(map(abs, values)) / VALUES:.6f}", flush=True)


def serve(port, trusts):
    """Answer until the last round was answered."""
    mine, done = array("f", [1.0] * VALUES), 0
    listening = socket.create_server(("127.0.0.1", port))
    while done < ROUNDS:
        with listening.accept()[0] as connection:
            connection.settimeout(5)
            try:
                while done < ROUNDS:
                    number, theirs = receive(connection, trusts)
                    if number == done + 1:
                        mine = array("f", ((a + b) / 2 for a, b in zip(trained(mine), theirs, strict=True)))
                        done = number
                        report(number, mine)
                    send(connection, number, mine)
            except OSError:
                continue
    time.sleep(0.5)


def ask(port, trusts):
    """Train, and have each round averaged, as often as it takes."""
    mine, pending, done = array("f", [1.0] * VALUES), None, 0
    while done < ROUNDS:
        try:
            with socket.create_connection(("127.0.0.1", port), 2) as connection:
                while done < ROUNDS:
                    pending = pending or trained(mine)
                    send(connection, done + 1, pending)
                    _, mine = receive(connection, trusts)
                    done, pending = done + 1, None
                    report(done, mine)
        except OSError:
            time.sleep(0.05)


if __name__ == "__main__":
    kind, port_, *bug = sys.argv[1:]
    {"serve": serve, "ask": ask}[kind](int(port_), bug == ["trusts"])
