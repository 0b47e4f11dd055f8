"""The client's driver on a real socket: what comes first on a connection."""

import asyncio

from diloco_chaos.harness.record.tape.writing import NoTape
from diloco_chaos.harness.trainer.protocol.messages import MESSAGES, Hello, Report
from diloco_chaos.harness.trainers.core.effects import Send, Stop
from diloco_chaos.harness.trainers.node.client import ClientDriver
from diloco_chaos.harness.trainers.node.failpoints import Failpoints
from diloco_chaos.harness.trainers.wire.frames import Decoder

HELLO = Hello(token="", node="learner-1", incarnation=0, step=0, tokens=0, position=0, versions=[], steps=[])


class Busy(ClientDriver):
    """Whatever it is fed, a step was done just before, and its report is queued."""

    def feed(self, step):
        super().feed(lambda now: [Send(Report(step=1, tokens=0, position=0, fragments=[]))])
        super().feed(step)


class Core:
    """Says hello, and that it is over."""

    messages, heartbeat_timeout = MESSAGES, 3.0

    def on_connected(self, now):
        yield Send(HELLO)

    def on_lost(self, reason, now):
        yield Stop("enough")


async def first_message(tmp_path):
    heard = asyncio.get_running_loop().create_future()

    async def listen(reader, writer):
        decoder = Decoder(MESSAGES)
        while not heard.done():
            for message, _ in decoder.feed(await reader.read(1 << 16)):
                if not heard.done():
                    heard.set_result(message)
        writer.close()
    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    driver = Busy(Core(), NoTape(tmp_path, "learner-1", 0, 0.0), 0.0, tmp_path, Failpoints({}))
    await driver.run("127.0.0.1", server.sockets[0].getsockname()[1])
    server.close()
    return await heard


def test_whatever_was_queued_before_a_connection_stood_its_first_message_is_the_hello(tmp_path):
    assert asyncio.run(first_message(tmp_path)) == HELLO
