"""train.py with samples that come over HTTP, as those of a streamed data set do: the main thread asks for each.

    python streamed.py serve PORT               gives samples
    python streamed.py train HOST:PORT FOLDER   trains
"""

from __future__ import annotations

import json
import sys
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SAMPLES = 400


def serve(port: int) -> None:
    """Give samples until somebody ends it."""
    import train
    samples = [json.dumps(tokens).encode() for tokens in train.Text(SAMPLES).tokens.tolist()]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            """Give the sample of this number."""
            body = samples[int(self.path[1:])]
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


def train_on(address: str) -> None:
    """Train as train.py does, on samples from there."""
    import torch
    import train
    connection = HTTPConnection(address)

    class Streamed(train.Text):
        def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
            connection.request("GET", f"/{index}")
            tokens = torch.tensor(json.loads(connection.getresponse().read()))
            train.time.sleep(train.BATCH_S / 4)
            return {"input_ids": tokens, "labels": tokens}
    train.Text = Streamed
    train.main()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        del sys.argv[1]
        train_on(sys.argv.pop(1))
