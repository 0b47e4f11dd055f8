"""Lies that a trainer tells everywhere alike: its events agree with each other, and not with what another node saw."""

from msgspec import structs

from diloco_chaos.harness.record.tape.events import Merge, Refused
from diloco_chaos.harness.trainer.coordinator import syncer
from diloco_chaos.harness.trainer.coordinator.fragment_store import FragmentStore
from diloco_chaos.harness.trainer.coordinator.rounds import Round
from planting import Mutant, finds, says

SLOW = {"straggler": "learner-2", "at": "4s", "for": "4s", "factor": 0.25}
LONG = {"budget": "250 steps"}
FEEDBACK = {"gradients": "int4", "broadcasts": "int8", "error_feedback": True}
FRAGMENTS = 8


def a_version_too_high(event):
    if isinstance(event, Merge):
        return structs.replace(event, version=event.version + 1, contributions=[
            structs.replace(part, base=part.base + 1) for part in event.contributions])
    if isinstance(event, Refused):
        return event if event.version is None else structs.replace(event, version=event.version + 1)
    return structs.replace(event, versions=[version + 1 for version in event.versions])


def a_version_too_high_but_for_bases(event):
    if isinstance(event, Merge):
        return structs.replace(event, version=event.version + 1)
    return a_version_too_high(event)


def the_next_fragment(event):
    if isinstance(event, Merge | Refused):
        return event if event.fragment is None else structs.replace(event, fragment=(event.fragment + 1) % FRAGMENTS)
    fields = "versions", "digests", "states", "contributions", "outer"
    turned = {name: [getattr(event, name)[-1], *getattr(event, name)[:-1]]
              for name in fields if getattr(event, name, None)}
    return structs.replace(event, **turned)


def never_says_what_is_merged(patch):
    """No learner hears that its answer was merged, and error feedback forgets what rounding has cost."""
    usual = FragmentStore.tell
    patch.setattr(FragmentStore, "tell", lambda self, *args: (
        effect._replace(message=structs.replace(effect.message, merged=0)) for effect in usual(self, *args)))


def says_that_all_is_merged(patch):
    usual = FragmentStore.tell

    def tell(self, peer, index, closed=0.0):
        for effect in usual(self, peer, index, closed):
            yield effect._replace(message=structs.replace(effect.message, merged=peer.step))
    patch.setattr(FragmentStore, "tell", tell)


def a_clock_of_half_the_steps(patch):
    usual = syncer.progressed
    patch.setattr(syncer, "progressed", lambda learner, steps, *rest: usual(
        learner, steps if learner.step % 2 == 0 else 0, *rest))


def closes_with_the_quorum_and_says_that_all_others_declined(patch):
    patch.setattr(Round, "may_merge", lambda self, now: (self.quorum_at is not None, "all answered"))
    says(without_others)(patch)


def without_others(event):
    if not isinstance(event, Merge):
        return event
    return structs.replace(event, declined=sorted(set(event.asked) - {part.learner for part in event.contributions}))


def counts_half_of_what_is_merged(patch):
    usual = FragmentStore.merged.fget
    patch.setattr(FragmentStore, "merged", property(lambda self: self._warm + (usual(self) - self._warm) / 2))


def a_sync_time_of_the_whole_overlap(patch):
    patch.setattr(syncer, "typical_sync_time", lambda peers: 10.0)


def opens_with_the_quorum(patch):
    usual = Round.reached

    def reached(self, now, *rest):
        self.opened = now
        usual(self, now, *rest)
    patch.setattr(Round, "reached", reached)


MUTANTS = [
    *(Mutant(says(change), "replica_consistency", [], LONG, change.__name__)
      for change in (a_version_too_high, a_version_too_high_but_for_bases, the_next_fragment)),
    Mutant(never_says_what_is_merged, "weights_correct", [], {**LONG, **FEEDBACK}),
    Mutant(says_that_all_is_merged, "weights_correct", [SLOW], {**LONG, **FEEDBACK}),
    Mutant(a_clock_of_half_the_steps, "processed_correct", [], LONG),
    Mutant(closes_with_the_quorum_and_says_that_all_others_declined, "quorum_respected", [], LONG),
    Mutant(counts_half_of_what_is_merged, "processed_correct", [], LONG),
    Mutant(a_sync_time_of_the_whole_overlap, "quorum_respected", [], LONG),
    Mutant(opens_with_the_quorum, "quorum_respected", [], {**LONG, "quorum": 2}),
]

test_a_lie_that_is_told_everywhere_alike_is_found = finds(MUTANTS)
