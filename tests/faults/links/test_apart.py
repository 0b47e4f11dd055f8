"""Who is kept apart by a cut, and what shows that it was not so."""

from types import SimpleNamespace

import pytest

from diloco_chaos.faults.links.apart import apart, contradiction
from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.record.tape.events import MergedPart
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainers.core.programs import Program
from recorded_events import an_event


def node(name, talks_to=(), meets=(), listens=False):
    return NodeSpec(name, (), program=Program("train", listens, talks_to=talks_to, meets=meets))


def specs(*nodes):
    return {spec.name: spec for spec in nodes}


PEERS = specs(node("a", meets=("b", "c")), node("b", meets=("a", "c")), node("c", meets=("a", "b")))
STAR = specs(node("hub", listens=True), node("a", ("hub",), ("b",)), node("b", ("hub",), ("a",)))


@pytest.mark.parametrize(("nodes", "cut", "groups"), [
    (PEERS, ["a.b", "b.a", "a.c", "c.a"], "a | b, c"), (PEERS, ["a.b", "b.a"], ""), (PEERS, ["a.b", "a.c"], ""),
    (PEERS, ["a.b", "b.a", "a.c", "c.a", "b.c", "c.b"], "a | b | c"),
    (STAR, ["a.hub", "a.b", "b.a"], "a | b, hub"), (STAR, ["a.hub"], ""),
    (specs(node("hub", listens=True), node("a", ("hub",)), node("b", ("hub",))), ["a.hub"], ""),
    (specs(node("hub"), node("a", meets=("hub",), listens=True)), ["a.hub"], "")],
    ids=["a node", "a third one leads around", "one way is left", "all", "a star", "a peer leads around",
         "peers that are not caught", "it can be connected to by one that is not caught"])
def test_nodes_are_kept_apart_where_no_link_is_left_and_no_connection_passes_by(nodes, cut, groups):
    assert apart(nodes, cut) == groups


def a_round(number, t, *members, told=None):
    parts = [MergedPart(learner=name, incarnation=0, base=0, first=number, last=number, steps=1, tokens=0, weight=1.0,
                        arrived=t, digest="", members=told) for name in members]
    return SimpleNamespace(round=number, t=t, contributions=parts, asked=["a", "b", "c"])


CUT = {"apart": "a | b, c", "bytes_before": 10.0, "bytes_after": 10.0, "bytes_end": 20.0}


def why(merges, **observed):
    return contradiction(a_run(merges), SimpleNamespace(id="f1", observed=CUT | observed, began=4.5, ended=8.0))


def a_run(merges):
    """A run in which the links were cut at five seconds, half a second after that was begun."""
    cut = [an_event(5.0, "harness", 0, "injected", {"fault": "f1"})]
    return SimpleNamespace(merges=merges, end=30.0, tape=Tape(cut))


def rounds(start, end, *members, told=None):
    return [a_round(number, number / 2, *members, told=told) for number in range(int(2 * start), int(2 * end))]


BEFORE = rounds(1, 5, "a", "b", "c")


@pytest.mark.parametrize("meanwhile", [
    [], rounds(6, 8, "b", "c"), rounds(6, 8, "a"), rounds(6, 8, "b", "c", told=2), rounds(6, 8, "a", told=1),
    [a_round(11, 5.05, "a", "b"), a_round(12, 5.5, "a", "b")],  # the second was begun before
    [a_round(number, 5.7, "a", "b") for number in range(11, 20)],  # written before the cut, and read after it
    [a_round(11, 5.5, "b"), a_round(12, 6.0, "a", "b"), a_round(13, 8.5, "a", "b")]], ids=str)
def test_a_cut_is_not_contradicted_by_rounds_of_one_side_or_of_other_times(meanwhile):
    assert why(BEFORE + meanwhile + rounds(9, 12, "a", "b", "c")) == ""


@pytest.mark.parametrize("meanwhile", [rounds(6, 8, "a", "b"), rounds(6, 8, "b", told=3), rounds(6, 8, "a", told=2)],
                         ids=["both tell", "one tells of all three", "the one that is cut off tells of two"])
def test_rounds_of_both_sides_contradict_a_cut(meanwhile):
    assert why(BEFORE + meanwhile).startswith("rounds 14 to 15 were made meanwhile by members of both sides (a | b, c)")


def test_a_link_that_is_not_used_again_though_both_sides_go_on_together_was_not_their_only_one():
    after = rounds(9, 12, "a", "b", "c")
    assert why(BEFORE + after, bytes_end=10.0).startswith("nothing passed there ever after, though rounds 19 to 23")
    assert why(BEFORE + after, bytes_end=11.0) == ""
    assert why(BEFORE + rounds(9, 12, "b", "c"), bytes_end=10.0) == "", "it stays outside: that is the trainer's doing"


def test_a_connection_that_passes_no_link_contradicts_a_cut_between_its_ends():
    assert why([], beside="a, b, p2pd, which is linked statically") == (
        "a and b had a connection that passes no link (of p2pd, which is linked statically)")
    assert why([], beside="b, c, p2pd") == ""


def test_where_it_is_not_known_who_is_kept_apart_nothing_is_contradicted():
    observed = {"bytes_after": 10.0, "bytes_end": 10.0}
    run = a_run(BEFORE + rounds(6, 12, "a", "b"))
    assert contradiction(run, SimpleNamespace(id="f1", observed=observed, began=4.5, ended=8.0)) == ""
