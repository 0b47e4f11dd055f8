"""What the syncer keeps: committed fragments, the run's counters, and when the model is written down. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from diloco_chaos.harness.record.storage.disk import Content
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.trainer.algorithm.outer_optimizer import OuterStep
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.config.schedule import snapshot_marks
from diloco_chaos.harness.trainer.coordinator.fragment_state import FragmentState, Restored, fragment_file
from diloco_chaos.harness.trainer.coordinator.rounds import FragmentContribution, LearnerSession
from diloco_chaos.harness.trainer.coordinator.syncer_part import syncers
from diloco_chaos.harness.trainer.protocol.messages import Broadcast
from diloco_chaos.harness.trainers.core.effects import Commit, Effect, Save, Send, Snapshot


class FragmentStore:
    """See the module."""

    def __init__(self, config: TrainerConfig, restored: Restored) -> None:
        """`restored` is the state from the disk, or the initial state."""
        self.table = config.fragment_table()
        self.states = restored.states
        self.counters = restored.counters
        self._config, self._restored, self._warm = config, restored, config.warm_tokens
        self._marks = snapshot_marks(config)
        if restored.resumed:
            self._marks = [mark for mark in self._marks if mark[1] > self.processed]

    @property
    def processed(self) -> int:
        """Tokens processed so far by all learners, warm start included."""
        return self._warm + self.counters.processed

    @property
    def merged(self) -> float:
        """Tokens merged so far: mean over fragments weighted by size, warm start included."""
        total = sum(fragment.size for fragment in self.table)
        weighted = sum(state.merged_tokens * fragment.size
                       for state, fragment in zip(self.states, self.table, strict=True))
        return self._warm + weighted / total

    @property
    def versions(self) -> list[int]:
        """Return the version of every fragment."""
        return [state.version for state in self.states]

    def start(self) -> Iterable[Effect]:
        """Make good what was damaged, and say from where a new process goes on."""
        for name, why in self._restored.repaired.items():
            yield events.Repaired(file=name, reason=why)
        for fragment in self._restored.to_commit:  # from here on a file that is missing was lost
            yield self.commit(fragment)
        begins = events.Resumed if self._restored.resumed else events.Initial
        yield begins(versions=self.versions, digests=[state.digest for state in self.states],
                     states=[state.kept for state in self.states],
                     contributions=[list(state.contributions) for state in self.states],
                     outer=[state.step for state in self.states], step=self.counters.step, processed=self.processed)

    def merge(self, fragment: int, answers: list[FragmentContribution], outer: OuterStep) -> FragmentState:
        """The next version of a fragment. It exists once it is committed."""
        state = self.states[fragment] = self.states[fragment].after(answers, self._config, outer)
        return state

    def commit(self, fragment: int) -> Commit:
        """A fragment, with the counters as they are now."""
        state = self.states[fragment]
        return Commit(fragment_file(fragment), state.tensors(), self._meta(state))

    def part(self, number: int, keep: int) -> Save:
        """Return an effect that saves all fragments as the syncer's part of a global checkpoint; those before `keep`
        may go."""
        files = [Content(state.tensors() | state.older(), self._meta(state)) for state in self.states]
        return Save(number, *syncers(files), keep=keep)

    def tell(self, peer: LearnerSession, index: int, closed: float = 0.0) -> Iterable[Effect]:
        """A fragment's value; to who holds the version before it what has changed, where that takes fewer bytes.
        `closed`: when the round of which it is the result was closed."""
        if peer.connection is None:
            return
        state = self.states[index]
        changed = bool(state.update) and peer.holds[index] == state.version - 1
        incarnation, merged = state.merged.get(peer.name, (-1, 0))
        peer.holds[index] = state.version
        yield Send(Broadcast(fragment=index, version=state.version, digest=state.digest,
                             base=state.version - 1 if changed else -1,
                             merged=merged if incarnation == peer.incarnation else 0, closed=closed),
                   state.update if changed else state.value, to=peer.connection)

    def snapshots(self) -> Iterable[Effect]:
        """The model for the loss curve, where it is time for it."""
        while self._marks and self.processed >= self._marks[0][1]:
            yield self._snapshot(self._marks.pop(0)[0])

    def _snapshot(self, number: int) -> Snapshot:
        value = {name: array for state in self.states for name, array in state.value.items()}
        return Snapshot(value, {"number": number, "processed": self.processed, "merged": round(self.merged),
                                "step": self.counters.step})

    def _meta(self, state: FragmentState) -> dict[str, Any]:
        return state.meta() | {"counters": self.counters.meta()}
