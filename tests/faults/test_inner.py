"""One of the processes of a node as a target."""

import signal
from types import SimpleNamespace

import pytest

from diloco_chaos.faults import FAULTS, KillProcess


def fault(kind, **more):
    return FAULTS[kind].model_validate({"targets": ["a-1", "a-2"], "at": "1s", "process": "rank-3"} | more)


@pytest.mark.parametrize(("kind", "more", "words"), [
    ("kill_process", {}, "kill rank-3 of a-1 and a-2"),
    ("terminate_process", {}, "terminate rank-3 of a-1 and a-2"),
    ("terminate_process", {"signal": "USR1"}, "terminate rank-3 of a-1 and a-2 by SIGUSR1"),
    ("pause_process", {"for": "2s"}, "pause rank-3 of a-1 and a-2 for 2.0 s")])
def test_it_says_which_process_of_whom(kind, more, words):
    assert fault(kind, **more).describe() == words


class Cluster:
    """Processes of a-1 only."""

    def __init__(self):
        self.sent = []

    def signal_process(self, node, process, number):
        self.sent.append((node, process, number))
        return [41, 42] if node == "a-1" else []


class Hit:
    def __init__(self, cluster):
        self.cluster = cluster

    def having(self, capability):
        return self.cluster


def verified(one, observed):
    return one.verify(None, SimpleNamespace(observed=observed))


def test_where_a_target_has_no_such_process_it_did_not_take_place():
    cluster, one = Cluster(), fault("kill_process")
    observed = one.inject(Hit(cluster))
    assert cluster.sent == [("a-1", "rank-3", signal.SIGKILL), ("a-2", "rank-3", signal.SIGKILL)]
    effect = verified(one, observed)
    assert (effect.ok, effect.observed) == (False, "a-2 had no process rank-3")


def test_it_may_be_asked_to_end_by_another_signal_which_older_plans_do_not_have():
    cluster, one = Cluster(), fault("terminate_process", signal="USR1")
    one.inject(Hit(cluster))
    assert cluster.sent[0] == ("a-1", "rank-3", signal.SIGUSR1)
    assert "signal" not in fault("terminate_process").model_dump()


def test_the_signal_and_who_took_it_are_told():
    one = KillProcess(targets=("a-1",), at="1s", process="rank-3")
    effect = verified(one, one.inject(Hit(Cluster())))
    assert (effect.ok, effect.observed) == (True, "SIGKILL to pid 41, 42")


def test_a_pause_is_undone_and_one_whose_process_is_gone_too():
    cluster, one = Cluster(), fault("pause_process", **{"for": "2s"})
    one.undo(Hit(cluster))
    assert [number for _, _, number in cluster.sent] == [signal.SIGCONT, signal.SIGCONT]
