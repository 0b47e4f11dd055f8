"""Bugs by which the trainer does not notice what a fault has done: the harness did its part, and that is no alibi."""

from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.trainer.coordinator import fragment_state
from planting import Mutant, failed, finds

COORDINATOR = {"at": "4s", "restart_after": "1s"}
POISON = {"poison": "learner-2", "at": "4s", "count": 2}


def says_nothing_of_a_damaged_copy(patch):
    either = checkpoint.load_either
    patch.setattr(checkpoint, "load_either", lambda disk, name, there: (either(disk, name, there)[0], {}))


def merges_what_is_not_finite(patch):
    patch.setattr(fragment_state, "all_finite", lambda tensors: True)
    patch.setattr(fragment_state, "too_large", lambda tensors, value: False)


def takes_poison_without_a_word(patch):
    """It is neither merged nor refused aloud."""
    from diloco_chaos.harness.trainer.coordinator.syncer import Syncer

    def silent(self, peer, answer, reason, now):
        yield from self.fragments.tell(peer, answer.fragment)
    patch.setattr(Syncer, "_refuse", silent)


MUTANTS = [
    Mutant(says_nothing_of_a_damaged_copy, "faults_verified", [{"corrupt": "syncer", **COORDINATOR}]),
    Mutant(says_nothing_of_a_damaged_copy, "faults_verified", [{"delete": "syncer", **COORDINATOR}],
           name="says_nothing_of_a_missing_copy"),
    Mutant(takes_poison_without_a_word, "faults_verified", [POISON])]

test_a_missing_reaction_is_found = finds(MUTANTS)


def test_a_poison_that_is_merged_fails_the_run(monkeypatch):
    merges_what_is_not_finite(monkeypatch)
    assert "weights_correct" in failed([POISON], {})
