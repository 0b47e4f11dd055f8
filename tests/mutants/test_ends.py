"""Bugs that are planted into the end of training, and into whose turn it is."""

from diloco_chaos.harness.trainer.coordinator import syncer
from diloco_chaos.harness.trainer.learner.learner import Learner
from diloco_chaos.harness.trainer.protocol.messages import Finish
from planting import Mutant, finds


def ignored_stop(patch):
    usual = Learner.on_message
    patch.setattr(Learner, "on_message", lambda self, message, tensors, now: () if isinstance(
        message, Finish) and self.name == "learner-2" else usual(self, message, tensors, now))


def never_due(patch):
    usual = syncer.due
    patch.setattr(syncer, "due", lambda *args: [index for index in usual(*args) if index != 3])


def seldom_due(patch):
    usual = syncer.due
    patch.setattr(syncer, "due", lambda before, now, *more: [
        index for index in usual(before, now, *more) if index != 3 or int(now) % 32 < 8])


def last_turns_left_out(patch):
    usual = syncer.due
    patch.setattr(syncer, "due", lambda before, now, *more: [] if now > 125 else usual(before, now, *more))


def nothing_due_while_one_is_gone(patch):
    """Of one fragment; the others are merged as ever."""
    usual = syncer.Syncer._want
    patch.setattr(syncer.Syncer, "_want", lambda self, fragments: usual(self, [
        index for index in fragments if index != 3 or all(peer.live for peer in self.peers.values())]))


def one_is_left_out_while_another_is_gone(patch):
    usual = syncer.Syncer._ask

    def ask(self, round_):
        everybody = dict(self.peers)
        if not all(peer.live for peer in everybody.values()):
            self.peers.pop("learner-3", None)
        yield from usual(self, round_)
        self.peers.update(everybody)
    patch.setattr(syncer.Syncer, "_ask", ask)


GONE = {"kill": "learner-2", "at": "3s", "restart_after": "3s"}
MUTANTS = [Mutant(ignored_stop, "end_correct"), Mutant(never_due, "fragments_in_turn"),
           Mutant(seldom_due, "fragments_in_turn"), Mutant(last_turns_left_out, "fragments_in_turn"),
           Mutant(nothing_due_while_one_is_gone, "fragments_in_turn", [GONE]),
           Mutant(one_is_left_out_while_another_is_gone, "nobody_starves", [GONE])]

test_a_bug_of_the_end_or_of_turns_is_found = finds(MUTANTS)
