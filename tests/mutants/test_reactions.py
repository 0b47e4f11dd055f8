"""Bugs by which the trainer does not notice what a fault has done: the harness did its part, and that is no alibi."""

from diloco_chaos.harness.record.storage import checkpoint
from planting import Mutant, finds

COORDINATOR = {"at": "4s", "restart_after": "1s"}
POISON = {"poison": "learner-2", "at": "4s", "count": 2}


def says_nothing_of_a_damaged_copy(patch):
    either = checkpoint.load_either
    patch.setattr(checkpoint, "load_either", lambda disk, name, there: (either(disk, name, there)[0], {}))


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
