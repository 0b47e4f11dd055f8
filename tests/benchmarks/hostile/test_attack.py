"""Who attacks a run says what could be true, and counts what was let in."""

import asyncio
import random

from benchmarks.hostile import attack
from diloco_chaos.harness.trainer.protocol.messages import MESSAGES, Hello
from diloco_chaos.harness.trainers.wire.frames import Decoder


def test_what_was_valid_in_another_run_is_a_hello_with_another_token_and_more():
    said = [attack._of_another_run(random.Random(seed)) for seed in (0, 1)]
    tokens = set()
    for data in said:
        (hello, _), *more = Decoder(MESSAGES).feed(data)
        assert isinstance(hello, Hello)
        assert len(more) == 1
        tokens.add(hello.token)
    assert len(tokens) == 2


def test_every_way_is_tried_and_every_connection_counted(monkeypatch):
    monkeypatch.setattr(attack, "_HELD_S", 0.2)

    async def attacked():
        async def listen(reader, writer):
            await reader.read()
            writer.close()
        server = await asyncio.start_server(listen, "127.0.0.1", 0)
        one = attack.Attack(lambda: [server.sockets[0].getsockname()[1]], seed=3)
        await one.run(40, 0.1)
        server.close()
        return one.made
    made = asyncio.run(attacked())
    assert sum(made.values()) == 40
    assert set(made) == {"idle", "slow", "huge", "garbage", "replayed"}


def test_a_port_where_nobody_listens_is_no_error():
    one = attack.Attack(lambda: [1], seed=0)
    asyncio.run(one.run(3, 0.0))
    assert not one.made
