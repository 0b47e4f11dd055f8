"""Do a recorded run of data parallelism again from its tape: every gradient, every mean, every step, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from diloco_chaos.harness.base.tensors import Tensors, digest
from diloco_chaos.harness.record.tape.events import Initial, Merge, RolledBack
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.config.schedule import learning_rate
from diloco_chaos.harness.trainer.data_parallel.hub import averaged
from diloco_chaos.harness.trainer.model.replica import begun
from diloco_chaos.harness.trainer.runtime.replica_factory import MakeReplica
from diloco_chaos.harness.trainers.api.trainer import Difference, Recorded, Replay
from diloco_chaos.harness.trainers.core.roles import COORDINATOR


def replay(config: TrainerConfig, history: Recorded, initial: Tensors, replicas: MakeReplica,
           tell: Callable[[int], None]) -> Replay:
    """See `harness.trainer.replay.replay.replay`. All replicas take every step: a learner that missed one begins
    later with the others' state, so that all replicas are the same at every merge."""
    peers = {name: replicas(index) for index, name in enumerate(config.names)}
    replica, up, down = peers[config.names[0]], config.gradient_codec, config.broadcast_codec
    targets = {back.step for back in history.tape.of(RolledBack, node=COORDINATOR)}
    first = history.tape.of(Initial, node=COORDINATOR)[0]
    step, tokens, result = first.step, first.processed, Replay()
    saved = {step: (begun(initial), tokens)}
    for event in history.tape.of(Merge, RolledBack, node=COORDINATOR):
        if isinstance(event, RolledBack):
            if event.step not in saved:
                result.missing = f"the run went back to step {event.step}, of which the tape does not tell"
                return result
            state, tokens = saved[event.step]
            step = event.step
            for peer in peers.values():
                peer.load(state)
            continue
        if event.version != step + 1:
            result.missing = f"the tape tells of step {event.version} after step {step}"
            return result
        gradients = {part.learner: up.send(peers[part.learner].gradient(step)[1], {}, key="").read
                     for part in event.contributions}
        each = list(map(config.tokens_per_step_of, gradients))
        mean = down.send(averaged(list(gradients.values()), each), {}, key="").read
        if (again := digest(mean)) != event.digest:
            words = f"the mean gradient of {', '.join(gradients)} was {event.digest}, is {again}"
            result.difference = Difference(event.t, f"step {event.version}: {_whose(event, gradients)}{words}")
            return result
        for peer in peers.values():
            peer.apply(mean, learning_rate(config, tokens))
        step, tokens = step + 1, event.processed
        if step in targets:
            saved[step] = replica.state(), tokens
        result.versions += 1
        result.steps += len(event.contributions)
        tell(result.versions)
    return result


def _whose(merge: Merge, gradients: Mapping[str, Tensors]) -> str:
    """Return text on every learner whose gradient is another one; empty where only the mean differs."""
    others = [f"{part.learner}.{part.incarnation}'s gradient was {part.digest}, is {again}; "
              for part in merge.contributions if (again := digest(gradients[part.learner])) != part.digest]
    return "".join(others)
