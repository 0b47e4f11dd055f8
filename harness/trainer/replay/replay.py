"""Do a recorded run again from its tape, and compare every version of every fragment, bit for bit.

The trainer's own cores do it: a learner's is fed what its tape says that it was given, in that order, and makes the
steps that it made; a fragment's next version is merged from what the learners then answer. Nothing of the content is on
the tape, only digests: what is not the same is found where it first was not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from diloco_chaos.harness.base.tensors import Tensors, digest, shapes
from diloco_chaos.harness.record.tape.events import (
    Corrupted,
    Disconnected,
    Event,
    Merge,
    OuterGradient,
    Ready,
    Received,
    Reset,
    Skipped,
    Step,
)
from diloco_chaos.harness.record.tape.recovered import Made, Part
from diloco_chaos.harness.trainer.algorithm.outer_optimizer import OuterStep
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.config.schedule import outer_step
from diloco_chaos.harness.trainer.coordinator.fragment_state import FragmentState
from diloco_chaos.harness.trainer.coordinator.rounds import FragmentContribution
from diloco_chaos.harness.trainer.learner.learner import Learner
from diloco_chaos.harness.trainer.protocol import messages
from diloco_chaos.harness.trainer.protocol.messages import Broadcast, Request, Welcome
from diloco_chaos.harness.trainer.replay import averaged
from diloco_chaos.harness.trainer.runtime.replica_factory import MakeReplica
from diloco_chaos.harness.trainers.api.trainer import Difference, Recorded, Replay
from diloco_chaos.harness.trainers.core.effects import Effect, Send
from diloco_chaos.harness.trainers.core.memory import Corruption

Node = tuple[str, int]
"""A learner's name and incarnation."""
Given = tuple[int, int, int]
"""Fragment, first and last step: what an incarnation's answer is known by."""
_SAME: dict[type[Event], tuple[str, ...]] = {
    Received: ("version", "digest", "closed", "carried"), Step: ("step", "position", "loss"),
    OuterGradient: ("base", "first", "step", "steps", "digest"), Skipped: ("step", "position", "reason")}
"""Of a learner's event, what must be the same again."""


@dataclass
class _Life:
    """One incarnation of a learner, and what is left of its tape."""

    core: Learner
    events: deque[Event]
    given: dict[Given, tuple[messages.OuterGradient, Tensors]] = field(default_factory=dict)
    """Its answers, as long as they are not merged."""


def replay(config: TrainerConfig, history: Recorded, initial: Tensors, replicas: MakeReplica,
           tell: Callable[[int], None] = lambda _: None) -> Replay:
    """Do it again.

    Args:
        config: the run's settings.
        history: what was recorded of it.
        initial: the run's start, of which AdamW's moments may be part.
        replicas: makes the learners' replicas.
        tell: called with the number of versions so far.
    """
    if config.averages_gradients:
        return averaged.replay(config, history, initial, replicas, tell)
    if any(None in series.plain("lr") for series in history.tape.series(Step).values()):
        return Replay(missing="the tape does not tell the steps' learning rates: an earlier version wrote it")
    return _Again(config, history, initial, replicas, tell).done()


class _Again:
    """See `replay`. Goes on wherever what is needed is there, until nothing can go on."""

    def __init__(self, config: TrainerConfig, history: Recorded, initial: Tensors, replicas: MakeReplica,
                 tell: Callable[[int], None]) -> None:
        self._tell = tell
        # With a pace a core asks for a timer before each step: it stands at a boundary when it is given something.
        self._config = config.model_copy(update={"step_time": config.step_time or 1.0})
        self._gradients = config.gradient_codec
        self._values: dict[tuple[int, int], Tensors] = {}
        self._states = [FragmentState.initial({name: initial[name] for name in fragment.names})
                        for fragment in config.fragment_table()]
        self._keep(range(len(self._states)))
        self._merges = _by_fragment(history, len(self._states))
        self._lives = {node: _Life(self._learner(*node, events, replicas), deque(events))
                       for node, events in _lives(history, config).items()}
        self._result = Replay()
        self._differences: list[Difference] = []

    def done(self) -> Replay:
        """Replay to the end of the tape, or to the first difference from it, and return what came of it."""
        while not self._differences and self._turn():
            self._tell(self._result.versions)
        self._result.difference = min(self._differences, key=lambda difference: difference.t, default=None)
        left = [merges[0] for merges in self._merges if merges]
        if left and not self._differences:
            merge = min(left, key=lambda event: event.t)
            self._result.missing = (
                f"version {merge.version} of fragment {merge.fragment} was merged from what is not on the tape: "
                + ", ".join(_named(part) for part in merge.contributions if self._given(merge, part) is None))
        return self._result

    def _turn(self) -> bool:
        """Do again whatever can go on, and return whether anything could."""
        went = False
        for life in self._lives.values():
            while not self._differences and life.events and self._can(life.events[0]):
                self._live(life, life.events.popleft())
                went = True
        for fragment, merges in enumerate(self._merges):
            while not self._differences and merges and self._merge(fragment, merges[0]):
                merges.popleft()
                went = True
        return went

    def _can(self, event: Event) -> bool:
        return not isinstance(event, Received) or (event.fragment, event.version) in self._values

    def _learner(self, name: str, incarnation: int, events: list[Event], replicas: MakeReplica) -> Learner:
        """A new process, which was told where to begin."""
        core = Learner(self._config, name, incarnation, "", replicas(self._config.names.index(name)))
        for event in events:
            if isinstance(event, Ready):
                list(core.on_message(Welcome(step=event.step or 0, tokens=0, position=event.position or 0,
                                             steady=False), {}, 0.0))
                break
        return core

    # -- learners ----------------------------------------------------------------------------------------------------

    def _live(self, life: _Life, event: Event) -> None:
        core = life.core
        match event:
            case Received():
                value = self._values[event.fragment, event.version]
                merged = 0 if event.arrived is False else core.held[event.fragment].answered_at
                message = Broadcast(fragment=event.fragment, version=event.version, digest=digest(value),
                                    merged=merged)
                self._compare(life, event, core.on_message(message, value, 0.0))
            case Step():
                list(core.on_timer("pace", 0.0))
                loss = core.replica.train(event.position or 0, event.lr or 0.0)
                self._compare(life, event, core.on_computed(loss, 0.0, 0.0))
                self._result.steps += 1
            case OuterGradient():
                self._compare(life, event, core.on_message(
                    Request(round=event.round, fragment=event.fragment), {}, 0.0))
            case Skipped():
                list(core.on_timer("pace", 0.0))
                self._compare(life, event, core.on_computed(
                    core.replica.train(event.position, event.lr or 0.0), 0.0, 0.0))
            case Reset() if any(held.version >= 0 for held in core.held):  # else it did so by itself, as it did then
                list(core.on_message(messages.Reset(reason=event.reason), {}, 0.0))
            case Corrupted():
                list(core.corrupt(Corruption.of(event)))
            case Disconnected():
                list(core.on_lost("", 0.0))

    def _compare(self, life: _Life, event: Received | Step | OuterGradient | Skipped,
                 effects: Iterable[Effect]) -> None:
        """Carry out nothing; keep what it answers, and hold what it records against the tape."""
        again: Event | None = None
        for effect in effects:
            if type(effect) is type(event) and again is None:
                again = effect
            elif isinstance(effect, Send) and isinstance(effect.message, messages.OuterGradient):
                answer = effect.message
                gradient = self._gradients.unpack(effect.tensors, shapes(self._states[answer.fragment].value))
                life.given[answer.fragment, answer.first_step, answer.last_step] = answer, gradient
        wrong = [f"{name} was {getattr(event, name)}, is {getattr(again, name, 'nothing')}"
                 for name in _SAME[type(event)] if getattr(again, name, None) != getattr(event, name)]
        if wrong:
            what = f", fragment {event.fragment}" if isinstance(event, Received | OuterGradient) else ""
            self._differences.append(Difference(event.t, (
                f"{event.node}.{event.inc}: {event.event} at step {event.step}{what}: {'; '.join(wrong)}")))

    # -- merges ------------------------------------------------------------------------------------------------------

    def _merge(self, fragment: int, merge: Made) -> bool:
        """Do a merge again if all that goes into it is there; return whether it is."""
        answers: list[FragmentContribution] = []
        parts: list[Part] = list(merge.contributions)
        for part in parts:
            if (given := self._given(merge, part)) is None:
                return False
            answer, tensors = given
            answers.append(FragmentContribution(
                part.learner, part.incarnation, answer.base_version, answer.first_step, answer.last_step, answer.steps,
                answer.tokens, answer.digest, 0.0, tensors))
        for part, merged in zip(parts, answers, strict=True):
            del self._lives[merged.learner, merged.incarnation].given[fragment, merged.first_step, merged.last_step]
            if part.digest not in (None, merged.digest):
                self._differs(merge, f"{_named(part)}: its contribution was {part.digest}, is {merged.digest}")
        self._states[fragment] = self._states[fragment].after(answers, self._config, self._outer(merge))
        self._keep([fragment])
        self._result.versions += 1
        state = self._states[fragment]
        again = state.digest
        if (merge.version, merge.digest) != (state.version, again):
            self._differs(merge, f"merged of {', '.join(map(_named, merge.contributions))}: was version "
                                 f"{merge.version} {merge.digest}, is version {state.version} {again}")
        return True

    def _outer(self, merge: Made) -> OuterStep:
        """The outer step that the tape tells, which must be the one of its place in training. A syncer that was killed
        before it wrote of the merge has told the step and not the place; an earlier version told neither."""
        step = OuterStep(*merge.outer) if merge.outer else OuterStep(self._config.outer_lr,
                                                                     self._config.outer_momentum)
        if merge.outer and isinstance(merge, Merge) and (again := outer_step(self._config, merge.processed)) != step:
            self._differs(merge, f"its outer step was {step}, is {again}")
        return step

    def _given(self, merge: Made, part: Part) -> tuple[messages.OuterGradient, Tensors] | None:
        life = self._lives.get((part.learner, part.incarnation))
        return life.given.get((merge.fragment, part.first, part.last)) if life else None

    def _differs(self, merge: Made, words: str) -> None:
        self._differences.append(Difference(
            merge.t, f"fragment {merge.fragment}, version {merge.version}: {words}"))

    def _keep(self, fragments: Iterable[int]) -> None:
        for fragment in fragments:
            state = self._states[fragment]
            self._values[fragment, state.version] = state.value


def _lives(history: Recorded, config: TrainerConfig) -> dict[Node, list[Event]]:
    """Return the events that a replay needs, in order, for every incarnation of a learner."""
    lives: dict[Node, list[Event]] = {}
    for event in history.tape.of(Received, Step, OuterGradient, Disconnected, Ready, Skipped, Reset, Corrupted):
        if event.node in config.names:
            lives.setdefault((event.node, event.inc), []).append(event)
    return lives


def _by_fragment(history: Recorded, count: int) -> list[deque[Made]]:
    """Return each fragment's merges in the order of versions, with those that only the next syncer recorded."""
    by_version: list[dict[int, Made]] = [{} for _ in range(count)]
    made: list[Made] = [*history.tape.of(Merge), *history.recovered_merges]
    for merge in made:
        by_version[merge.fragment].setdefault(merge.version, merge)
    return [deque(merges[version] for version in sorted(merges)) for merges in by_version]


def _named(part: Part) -> str:
    return f"{part.learner}.{part.incarnation} steps {part.first} to {part.last}"

