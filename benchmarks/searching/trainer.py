"""A small elastic trainer that needs Python alone, with nothing of diloco-chaos in it. Bugs are planted in it.

    python trainer.py hub PORT                     counts the votes of a round, and has newcomers brought up to date
    python trainer.py worker HOST:PORT NAME STATE LIFE
                                                   trains, and keeps a checkpoint in the folder STATE; of two processes
                                                   of a name the one of the later LIFE stays

A round is made by all members, or by those who vote in time; a member that is late is put out, and comes anew. A
newcomer gets the weights of a member, the *donor*, before it votes. Weights are one number that follows from the rounds
that were made, so that members who differ have done something wrong.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROUND_S, SAVE_EVERY = 0.02, 10
PATIENCE_S = 0.3      # a round waits for members that do not vote
GATHER_S = 0.2        # a hub that begins waits for those who were there before
GIVE_S = 0.15         # a donor needs for its weights
TAKE_S = 0.15         # and a newcomer to take them
SILENCE_S = 1.5       # a hub that says nothing for so long is gone
Message = dict[str, Any]


class Member:
    """A worker, as the hub knows it."""

    def __init__(self, name: str, made: int, say: Callable[[Message], None]) -> None:
        self.name, self.made, self.say = name, made, say
        self.donor: Member | None = None
        self.voted = False


class Hub:
    """Who trains, who comes, and the round that is open."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.coming: list[Member] = []
        self.lives: dict[str, int] = {}
        self.made = -1
        self.opened = time.monotonic()
        self.began = time.monotonic()

    def hello(self, member: Member) -> None:
        """A worker is there."""
        self.coming.append(member)
        print(f"{member.name} is there with round {member.made}")

    def gone(self, member: Member) -> None:
        """A worker is not there any more."""
        if member in (*self.members, *self.coming):
            print(f"{member.name} is gone")
        self.members = [other for other in self.members if other is not member]
        self.coming = [other for other in self.coming if other is not member]
        for other in self.coming:
            if other.donor is member:
                other.donor = None
                print(f"{other.name} needs another donor")

    def tell(self, member: Member, message: Message) -> None:
        """A worker says something."""
        if message["what"] == "vote" and member in self.members:
            member.voted = True
        elif message["what"] == "weights":
            for other in [other for other in self.coming if other.donor is member]:
                other.say({"what": "take", "made": message["made"], "weights": message["weights"]})
        elif message["what"] == "taken" and message["made"] == self.made:
            self.join(member)
        elif message["what"] == "taken":
            member.donor = None  # rounds were made meanwhile

    def join(self, member: Member) -> None:
        """A newcomer is a member from now on."""
        self.coming.remove(member)
        self.members.append(member)
        self.opened = time.monotonic()
        print(f"{member.name} is a member")
        member.say({"what": "go", "made": self.made})

    def look(self) -> None:
        """Do what is to be done now."""
        now = time.monotonic()
        if not self.members:
            if self.coming and now - self.began > GATHER_S:
                self.lead(max(self.coming, key=lambda member: member.made))
            return
        for member in list(self.coming):
            if member.made == self.made:
                self.join(member)  # it has the weights of this round
            elif member.donor is None:
                member.donor = self.members[0]
                print(f"{member.donor.name} is to bring {member.name} up to date")
                member.donor.say({"what": "give", "made": self.made})
        if any(member.donor is not None for member in self.coming) and now - self.opened < GIVE_S + TAKE_S + PATIENCE_S:
            return  # a newcomer is about to join: no round is made without it
        late = [member for member in self.members if not member.voted]
        if not late or (now - self.opened > GIVE_S + TAKE_S + 2 * PATIENCE_S and len(late) < len(self.members)):
            for member in late:
                print(f"{member.name} is late for round {self.made + 1}")
                self.gone(member)
                member.say({"what": "out"})
            self.close_round()

    def lead(self, first: Member) -> None:
        """Nobody trains yet: begin with this one."""
        print(f"{first.name} begins with round {first.made}")
        self.made = first.made
        self.join(first)

    def close_round(self) -> None:
        """One more round is made."""
        self.made += 1
        self.opened = time.monotonic()
        for member in self.members:
            member.voted = False
            member.say({"what": "round", "made": self.made, "members": len(self.members)})
        for member in self.coming:
            member.say({"what": "wait"})


async def serve(port: int) -> None:
    """Be the hub."""
    hub = Hub()

    async def on_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(message: Message) -> None:
            writer.write(json.dumps(message).encode() + b"\n")
        member: Member | None = None
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if message["what"] == "hello" and message["life"] < hub.lives.get(message["name"], 0):
                    say({"what": "replaced"})
                elif message["what"] == "hello":
                    hub.lives[message["name"]] = message["life"]
                    for other in [other for other in (*hub.members, *hub.coming) if other.name == message["name"]]:
                        hub.gone(other)
                        other.say({"what": "replaced"})
                    member = Member(message["name"], message["made"], say)
                    hub.hello(member)
                elif member is not None and member in (*hub.members, *hub.coming):
                    hub.tell(member, message)
        except (OSError, ValueError, asyncio.LimitOverrunError):
            pass
        if member is not None:
            hub.gone(member)
        writer.close()

    async with await asyncio.start_server(on_connection, "127.0.0.1", port):
        while True:
            await asyncio.sleep(0.005)
            hub.look()


class Worker:
    """Trains for as long as it lives."""

    def __init__(self, name: str, state: Path, life: int) -> None:
        self.name, self.life, self.file = name, life, state / "made"
        self.made, self.weights = self.load()

    def load(self) -> tuple[int, int]:
        """What the checkpoint holds, or the beginning."""
        try:
            made, weights, digest = self.file.read_text().split()
            if digest != str(zlib.crc32(f"{made} {weights}".encode())):
                raise ValueError("its digest is wrong")
            print(f"checkpoint of round {made}")
            return int(made), int(weights)
        except FileNotFoundError:
            print("no checkpoint")
        except (OSError, ValueError) as error:
            print(f"checkpoint is damaged: {error}")
        return 0, 1

    def save(self) -> None:
        """Write the checkpoint, whole or not at all."""
        text = f"{self.made} {self.weights}"
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            new = self.file.with_suffix(".new")
            new.write_text(f"{text} {zlib.crc32(text.encode())}")
            new.replace(self.file)
        except OSError as error:
            print(f"could not save: {error}")

    def step(self, made: int, members: int) -> None:
        """Make a round."""
        self.weights = (self.weights * 6364136223846793005 + made) % 2**64
        self.made = made
        print(f"round={made} members={members} loss={1 / made:.4f} time={time.time():.3f} "
              f"digest={self.weights:016x}")
        if made % SAVE_EVERY == 0:
            self.save()

    def train(self, where: str) -> None:
        """Talk to the hub, and to the next one when it is gone."""
        host, _, port = where.rpartition(":")
        while True:
            try:
                with socket.create_connection((host, int(port)), SILENCE_S) as link, link.makefile("rw") as file:
                    self.talk(file)
            except (OSError, ValueError, KeyError) as error:
                print(f"the hub is gone: {error}")
            time.sleep(0.05)

    def talk(self, file: Any) -> None:
        """Until the hub is gone, or puts this one out."""
        def say(what: str, **more: Any) -> None:
            file.write(json.dumps({"what": what, **more}) + "\n")
            file.flush()
        say("hello", name=self.name, life=self.life, made=self.made)
        while line := file.readline():
            message = json.loads(line)
            if message["what"] == "replaced":
                sys.exit("another process has this name")
            if message["what"] == "out":
                print("put out")
                return
            if message["what"] == "wait":
                continue
            if message["what"] == "give":
                print("gives its weights")
                time.sleep(GIVE_S)
                say("weights", made=self.made, weights=self.weights)
            elif message["what"] == "take":
                print(f"takes weights of round {message['made']}")
                time.sleep(TAKE_S)
                self.made, self.weights = message["made"], message["weights"]
                say("taken", made=self.made)
            else:
                if message["what"] == "round":
                    self.step(message["made"], message["members"])
                time.sleep(ROUND_S)
                say("vote", made=self.made)
        raise OSError("closed")


if __name__ == "__main__":
    if sys.argv[1] == "hub":
        asyncio.run(serve(int(sys.argv[2])))
    Worker(sys.argv[3], Path(sys.argv[4]), int(sys.argv[5])).train(sys.argv[2])
