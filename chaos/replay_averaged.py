"""Do a recorded run of data parallelism again from its tape: every gradient, every mean, every step, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

from chaos.history import History
from chaos.replayed import Difference, Replay
from chaos.scenario import SYNCER
from harness.trainer.hub import averaged
from harness.trainer.replica import VALUE
from harness.trainer.replicas import MakeReplica
from harness.trainer.schedule import learning_rate
from harness.trainer.tensors import Tensors, digest


def replay(history: History, initial: Tensors, replicas: MakeReplica, tell: Callable[[int], None]) -> Replay:
    """See `chaos.replay.replay`. All replicas take every step: whoever was away at one begins later with what the
    others have, so that they are all the same whenever they count."""
    config = history.plan.cluster
    peers = {name: replicas(index) for index, name in enumerate(config.names)}
    one = peers[config.names[0]]
    targets = {back["step"] for back in history.tape.of("rolled_back", node=SYNCER)}
    begun = history.tape.of("initial", node=SYNCER)[0]
    step, tokens, found = int(begun["step"]), int(begun["processed"]), Replay()
    saved = {step: ({VALUE + name: array for name, array in initial.items()}, tokens)}
    for event in history.tape.of("merge", "rolled_back", node=SYNCER):
        if event.event == "rolled_back":
            if event["step"] not in saved:
                found.missing = f"the run went back to step {event['step']}, of which the tape does not tell"
                return found
            state, tokens = saved[event["step"]]
            step = int(event["step"])
            for peer in peers.values():
                peer.load(state)
            continue
        if event["version"] != step + 1:
            found.missing = f"the tape tells of step {event['version']} after step {step}"
            return found
        mean = averaged([peers[part["learner"]].gradient(step)[1] for part in event["contributions"]])
        if (again := digest(mean)) != event["digest"]:
            names = ", ".join(part["learner"] for part in event["contributions"])
            found.difference = Difference(event.t, f"step {event['version']}: the mean gradient of {names} was "
                                                   f"{event['digest']}, is {again}")
            return found
        for peer in peers.values():
            peer.apply(mean, learning_rate(config, tokens))
        step, tokens = step + 1, int(event["processed"])
        if step in targets:
            saved[step] = one.state(), tokens
        found.versions += 1
        found.steps += len(event["contributions"])
        tell(found.versions)
    return found
